"""group_by_key and group_by with count, reduce, aggregate, and our own sum, min and max."""

from __future__ import annotations

import re

from tests.semantics.registry import dsl
from tests.semantics.shapes import (
    NULL,
    NUMBERS,
    WORDS,
    number_store,
    numbers,
    word_store,
    words,
)

from millstream import KStream, KTable, StreamsBuilder, serdes


@dsl
def count(b: StreamsBuilder) -> None:
    counts = words(b, "in").group_by_key(**WORDS).count(store=number_store("counts"))
    counts.to_stream().to("out", **NUMBERS)


@dsl
def count_unnamed_store(b: StreamsBuilder) -> None:
    words(b, "in").group_by_key(**WORDS).count().to_stream().to("out", **NUMBERS)


@dsl
def count_named(b: StreamsBuilder) -> None:
    words(b, "in").group_by_key(**WORDS).count(name="counter").to_stream().to("out", **NUMBERS)


@dsl
def count_named_with_store(b: StreamsBuilder) -> None:
    counts = words(b, "in").group_by_key(**WORDS).count(name="counter", store=number_store("counts"))
    counts.to_stream(name="changes").to("out", **NUMBERS)


@dsl
def count_uncached(b: StreamsBuilder) -> None:
    counts = words(b, "in").group_by_key(**WORDS).count(store=number_store("counts", caching=False))
    counts.to_stream().to("out", **NUMBERS)


@dsl
def count_unlogged(b: StreamsBuilder) -> None:
    counts = words(b, "in").group_by_key(**WORDS).count(store=number_store("counts", logging=False))
    counts.to_stream().to("out", **NUMBERS)


@dsl
def count_of_named_group_without_rekeying(b: StreamsBuilder) -> None:
    words(b, "in").group_by_key(**WORDS, name="unused").count().to_stream().to("out", **NUMBERS)


@dsl
def count_nobody_reads(b: StreamsBuilder) -> None:
    words(b, "in").group_by_key(**WORDS).count(store=number_store("counts"))


@dsl
def group_by_count(b: StreamsBuilder) -> None:
    words(b, "in").group_by(lambda k, v: v, **WORDS).count().to_stream().to("out", **NUMBERS)


@dsl
def group_by_count_with_store(b: StreamsBuilder) -> None:
    counts = words(b, "in").group_by(lambda k, v: v, **WORDS).count(store=number_store("counts"))
    counts.to_stream().to("out", **NUMBERS)


@dsl
def group_by_named_group(b: StreamsBuilder) -> None:
    grouped = words(b, "in").group_by(lambda k, v: v, **WORDS, name="by-value")
    grouped.count().to_stream().to("out", **NUMBERS)


@dsl
def group_by_everything_named(b: StreamsBuilder) -> None:
    grouped = b.stream("in", **WORDS, name="source").group_by(lambda k, v: v, **WORDS, name="by-value")
    counts = grouped.count(name="counter", store=number_store("counts"))
    counts.to_stream(name="changes").to("out", **NUMBERS, name="sink")


@dsl
def group_by_null_group(b: StreamsBuilder) -> None:
    grouped = words(b, "in").group_by(
        lambda k, v: NULL if v == "x" else v, key=serdes.string, value=serdes.string
    )
    grouped.count(store=number_store("counts")).to_stream().to("out", **NUMBERS)


@dsl
def group_by_int_key(b: StreamsBuilder) -> None:
    (
        words(b, "in")
        .filter(lambda k, v: v is not None)
        .group_by(lambda k, v: len(v) - 1, key=serdes.int32, value=serdes.string)
        .count(store="counts")
        .to_stream()
        .to("out", key=serdes.int32, value=serdes.int64)
    )


@dsl
def word_count(b: StreamsBuilder) -> None:
    (
        words(b, "in")
        .filter(lambda k, v: v is not None)
        .flat_map_values(lambda v: re.split(r"\W+", v.lower()))
        .group_by(lambda k, v: v, **WORDS)
        .count(store=number_store("counts"))
        .to_stream()
        .to("out", **NUMBERS)
    )


