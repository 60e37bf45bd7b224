"""Producers: records one by one, tables and files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import polars as pl
import pyarrow as pa
import pytest

from millstream import Consumer, Producer, Window, Windowed, serdes
from millstream.errors import ConfigError, InvalidTimestampError, SerializationError
from millstream.log.errors import UnknownTopicError


@dataclass(frozen=True)
class Order:
    shop: str
    amount: int


ORDERS = pl.DataFrame({"shop": ["north", "south", "north"], "amount": [3, 4, 5]})


def read(log: Path, topic: str, **options: Any) -> list[tuple[Any, Any, int]]:
    return [(one.key, one.value, one.timestamp) for one in Consumer(log, topic, **options)]


def test_records_are_there_when_the_block_is_left(tmp_path: Path) -> None:
    with Producer(tmp_path, "orders", key=serdes.string, value=serdes.json(Order), partitions=3) as orders:
        orders.send("a", Order("north", 3), timestamp=5)
        orders.send("a", None, timestamp=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), partition=2)
        assert len(orders) == 2
    found = list(Consumer(tmp_path, "orders", key=serdes.string, value=serdes.json(Order)))
    assert {(one.key, one.value, one.timestamp) for one in found} == {
        ("a", Order("north", 3), 5),
        ("a", None, 1000),
    }
    assert [one.partition for one in found if one.value is None] == [2]


def test_a_block_that_is_left_by_an_exception_writes_nothing_that_was_gathered(tmp_path: Path) -> None:
    def produce() -> None:
        with Producer(tmp_path, "orders", partitions=1) as orders:
            orders.send(b"a", b"1")
            orders.flush()
            orders.send(b"b", b"2")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        produce()
    assert [one.key for one in Consumer(tmp_path, "orders")] == [b"a"]


def test_bounds_flush_by_themselves(tmp_path: Path) -> None:
    producer = Producer(tmp_path, "orders", value=serdes.string, partitions=1, max_records=2)
    for number in range(3):
        producer.send(None, str(number))
    assert (len(producer), len(list(Consumer(tmp_path, "orders")))) == (1, 2)


def test_a_missing_topic_is_made_only_if_asked_for(tmp_path: Path) -> None:
    Producer(tmp_path, "orders", partitions=3)
    Producer(tmp_path, "orders", partitions=5)  # it is there
    with pytest.raises(UnknownTopicError):
        Producer(tmp_path, "order")
    assert sorted(Consumer(tmp_path, "orders").positions) == [0, 1, 2]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (7, 1, "Cannot serialize the key of topic 'visits' with serdes.string: expected str, got int"),
        ("a", "1", "Cannot serialize the value of topic 'visits' with serdes.int64: expected int, got str"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_topic(
    tmp_path: Path, key: Any, value: Any, message: str
) -> None:
    producer = Producer(tmp_path, "visits", key=serdes.string, value=serdes.int64, partitions=1)
    with pytest.raises(SerializationError) as refusal:
        producer.send(key, value)
    assert str(refusal.value).startswith(message)
    assert len(producer) == 0


def test_a_time_that_is_none_is_refused(tmp_path: Path) -> None:
    producer = Producer(tmp_path, "visits", partitions=1)
    for time in ("now", 1.5):
        with pytest.raises(ConfigError, match="Remedy: give whole milliseconds since 1970, or a datetime"):
            producer.send(b"k", b"v", timestamp=time)  # type: ignore[arg-type]
    assert len(producer) == 0


def test_what_names_no_log_is_refused() -> None:
    for maker in (Producer, Consumer):
        with pytest.raises(ConfigError, match="the log is None, which names none"):
            maker(None, "visits")  # type: ignore[arg-type]


def test_a_type_in_place_of_a_serde_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"for str: serdes\.string"):
        Producer(tmp_path, "visits", key=str, partitions=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "table",
    [
        ORDERS,
        ORDERS.lazy(),
        ORDERS.to_arrow(),
        ORDERS.to_arrow().combine_chunks().to_batches()[0],
        ORDERS.to_arrow().to_reader(),
        [ORDERS.head(1), ORDERS.tail(2)],
    ],
    ids=["polars", "lazy", "arrow", "batch", "reader", "several"],
)
@pytest.mark.parametrize(
    "value", [serdes.json, serdes.json({"shop": str, "amount": int}), serdes.json(Order)]
)
def test_tables_of_all_kinds_become_records(tmp_path: Path, table: Any, value: Any) -> None:
    if isinstance(table, pa.RecordBatchReader):
        table = ORDERS.to_arrow().to_reader()  # it can be read once
    producer = Producer(tmp_path, "orders", key=serdes.string, value=value, partitions=1)
    assert producer.send_table(table, key="shop") == 3
    rows = [
        (one.key, one.value) for one in Consumer(tmp_path, "orders", key=serdes.string, value=serdes.json)
    ]
    assert rows == [(row["shop"], row) for row in ORDERS.to_dicts()]


def test_records_and_tables_keep_their_order(tmp_path: Path) -> None:
    producer = Producer(tmp_path, "numbers", value=serdes.int64, partitions=1)
    producer.send(None, 1)
    producer.send_table(pl.DataFrame({"value": [2, 3]}))
    producer.send(None, 4)
    producer.flush()
    assert [one.value for one in Consumer(tmp_path, "numbers", value=serdes.int64)] == [1, 2, 3, 4]


def test_keys_of_a_table_go_where_keys_of_records_go(tmp_path: Path) -> None:
    names = [f"user {number}" for number in range(100)]
    table = Producer(tmp_path, "a", key=serdes.string, value=serdes.string, partitions=4)
    table.send_table(pl.DataFrame({"key": names, "value": names}))
    with Producer(tmp_path, "b", key=serdes.string, value=serdes.string, partitions=4) as single:
        for name in names:
            single.send(name, name)
    by_topic = [
        {one.key: one.partition for one in Consumer(tmp_path, topic, key=serdes.string)} for topic in "ab"
    ]
    assert by_topic[0] == by_topic[1]


def test_a_table_that_was_read_can_be_written(tmp_path: Path) -> None:
    keys = serdes.time_windowed(serdes.string, 60_000)
    with Producer(tmp_path, "counts", key=keys, value=serdes.int64, partitions=2) as counts:
        counts.send(Windowed("ann", Window(0, 60_000)), 3, timestamp=7, headers=(("trace", b"1"),))
        counts.send(Windowed("bob", Window(60_000, 120_000)), 4, timestamp=70_000)
        counts.send(None, None, timestamp=9, partition=0)
    first = Consumer(tmp_path, "counts", key=keys, value=serdes.int64)
    table = Consumer(tmp_path, "counts", key=keys, value=serdes.int64).to_arrow()
    Producer(tmp_path, "copies", key=keys, value=serdes.int64, partitions=2).send_table(
        table.filter(pa.compute.is_valid(table["key"]))
    )
    copies = Consumer(tmp_path, "copies", key=keys, value=serdes.int64)
    assert [(one.key, one.value, one.timestamp, one.headers) for one in copies] == [
        (one.key, one.value, one.timestamp, one.headers) for one in first if one.key is not None
    ]


def test_types_that_a_column_has_not_become_what_the_serde_takes(tmp_path: Path) -> None:
    number = UUID(int=7)
    producer = Producer(tmp_path, "mixed", key=serdes.uuid, value=serdes.int32, partitions=1)
    producer.send_table(
        pl.DataFrame({"key": [str(number)], "value": pl.Series([7], dtype=pl.UInt8), "timestamp": [5]})
    )
    assert read(tmp_path, "mixed", key=serdes.uuid, value=serdes.int32) == [(number, 7, 5)]


def test_times_of_a_table_are_those_of_the_records(tmp_path: Path) -> None:
    producer = Producer(tmp_path, "orders", value=serdes.int64, partitions=1)
    moment = datetime(2026, 1, 31, 8, tzinfo=UTC)
    producer.send_table(pl.DataFrame({"value": [1], "at": [moment]}), timestamp="at")
    producer.send_table(pl.DataFrame({"value": [2], "at": [moment.date()]}), timestamp="at")
    assert [one.timestamp for one in Consumer(tmp_path, "orders")] == [
        int(moment.timestamp() * 1000),
        int(moment.replace(hour=0).timestamp() * 1000),
    ]


@pytest.mark.parametrize(
    ("times", "why"),
    [([None], "is null in row 0"), (["now"], "is of type string"), ([1.5], "is of type double")],
)
def test_a_column_that_has_no_times_is_refused(tmp_path: Path, times: list[Any], why: str) -> None:
    producer = Producer(tmp_path, "orders", value=serdes.int64, partitions=1)
    table = pl.DataFrame(
        {"value": [1], "timestamp": times}, schema_overrides={} if times[0] else {"timestamp": pl.Int64}
    )
    with pytest.raises(InvalidTimestampError, match=why):
        producer.send_table(table)
    assert list(Consumer(tmp_path, "orders")) == []


def test_files_become_records(tmp_path: Path) -> None:
    ORDERS.write_csv(tmp_path / "orders.csv")
    ORDERS.write_parquet(tmp_path / "orders.parquet")
    log = tmp_path / "log"
    for name in ("csv", "parquet"):
        producer = Producer(log, name, key=serdes.string, value=serdes.json(Order), partitions=1)
        send = producer.send_csv if name == "csv" else producer.send_parquet
        assert send(tmp_path / f"orders.{name}", key="shop") == 3
        rows = [one.value for one in Consumer(log, name, value=serdes.json(Order))]
        assert rows == [Order("north", 3), Order("south", 4), Order("north", 5)]


@pytest.mark.parametrize(
    ("send", "message"),
    [
        (lambda producer: producer.send_table({"a": [1]}), "dict is no table"),
        (lambda producer: producer.send_table(ORDERS, key="store"), "no column 'store', which the key needs"),
        (lambda producer: producer.send_table(ORDERS), "none of them is called 'value'"),
        (lambda producer: producer.send_parquet(Path(__file__)), "can't be read as Parquet"),
    ],
)
def test_what_is_no_table_is_refused_with_the_remedy(tmp_path: Path, send: Any, message: str) -> None:
    producer = Producer(tmp_path, "numbers", value=serdes.int64, partitions=1)
    with pytest.raises(ConfigError, match=message) as refusal:
        send(producer)
    assert "Remedy: " in str(refusal.value)


def test_a_row_that_does_not_fit_is_named(tmp_path: Path) -> None:
    producer = Producer(tmp_path, "orders", value=serdes.json(Order), partitions=1)
    with pytest.raises(SerializationError, match="of topic 'orders'"):
        producer.send_table(pl.DataFrame({"value": [{"shop": "north", "amount": None}]}))
