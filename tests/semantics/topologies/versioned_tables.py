"""Tables whose stores keep the history of each key."""

from __future__ import annotations

from functools import partial

from tests.semantics.registry import case, dsl
from tests.semantics.shapes import NULL, NUMBERS, WORDS, number_store, numbers
from tests.semantics.window_shapes import grouped

from millstream import KTable, Store, StreamsBuilder

HISTORY_OF_TABLES = {
    "versioned_table": 100,
    "versioned_table_history_at_the_bound": 10,
    "versioned_table_history_is_per_store": 10,
    "versioned_table_without_history": 0,
    "versioned_table_equal_timestamps": 100,
    "versioned_table_tombstones": 100,
    "versioned_table_near_zero": 100,
    "versioned_table_latest_outlives_history": 10,
    "versioned_table_random": 15,
    "versioned_table_minutes_random": 100_000,
}

HISTORY_OF_COUNTS = {
    "versioned_count": 100,
    "versioned_count_history_at_the_bound": 10,
    "versioned_count_random": 15,
}


def _versions(name: str, history: int) -> Store:
    return Store(name, **NUMBERS, versioned=history)


def _table(b: StreamsBuilder, history: int = 100) -> KTable[str, int]:
    return b.table("in", **NUMBERS, store=_versions("store", history))


def _streamed(b: StreamsBuilder, history: int) -> None:
    _table(b, history).to_stream().to("out")


def _counted(b: StreamsBuilder, history: int = 100) -> KTable[str, int]:
    return grouped(b).count(store=_versions("counts", history))


def _streamed_counts(b: StreamsBuilder, history: int) -> None:
    _counted(b, history).to_stream().to("out")


def _register() -> None:
    for name, history in HISTORY_OF_TABLES.items():
        case(name, partial(_streamed, history=history))
    for name, history in HISTORY_OF_COUNTS.items():
        case(name, partial(_streamed_counts, history=history))


_register()


def _parity(key: str, value: int) -> tuple[str, int]:
    return "even" if value % 2 == 0 else "odd", value


def _total(table: KTable[str, int], store: Store) -> None:
    everything = table.group_by(lambda k, v: ("all", v), **NUMBERS)
    everything.reduce(lambda agg, v: agg + v, lambda agg, v: agg - v, store=store).to_stream().to("out")


@dsl
def versioned_table_nobody_reads(b: StreamsBuilder) -> None:
    _table(b)


@dsl
def versioned_stream_to_table(b: StreamsBuilder) -> None:
    numbers(b, "in").to_table(store=_versions("store", 100)).to_stream().to("out")


@dsl
def versioned_table_filter(b: StreamsBuilder) -> None:
    _table(b).filter(lambda k, v: v > 2).to_stream().to("out", **NUMBERS)


@dsl
def versioned_table_filter_with_store(b: StreamsBuilder) -> None:
    _table(b).filter(lambda k, v: v > 2, store=number_store("big")).to_stream().to("out")


@dsl
def versioned_table_filter_with_versioned_store(b: StreamsBuilder) -> None:
    _table(b).filter(lambda k, v: v > 2, store=_versions("big", 100)).to_stream().to("out")


@dsl
def versioned_table_map_values(b: StreamsBuilder) -> None:
    _table(b).map_values(lambda v: v * 10).to_stream().to("out", **NUMBERS)


@dsl
def versioned_table_map_values_with_store(b: StreamsBuilder) -> None:
    _table(b).map_values(lambda v: v * 10, store=number_store("tens")).to_stream().to("out")


@dsl
def versioned_table_map_values_with_versioned_store(b: StreamsBuilder) -> None:
    _table(b).map_values(lambda v: v * 10, store=_versions("tens", 100)).to_stream().to("out")


@dsl
def versioned_table_chain(b: StreamsBuilder) -> None:
    texts = _table(b).filter(lambda k, v: v > 2).map_values_with_key(lambda k, v: f"{k}{v}")
    texts.filter_not(lambda k, v: v == "a7").to_stream().to("out", **WORDS)


@dsl
def versioned_table_group_by_count(b: StreamsBuilder) -> None:
    by_parity = _table(b).group_by(_parity, **NUMBERS)
    by_parity.count(store=number_store("counts")).to_stream().to("out")


@dsl
def versioned_table_group_by_sum(b: StreamsBuilder) -> None:
    _total(_table(b), number_store("totals"))


@dsl
def versioned_table_filter_then_group_by(b: StreamsBuilder) -> None:
    big = _table(b).filter(lambda k, v: v > 2).group_by(lambda k, v: ("all", v), **NUMBERS)
    totals = big.aggregate(
        lambda: 0, lambda k, v, agg: agg + v, lambda k, v, agg: agg - v, store=number_store("totals")
    )
    totals.to_stream().to("out")


@dsl
def versioned_table_map_values_then_group_by(b: StreamsBuilder) -> None:
    _total(_table(b).map_values(lambda v: v * 10), number_store("totals"))


@dsl
def versioned_table_group_by_into_versions(b: StreamsBuilder) -> None:
    _total(_table(b), _versions("totals", 100))


@dsl
def versioned_table_to_stream_then_count(b: StreamsBuilder) -> None:
    again = _table(b).to_stream().group_by_key(**NUMBERS)
    again.count(store=number_store("counts")).to_stream().to("out")


@dsl
def versioned_reduce(b: StreamsBuilder) -> None:
    digits = grouped(b).reduce(lambda agg, v: agg * 10 + v, store=_versions("digits", 100))
    digits.to_stream().to("out")


@dsl
def versioned_aggregate_returning_null(b: StreamsBuilder) -> None:
    sums = grouped(b).aggregate(
        lambda: 0, lambda k, v, agg: NULL if v == 2 else agg + v, store=_versions("sums", 100)
    )
    sums.to_stream().to("out")


@dsl
def versioned_count_filter(b: StreamsBuilder) -> None:
    _counted(b).filter(lambda k, v: v % 2 == 0).to_stream().to("out", **NUMBERS)


@dsl
def versioned_count_group_by(b: StreamsBuilder) -> None:
    _total(_counted(b), number_store("totals"))


@dsl
def versioned_table_filter_random(b: StreamsBuilder) -> None:
    _table(b, 30).filter(lambda k, v: v > 4).to_stream().to("out", **NUMBERS)


@dsl
def versioned_table_map_values_with_versioned_store_random(b: StreamsBuilder) -> None:
    _table(b, 30).map_values(lambda v: v * 10, store=_versions("tens", 20)).to_stream().to("out")


@dsl
def versioned_table_group_by_random(b: StreamsBuilder) -> None:
    by_parity = _table(b, 15).group_by(_parity, **NUMBERS)
    totals = by_parity.reduce(lambda agg, v: agg + v, lambda agg, v: agg - v, store=number_store("totals"))
    totals.to_stream().to("out")


@dsl
def versioned_table_filter_then_group_by_random(b: StreamsBuilder) -> None:
    by_parity = _table(b, 15).filter(lambda k, v: v > 3).group_by(_parity, **NUMBERS)
    by_parity.count(store=number_store("counts")).to_stream().to("out")


@dsl
def versioned_aggregate_with_tombstones_random(b: StreamsBuilder) -> None:
    sums = grouped(b).aggregate(
        lambda: 100, lambda k, v, agg: NULL if v == 7 else agg + v, store=_versions("sums", 15)
    )
    sums.to_stream().to("out")
