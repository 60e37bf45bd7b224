"""Tables joined with tables by their keys."""

from __future__ import annotations

from typing import Any

from tests.semantics.join_shapes import for_each, plus, text_after_first, to_out, word_versions
from tests.semantics.registry import dsl
from tests.semantics.shapes import WORDS, number_store, word_store, word_table, words

from millstream import KTable, Store, StreamsBuilder

Table = KTable[Any, Any]

each_kind = for_each("table_table")


def left(b: StreamsBuilder) -> Table:
    return word_table(b, "left", "lefts")


def right(b: StreamsBuilder) -> Table:
    return word_table(b, "right", "rights")


def uncached(b: StreamsBuilder, topic: str) -> Table:
    return b.table(topic, **WORDS, store=word_store(f"{topic}s", caching=False))


def versioned(b: StreamsBuilder, topic: str) -> Table:
    return b.table(topic, **WORDS, store=word_versions(f"{topic}s", 30))


def joined(method: str, one: Table, other: Table, store: Store | None = None, **options: Any) -> Table:
    pairs: Table = getattr(one, method)(other, plus, store=store, **options)
    return pairs


def grouped(pairs: Table) -> None:
    """All pairs in one list: what is taken out of it again shows the old values."""
    lists = pairs.group_by(lambda k, v: ("all", v), **WORDS).aggregate(
        lambda: "",
        lambda k, v, collected: f"{collected},{v}",
        lambda k, v, collected: f"{collected},-{v}",
        store=word_store("lists"),
    )
    lists.to_stream().to("out")


@each_kind
def nulls_and_tombstones(b: StreamsBuilder, method: str) -> None:
    to_out(joined(method, left(b), right(b)))


@each_kind
def with_store(b: StreamsBuilder, method: str) -> None:
    joined(method, left(b), right(b), word_store("pairs")).to_stream().to("out")


@each_kind
def with_uncached_store(b: StreamsBuilder, method: str) -> None:
    joined(method, left(b), right(b), word_store("pairs", caching=False)).to_stream().to("out")


@each_kind
def of_uncached(b: StreamsBuilder, method: str) -> None:
    to_out(joined(method, uncached(b, "left"), uncached(b, "right")))


@each_kind
def of_unnamed_stores(b: StreamsBuilder, method: str) -> None:
    to_out(joined(method, word_table(b, "left"), word_table(b, "right")))


@each_kind
def of_filtered(b: StreamsBuilder, method: str) -> None:
    one = left(b).filter(lambda k, v: not v.endswith("2"))
    to_out(joined(method, one, right(b).filter(lambda k, v: not v.endswith("3"))))


@each_kind
def of_mapped(b: StreamsBuilder, method: str) -> None:
    one = left(b).map_values(lambda v: v + "!")
    to_out(joined(method, one, right(b).map_values(lambda v: v + "?")))


@each_kind
def of_mapped_with_stores(b: StreamsBuilder, method: str) -> None:
    one = left(b).map_values(lambda v: v + "!", store=word_store("loud"))
    to_out(joined(method, one, right(b).map_values(lambda v: v + "?", store=word_store("asked"))))


@each_kind
def then_filter(b: StreamsBuilder, method: str) -> None:
    to_out(joined(method, left(b), right(b)).filter(lambda k, v: "2" not in v))


@each_kind
def with_store_then_filter(b: StreamsBuilder, method: str) -> None:
    to_out(joined(method, left(b), right(b), word_store("pairs")).filter(lambda k, v: "2" not in v))


@each_kind
def then_group_by(b: StreamsBuilder, method: str) -> None:
    grouped(joined(method, left(b), right(b)))


@each_kind
def with_store_then_group_by(b: StreamsBuilder, method: str) -> None:
    grouped(joined(method, left(b), right(b), word_store("pairs")))


@each_kind
def of_uncached_then_group_by(b: StreamsBuilder, method: str) -> None:
    grouped(joined(method, uncached(b, "left"), uncached(b, "right")))


@each_kind
def of_versioned(b: StreamsBuilder, method: str) -> None:
    to_out(joined(method, versioned(b, "left"), versioned(b, "right")))


@each_kind
def of_versioned_then_group_by(b: StreamsBuilder, method: str) -> None:
    grouped(joined(method, versioned(b, "left"), versioned(b, "right")))


@each_kind
def into_versioned_store(b: StreamsBuilder, method: str) -> None:
    joined(method, left(b), right(b), word_versions("pairs", 100)).to_stream().to("out")


@each_kind
def of_itself(b: StreamsBuilder, method: str) -> None:
    rows = left(b)
    to_out(joined(method, rows, rows))


