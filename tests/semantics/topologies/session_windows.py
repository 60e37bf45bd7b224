"""Session windows: records of a key that are at most a gap apart. Sessions grow and merge."""

from __future__ import annotations

from functools import partial

from tests.semantics.registry import case, dsl
from tests.semantics.shapes import NULL, NUMBERS, WORDS, number_store, numbers, text, words
from tests.semantics.window_shapes import (
    KEEP,
    Counts,
    grouped,
    in_sessions,
    number_windows,
    word_windows,
)

from millstream import SessionWindows, Store, StreamsBuilder, serdes

COLLECTING = {
    "session_gap_is_inclusive": SessionWindows(5, grace=100),
    "session_gap_and_one_more": SessionWindows(5, grace=100),
    "session_bridges_two": SessionWindows(5, grace=100),
    "session_bridges_two_only_just_not": SessionWindows(5, grace=100),
    "session_bridges_three": SessionWindows(10, grace=100),
    "session_equal_timestamps": SessionWindows(5, grace=100),
    "session_record_inside_a_session": SessionWindows(5, grace=100),
    "session_grows_backwards": SessionWindows(5, grace=100),
    "session_near_zero": SessionWindows(5, grace=100),
    "session_keys_have_sessions_of_their_own": SessionWindows(5, grace=100),
    "session_aggregates_null_values_and_skips_null_keys": SessionWindows(5),
    "session_headers": SessionWindows(5, grace=100),
    "session_collect_random": SessionWindows(4, grace=10),
}

COUNTING = {
    "session_gap_of_zero": SessionWindows(0, grace=100),
    "session_late_at_the_bound": SessionWindows(5),
    "session_late_one_below_the_bound": SessionWindows(5),
    "session_late_at_the_bound_of_grace": SessionWindows(5, grace=7),
    "session_late_record_of_a_live_session": SessionWindows(5),
    "session_time_of_one_key_closes_another": SessionWindows(5),
    "session_jump_of_time": SessionWindows(5, grace=3),
    "session_count_random": SessionWindows(5),
    "session_count_random_with_grace": SessionWindows(5, grace=12),
    "session_count_random_sparse": SessionWindows(10, grace=20),
}

RETENTION = {
    "session_retention_hides_sessions_at_the_bound": 5,
    "session_retention_shows_sessions_above_the_bound": 6,
    "session_retention_hides_what_a_record_would_reach": 5,
    "session_retention_longer_lets_a_record_reach_it": 11,
    "session_retention_below_gap_is_refused": 4,
}

WINDOWS_REFUSED = {
    "session_negative_gap_is_refused": {"gap": -1},
    "session_negative_grace_is_refused": {"gap": 5, "grace": -1},
}


def _collect(b: StreamsBuilder, windows: SessionWindows) -> None:
    logs = (
        grouped(b)
        .windowed_by(windows)
        .aggregate(
            lambda: "",
            lambda k, v, agg: f"{agg}{text(v)};",
            lambda k, one, other: f"{one}+{other}",
            store=word_windows("log", KEEP),
        )
    )
    logs.to_stream().to("out")


def _count(b: StreamsBuilder, windows: SessionWindows) -> None:
    grouped(b).windowed_by(windows).count(store=number_windows("counts", KEEP)).to_stream().to("out")


def _kept(b: StreamsBuilder, retention: int) -> None:
    windowed = grouped(b).windowed_by(SessionWindows(5))
    windowed.count(store=number_windows("counts", retention, caching=False)).to_stream().to("out")


def _count_in_bad_windows(b: StreamsBuilder, arguments: dict[str, int]) -> None:
    _count(b, SessionWindows(**arguments))


def _register() -> None:
    for name, windows in COLLECTING.items():
        case(name, partial(_collect, windows=windows))
    for name, windows in COUNTING.items():
        case(name, partial(_count, windows=windows))
    for name, retention in RETENTION.items():
        case(name, partial(_kept, retention=retention))
    for name, arguments in WINDOWS_REFUSED.items():
        case(name, partial(_count_in_bad_windows, arguments=arguments))


