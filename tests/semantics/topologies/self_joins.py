"""A stream joined with itself: every topology with two stores, and with single_store_self_join."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.semantics.join_shapes import keyed, plus
from tests.semantics.registry import before_and_after
from tests.semantics.shapes import WORDS, text, words

from millstream import JoinWindows, KStream, StreamsBuilder, serdes

Words = KStream[Any, Any]

both = before_and_after("single_store_self_join")


def joined(
    one: Words,
    other: Words,
    windows: JoinWindows,
    *,
    method: str = "join",
    joiner: Callable[..., str] = plus,
    **options: Any,
) -> None:
    pairs: Words = getattr(one, method)(other, joiner, windows, **WORDS, other_value=serdes.string, **options)
    pairs.to("out", **WORDS)


@both
def self_join(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    joined(stream, stream, JoinWindows(10))


@both
def self_join_with_key(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    joined(stream, stream, JoinWindows(10), joiner=keyed, with_key=True)


@both
def self_join_named(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    joined(stream, stream, JoinWindows(10), name="pairs", store="kept")


@both
def self_join_of_one_topic_read_twice(b: StreamsBuilder) -> None:
    joined(words(b, "in"), words(b, "in"), JoinWindows(10))


@both
def self_join_behind_filter(b: StreamsBuilder) -> None:
    stream = words(b, "in").filter(lambda k, v: v != "x3")
    joined(stream, stream, JoinWindows(10))


@both
def self_join_with_new_values(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    joined(stream, stream.map_values(lambda v: text(v) + "!"), JoinWindows(10))


@both
def self_join_rekeyed(b: StreamsBuilder) -> None:
    stream: Words = words(b, "in").select_key(lambda k, v: None if k is None else f"k{k}")
    joined(stream, stream, JoinWindows(10))


@both
def self_join_left(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    joined(stream, stream, JoinWindows(-2, 10), method="left_join")


@both
def self_join_outer(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    joined(stream, stream, JoinWindows(-2, 10), method="outer_join")


@both
def self_join_uneven_random(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    joined(stream, stream, JoinWindows(3, 8, grace=2))


@both
def self_join_random(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    joined(stream, stream, JoinWindows(5, grace=10))