@dsl
def reduce(b: StreamsBuilder) -> None:
    words(b, "in").group_by_key(**WORDS).reduce(lambda agg, v: agg + v).to_stream().to("out", **WORDS)


@dsl
def reduce_with_store(b: StreamsBuilder) -> None:
    joined = words(b, "in").group_by_key(**WORDS).reduce(lambda agg, v: agg + v, store=word_store("joined"))
    joined.to_stream().to("out")


@dsl
def reduce_named(b: StreamsBuilder) -> None:
    grouped = words(b, "in").group_by_key(**WORDS)
    joined = grouped.reduce(lambda agg, v: agg + v, name="concatenate", store=word_store("joined"))
    joined.to_stream().to("out")


@dsl
def reduce_returning_null(b: StreamsBuilder) -> None:
    def drop_repeats(agg: str, v: str) -> str:
        return NULL if agg == v else v

    joined = words(b, "in").group_by_key(**WORDS).reduce(drop_repeats, store=word_store("joined"))
    joined.to_stream().to("out")


@dsl
def group_by_reduce(b: StreamsBuilder) -> None:
    grouped = words(b, "in").group_by(lambda k, v: v, **WORDS)
    grouped.reduce(lambda agg, v: agg + v).to_stream().to("out", **WORDS)


@dsl
def aggregate(b: StreamsBuilder) -> None:
    grouped = numbers(b, "in").group_by_key(**NUMBERS)
    log = grouped.aggregate(lambda: "", lambda k, v, agg: f"{agg}{k}{v};", store=word_store("log"))
    log.to_stream().to("out")


@dsl
def aggregate_unnamed_store(b: StreamsBuilder) -> None:
    grouped = numbers(b, "in").group_by_key(**NUMBERS)
    log = grouped.aggregate(lambda: "", lambda k, v, agg: f"{agg}{k}{v};", **WORDS)
    log.to_stream().to("out", **WORDS)


@dsl
def aggregate_named(b: StreamsBuilder) -> None:
    grouped = numbers(b, "in").group_by_key(**NUMBERS)
    totals = grouped.aggregate(
        lambda: 0, lambda k, v, agg: agg + v, name="total", store=number_store("totals")
    )
    totals.to_stream().to("out")


def _sum_until_negative(key: str, value: int, agg: int) -> int:
    return NULL if value < 0 else agg + value


@dsl
def aggregate_returning_null(b: StreamsBuilder) -> None:
    grouped = numbers(b, "in").group_by_key(**NUMBERS)
    grouped.aggregate(lambda: 0, _sum_until_negative, store=number_store("totals")).to_stream().to("out")


@dsl
def aggregate_returning_null_uncached(b: StreamsBuilder) -> None:
    grouped = numbers(b, "in").group_by_key(**NUMBERS)
    totals = grouped.aggregate(lambda: 0, _sum_until_negative, store=number_store("totals", caching=False))
    totals.to_stream().to("out")


@dsl
def aggregate_from_null_initializer(b: StreamsBuilder) -> None:
    def subtract(key: str, value: int, agg: int) -> int:
        return value if agg is None else agg - value

    grouped = numbers(b, "in").group_by_key(**NUMBERS)
    grouped.aggregate(lambda: NULL, subtract, store=number_store("totals")).to_stream().to("out")


