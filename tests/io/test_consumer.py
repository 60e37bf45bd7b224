"""Consumers: where they begin and end, records, batches and tables."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import Any

import polars as pl
import pytest

from millstream import Consumer, ConsumerRecord, Producer, Window, Windowed, serdes
from millstream.errors import ConfigError, DeserializationError, SerdeError
from millstream.log.errors import OffsetOutOfRangeError


@dataclass(frozen=True)
class Order:
    shop: str
    amount: int


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A topic of numbers: 0, 2, 4 in partition 0 and 1, 3, 5 in partition 1, each at its own second."""
    with Producer(tmp_path, "numbers", key=serdes.string, value=serdes.int64, partitions=2) as numbers:
        for number in range(6):
            numbers.send(f"n{number}", number, timestamp=1000 * number, partition=number % 2)
    return tmp_path


def values(log: Path, **options: Any) -> list[Any]:
    return [one.value for one in Consumer(log, "numbers", value=serdes.int64, **options)]


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0, 2, 4, 1, 3, 5]),
        ({"start": "latest"}, []),
        ({"start": 1}, [2, 4, 3, 5]),
        ({"start": {1: 2}}, [0, 2, 4, 5]),
        ({"start": at(2.5)}, [4, 3, 5]),
        ({"start": at(99)}, []),
        ({"end": 2}, [0, 2, 1, 3]),
        ({"start": at(1), "end": at(4)}, [2, 1, 3]),
        ({"start": 2, "end": 1}, []),
        ({"partitions": [1]}, [1, 3, 5]),
        ({"end": {0: 0}}, [1, 3, 5]),
    ],
)
def test_a_consumer_reads_from_its_start_to_its_end(log: Path, options: Any, expected: list[int]) -> None:
    assert values(log, **options) == expected
    assert Consumer(log, "numbers", value=serdes.int64, **options).to_polars()["value"].to_list() == expected


def test_a_record_says_where_it_is(log: Path) -> None:
    found = list(Consumer(log, "numbers", key=serdes.string, value=serdes.int64, start=2, partitions=[1]))
    assert found == [ConsumerRecord("numbers", 1, 2, "n5", 5, 5000)]


def test_a_consumer_goes_on_where_it_was(log: Path) -> None:
    consumer = Consumer(log, "numbers", value=serdes.int64)
    first = [record.value for record in islice(consumer, 2)]
    assert (first, consumer.positions) == ([0, 2], {0: 2, 1: 0})
    assert [record.value for record in consumer] == [4, 1, 3, 5]
    with Producer(log, "numbers", value=serdes.int64) as more:
        more.send(None, 6)
    assert [record.value for record in consumer] == [6]


def test_who_follows_gets_what_comes(log: Path) -> None:
    consumer = Consumer(log, "numbers", value=serdes.int64, start="latest", follow=True)

    def produce() -> None:
        with Producer(log, "numbers", value=serdes.int64) as more:
            more.send(None, 6)
            more.send(None, 7)

    thread = Thread(target=produce)
    thread.start()
    found = [record.value for record in islice(consumer, 2)]
    thread.join()
    assert found == [6, 7]


def test_batches_have_the_columns_of_the_table(log: Path) -> None:
    batches = list(Consumer(log, "numbers", key=serdes.string, value=serdes.int64).batches())
    names = ["partition", "offset", "timestamp", "key", "value", "headers"]
    assert [batch.schema.names for batch in batches] == [names, names]
    assert [batch.column("value").to_pylist() for batch in batches] == [[0, 2, 4], [1, 3, 5]]
    table = Consumer(log, "numbers", key=serdes.string, value=serdes.int64).to_arrow()
    assert table.schema == batches[0].schema
    assert table.column("timestamp").to_pylist()[1] == at(2)


