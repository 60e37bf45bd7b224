"""Topologies that are put together by hand: add_source, add_processor, add_sink, add_state_store."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.semantics.registry import papi
from tests.semantics.shapes import NUMBERS, WORDS, Route, each, starting, text

from millstream import (
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    StoreBuilder,
    Topology,
    serdes,
    stores,
)

WordContext = ProcessorContext[str, str]
WordSupplier = Callable[[], Processor[str, str, str, str]]


def _marking(mark: str) -> WordSupplier:
    def forward_marked(context: WordContext, record: Record[str, str]) -> None:
        context.forward(record.with_value(record.value + mark))

    return each(forward_marked)


def _count(context: WordContext, record: Record[str, str]) -> None:
    """Count records per key, no key as "none"."""
    counts = context.state_store("counts")
    key = "none" if record.key is None else record.key
    counts.put(key, (counts.get(key) or 0) + 1)
    context.forward(record.with_value(f"count {counts.get(key)}"))


def _read(context: WordContext, record: Record[str, str]) -> None:
    count = context.state_store("counts").get("none" if record.key is None else record.key)
    context.forward(record.with_value(f"read {'nothing' if count is None else count}"))


def _counts() -> StoreBuilder:
    return stores.key_value("counts", key=serdes.string, value=serdes.int64)


@papi
def papi_source_to_sink(t: Topology) -> None:
    t.add_source("source", "in", **WORDS)
    t.add_sink("sink", "out", "source", **WORDS)


@papi
def papi_processor(t: Topology) -> None:
    t.add_source("source", "in", **WORDS)
    t.add_processor("mark", _marking("!"), "source")
    t.add_sink("sink", "out", "mark", **WORDS)


@papi
def papi_children_in_order_of_connection(t: Topology) -> None:
    t.add_source("source", "in", **WORDS)
    t.add_processor("z-first", _marking("1"), "source")
    t.add_processor("a-second", _marking("2"), "source")
    t.add_sink("sink", "out", "a-second", "z-first", **WORDS)


@papi
def papi_diamond(t: Topology) -> None:
    t.add_source("source", "in", **WORDS)
    t.add_processor("left", _marking(" left"), "source")
    t.add_processor("right", _marking(" right"), "source")
    t.add_processor("both", _marking(" both"), "right", "left")
    t.add_sink("sink", "out", "both", **WORDS)


@papi
def papi_deep_and_shallow_paths(t: Topology) -> None:
    t.add_source("source", "in", **WORDS)
    t.add_processor("one", _marking("1"), "source")
    t.add_processor("two", _marking("2"), "one")
    t.add_processor("three", _marking("3"), "two", "source")
    t.add_sink("sink", "out", "three", "one", **WORDS)


@papi
def papi_named_children(t: Topology) -> None:
    def route(context: WordContext, record: Record[str, str]) -> None:
        context.forward(record, "exes" if record.value == "x" else "others")
        context.forward(record.with_key("copy"))

    t.add_source("source", "in", **WORDS)
    t.add_processor("router", each(route), "source")
    t.add_sink("exes", "exes-out", "router", **WORDS)
    t.add_processor("others", _marking(" other"), "router")
    t.add_sink("sink", "out", "others", **WORDS)


@papi
def papi_several_subtopologies(t: Topology) -> None:
    t.add_source("source-b", "other", **WORDS)
    t.add_source("source-a", "in", **WORDS)
    t.add_processor("mark-a", _marking(" a"), "source-a")
    t.add_processor("mark-b", _marking(" b"), "source-b")
    t.add_sink("sink-a", "out", "mark-a", **WORDS)
    t.add_sink("sink-b", "out", "mark-b", **WORDS)


@papi
def papi_subtopologies_joined_by_a_store(t: Topology) -> None:
    t.add_source("source-a", "in", **WORDS)
    t.add_source("source-b", "other", **WORDS)
    t.add_processor("writer", each(_count), "source-a")
    t.add_processor("reader", each(_read), "source-b")
    t.add_state_store(_counts(), "writer", "reader")
    t.add_sink("sink", "out", "reader", "writer", **WORDS)


@papi
def papi_store_connected_later(t: Topology) -> None:
    t.add_source("source", "in", **WORDS)
    t.add_processor("writer", each(_count), "source")
    t.add_processor("reader", each(_read), "writer")
    t.add_state_store(_counts())
    t.connect_processor_and_state_stores("writer", "counts")
    t.connect_processor_and_state_stores("reader", "counts")
    t.add_sink("sink", "out", "reader", **WORDS)


@papi
def papi_store_of_nobody(t: Topology) -> None:
    t.add_source("source", "in", **WORDS)
    t.add_state_store(_counts())
    t.add_sink("sink", "out", "source", **WORDS)


@papi
def papi_source_of_several_topics(t: Topology) -> None:
    t.add_source("source", "other", "in", **WORDS)
    t.add_sink("sink", "out", "source", **WORDS)


@papi
def papi_source_pattern(t: Topology) -> None:
    t.add_source("source", re.compile("in-.*"), **WORDS)
    t.add_sink("sink", "out", "source", **WORDS)


@papi
def papi_two_parents(t: Topology) -> None:
    def where(context: WordContext, record: Record[str, str]) -> None:
        assert context.record_metadata is not None
        context.forward(record.with_value(context.record_metadata.topic))

    t.add_source("source-a", "in", **WORDS)
    t.add_source("source-b", "other", **WORDS)
    t.add_processor("where", each(where), "source-a", "source-b")
    t.add_sink("sink", "out", "where", **WORDS)


@papi
def papi_sink_topic_from_key(t: Topology) -> None:
    t.add_source("source", "in", **WORDS)
    by_key = Route("by_key", lambda key, value, context: f"out-{text(key)}")
    t.add_sink("sink", by_key, "source", **WORDS)


@papi
def papi_sink_topic_is_read_again(t: Topology) -> None:
    t.add_source("source", "in", **WORDS)
    t.add_processor("mark", _marking("1"), "source")
    t.add_sink("middle-sink", "middle", "mark", **WORDS)
    t.add_source("middle-source", "middle", **WORDS)
    t.add_processor("mark-again", _marking("2"), "middle-source")
    t.add_sink("sink", "out", "mark-again", **WORDS)


@papi
def papi_source_without_children(t: Topology) -> None:
    t.add_source("source", "in", **WORDS)
    t.add_source("idle", "other", **WORDS)
    t.add_sink("sink", "out", "source", **WORDS)


@papi
def papi_processor_without_children(t: Topology) -> None:
    t.add_source("source", "in", **WORDS)
    t.add_processor("end", _marking("!"), "source")
    t.add_sink("sink", "out", "source", **WORDS)


@papi
def papi_offset_reset(t: Topology) -> None:
    t.add_source("source", "in", **WORDS, offset_reset="earliest")
    t.add_sink("sink", "out", "source", **WORDS)


@papi
def papi_timestamp_extractor(t: Topology) -> None:
    def value_as_timestamp(record: Any, partition_time: int) -> int:
        timestamp: int = record.value
        return timestamp

    t.add_source("source", "in", **NUMBERS, timestamp_extractor=value_as_timestamp)
    t.add_sink("sink", "out", "source", **NUMBERS)


@papi
def papi_global_store(t: Topology) -> None:
    def keep(context: ProcessorContext[None, None], record: Record[str, str]) -> None:
        context.state_store("names").put(record.key, record.value)

    def name(context: WordContext, record: Record[str, str]) -> None:
        found = None if record.key is None else context.state_store("names").get(record.key)
        context.forward(record.with_value("unknown" if found is None else found))

    names = stores.key_value("names", **WORDS)
    t.add_global_store(names, "names-source", "global", "names-keeper", each(keep), **WORDS)
    t.add_source("source", "in", **WORDS)
    t.add_processor("name", each(name), "source")
    t.add_sink("sink", "out", "name", **WORDS)


@papi
def papi_punctuator(t: Topology) -> None:
    def start(context: WordContext) -> None:
        context.schedule(
            10,
            PunctuationType.WALL_CLOCK_TIME,
            lambda time: context.forward(Record("tick", str(time), time)),
        )

    def forward(context: WordContext, record: Record[str, str]) -> None:
        context.forward(record)

    t.add_source("source", "in", **WORDS)
    t.add_processor("ticker", starting(start, forward), "source")
    t.add_processor("mark", _marking("!"), "ticker")
    t.add_sink("sink", "out", "mark", **WORDS)


@papi
def papi_many_of_everything(t: Topology) -> None:
    t.add_source("orders", "in", **WORDS)
    t.add_source("customers", "other", **WORDS)
    t.add_source("audit", re.compile("audit-.*"), **WORDS)
    t.add_processor("count-orders", each(_count), "orders")
    t.add_processor("mark-customers", _marking(" customer"), "customers")
    t.add_processor("merge", _marking(""), "mark-customers", "count-orders")
    t.add_processor("read", each(_read), "merge")
    t.add_processor("audit-mark", _marking(" audited"), "audit")
    t.add_state_store(_counts(), "count-orders", "read")
    t.add_state_store(stores.key_value("a-spare", key=serdes.string, value=serdes.int64), "read")
    t.add_sink("counts-sink", "out", "count-orders", **WORDS)
    t.add_sink("merged-sink", "merged", "merge", "read", **WORDS)
    t.add_sink("audit-sink", "audited", "audit-mark", **WORDS)