@dsl
def aggregate_raising_fails(b: StreamsBuilder) -> None:
    grouped = numbers(b, "in").group_by_key(**NUMBERS)
    totals = grouped.aggregate(lambda: 0, lambda k, v, agg: 10 // v, store=number_store("totals"))
    totals.to_stream().to("out")


@dsl
def sum_of_values(b: StreamsBuilder) -> None:
    totals: KTable[str, int] = numbers(b, "in").group_by_key(**NUMBERS).sum(store=number_store("totals"))
    totals.to_stream().to("out")


@dsl
def sum_of_lengths(b: StreamsBuilder) -> None:
    totals = words(b, "in").group_by_key(**WORDS).sum(len, store=number_store("totals"))
    totals.to_stream().to("out")


@dsl
def min_of_values(b: StreamsBuilder) -> None:
    least: KTable[str, int] = numbers(b, "in").group_by_key(**NUMBERS).min(store=number_store("least"))
    least.to_stream().to("out")


@dsl
def max_of_values(b: StreamsBuilder) -> None:
    greatest: KTable[str, int] = numbers(b, "in").group_by_key(**NUMBERS).max(store=number_store("greatest"))
    greatest.to_stream().to("out")


def _three_times(value: str) -> list[str]:
    return [] if value is None else [value] * 3


def _once_and_doubled(value: str) -> list[str]:
    return [] if value is None else [value, value + value]


@dsl
def count_collapses_updates_of_one_record(b: StreamsBuilder) -> None:
    grouped = words(b, "in").flat_map_values(_three_times).group_by_key(**WORDS)
    grouped.count(store=number_store("counts")).to_stream().to("out", **NUMBERS)


@dsl
def count_uncached_shows_every_update(b: StreamsBuilder) -> None:
    grouped = words(b, "in").flat_map_values(_three_times).group_by_key(**WORDS)
    grouped.count(store=number_store("counts", caching=False)).to_stream().to("out", **NUMBERS)


@dsl
def count_caches_flush_after_direct_output(b: StreamsBuilder) -> None:
    twice = words(b, "in").flat_map_values(_once_and_doubled)
    counts = twice.group_by_key(**WORDS).count(store=number_store("counts"))
    counts.to_stream().map_values(lambda v: f"count {v}").to("out", **WORDS)
    twice.to("out", **WORDS)


@dsl
def count_two_caches_flush_in_order(b: StreamsBuilder) -> None:
    stream = words(b, "in").filter(lambda k, v: v is not None)
    first = stream.group_by_key(**WORDS).reduce(lambda agg, v: agg + v, store=word_store("zz-first"))
    first.to_stream().map_values(lambda v: f"first {v}").to("out", **WORDS)
    second = stream.group_by_key(**WORDS).count(store=number_store("aa-second"))
    second.to_stream().map_values(lambda v: f"second {v}").to("out", **WORDS)


@dsl
def aggregate_of_table_updates_cached_twice(b: StreamsBuilder) -> None:
    grouped = words(b, "in").flat_map_values(_once_and_doubled).group_by_key(**WORDS)
    counts = grouped.count(store=number_store("counts")).to_stream()
    sums = counts.group_by_key(**NUMBERS).reduce(lambda agg, v: agg + 100 * v, store=number_store("sums"))
    sums.to_stream().to("out")


def _split(b: StreamsBuilder) -> KStream[str, int]:
    """A word per number, as numbers."""
    return words(b, "in").flat_map_values(lambda v: [int(word) for word in v.split()])


@dsl
def aggregate_collapses_to_nothing_or_tombstone(b: StreamsBuilder) -> None:
    grouped = _split(b).group_by_key(**NUMBERS)
    totals = grouped.aggregate(lambda: 0, _sum_until_negative, store=number_store("totals"))
    totals.to_stream().to("out")


@dsl
def aggregate_uncached_shows_every_null(b: StreamsBuilder) -> None:
    grouped = _split(b).group_by_key(**NUMBERS)
    totals = grouped.aggregate(lambda: 0, _sum_until_negative, store=number_store("totals", caching=False))
    totals.to_stream().to("out")


@dsl
def aggregate_collapsed_updates_in_a_table_group(b: StreamsBuilder) -> None:
    grouped = _split(b).group_by_key(**NUMBERS)
    totals = grouped.aggregate(lambda: 0, _sum_until_negative, store=number_store("totals"))
    by_nothing = totals.group_by(lambda k, v: ("all", v), **NUMBERS)
    everything = by_nothing.reduce(
        lambda agg, v: agg + v, lambda agg, v: agg - v, store=number_store("grand-total")
    )
    everything.to_stream().to("out")


@dsl
def select_key_then_group_by_key(b: StreamsBuilder) -> None:
    grouped = words(b, "in").select_key(lambda k, v: v).group_by_key(**WORDS)
    grouped.count().to_stream().to("out", **NUMBERS)


@dsl
def select_key_then_named_group_by_key(b: StreamsBuilder) -> None:
    rekeyed = words(b, "in").select_key(lambda k, v: v, name="rekey")
    counts = rekeyed.group_by_key(**WORDS, name="regrouped").count(store=number_store("counts"))
    counts.to_stream().to("out", **NUMBERS)


@dsl
def rekeying_is_remembered_through_value_operators(b: StreamsBuilder) -> None:
    (
        words(b, "in")
        .filter(lambda k, v: v is not None)
        .map(lambda k, v: (v, k))
        .map_values(lambda v: f"{v}!")
        .filter(lambda k, v: True)
        .peek(lambda k, v: None)
        .group_by_key(**WORDS)
        .count()
        .to_stream()
        .to("out", **NUMBERS)
    )


@dsl
def value_operators_need_no_repartition(b: StreamsBuilder) -> None:
    (
        words(b, "in")
        .map_values(lambda v: "none" if v is None else v)
        .filter(lambda k, v: True)
        .flat_map_values(lambda v: [v])
        .peek(lambda k, v: None)
        .group_by_key(**WORDS)
        .count()
        .to_stream()
        .to("out", **NUMBERS)
    )


@dsl
def two_groupings_of_one_rekeyed_stream(b: StreamsBuilder) -> None:
    rekeyed = words(b, "in").select_key(lambda k, v: v)
    rekeyed.group_by_key(**WORDS).count().to_stream().to("out", **NUMBERS)
    rekeyed.group_by_key(**WORDS).reduce(lambda agg, v: agg + v).to_stream().to("words", **WORDS)


@dsl
def two_named_groupings_of_one_rekeyed_stream(b: StreamsBuilder) -> None:
    rekeyed = words(b, "in").select_key(lambda k, v: v)
    first = rekeyed.group_by_key(**WORDS, name="first")
    first.count().to_stream().to("out", **NUMBERS)
    second = rekeyed.group_by_key(**WORDS, name="second")
    second.reduce(lambda agg, v: agg + v).to_stream().to("words", **WORDS)


@dsl
def two_aggregates_of_one_group(b: StreamsBuilder) -> None:
    grouped = words(b, "in").group_by(lambda k, v: v, **WORDS, name="shared")
    grouped.count().to_stream().to("out", **NUMBERS)
    grouped.reduce(lambda agg, v: agg + v).to_stream().to("words", **WORDS)


@dsl
def two_aggregates_of_one_unnamed_group(b: StreamsBuilder) -> None:
    grouped = words(b, "in").group_by(lambda k, v: v, **WORDS)
    grouped.count(store=number_store("counts")).to_stream().to("out", **NUMBERS)
    joined = grouped.reduce(lambda agg, v: agg + v, store=word_store("joined"))
    joined.to_stream().to("words", **WORDS)


@dsl
def two_aggregates_of_one_key_group(b: StreamsBuilder) -> None:
    grouped = words(b, "in").group_by_key(**WORDS)
    grouped.count().to_stream().to("out", **NUMBERS)
    grouped.reduce(lambda agg, v: agg + v).to_stream().to("words", **WORDS)


@dsl
def merge_of_rekeyed_and_plain_is_repartitioned(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    merged = stream.merge(stream.select_key(lambda k, v: v))
    counts = merged.group_by_key(**WORDS).count(store=number_store("counts"))
    counts.to_stream().to("out", **NUMBERS)


@dsl
def count_of_counts(b: StreamsBuilder) -> None:
    counts = words(b, "in").group_by_key(**WORDS).count(store=number_store("counts"))
    by_count = counts.to_stream().map(lambda k, v: (f"times-{v}", k)).group_by_key(**WORDS)
    by_count.count(store=number_store("counts-of-counts")).to_stream().to("out", **NUMBERS)


@dsl
def counts_merged_with_events(b: StreamsBuilder) -> None:
    stream = words(b, "in")
    counts = stream.group_by_key(**WORDS).count(store=number_store("counts"))
    counts.to_stream().map_values(lambda v: f"count {v}").merge(stream).to("out", **WORDS)


@dsl
def group_by_raising_fails(b: StreamsBuilder) -> None:
    words(b, "in").group_by(lambda k, v: v[1:], **WORDS).count().to_stream().to("out", **NUMBERS)