@each_kind
def of_its_own_view(b: StreamsBuilder, method: str) -> None:
    rows = left(b)
    to_out(joined(method, rows, rows.map_values(lambda v: v + "!")))


@each_kind
def random(b: StreamsBuilder, method: str) -> None:
    to_out(joined(method, left(b), right(b)))


@each_kind
def with_store_random(b: StreamsBuilder, method: str) -> None:
    joined(method, left(b), right(b), word_store("pairs")).to_stream().to("out")


@each_kind
def then_group_by_random(b: StreamsBuilder, method: str) -> None:
    store = word_store("pairs", caching=False)
    grouped(joined(method, uncached(b, "left"), uncached(b, "right"), store))


@each_kind
def of_three_random(b: StreamsBuilder, method: str) -> None:
    once = joined(method, left(b), right(b))
    to_out(joined(method, once, word_table(b, "third", "thirds")))


@each_kind
def of_versioned_random(b: StreamsBuilder, method: str) -> None:
    to_out(joined(method, versioned(b, "left"), versioned(b, "right"), word_store("pairs")))


@each_kind
def of_views_random(b: StreamsBuilder, method: str) -> None:
    one = left(b).filter(lambda k, v: v != "w5")
    pairs = joined(method, one, right(b).map_values(lambda v: v + "!"))
    to_out(pairs.filter(lambda k, v: "3" not in v))


@dsl
def table_table_join_named(b: StreamsBuilder) -> None:
    to_out(joined("join", left(b), right(b), name="pair"))


@dsl
def table_table_left_join_named_with_store(b: StreamsBuilder) -> None:
    joined("left_join", left(b), right(b), word_store("pairs"), name="pair").to_stream().to("out")


@dsl
def table_table_outer_join_named(b: StreamsBuilder) -> None:
    to_out(joined("outer_join", left(b), right(b), name="pair"))


@dsl
def table_table_join_of_joins(b: StreamsBuilder) -> None:
    one, other = left(b), right(b)
    twice = joined("left_join", joined("outer_join", one, other), other)
    to_out(joined("join", twice, one))


@dsl
def table_table_join_of_counts(b: StreamsBuilder) -> None:
    one = words(b, "left").group_by_key(**WORDS).count(store=number_store("ones"))
    other = words(b, "right").group_by_key(**WORDS).count(store=number_store("others"))
    to_out(joined("outer_join", one, other))


@dsl
def table_table_join_of_rekeyed_counts(b: StreamsBuilder) -> None:
    def counted(topic: str, store: str) -> Table:
        grouped = words(b, topic).group_by(lambda k, v: text_after_first(v), **WORDS)
        return grouped.count(store=number_store(store))

    to_out(joined("left_join", counted("left", "ones"), counted("right", "others")))


@dsl
def table_table_join_then_joined_by_a_stream(b: StreamsBuilder) -> None:
    pairs = joined("join", left(b), right(b))
    stream: Any = words(b, "third")
    stream.left_join(pairs, plus, **WORDS).to("out", **WORDS)


@dsl
def table_table_join_of_a_stream_as_table(b: StreamsBuilder) -> None:
    to_out(joined("join", words(b, "left").to_table(store=word_store("lefts")), right(b)))


@dsl
def table_table_join_of_a_rekeyed_stream_as_table(b: StreamsBuilder) -> None:
    table = words(b, "left").select_key(lambda k, v: k).to_table(store=word_store("lefts"))
    to_out(joined("outer_join", table, right(b)))


@dsl
def table_table_join_of_tables_that_change_together_then_group_by(b: StreamsBuilder) -> None:
    """The old values are of one table as it was and the other as it is: nobody ever got some of them."""
    stream = words(b, "left")
    loud = stream.map_values(lambda v: None if v is None else v + "!").to_table(store=word_store("loud"))
    grouped(joined("join", stream.to_table(store=word_store("lefts")), loud))


@dsl
def table_table_join_of_grouped_table(b: StreamsBuilder) -> None:
    counts = left(b).group_by(lambda k, v: (v[1:], v), **WORDS).count(store=number_store("counts"))
    to_out(joined("outer_join", counts, right(b)))


@dsl
def table_table_join_returning_null(b: StreamsBuilder) -> None:
    one: Any = left(b)
    pairs = one.join(
        right(b),
        lambda one, other: None if one.endswith("2") else plus(one, other),
        store=word_store("pairs"),
    )
    pairs.to_stream().to("out")


@dsl
def table_table_outer_join_returning_null(b: StreamsBuilder) -> None:
    one: Any = left(b)
    to_out(
        one.outer_join(
            right(b), lambda one, other: None if one is None or one.endswith("2") else plus(one, other)
        )
    )
