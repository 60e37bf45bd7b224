"""Streams that look rows up in tables: as they are, as they were at a record's time, and after a grace."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.semantics.join_shapes import (
    INNER_AND_LEFT,
    by_value,
    for_each,
    keyed,
    letter_of,
    plus,
    word_versions,
)
from tests.semantics.registry import case, dsl
from tests.semantics.shapes import WORDS, number_store, text, word_store, word_table, words

from millstream import KStream, KTable, StreamsBuilder

each_kind = for_each("stream_table", INNER_AND_LEFT)

VERSIONED = {"versioned_as_of_the_record": 100, "versioned_short_history": 10, "versioned_random": 20}

WITH_GRACE = {
    "grace_bounds": (100, 5),
    "grace_order": (100, 10),
    "grace_of_zero": (100, 0),
    "grace_headers": (100, 5),
    "grace_random": (50, 8),
    "grace_as_long_as_history_random": (12, 12),
    "grace_longer_than_history_is_refused": (5, 6),
}


def left(b: StreamsBuilder) -> KStream[Any, Any]:
    return words(b, "left")


def rows(b: StreamsBuilder) -> KTable[Any, Any]:
    return word_table(b, "right", "rows")


def versioned(b: StreamsBuilder, history: int = 100) -> KTable[Any, Any]:
    return b.table("right", **WORDS, store=word_versions("rows", history))


def joined(
    method: str, stream: KStream[Any, Any], table: KTable[Any, Any], **options: Any
) -> KStream[Any, Any]:
    found: KStream[Any, Any] = getattr(stream, method)(table, plus, **WORDS, **options)
    return found


def _versioned(b: StreamsBuilder, method: str, history: int) -> None:
    joined(method, left(b), versioned(b, history)).to("out", **WORDS)


def _with_grace(b: StreamsBuilder, method: str, history: int, grace: int) -> None:
    joined(method, left(b), versioned(b, history), grace=grace).to("out", **WORDS)


def _register() -> None:
    for method in INNER_AND_LEFT:
        for name, history in VERSIONED.items():
            case(f"stream_table_{method}_{name}", partial(_versioned, method=method, history=history))
        for name, (history, grace) in WITH_GRACE.items():
            body = partial(_with_grace, method=method, history=history, grace=grace)
            case(f"stream_table_{method}_{name}", body)


_register()


@each_kind
def nulls_and_tombstones(b: StreamsBuilder, method: str) -> None:
    joined(method, left(b), rows(b)).to("out", **WORDS)


@each_kind
def unnamed_store(b: StreamsBuilder, method: str) -> None:
    joined(method, left(b), word_table(b, "right")).to("out", **WORDS)


@each_kind
def uncached(b: StreamsBuilder, method: str) -> None:
    stream = left(b)
    table = b.table("right", **WORDS, store=word_store("rows", caching=False))
    joined(method, stream, table).to("out", **WORDS)


@each_kind
def with_key(b: StreamsBuilder, method: str) -> None:
    getattr(left(b), method)(rows(b), keyed, **WORDS, with_key=True).to("out", **WORDS)


@each_kind
def named(b: StreamsBuilder, method: str) -> None:
    joined(method, left(b), rows(b), name="enrich").to("out", **WORDS)


@each_kind
def rekeyed(b: StreamsBuilder, method: str) -> None:
    joined(method, by_value(left(b)), rows(b)).to("out", **WORDS)


@each_kind
def rekeyed_named(b: StreamsBuilder, method: str) -> None:
    joined(method, by_value(left(b)), rows(b), name="enrich").to("out", **WORDS)


@each_kind
def of_filtered_table(b: StreamsBuilder, method: str) -> None:
    stream = left(b)
    table = word_table(b, "right").filter(lambda k, v: not v.endswith("2"))
    joined(method, stream, table).to("out", **WORDS)


@each_kind
def of_mapped_table(b: StreamsBuilder, method: str) -> None:
    stream = left(b)
    joined(method, stream, word_table(b, "right").map_values(lambda v: v + "!")).to("out", **WORDS)


@each_kind
def of_mapped_table_with_store(b: StreamsBuilder, method: str) -> None:
    stream = left(b)
    table = word_table(b, "right").map_values(lambda v: v + "!", store=word_store("loud"))
    joined(method, stream, table).to("out", **WORDS)


@each_kind
def random(b: StreamsBuilder, method: str) -> None:
    joined(method, left(b), rows(b)).to("out", **WORDS)


@each_kind
def rekeyed_random(b: StreamsBuilder, method: str) -> None:
    stream = left(b).select_key(lambda k, v: letter_of(v))
    joined(method, stream, rows(b)).to("out", **WORDS)


@each_kind
def versioned_filtered(b: StreamsBuilder, method: str) -> None:
    stream = left(b)
    table = versioned(b).filter(lambda k, v: not v.endswith("2"))
    joined(method, stream, table).to("out", **WORDS)


@each_kind
def versioned_mapped(b: StreamsBuilder, method: str) -> None:
    stream = left(b)
    joined(method, stream, versioned(b).map_values(lambda v: v + "!")).to("out", **WORDS)


@each_kind
def versioned_rekeyed_random(b: StreamsBuilder, method: str) -> None:
    stream = left(b).select_key(lambda k, v: letter_of(v))
    joined(method, stream, versioned(b, 30)).to("out", **WORDS)


@each_kind
def grace_named(b: StreamsBuilder, method: str) -> None:
    joined(method, left(b), versioned(b), name="enrich", grace=5).to("out", **WORDS)


@each_kind
def grace_named_with_equal_hashes(b: StreamsBuilder, method: str) -> None:
    joined(method, left(b), versioned(b), name="look8", grace=5).to("out", **WORDS)


@each_kind
def grace_rekeyed(b: StreamsBuilder, method: str) -> None:
    joined(method, by_value(left(b)), versioned(b), grace=5).to("out", **WORDS)


@dsl
def stream_table_join_of_its_own_table(b: StreamsBuilder) -> None:
    stream = left(b)
    joined("join", stream, stream.to_table(store=word_store("rows"))).to("out", **WORDS)


@dsl
def stream_table_join_of_its_own_count(b: StreamsBuilder) -> None:
    stream = left(b)
    counts = stream.group_by_key(**WORDS).count(store=number_store("counts"))
    joined("left_join", stream, counts).to("out", **WORDS)


@dsl
def stream_table_join_of_its_own_count_attached_before(b: StreamsBuilder) -> None:
    stream = left(b)
    later = stream.map_values(lambda v: text(v) + "!")
    counts = stream.group_by_key(**WORDS).count(store=number_store("counts"))
    joined("left_join", later, counts).to("out", **WORDS)


@dsl
def stream_table_join_of_rekeyed_count(b: StreamsBuilder) -> None:
    by_word = words(b, "right").group_by(lambda k, v: v, **WORDS)
    counts = by_word.count(store=number_store("counts"))
    joined("join", by_value(left(b)), counts).to("out", **WORDS)


@dsl
def stream_table_join_two_tables(b: StreamsBuilder) -> None:
    table = rows(b)
    once = joined("join", left(b), table)
    joined("left_join", once, table.filter(lambda k, v: v.endswith("1"))).to("out", **WORDS)


@dsl
def stream_table_join_then_group_by_key(b: StreamsBuilder) -> None:
    grouped = joined("join", left(b), rows(b)).group_by_key(**WORDS)
    lists = grouped.reduce(lambda one, other: f"{one},{other}", store=word_store("lists"))
    lists.to_stream().to("out")


@dsl
def stream_table_join_of_repartitioned(b: StreamsBuilder) -> None:
    spread = left(b).repartition(**WORDS, name="spread")
    joined("left_join", spread, rows(b)).to("out", **WORDS)


@dsl
def stream_table_join_rekeyed_twice(b: StreamsBuilder) -> None:
    stream, table = by_value(left(b)), rows(b)
    joined("join", stream, table).to("out", **WORDS)
    joined("left_join", stream, table).to("out2", **WORDS)


@dsl
def stream_table_join_default_serdes(b: StreamsBuilder) -> None:
    stream: Any = b.stream("left", **WORDS)
    stream.join(b.table("right", **WORDS), plus).to("out", **WORDS)


@dsl
def stream_table_join_versioned_with_unversioned_store(b: StreamsBuilder) -> None:
    stream = left(b)
    table = versioned(b).map_values(lambda v: v + "!", store=word_store("loud"))
    joined("left_join", stream, table).to("out", **WORDS)


@dsl
def stream_table_join_grace_without_versions_is_refused(b: StreamsBuilder) -> None:
    joined("join", left(b), rows(b), grace=5).to("out")


@dsl
def stream_table_join_grace_of_unversioned_store_is_refused(b: StreamsBuilder) -> None:
    table = versioned(b).map_values(lambda v: v + "!", store=word_store("loud"))
    joined("join", left(b), table, grace=5).to("out")


@dsl
def stream_table_join_twice_under_one_name_is_refused(b: StreamsBuilder) -> None:
    table = rows(b)
    joined("join", left(b), table, name="enrich").to("out")
    joined("join", left(b), table, name="enrich").to("out")
