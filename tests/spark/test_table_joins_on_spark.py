"""Joins with tables on Spark: what one record at a time gives, in each partition, over restarts, too."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.processors.table_join_oracle import Epoch, joined, played
from tests.spark.lab import Lab, Pair

from millstream import KTable, Store, StreamsBuilder, Topology, serdes
from millstream.errors import TopologyError

pytestmark = pytest.mark.xdist_group("spark")

WORDS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
PARTITIONS = 2


def table(builder: StreamsBuilder, topic: str) -> KTable[str, str]:
    return builder.table(topic, store=Store(topic, caching=False, **WORDS), **WORDS)


def tables_by_key(builder: StreamsBuilder) -> None:
    """Inner, left and outer, one after the other: the result of one is an input of the next."""
    left, right = table(builder, "l"), table(builder, "r")
    inner = left.join(right, joined, store=Store("inner", caching=False, **WORDS))
    outer = inner.outer_join(right.filter(lambda key, value: value != "3"), joined)
    left.left_join(outer, joined).to_stream().to("out", **WORDS)


def a_stream_with_a_table(builder: StreamsBuilder) -> None:
    """The table is cached; what it has is seen at once all the same."""
    rows = builder.table("r", store=Store("r", **WORDS), **WORDS)
    builder.stream("l", **WORDS).left_join(rows.map_values(str.upper), joined).to("out", **WORDS)


def a_stream_with_versions(builder: StreamsBuilder) -> None:
    rows = builder.table("r", store=Store("r", versioned=1000, **WORDS), **WORDS)
    builder.stream("l", **WORDS).join(rows, joined, grace=7).to("out", **WORDS)


PROGRAMS = [tables_by_key, a_stream_with_a_table, a_stream_with_versions]


def topology(build: Callable[[StreamsBuilder], None]) -> Topology:
    builder = StreamsBuilder()
    build(builder)
    return builder.build()


def records(seed: int, partition: int, count: int) -> list[Pair]:
    """Keys of one partition, with deletions."""
    rng = random.Random(seed * 10 + partition)
    return [(f"{partition}-{rng.randrange(5)}", rng.choice(["1", "2", "3", "a", None])) for _ in range(count)]


@pytest.mark.parametrize("build", PROGRAMS)
def test_every_record_is_joined_as_one_by_one(lab: Lab, build: Callable[[StreamsBuilder], None]) -> None:
    parts = {
        topic: [records(seed, partition, 80) for partition in range(PARTITIONS)]
        for seed, topic in enumerate(("l", "r"))
    }
    lab.topic("out", [[]])  # one partition: there all rows of a task stand in its order
    for topic, halves in parts.items():
        lab.topic(topic, [pairs[:40] for pairs in halves])
    lab.run(topology(build), max_records_per_epoch=60)
    for topic, halves in parts.items():
        for partition, pairs in enumerate(halves):
            lab.append(topic, pairs[40:], partition=partition)
    lab.run(topology(build), max_records_per_epoch=60)
    for partition in range(PARTITIONS):
        epochs: list[Epoch] = [
            [
                (topic, *pairs[time], time)
                for topic, all_parts in parts.items()
                for pairs in (all_parts[partition],)
                for time in times
            ]
            for times in (range(40), range(40, 80))
        ]
        found = [
            (row.text, None if row.value is None else row.value.decode(), row.timestamp)
            for row in lab.rows("out")
            if row.text.startswith(f"{partition}-")
        ]
        assert found == played(topology(build), epochs, ["l", "r"], max_rows=1)


def test_a_repartitioned_stream_finds_the_rows_of_its_new_keys(lab: Lab) -> None:
    builder = StreamsBuilder()
    rows = builder.table("r", **WORDS).to_stream().group_by_key().count(store="updates")
    orders = builder.stream("l", **WORDS).select_key(lambda _, value: value)
    orders.left_join(rows, joined, **WORDS).to("out", **WORDS)
    lab.topic("l", [[("x", "a"), ("x", "b")], [("y", "a")]])
    lab.topic("r", [[], []])
    lab.run(builder.build())
    assert sorted((row.text, row.value) for row in lab.rows("out")) == [
        ("a", b"a+None"),
        ("a", b"a+None"),
        ("b", b"b+None"),
    ]


def test_topics_of_different_numbers_of_partitions_are_refused_at_the_start(lab: Lab) -> None:
    lab.topic("l", [[], []])
    lab.topic("r", [[], [], []])
    with pytest.raises(TopologyError, match=r"differ in their number of partitions: l has 2, r has 3"):
        lab.run(topology(tables_by_key))
