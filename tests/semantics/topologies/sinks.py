"""to: fixed topics, topics chosen per record, topics that are read again."""

from __future__ import annotations

from typing import Any

from tests.semantics.registry import dsl
from tests.semantics.shapes import NUMBERS, WORDS, Route, number_store, word_table, words

from millstream import StreamsBuilder


@dsl
def sink_named(b: StreamsBuilder) -> None:
    words(b, "in").to("out", **WORDS, name="target")


@dsl
def sink_order_of_children(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    stream.map_values(lambda v: v + "1").to("one", **WORDS)
    stream.to("two")
    stream.map_values(lambda v: v + "3").to("three", **WORDS)


@dsl
def two_sinks_to_one_topic(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    stream.to("out")
    stream.map_values(lambda v: v + "'").to("out", **WORDS)


@dsl
def sink_topic_is_read_again(b: StreamsBuilder) -> None:
    words(b, "in").flat_map_values(str.split).to("middle", **WORDS)
    words(b, "middle").map_values(lambda v: v + "!").to("out", **WORDS)


@dsl
def sink_topic_is_read_again_as_table(b: StreamsBuilder) -> None:
    words(b, "in").select_key(lambda k, v: v).to("middle", **WORDS)
    word_table(b, "middle", "latest").to_stream().to("out")


@dsl
def sink_topic_from_value(b: StreamsBuilder) -> None:
    by_value = Route("by_value", lambda k, v, context: "nulls" if v is None else f"topic-{v}")
    words(b, "in").to(by_value, **WORDS)


@dsl
def sink_topic_from_context(b: StreamsBuilder) -> None:
    def position(key: Any, value: Any, context: Any) -> str:
        return f"{context.topic}-{context.partition}-{context.offset}-{context.timestamp}"

    stream = words(b, "in").map_values(lambda v: v + "!")
    stream.to(Route("by_position", position), **WORDS, name="routed")


@dsl
def sink_topic_from_header(b: StreamsBuilder) -> None:
    def last_address(key: Any, value: Any, context: Any) -> str:
        addresses: list[bytes] = [data for name, data in context.headers if name == "to"]
        return addresses[-1].decode()

    words(b, "in").to(Route("by_header", last_address), **WORDS)


@dsl
def sink_of_counts_and_events(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    counts = stream.group_by_key(**WORDS).count(store=number_store("counts"))
    counts.to_stream().to("counts-out", **NUMBERS)
    stream.to("events")