def test_windowed_keys_are_start_end_and_key(tmp_path: Path) -> None:
    keys = serdes.session_windowed(serdes.string)
    with Producer(tmp_path, "sessions", key=keys, value=serdes.int64, partitions=1) as sessions:
        sessions.send(Windowed("ann", Window(1000, 5000)), 3, timestamp=5000)
    frame = Consumer(tmp_path, "sessions", key=keys, value=serdes.int64).to_polars()
    assert frame.select("start", "end", "key", "value").rows() == [(at(1), at(5), "ann", 3)]


@pytest.mark.parametrize(
    "serde", [serdes.json, serdes.json(Order), serdes.json({"shop": str, "amount": int})]
)
def test_records_are_columns_whatever_the_serde_of_json(tmp_path: Path, serde: Any) -> None:
    with Producer(tmp_path, "orders", value=serdes.json, partitions=1) as orders:
        orders.send(None, {"shop": "north", "amount": 3})
        orders.send(None, None)
    frame = Consumer(tmp_path, "orders", value=serde).to_polars()
    assert frame["value"].to_list() == [{"shop": "north", "amount": 3}, None]
    assert isinstance(frame["value"].dtype, pl.Struct)


def test_an_empty_topic_is_a_table_with_types(tmp_path: Path) -> None:
    Producer(tmp_path, "orders", partitions=1)
    frame = Consumer(tmp_path, "orders", key=serdes.string, value=serdes.json({"n": int})).to_polars()
    assert (len(frame), frame.schema["value"]) == (0, pl.Struct({"n": pl.Int64()}))


def test_the_records_before_a_bad_one_are_given_then_it_is_named(tmp_path: Path) -> None:
    with Producer(tmp_path, "mixed", partitions=1) as mixed:
        mixed.send(None, bytes(8))
        mixed.send(None, b"?")
    consumer = iter(Consumer(tmp_path, "mixed", value=serdes.int64))
    assert next(consumer).value == 0
    with pytest.raises(DeserializationError) as refusal:
        next(consumer)
    where = (refusal.value.topic, refusal.value.partition, refusal.value.offset)
    assert where == ("mixed", 0, 1)
    with pytest.raises(
        DeserializationError, match=r"topic 'mixed', partition 0, offset 1 with serdes\.int64"
    ):
        Consumer(tmp_path, "mixed", value=serdes.int64).to_arrow()


def test_values_of_several_types_are_no_column(tmp_path: Path) -> None:
    with Producer(tmp_path, "mixed", value=serdes.json, partitions=1) as mixed:
        mixed.send(None, {"a": 1})
        mixed.send(None, "text")
    with pytest.raises(
        SerdeError, match=r"can't be one column of a table.*Remedy: give a serde with a schema"
    ):
        Consumer(tmp_path, "mixed", value=serdes.json).to_arrow()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": "first"}, "start='first' is no place in topic 'numbers'. Remedy: use 'earliest'"),
        ({"start": datetime(2026, 1, 1)}, "a datetime without a zone"),  # noqa: DTZ001
        ({"start": -1}, "start=-1 is no place"),
        ({"partitions": [2]}, "topic 'numbers' has no partition 2. Remedy: choose 0 to 1"),
        ({"end": 3, "follow": True}, "follow=True never ends, and end=3 does"),
    ],
)
def test_a_place_that_is_none_is_refused_with_the_remedy(log: Path, options: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        Consumer(log, "numbers", **options)
    assert message in str(refusal.value)


def test_an_offset_that_was_never_written_is_an_error_and_no_empty_answer(log: Path) -> None:
    with pytest.raises(OffsetOutOfRangeError):
        values(log, start=7)


def test_pandas_that_is_not_there_is_an_error_with_the_remedy(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.io.tables.find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"pip install 'millstream\[pandas\]'"):
        Consumer(log, "numbers").to_pandas()


def test_pandas_goes_in_and_out(log: Path) -> None:
    frame = Consumer(log, "numbers", key=serdes.string, value=serdes.int64).to_pandas()
    Producer(log, "copies", key=serdes.string, value=serdes.int64, partitions=1).send_table(frame)
    assert [one.value for one in Consumer(log, "copies", value=serdes.int64)] == frame["value"].tolist()
