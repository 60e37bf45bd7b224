"""Joins of streams on Spark: both sides meet in their partitions, and what waits outlives epochs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.spark.lab import Lab

from millstream import JoinWindows, StreamsBuilder, Topology, serdes
from millstream.log import TopicConfig, TopicPartition, record_batch
from millstream.log.partitioner import partition_for_key
from millstream.types import Partition

pytestmark = pytest.mark.xdist_group("spark")

Rows = list[tuple[bytes | None, bytes, int]]
"""Key, value and timestamp."""


def paid_orders() -> Topology:
    """Orders come without their key; payments have it."""
    builder = StreamsBuilder()
    orders: Any = builder.stream("orders", key=serdes.string, value=serdes.string)
    payments: Any = builder.stream("payments", key=serdes.string, value=serdes.string)
    paid = orders.select_key(lambda _, order: order).left_join(
        payments, lambda order, payment: f"{order}: {payment}", JoinWindows(20, grace=10_000), name="paid"
    )
    paid.to("out", key=serdes.string, value=serdes.string)
    return builder.build()


def put(lab: Lab, topic: str, parts: list[Rows]) -> None:
    lab.log.create_topic(topic, TopicConfig(partitions=len(parts)))
    for number, rows in enumerate(parts):
        keys, values, times = ([row[column] for row in rows] for column in range(3))
        lab.log.append(TopicPartition(topic, Partition(number)), record_batch(keys, values, times))


def by_key(rows: Rows) -> list[Rows]:
    return [[row for row in rows if partition_for_key(row[0] or b"", 2) == part] for part in range(2)]


def test_orders_meet_their_payments_and_those_without_leave_alone_once(lab: Lab) -> None:
    orders: Rows = [(None, b"%d" % number, 10 * number) for number in range(200)]
    payments: Rows = [(b"%d" % number, b"cash", 10 * number + 7) for number in range(200) if number % 3]
    later: Rows = [(b"later-%d" % number, b"cash", 50_000) for number in range(10)]
    put(lab, "orders", [orders[::2], orders[1::2]])
    put(lab, "payments", by_key([*payments, *later]))
    lab.run(paid_orders(), max_records_per_epoch=120)
    expected = {
        f"{number}: {'cash' if number % 3 else None}": 10 * number + (7 if number % 3 else 0)
        for number in range(200)
    }
    found = [((row.value or b"").decode(), row.timestamp) for row in lab.rows("out")]
    assert sorted(found) == sorted(expected.items())
