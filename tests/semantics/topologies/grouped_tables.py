"""KTable.group_by: every update takes the old row out of its group and puts the new one in."""

from __future__ import annotations

from tests.semantics.registry import dsl
from tests.semantics.shapes import (
    NULL,
    NUMBERS,
    WORDS,
    number_store,
    number_table,
    numbers,
    word_store,
    word_table,
)

from millstream import KGroupedTable, KTable, StreamsBuilder


def _by_value(b: StreamsBuilder) -> KGroupedTable[str, str]:
    return word_table(b, "in").group_by(lambda k, v: (v, k), **WORDS)


def _count_by_value(rows: KTable[str, str]) -> KTable[str, int]:
    return rows.group_by(lambda k, v: (v, k), **WORDS).count(store=number_store("counts"))


def _plus(agg: str, v: str) -> str:
    return f"{agg}+{v}"


def _minus(agg: str, v: str) -> str:
    return f"{agg}-{v}"


def _add(key: str, v: str, agg: str) -> str:
    return f"{agg}+{v}"


def _subtract(key: str, v: str, agg: str) -> str:
    return f"{agg}-{v}"


def _sum_all(rows: KTable[str, int]) -> KTable[str, int]:
    """The sum of all rows, in the store "totals"."""
    return rows.group_by(lambda k, v: ("all", v), **NUMBERS).aggregate(
        lambda: 0, lambda k, v, agg: agg + v, lambda k, v, agg: agg - v, store=number_store("totals")
    )


@dsl
def table_group_by_count(b: StreamsBuilder) -> None:
    _by_value(b).count().to_stream().to("out", **NUMBERS)


@dsl
def table_group_by_count_with_store(b: StreamsBuilder) -> None:
    _by_value(b).count(store=number_store("counts")).to_stream().to("out")


@dsl
def table_group_by_count_named(b: StreamsBuilder) -> None:
    _by_value(b).count(name="counter", store=number_store("counts")).to_stream().to("out")


@dsl
def table_group_by_count_named_without_store(b: StreamsBuilder) -> None:
    _by_value(b).count(name="counter").to_stream().to("out", **NUMBERS)


@dsl
def table_group_by_count_uncached(b: StreamsBuilder) -> None:
    _by_value(b).count(store=number_store("counts", caching=False)).to_stream().to("out")


@dsl
def table_group_by_named_group(b: StreamsBuilder) -> None:
    grouped = word_table(b, "in").group_by(lambda k, v: (v, k), **WORDS, name="by-value")
    grouped.count().to_stream().to("out", **NUMBERS)


@dsl
def table_group_by_of_stored_table(b: StreamsBuilder) -> None:
    _count_by_value(word_table(b, "in", "rows")).to_stream().to("out")


@dsl
def table_group_by_of_uncached_table(b: StreamsBuilder) -> None:
    rows = b.table("in", **WORDS, store=word_store("rows", caching=False))
    _count_by_value(rows).to_stream().to("out")


@dsl
def table_group_by_reduce(b: StreamsBuilder) -> None:
    _by_value(b).reduce(_plus, _minus).to_stream().to("out", **WORDS)


@dsl
def table_group_by_reduce_with_store(b: StreamsBuilder) -> None:
    _by_value(b).reduce(_plus, _minus, name="trace", store=word_store("traces")).to_stream().to("out")


@dsl
def table_group_by_reduce_subtracting_to_null(b: StreamsBuilder) -> None:
    _by_value(b).reduce(_plus, lambda agg, v: NULL, store=word_store("traces")).to_stream().to("out")


@dsl
def table_group_by_aggregate(b: StreamsBuilder) -> None:
    traces = _by_value(b).aggregate(
        lambda: "",
        lambda k, v, agg: f"{agg}+{k}{v}",
        lambda k, v, agg: f"{agg}-{k}{v}",
        store=word_store("traces"),
    )
    traces.to_stream().to("out")