_register()


def _add(one: int | None, other: int | None) -> int:
    if one is None:
        return NULL if other is None else other
    return one if other is None else one + other


def _counted(b: StreamsBuilder) -> Counts:
    windowed = grouped(b).windowed_by(SessionWindows(5, grace=10))
    return windowed.count(store=number_windows("counts", KEEP))


def _sum_without_threes(b: StreamsBuilder, store: Store) -> Counts:
    return (
        grouped(b)
        .windowed_by(SessionWindows(5, grace=10))
        .aggregate(
            lambda: 0,
            lambda k, v, agg: NULL if v % 3 == 0 else _add(agg, v),
            lambda k, one, other: _add(one, other),
            store=store,
        )
    )


def _sum_until_seven(b: StreamsBuilder, store: Store) -> Counts:
    return (
        grouped(b)
        .windowed_by(SessionWindows(4, grace=10))
        .aggregate(
            lambda: 0,
            lambda k, v, agg: NULL if v is None or v == 7 else _add(agg, v),
            lambda k, one, other: _add(one, other),
            store=store,
        )
    )


@dsl
def session_count_uncached(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(SessionWindows(5, grace=10))
    windowed.count(store=number_windows("counts", KEEP, caching=False)).to_stream().to("out")


@dsl
def session_reduce(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(SessionWindows(5, grace=10))
    windowed.reduce(lambda agg, v: agg + v, store=number_windows("sums", KEEP)).to_stream().to("out")


@dsl
def session_reduce_uncached(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(SessionWindows(5, grace=10))
    sums = windowed.reduce(lambda agg, v: agg + v, store=number_windows("sums", KEEP, caching=False))
    sums.to_stream().to("out")


@dsl
def session_aggregate_returning_null(b: StreamsBuilder) -> None:
    _sum_without_threes(b, number_windows("sums", KEEP)).to_stream().to("out")


@dsl
def session_aggregate_returning_null_uncached(b: StreamsBuilder) -> None:
    _sum_without_threes(b, number_windows("sums", KEEP, caching=False)).to_stream().to("out")


@dsl
def session_aggregate_named(b: StreamsBuilder) -> None:
    sums = (
        grouped(b)
        .windowed_by(SessionWindows(5, grace=10))
        .aggregate(
            lambda: 0,
            lambda k, v, agg: agg + v,
            lambda k, one, other: one + other,
            name="total",
            store=number_windows("sums", KEEP),
        )
    )
    sums.to_stream().to("out")


@dsl
def session_aggregate_raising_fails(b: StreamsBuilder) -> None:
    sums = (
        grouped(b)
        .windowed_by(SessionWindows(5, grace=10))
        .aggregate(
            lambda: 0,
            lambda k, v, agg: int(10 / (v - 3)),
            lambda k, one, other: one + other,
            store=number_windows("sums", KEEP),
        )
    )
    sums.to_stream().to("out")


@dsl
def session_sum(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(SessionWindows(5, grace=10))
    windowed.sum(store=number_windows("sums", KEEP)).to_stream().to("out")


@dsl
def session_max(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(SessionWindows(5, grace=10))
    windowed.max(store=number_windows("greatest", KEEP)).to_stream().to("out")


@dsl
def session_collapses_updates_of_one_record(b: StreamsBuilder) -> None:
    thrice = numbers(b, "in").flat_map_values(lambda v: [v, v, v]).group_by_key(**NUMBERS)
    windowed = thrice.windowed_by(SessionWindows(5, grace=10))
    windowed.count(store=number_windows("counts", KEEP)).to_stream().to("out")


@dsl
def session_uncached_shows_every_update(b: StreamsBuilder) -> None:
    thrice = numbers(b, "in").flat_map_values(lambda v: [v, v, v]).group_by_key(**NUMBERS)
    windowed = thrice.windowed_by(SessionWindows(5, grace=10))
    windowed.count(store=number_windows("counts", KEEP, caching=False)).to_stream().to("out")


@dsl
def session_count_unnamed_store(b: StreamsBuilder) -> None:
    counts = grouped(b).windowed_by(SessionWindows(5, grace=10)).count()
    counts.to_stream().to("out", key=in_sessions(), value=serdes.int64)


@dsl
def session_count_named(b: StreamsBuilder) -> None:
    counts = grouped(b).windowed_by(SessionWindows(5, grace=10)).count(name="counter")
    counts.to_stream(name="changes").to("out", key=in_sessions(), value=serdes.int64)


@dsl
def session_reduce_named(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(SessionWindows(5, grace=10))
    sums = windowed.reduce(lambda agg, v: agg + v, name="total", store=number_windows("sums"))
    sums.to_stream().to("out")


@dsl
def session_count_of_rekeyed_stream(b: StreamsBuilder) -> None:
    by_word = words(b, "words").group_by(lambda k, v: v, **WORDS)
    counts = by_word.windowed_by(SessionWindows(5)).count()
    counts.to_stream().to("out", key=in_sessions(), value=serdes.int64)


@dsl
def session_to_stream_with_new_key(b: StreamsBuilder) -> None:
    named = _counted(b).to_stream(lambda k, v: f"{k.key}@{k.window.start}-{k.window.end}")
    named.to("out", **NUMBERS)


@dsl
def session_filter(b: StreamsBuilder) -> None:
    several = _counted(b).filter(lambda k, v: v > 1)
    several.to_stream().to("out", key=in_sessions(), value=serdes.int64)


@dsl
def session_filter_random(b: StreamsBuilder) -> None:
    several = _counted(b).filter(lambda k, v: v > 1)
    several.to_stream().to("out", key=in_sessions(), value=serdes.int64)


@dsl
def session_map_values_with_store(b: StreamsBuilder) -> None:
    store = Store("tens", key=in_sessions(), value=serdes.int64)
    _counted(b).map_values(lambda v: v * 10, store=store).to_stream().to("out")


def _totals(b: StreamsBuilder) -> None:
    by_key = _counted(b).group_by(lambda k, v: (k.key, v), **NUMBERS)
    totals = by_key.reduce(lambda agg, v: agg + v, lambda agg, v: agg - v, store=number_store("totals"))
    totals.to_stream().to("out")


@dsl
def session_table_group_by_key(b: StreamsBuilder) -> None:
    _totals(b)


@dsl
def session_table_group_by_random(b: StreamsBuilder) -> None:
    _totals(b)


@dsl
def session_retention_below_gap_and_grace_is_refused(b: StreamsBuilder) -> None:
    grouped(b).windowed_by(SessionWindows(5, grace=5)).count(store=number_windows("counts", 9))


@dsl
def session_count_uncached_random(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(SessionWindows(5, grace=8))
    windowed.count(store=number_windows("counts", KEEP, caching=False)).to_stream().to("out")


@dsl
def session_reduce_random(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(SessionWindows(4, grace=10))
    windowed.reduce(lambda agg, v: agg + v, store=number_windows("sums", KEEP)).to_stream().to("out")


@dsl
def session_aggregate_with_tombstones_random(b: StreamsBuilder) -> None:
    _sum_until_seven(b, number_windows("sums", KEEP)).to_stream().to("out")


@dsl
def session_aggregate_with_tombstones_uncached_random(b: StreamsBuilder) -> None:
    _sum_until_seven(b, number_windows("sums", KEEP, caching=False)).to_stream().to("out")


@dsl
def session_minutes_random(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(SessionWindows(30_000, grace=60_000))
    windowed.count(store=number_windows("counts", 10_000_000)).to_stream().to("out")


@dsl
def session_minutes_uncached_random(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(SessionWindows(30_000, grace=60_000))
    windowed.count(store=number_windows("counts", caching=False)).to_stream().to("out")


@dsl
def session_default_retention_uncached_random(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(SessionWindows(5, grace=8))
    windowed.count(store=number_windows("counts", caching=False)).to_stream().to("out")
