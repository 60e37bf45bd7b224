"""Tables joined with tables by a key that stands in the value."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.semantics.join_shapes import INNER_AND_LEFT, for_each, plus, to_out, word_versions
from tests.semantics.registry import case
from tests.semantics.shapes import (
    NUMBERS,
    WORDS,
    number_store,
    number_table,
    numbers,
    word_store,
    word_table,
)

from millstream import KTable, Store, StreamsBuilder

Table = KTable[Any, Any]

each_kind = for_each("foreign_key", INNER_AND_LEFT)

PLAIN = (
    "left_rows_come_and_go",
    "right_rows_come_and_go",
    "reference_changes",
    "same_reference_other_value",
    "reference_becomes_null",
    "equal_times",
    "out_of_order",
    "key_equal_to_reference",
    "null_keys",
    "headers",
    "random",
)


def reference(_key: str, value: int) -> Any:
    """1, 4 and 7 refer to "b", 2, 5 and 8 to "c", 3, 6 and 9 to "a"; 4 and 9 to nothing."""
    return None if value in {4, 9} else "abc"[value % 3]


def reference_of_a(key: str, value: int) -> Any:
    return "a" if key == "a" else reference(key, value)


def left(b: StreamsBuilder) -> Table:
    return number_table(b, "left", "lefts")


def right(b: StreamsBuilder) -> Table:
    return word_table(b, "right", "rights")


def joined(method: str, one: Table, other: Table, key: Any = reference, **options: Any) -> Table:
    """`method` is "join" or "left_join"."""
    named = method.replace("join", "foreign_key_join")
    pairs: Table = getattr(one, named)(other, key, plus, **options)
    return pairs


def _plain(b: StreamsBuilder, method: str) -> None:
    to_out(joined(method, left(b), right(b)))


def _register() -> None:
    for method in INNER_AND_LEFT:
        for name in PLAIN:
            case(f"foreign_key_{method}_{name}", partial(_plain, method=method))


_register()


@each_kind
def with_store(b: StreamsBuilder, method: str) -> None:
    joined(method, left(b), right(b), store=word_store("pairs")).to_stream().to("out")


@each_kind
def with_uncached_store(b: StreamsBuilder, method: str) -> None:
    joined(method, left(b), right(b), store=word_store("pairs", caching=False)).to_stream().to("out")


@each_kind
def named(b: StreamsBuilder, method: str) -> None:
    to_out(joined(method, left(b), right(b), name="refer"))


@each_kind
def named_with_store(b: StreamsBuilder, method: str) -> None:
    joined(method, left(b), right(b), name="refer", store=word_store("pairs")).to_stream().to("out")


@each_kind
def reference_of_key_and_value(b: StreamsBuilder, method: str) -> None:
    to_out(joined(method, left(b), right(b), reference_of_a))


@each_kind
def of_unnamed_stores(b: StreamsBuilder, method: str) -> None:
    to_out(joined(method, number_table(b, "left"), word_table(b, "right")))


@each_kind
def of_uncached(b: StreamsBuilder, method: str) -> None:
    one = b.table("left", **NUMBERS, store=number_store("lefts", caching=False))
    other = b.table("right", **WORDS, store=word_store("rights", caching=False))
    to_out(joined(method, one, other))


@each_kind
def of_views(b: StreamsBuilder, method: str) -> None:
    one = left(b).filter(lambda k, v: v != 5)
    to_out(joined(method, one, right(b).map_values(lambda v: v + "!")))


@each_kind
def of_versioned(b: StreamsBuilder, method: str) -> None:
    one = b.table("left", **NUMBERS, store=Store("lefts", **NUMBERS, versioned=100))
    other = b.table("right", **WORDS, store=word_versions("rights", 100))
    to_out(joined(method, one, other))


@each_kind
def of_counts(b: StreamsBuilder, method: str) -> None:
    by_key = numbers(b, "left").group_by_key(**NUMBERS)
    sums = by_key.reduce(lambda agg, v: (agg + v) % 9 + 1, store=number_store("sums"))
    to_out(joined(method, sums, right(b)))


@each_kind
def then_group_by(b: StreamsBuilder, method: str) -> None:
    lists = (
        joined(method, left(b), right(b))
        .group_by(lambda k, v: ("all", v), **WORDS)
        .aggregate(
            lambda: "",
            lambda k, v, collected: f"{collected},{v}",
            lambda k, v, collected: f"{collected},-{v}",
            store=word_store("lists"),
        )
    )
    lists.to_stream().to("out")


@each_kind
def then_joined_back(b: StreamsBuilder, method: str) -> None:
    one = left(b)
    pairs: Any = joined(method, one, right(b))
    to_out(pairs.left_join(one, plus))


@each_kind
def of_itself(b: StreamsBuilder, method: str) -> None:
    rows = right(b)
    to_out(joined(method, rows, rows, lambda k, v: v[1:]))


@each_kind
def twice(b: StreamsBuilder, method: str) -> None:
    one, other = left(b), right(b)
    to_out(joined(method, one, other))
    joined(method, one, other).to_stream().to("out2", **WORDS)


@each_kind
def of_a_join(b: StreamsBuilder, method: str) -> None:
    once = joined(method, left(b), right(b))
    to_out(joined(method, once, word_table(b, "third", "thirds"), lambda k, v: v[:1]))


@each_kind
def with_store_random(b: StreamsBuilder, method: str) -> None:
    joined(method, left(b), right(b), store=word_store("pairs")).to_stream().to("out")


@each_kind
def of_views_random(b: StreamsBuilder, method: str) -> None:
    one = left(b).filter(lambda k, v: v != 5)
    to_out(joined(method, one, right(b).filter(lambda k, v: v != "w3")))


@each_kind
def then_group_by_random(b: StreamsBuilder, method: str) -> None:
    grouped = joined(method, left(b), right(b)).group_by(lambda k, v: ("all", v), **WORDS)
    counts = grouped.count(store=number_store("counts"))
    counts.to_stream().map_values(str).to("out", **WORDS)


@each_kind
def then_joined_back_random(b: StreamsBuilder, method: str) -> None:
    one = left(b)
    pairs: Any = joined(method, one, right(b))
    to_out(pairs.outer_join(one, plus))