@dsl
def table_group_by_aggregate_named(b: StreamsBuilder) -> None:
    traces = _by_value(b).aggregate(
        lambda: "", lambda k, v, agg: f"{agg}+{v}", lambda k, v, agg: f"{agg}-{v}", **WORDS, name="trace"
    )
    traces.to_stream().to("out", **WORDS)


@dsl
def table_group_by_aggregate_subtracting_to_null(b: StreamsBuilder) -> None:
    traces = _by_value(b).aggregate(lambda: "", _add, lambda k, v, agg: NULL, store=word_store("traces"))
    traces.to_stream().to("out")


@dsl
def table_group_by_aggregate_subtracting_to_null_uncached(b: StreamsBuilder) -> None:
    store = word_store("traces", caching=False)
    traces = _by_value(b).aggregate(lambda: "", _add, lambda k, v, agg: NULL, store=store)
    traces.to_stream().to("out")


@dsl
def table_group_by_aggregate_adding_to_null(b: StreamsBuilder) -> None:
    def add_unless_b(key: str, v: str, agg: str) -> str:
        return NULL if v == "b" else f"{agg}+{v}"

    traces = _by_value(b).aggregate(lambda: "", add_unless_b, _subtract, store=word_store("traces"))
    traces.to_stream().to("out")


@dsl
def table_group_by_aggregate_uncached(b: StreamsBuilder) -> None:
    store = word_store("traces", caching=False)
    _by_value(b).aggregate(lambda: "", _add, _subtract, store=store).to_stream().to("out")


@dsl
def table_group_by_single_group(b: StreamsBuilder) -> None:
    grouped = word_table(b, "in").group_by(lambda k, v: ("all", v), **WORDS)
    grouped.aggregate(lambda: "", _add, _subtract, store=word_store("traces")).to_stream().to("out")


@dsl
def table_group_by_null_group(b: StreamsBuilder) -> None:
    def unless_y(key: str, value: str) -> tuple[str, str]:
        return NULL if value == "y" else value, key

    grouped = word_table(b, "in").group_by(unless_y, **WORDS)
    grouped.count(store=number_store("counts")).to_stream().to("out")


@dsl
def table_group_by_null_value(b: StreamsBuilder) -> None:
    def without_y(key: str, value: str) -> tuple[str, str]:
        return value, NULL if value == "y" else key

    grouped = word_table(b, "in").group_by(without_y, **WORDS)
    grouped.count(store=number_store("counts")).to_stream().to("out")


@dsl
def table_group_by_returning_null_takes_no_part(b: StreamsBuilder) -> None:
    def nothing_for_y(key: str, value: str) -> tuple[str, str]:
        return NULL if value == "y" else (value, key)

    grouped = word_table(b, "in").group_by(nothing_for_y, **WORDS)
    grouped.count(store=number_store("counts")).to_stream().to("out")


@dsl
def table_group_by_of_filtered_table(b: StreamsBuilder) -> None:
    _count_by_value(word_table(b, "in").filter(lambda k, v: v != "y")).to_stream().to("out")


@dsl
def table_group_by_of_stored_filter(b: StreamsBuilder) -> None:
    kept = word_table(b, "in").filter(lambda k, v: v != "y", store=word_store("kept"))
    _count_by_value(kept).to_stream().to("out")


@dsl
def table_group_by_of_mapped_table(b: StreamsBuilder) -> None:
    _count_by_value(word_table(b, "in").map_values(lambda v: v + v)).to_stream().to("out")


@dsl
def table_group_by_of_stored_map(b: StreamsBuilder) -> None:
    mapped = word_table(b, "in").map_values_with_key(lambda k, v: v + v, store=word_store("mapped"))
    _count_by_value(mapped).to_stream().to("out")


@dsl
def table_group_by_twice(b: StreamsBuilder) -> None:
    rows = word_table(b, "in")
    _count_by_value(rows).to_stream().to("out")
    doubled = rows.group_by(lambda k, v: (v + v, k), **WORDS)
    doubled.reduce(_plus, _minus, store=word_store("traces")).to_stream().to("traces-out")


