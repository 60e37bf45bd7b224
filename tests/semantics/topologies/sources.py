"""stream, table, global_table, add_global_store: topics in all the ways in which they enter a topology."""

from __future__ import annotations

import re
from typing import Any

from tests.semantics.registry import dsl
from tests.semantics.shapes import (
    NUMBERS,
    WORDS,
    each,
    number_store,
    word_store,
    word_table,
    words,
)

from millstream import Processor, ProcessorContext, Record, StreamsBuilder, serdes, stores


@dsl
def source_named(b: StreamsBuilder) -> None:
    b.stream("in", **WORDS, name="origin").to("out")


@dsl
def source_of_several_topics(b: StreamsBuilder) -> None:
    b.stream(["two", "one"], **WORDS).to("out")


@dsl
def source_pattern(b: StreamsBuilder) -> None:
    b.stream(re.compile("in-[0-9]+"), **WORDS).to("out")


@dsl
def source_pattern_beside_a_topic(b: StreamsBuilder) -> None:
    b.stream(re.compile("in-[0-9]+"), **WORDS).map_values(lambda v: "p " + v).to("out", **WORDS)
    words(b, "other").to("out")


@dsl
def source_pattern_twice(b: StreamsBuilder) -> None:
    b.stream(re.compile("in-[0-9]+"), **WORDS).map_values(lambda v: "1 " + v).to("out", **WORDS)
    b.stream(re.compile("in-[0-9]+"), **WORDS).map_values(lambda v: "2 " + v).to("out", **WORDS)


@dsl
def source_read_twice(b: StreamsBuilder) -> None:
    words(b, "in").map_values(lambda v: "1 " + v).to("out", **WORDS)
    words(b, "in").map_values(lambda v: "2 " + v).to("out", **WORDS)


@dsl
def source_named_twice(b: StreamsBuilder) -> None:
    b.stream("in", **WORDS, name="first").map_values(lambda v: "1 " + v).to("out", **WORDS)
    b.stream("in", **WORDS, name="second").map_values(lambda v: "2 " + v).to("out", **WORDS)


@dsl
def source_of_overlapping_lists(b: StreamsBuilder) -> None:
    b.stream(["one", "two"], **WORDS).map_values(lambda v: "1 " + v).to("out", **WORDS)
    words(b, "two").map_values(lambda v: "2 " + v).to("out", **WORDS)


@dsl
def source_as_stream_and_table(b: StreamsBuilder) -> None:
    words(b, "in").to("events")
    word_table(b, "in", "store").to_stream().to("updates")


@dsl
def source_as_two_tables(b: StreamsBuilder) -> None:
    word_table(b, "in", "store1").to_stream().to("out1")
    word_table(b, "in", "store2").to_stream().to("out2")


@dsl
def source_with_offset_reset(b: StreamsBuilder) -> None:
    b.stream("in", **WORDS, offset_reset="latest").to("out")


@dsl
def source_with_two_offset_resets(b: StreamsBuilder) -> None:
    b.stream("in", **WORDS, offset_reset="latest").to("out")
    b.stream("in", **WORDS, offset_reset="earliest").to("out")


def _value_as_timestamp(record: Any, partition_time: int) -> int:
    timestamp: int = record.value
    return timestamp


def _value_after_partition_time(record: Any, partition_time: int) -> int:
    delay: int = record.value
    return partition_time + delay


@dsl
def source_timestamps_from_values(b: StreamsBuilder) -> None:
    b.stream("in", **NUMBERS, timestamp_extractor=_value_as_timestamp).to("out")


@dsl
def source_timestamps_negative_are_dropped(b: StreamsBuilder) -> None:
    b.stream("in", **NUMBERS, timestamp_extractor=_value_as_timestamp).to("out")


@dsl
def source_timestamps_from_partition_time(b: StreamsBuilder) -> None:
    b.stream("in", **NUMBERS, timestamp_extractor=_value_after_partition_time).to("out")


def _read_global(context: ProcessorContext[str, str], record: Record[str, str]) -> None:
    """Append what the global table holds for the record's key."""
    store = context.state_store("everywhere")
    held = None if record.key is None else store.get(record.key)
    seen = "nothing" if held is None else f"{held.value}@{held.timestamp}"
    context.forward(record.with_value(f"{record.value} {seen}"))


class _Lengths(Processor[str, str, None, None]):
    """Keeps the length of each value."""

    def process(self, record: Record[str, str]) -> None:
        store = self.context.state_store("lengths")
        store.put(record.key, None if record.value is None else len(record.value))


def _read_length(context: ProcessorContext[str, int], record: Record[str, str]) -> None:
    context.forward(record.with_value(context.state_store("lengths").get(record.key)))


@dsl
def global_table(b: StreamsBuilder) -> None:
    b.global_table("global", **WORDS, store=word_store("everywhere"))


@dsl
def global_table_unnamed_store(b: StreamsBuilder) -> None:
    b.global_table("global", **WORDS)
    words(b, "in").to("out")


@dsl
def global_table_named(b: StreamsBuilder) -> None:
    b.global_table("global", **NUMBERS, name="reference", store=number_store("everywhere"))
    words(b, "in").to("out")


@dsl
def global_table_read_by_processor(b: StreamsBuilder) -> None:
    b.global_table("global", **WORDS, store=word_store("everywhere"))
    words(b, "in").process(each(_read_global)).to("out", **WORDS)


@dsl
def global_table_fed_by_the_topology(b: StreamsBuilder) -> None:
    b.global_table("global", **WORDS, store=word_store("everywhere"))
    words(b, "in").process(each(_read_global)).to("global", **WORDS)


@dsl
def global_store(b: StreamsBuilder) -> None:
    lengths = stores.key_value("lengths", key=serdes.string, value=serdes.int64)
    b.add_global_store(lengths, "global", _Lengths, **WORDS)
    words(b, "in").process(each(_read_length), name="reader").to("out", **NUMBERS)


@dsl
def global_store_named(b: StreamsBuilder) -> None:
    lengths = stores.key_value("lengths", key=serdes.string, value=serdes.int64)
    b.add_global_store(lengths, "global", _Lengths, **WORDS, name="lengths-source")
    words(b, "in").group_by_key(**WORDS).count().to_stream().to("out", **NUMBERS)
