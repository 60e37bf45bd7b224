"""Timestamp extractors: where the time of a record comes from, and what becomes of a bad one."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.semantics.registry import case, dsl
from tests.semantics.shapes import NUMBERS, WORDS, each, number_store
from tests.semantics.window_shapes import number_windows

from millstream import KStream, ProcessorContext, Record, StreamsBuilder, TimeWindows, timestamps
from millstream.timestamps import TimestampExtractor


def _own(record: Any, partition_time: int) -> int:
    value: int = record.value
    return value


def _value_before(record: Any, partition_time: int) -> int:
    time: int = record.timestamp - record.value
    return time


def _never_backwards(record: Any, partition_time: int) -> int:
    time: int = record.timestamp
    return max(time, partition_time)


def _raising(record: Any, partition_time: int) -> int:
    return int(100 / record.value)


STREAMED: dict[str, TimestampExtractor] = {
    "timestamp_fail": timestamps.fail_on_invalid_timestamp,
    "timestamp_skip": timestamps.skip_invalid_timestamp,
    "timestamp_use_partition_time": timestamps.use_partition_time_on_invalid_timestamp,
    "timestamp_use_partition_time_of_no_record_fails": timestamps.use_partition_time_on_invalid_timestamp,
    "timestamp_own_from_the_value": _own,
    "timestamp_own_raising_fails": _raising,
    "timestamp_own_from_partition_time": _never_backwards,
}

WINDOWED: dict[str, TimestampExtractor] = {
    "timestamp_own_in_windows": _own,
    "timestamp_skip_in_windows": timestamps.skip_invalid_timestamp,
    "timestamp_use_partition_time_in_windows": timestamps.use_partition_time_on_invalid_timestamp,
    "timestamp_own_in_windows_random": _value_before,
    "timestamp_never_backwards_random": _never_backwards,
}


def _stream(b: StreamsBuilder, extractor: TimestampExtractor, topic: str = "in") -> KStream[str, int]:
    return b.stream(topic, **NUMBERS, timestamp_extractor=extractor)


def _streamed(b: StreamsBuilder, extractor: TimestampExtractor) -> None:
    _stream(b, extractor).to("out")


def _windowed(b: StreamsBuilder, extractor: TimestampExtractor) -> None:
    windowed = _stream(b, extractor).group_by_key(**NUMBERS).windowed_by(TimeWindows(10))
    windowed.count(store=number_windows("counts")).to_stream().to("out")


def _register() -> None:
    for name, extractor in STREAMED.items():
        case(name, partial(_streamed, extractor=extractor))
    for name, extractor in WINDOWED.items():
        case(name, partial(_windowed, extractor=extractor))


_register()


@dsl
def timestamp_fail_is_the_default(b: StreamsBuilder) -> None:
    b.stream("in", **NUMBERS).to("out")


@dsl
def timestamp_use_partition_time_of_each_topic(b: StreamsBuilder) -> None:
    for topic in ("one", "two"):
        _stream(b, timestamps.use_partition_time_on_invalid_timestamp, topic).to("out")


@dsl
def timestamp_wall_clock_ignores_the_records(b: StreamsBuilder) -> None:
    def timeless(context: ProcessorContext[str, int], record: Record[str, int]) -> None:
        context.forward(record.with_timestamp(1))

    _stream(b, timestamps.wall_clock_timestamp).process(each(timeless)).to("out", **NUMBERS)


@dsl
def timestamp_own_sees_the_record(b: StreamsBuilder) -> None:
    def extractor(record: Any, partition_time: int) -> int:
        time: int = record.timestamp * 100 + record.offset * 10 + len(record.value)
        return time

    b.stream("in", **WORDS, timestamp_extractor=extractor).to("out", **WORDS)


@dsl
def timestamp_own_of_a_table(b: StreamsBuilder) -> None:
    def extractor(record: Any, partition_time: int) -> int:
        time: int = record.timestamp + 100
        return time

    table = b.table("in", **NUMBERS, timestamp_extractor=extractor, store=number_store("store"))
    table.to_stream().to("out")


@dsl
def timestamp_skip_of_a_table(b: StreamsBuilder) -> None:
    extractor = timestamps.skip_invalid_timestamp
    table = b.table("in", **NUMBERS, timestamp_extractor=extractor, store=number_store("store"))
    table.to_stream().to("out")


@dsl
def timestamp_own_before_a_repartition(b: StreamsBuilder) -> None:
    everything = _stream(b, _own).select_key(lambda k, v: "all").group_by_key(**NUMBERS)
    everything.count(store=number_store("counts")).to_stream().to("out")
