"""Streams that look rows up in global tables, by a key of their choice."""

from __future__ import annotations

from typing import Any

from tests.semantics.join_shapes import (
    INNER_AND_LEFT,
    for_each,
    keyed,
    letter_of,
    plus,
    text_after_first,
)
from tests.semantics.shapes import NUMBERS, WORDS, number_store, word_store, words

from millstream import GlobalKTable, KStream, StreamsBuilder

Words = KStream[Any, Any]
Rows = GlobalKTable[Any, Any]

each_kind = for_each("global_table", INNER_AND_LEFT)


def rows(b: StreamsBuilder) -> Rows:
    return b.global_table("global", **WORDS, store=word_store("everywhere"))


def key_of(_key: Any, value: Any) -> Any:
    return text_after_first(value)


def own_key(key: Any, _value: Any) -> Any:
    return key


def joined(method: str, stream: Words, table: Rows, key: Any = key_of, **options: Any) -> Words:
    found: Words = getattr(stream, method)(table, plus, key_of=key, **options)
    return found


def collected(stream: Words) -> None:
    lists = stream.group_by_key(**WORDS).reduce(
        lambda one, other: f"{one},{other}", store=word_store("lists")
    )
    lists.to_stream().to("out")


@each_kind
def by_value(b: StreamsBuilder, method: str) -> None:
    joined(method, words(b, "in"), rows(b)).to("out", **WORDS)


@each_kind
def by_key(b: StreamsBuilder, method: str) -> None:
    joined(method, words(b, "in"), rows(b), own_key).to("out", **WORDS)


@each_kind
def unnamed_store(b: StreamsBuilder, method: str) -> None:
    joined(method, words(b, "in"), b.global_table("global", **WORDS)).to("out", **WORDS)


@each_kind
def null_mapped_keys(b: StreamsBuilder, method: str) -> None:
    found = joined(method, words(b, "in"), rows(b), lambda k, v: None if v == "x1" else k)
    found.to("out", **WORDS)


@each_kind
def with_key(b: StreamsBuilder, method: str) -> None:
    stream = words(b, "in")
    getattr(stream, method)(rows(b), keyed, key_of=key_of, with_key=True).to("out", **WORDS)


@each_kind
def named(b: StreamsBuilder, method: str) -> None:
    joined(method, words(b, "in"), rows(b), name="enrich").to("out", **WORDS)


@each_kind
def rekeyed(b: StreamsBuilder, method: str) -> None:
    joined(method, words(b, "in").select_key(lambda k, v: v), rows(b)).to("out", **WORDS)


@each_kind
def rekeyed_then_group_by_key(b: StreamsBuilder, method: str) -> None:
    collected(joined(method, words(b, "in").select_key(lambda k, v: v), rows(b)))


@each_kind
def then_group_by_key(b: StreamsBuilder, method: str) -> None:
    collected(joined(method, words(b, "in"), rows(b)))


@each_kind
def two_tables(b: StreamsBuilder, method: str) -> None:
    once = joined(method, words(b, "in"), rows(b))
    others = b.global_table("others", **WORDS, store=word_store("other"))
    joined(method, once, others, own_key).to("out", **WORDS)


@each_kind
def one_table_twice(b: StreamsBuilder, method: str) -> None:
    table = rows(b)
    once = joined(method, words(b, "in"), table)
    joined(method, once, table, own_key).to("out", **WORDS)


@each_kind
def by_key_random(b: StreamsBuilder, method: str) -> None:
    joined(method, words(b, "in"), rows(b), own_key).to("out", **WORDS)


@each_kind
def by_value_random(b: StreamsBuilder, method: str) -> None:
    joined(method, words(b, "in"), rows(b), lambda k, v: letter_of(v)).to("out", **WORDS)


@each_kind
def numbers_random(b: StreamsBuilder, method: str) -> None:
    table = b.global_table("global", **NUMBERS, store=number_store("everywhere"))
    joined(method, words(b, "in"), table, lambda k, v: "a" if k is None else k).to("out", **WORDS)