@dsl
def table_two_aggregates_of_one_group(b: StreamsBuilder) -> None:
    grouped = _by_value(b)
    grouped.count(store=number_store("counts")).to_stream().to("out")
    grouped.reduce(_plus, _minus, store=word_store("traces")).to_stream().to("traces-out")


@dsl
def table_two_aggregates_of_one_named_group(b: StreamsBuilder) -> None:
    grouped = word_table(b, "in").group_by(lambda k, v: (v, k), **WORDS, name="by-value")
    grouped.count().to_stream().to("out", **NUMBERS)
    grouped.reduce(_plus, _minus).to_stream().to("traces-out", **WORDS)


@dsl
def table_group_by_of_counts(b: StreamsBuilder) -> None:
    counts = _by_value(b).count(store=number_store("counts"))
    by_count = counts.group_by(lambda k, v: (f"times-{v}", k), **WORDS)
    by_count.count(store=number_store("counts-of-counts")).to_stream().to("out")


@dsl
def table_group_by_then_filter(b: StreamsBuilder) -> None:
    counts = _by_value(b).count(store=number_store("counts"))
    counts.filter(lambda k, v: v > 1).to_stream().to("out")


@dsl
def table_group_by_after_to_stream_and_back(b: StreamsBuilder) -> None:
    counts = _by_value(b).count(store=number_store("counts"))
    copy = counts.to_stream().to_table(store=number_store("copy"))
    copy.map_values(lambda v: -v).to_stream().to("out", **NUMBERS)


@dsl
def table_group_by_sum(b: StreamsBuilder) -> None:
    by_size = number_table(b, "in").group_by(lambda k, v: ("small" if v < 10 else "large", v), **NUMBERS)
    totals = by_size.aggregate(
        lambda: 0, lambda k, v, agg: agg + v, lambda k, v, agg: agg - v, store=number_store("totals")
    )
    totals.to_stream().to("out")


@dsl
def table_group_by_of_uncached_count(b: StreamsBuilder) -> None:
    grouped = numbers(b, "in").group_by_key(**NUMBERS)
    _sum_all(grouped.count(store=number_store("counts", caching=False))).to_stream().to("out")


@dsl
def table_group_by_counting_uncached_counts(b: StreamsBuilder) -> None:
    counts = numbers(b, "in").group_by_key(**NUMBERS).count(store=number_store("counts", caching=False))
    keys = counts.group_by(lambda k, v: ("all", v), **NUMBERS).count(store=number_store("keys"))
    keys.to_stream().to("out")


@dsl
def table_group_by_of_uncached_aggregate(b: StreamsBuilder) -> None:
    grouped = numbers(b, "in").group_by_key(**NUMBERS)
    sums = grouped.aggregate(
        lambda: 1000, lambda k, v, agg: agg + v, store=number_store("sums", caching=False)
    )
    _sum_all(sums).to_stream().to("out")


@dsl
def table_group_by_of_cached_aggregate(b: StreamsBuilder) -> None:
    grouped = numbers(b, "in").group_by_key(**NUMBERS)
    sums = grouped.aggregate(lambda: 1000, lambda k, v, agg: agg + v, store=number_store("sums"))
    _sum_all(sums).to_stream().to("out")


@dsl
def table_group_by_of_uncached_reduce(b: StreamsBuilder) -> None:
    grouped = numbers(b, "in").group_by_key(**NUMBERS)
    sums = grouped.reduce(lambda agg, v: agg + v, store=number_store("sums", caching=False))
    _sum_all(sums).to_stream().to("out")


@dsl
def table_group_by_three_levels(b: StreamsBuilder) -> None:
    rows = number_table(b, "in", "rows")
    mods = rows.group_by(lambda k, v: (f"mod{v % 3}", v), **NUMBERS).aggregate(
        lambda: 0, lambda k, v, agg: agg + v, lambda k, v, agg: agg - v, store=number_store("mods")
    )
    parities = mods.group_by(lambda k, v: (f"mod{v % 2}", v), **NUMBERS).aggregate(
        lambda: 0, lambda k, v, agg: agg + v, lambda k, v, agg: agg - v, store=number_store("parities")
    )
    parities.to_stream().to("out")
