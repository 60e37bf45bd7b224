"""Tumbling, hopping and unlimited windows with count, reduce, aggregate, and our own sum, min and max."""

from __future__ import annotations

from functools import partial

from tests.semantics.registry import case, dsl
from tests.semantics.shapes import NULL, NUMBERS, WORDS, number_store, numbers, text, words
from tests.semantics.window_shapes import (
    KEEP,
    UNLIMITED_MS,
    Counts,
    counted,
    grouped,
    in_windows,
    number_windows,
    word_windows,
)

from millstream import Store, StreamsBuilder, TimeWindows, UnlimitedWindows, serdes

IN_TENS = in_windows(10)

COUNTED = {
    "window_end_is_exclusive": TimeWindows(10),
    "window_closes_at_its_end_without_grace": TimeWindows(10),
    "window_closes_when_grace_is_over": TimeWindows(10, grace=5),
    "window_grace_of_one": TimeWindows(10, grace=1),
    "window_grace_longer_than_the_window": TimeWindows(10, grace=25),
    "window_updates_out_of_order": TimeWindows(10, grace=100),
    "window_equal_timestamps": TimeWindows(10),
    "window_jump_of_time": TimeWindows(10, grace=5),
    "window_time_of_one_key_closes_another": TimeWindows(10),
    "window_counts_null_values_and_skips_null_keys": TimeWindows(10),
    "window_headers": TimeWindows(10, grace=5),
    "window_retention_hides_rows_at_the_bound": TimeWindows(10),
    "window_tumbling_random": TimeWindows(10),
    "window_tumbling_random_with_grace": TimeWindows(10, grace=7),
    "window_tumbling_random_much_disorder": TimeWindows(10, grace=15),
    "window_tumbling_random_sparse": TimeWindows(10, grace=30),
}

HOPPING = {
    "window_hopping": TimeWindows(10, advance=5),
    "window_hopping_near_zero": TimeWindows(10, advance=3, grace=100),
    "window_hopping_by_one": TimeWindows(10, advance=1),
    "window_hopping_uneven": TimeWindows(10, advance=7, grace=3),
    "window_hopping_partly_late": TimeWindows(10, advance=5, grace=2),
    "window_hopping_by_its_size": TimeWindows(10, advance=10),
    "window_hopping_with_grace_at_each_end": TimeWindows(10, advance=5, grace=5),
    "window_hopping_random": TimeWindows(10, advance=5),
    "window_hopping_random_with_grace": TimeWindows(10, advance=3, grace=6),
    "window_hopping_random_by_two": TimeWindows(10, advance=2, grace=4),
}

UNLIMITED = {
    "window_unlimited": UnlimitedWindows(),
    "window_unlimited_from_a_start": UnlimitedWindows(start=10),
    "window_unlimited_random": UnlimitedWindows(start=30),
}

RETENTION_OF_TUMBLING = {
    "window_retention_shows_rows_above_the_bound": 11,
    "window_retention_hides_older_rows": 20,
    "window_retention_keeps_everything": KEEP,
}

RETENTION_REFUSED = {
    "window_retention_below_size_is_refused": (TimeWindows(10), 9),
    "window_retention_below_size_and_grace_is_refused": (TimeWindows(10, grace=5), 14),
}

WINDOWS_REFUSED = {
    "window_negative_grace_is_refused": {"size": 10, "grace": -1},
    "window_size_of_zero_is_refused": {"size": 0},
    "window_advance_above_size_is_refused": {"size": 10, "advance": 11},
    "window_advance_of_zero_is_refused": {"size": 10, "advance": 0},
}


def _count(b: StreamsBuilder, windows: TimeWindows, retention: int | None = None) -> None:
    counted(b, windows, retention).to_stream().to("out")


def _count_forever(b: StreamsBuilder, windows: UnlimitedWindows) -> None:
    counted(b, windows).to_stream().to("out", key=in_windows(UNLIMITED_MS), value=serdes.int64)


def _count_in_bad_windows(b: StreamsBuilder, arguments: dict[str, int]) -> None:
    _count(b, TimeWindows(**arguments))


def _register() -> None:
    for name, windows in COUNTED.items():
        case(name, partial(_count, windows=windows))
    for name, windows in HOPPING.items():
        case(name, partial(_count, windows=windows, retention=KEEP))
    for name, unlimited in UNLIMITED.items():
        case(name, partial(_count_forever, windows=unlimited))
    for name, retention in RETENTION_OF_TUMBLING.items():
        case(name, partial(_count, windows=TimeWindows(10), retention=retention))
    for name, (windows, retention) in RETENTION_REFUSED.items():
        case(name, partial(_count, windows=windows, retention=retention))
    for name, arguments in WINDOWS_REFUSED.items():
        case(name, partial(_count_in_bad_windows, arguments=arguments))


_register()


def _digits(agg: int, v: int) -> int:
    return agg * 10 + v


def _mixed(agg: int, v: int) -> int:
    return agg * 3 % 1009 + v


def _log(key: str, v: int, agg: str) -> str:
    return f"{agg}{text(key)}{text(v)};"


def _sum_without_threes(key: str, v: int, agg: int) -> int:
    return NULL if v % 3 == 0 else agg + v


def _sum_until_seven(key: str, v: int | None, agg: int) -> int:
    return NULL if v is None or v == 7 else agg + v


def _counts(b: StreamsBuilder) -> Counts:
    return counted(b, TimeWindows(10, grace=5))


@dsl
def window_reduce(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10, grace=5))
    windowed.reduce(_digits, store=number_windows("digits")).to_stream().to("out")


@dsl
def window_reduce_uncached(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10, grace=5))
    windowed.reduce(_digits, store=number_windows("digits", caching=False)).to_stream().to("out")


@dsl
def window_reduce_of_null_values(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10, grace=5))
    sums = windowed.reduce(lambda agg, v: NULL if v is None else agg + v, store=number_windows("sums"))
    sums.to_stream().to("out")


@dsl
def window_aggregate(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10, grace=5))
    windowed.aggregate(lambda: "", _log, store=word_windows("log")).to_stream().to("out")


@dsl
def window_aggregate_uncached(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10, advance=5, grace=5))
    windowed.aggregate(lambda: "", _log, store=word_windows("log", caching=False)).to_stream().to("out")


@dsl
def window_aggregate_returning_null(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10, grace=5))
    windowed.aggregate(lambda: 0, _sum_without_threes, store=number_windows("sums")).to_stream().to("out")


@dsl
def window_aggregate_returning_null_uncached(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10, grace=5))
    sums = windowed.aggregate(lambda: 0, _sum_without_threes, store=number_windows("sums", caching=False))
    sums.to_stream().to("out")


@dsl
def window_aggregate_from_null_initializer(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10, grace=5))
    sums = windowed.aggregate(
        lambda: NULL, lambda k, v, agg: v if agg is None else agg - v, store=number_windows("sums")
    )
    sums.to_stream().to("out")


@dsl
def window_aggregate_raising_fails(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10, grace=5))
    sums = windowed.aggregate(lambda: 0, lambda k, v, agg: int(10 / (v - 3)), store=number_windows("sums"))
    sums.to_stream().to("out")


@dsl
def window_sum(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10, grace=5))
    windowed.sum(store=number_windows("sums")).to_stream().to("out")


@dsl
def window_min(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10, advance=5, grace=5))
    windowed.min(store=number_windows("least")).to_stream().to("out")


@dsl
def window_max(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10, advance=5, grace=5))
    windowed.max(store=number_windows("greatest")).to_stream().to("out")


@dsl
def window_count_unnamed_store(b: StreamsBuilder) -> None:
    counts = grouped(b).windowed_by(TimeWindows(10, grace=5)).count()
    counts.to_stream().to("out", key=IN_TENS, value=serdes.int64)


@dsl
def window_count_named(b: StreamsBuilder) -> None:
    counts = grouped(b).windowed_by(TimeWindows(10, grace=5)).count(name="counter")
    counts.to_stream(name="changes").to("out", key=IN_TENS, value=serdes.int64)


@dsl
def window_reduce_unnamed_store(b: StreamsBuilder) -> None:
    sums = grouped(b).windowed_by(TimeWindows(10, grace=5)).reduce(lambda agg, v: agg + v)
    sums.to_stream().to("out", key=IN_TENS, value=serdes.int64)


@dsl
def window_aggregate_named(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10, grace=5))
    sums = windowed.aggregate(
        lambda: 0, lambda k, v, agg: agg + v, store=number_windows("sums"), name="total"
    )
    sums.to_stream().to("out")


@dsl
def window_count_unlogged(b: StreamsBuilder) -> None:
    store = Store("counts", key=serdes.string, value=serdes.int64, logging=False)
    grouped(b).windowed_by(TimeWindows(10, grace=5)).count(store=store).to_stream().to("out")


@dsl
def window_count_nobody_reads(b: StreamsBuilder) -> None:
    _counts(b)


@dsl
def window_count_of_rekeyed_stream(b: StreamsBuilder) -> None:
    by_word = words(b, "words").group_by(lambda k, v: v, **WORDS)
    counts = by_word.windowed_by(TimeWindows(10)).count()
    counts.to_stream().to("out", key=IN_TENS, value=serdes.int64)


@dsl
def window_count_of_named_group(b: StreamsBuilder) -> None:
    by_word = words(b, "words").group_by(lambda k, v: v, **WORDS, name="by-word")
    counts = by_word.windowed_by(TimeWindows(10)).count(name="counter", store=number_windows("counts"))
    counts.to_stream().to("out")


@dsl
def window_two_aggregates_of_one_group(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10, grace=5))
    windowed.count(store=number_windows("counts")).to_stream().to("out")
    windowed.reduce(lambda agg, v: agg + v, store=number_windows("sums")).to_stream().to("sums-out")


@dsl
def window_two_sizes_of_one_group(b: StreamsBuilder) -> None:
    group = grouped(b)
    group.windowed_by(TimeWindows(10)).count(store=number_windows("short")).to_stream().to("out")
    group.windowed_by(TimeWindows(30)).count(store=number_windows("long")).to_stream().to("long-out")


@dsl
def window_beside_a_plain_count(b: StreamsBuilder) -> None:
    group = grouped(b)
    group.count(store=number_store("all")).to_stream().to("all-out")
    windowed = group.windowed_by(TimeWindows(10, grace=5))
    windowed.count(store=number_windows("counts")).to_stream().to("out")


@dsl
def window_to_stream_with_new_key(b: StreamsBuilder) -> None:
    _counts(b).to_stream(lambda k, v: f"{k.key}@{k.window.start}").to("out", **NUMBERS)


@dsl
def window_filter(b: StreamsBuilder) -> None:
    even = _counts(b).filter(lambda k, v: v % 2 == 0)
    even.to_stream().to("out", key=IN_TENS, value=serdes.int64)


@dsl
def window_map_values_with_key(b: StreamsBuilder) -> None:
    texts = _counts(b).map_values_with_key(lambda k, v: f"{k.key}{k.window.start}={v}")
    texts.to_stream().to("out", key=IN_TENS, value=serdes.string)


@dsl
def window_map_values_with_store(b: StreamsBuilder) -> None:
    tens = _counts(b).map_values(lambda v: v * 10, store=Store("tens", key=IN_TENS, value=serdes.int64))
    tens.to_stream().to("out")


@dsl
def window_table_group_by_key(b: StreamsBuilder) -> None:
    by_key = _counts(b).group_by(lambda k, v: (k.key, v), **NUMBERS)
    totals = by_key.reduce(lambda agg, v: agg + v, lambda agg, v: agg - v, store=number_store("totals"))
    totals.to_stream().to("out")


@dsl
def window_table_group_by_window(b: StreamsBuilder) -> None:
    by_window = _counts(b).group_by(lambda k, v: (f"from {k.window.start}", v), **NUMBERS)
    by_window.count(store=number_store("keys")).to_stream().to("out")


@dsl
def window_of_window_results_random(b: StreamsBuilder) -> None:
    again = _counts(b).to_stream(lambda k, v: k.key).group_by_key(**NUMBERS)
    greatest = again.windowed_by(TimeWindows(30, grace=10)).reduce(max, store=number_windows("greatest"))
    greatest.to_stream().to("out")


@dsl
def window_collapses_updates_of_one_record(b: StreamsBuilder) -> None:
    thrice = numbers(b, "in").flat_map_values(lambda v: [v, v, v]).group_by_key(**NUMBERS)
    windowed = thrice.windowed_by(TimeWindows(10, advance=5, grace=5))
    windowed.reduce(lambda agg, v: agg + v, store=number_windows("sums")).to_stream().to("out")


@dsl
def window_uncached_shows_every_update(b: StreamsBuilder) -> None:
    thrice = numbers(b, "in").flat_map_values(lambda v: [v, v, v]).group_by_key(**NUMBERS)
    windowed = thrice.windowed_by(TimeWindows(10, advance=5, grace=5))
    sums = windowed.reduce(lambda agg, v: agg + v, store=number_windows("sums", caching=False))
    sums.to_stream().to("out")


@dsl
def window_retention_uncached(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10, advance=5))
    windowed.count(store=number_windows("counts", 15, caching=False)).to_stream().to("out")


@dsl
def window_count_uncached_random(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10, advance=4, grace=5))
    windowed.count(store=number_windows("counts", caching=False)).to_stream().to("out")


@dsl
def window_reduce_random(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10, grace=5))
    windowed.reduce(_mixed, store=number_windows("mixed")).to_stream().to("out")


@dsl
def window_reduce_uncached_random(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10, advance=5, grace=5))
    windowed.reduce(_mixed, store=number_windows("mixed", caching=False)).to_stream().to("out")


@dsl
def window_aggregate_with_tombstones_random(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10, grace=10))
    windowed.aggregate(lambda: 100, _sum_until_seven, store=number_windows("sums")).to_stream().to("out")


@dsl
def window_aggregate_with_tombstones_uncached_random(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10, advance=5, grace=10))
    sums = windowed.aggregate(lambda: 100, _sum_until_seven, store=number_windows("sums", caching=False))
    sums.to_stream().to("out")


@dsl
def window_kept_long_random(b: StreamsBuilder) -> None:
    counted(b, TimeWindows(10, grace=5), KEEP).to_stream().to("out")


@dsl
def window_sum_random(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10, advance=5, grace=10))
    windowed.sum(store=number_windows("sums")).to_stream().to("out")


@dsl
def window_max_uncached_random(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10, grace=10))
    windowed.max(store=number_windows("greatest", caching=False)).to_stream().to("out")


@dsl
def window_filter_random(b: StreamsBuilder) -> None:
    many = _counts(b).filter(lambda k, v: v > 2)
    many.to_stream().to("out", key=IN_TENS, value=serdes.int64)


@dsl
def window_table_group_by_random(b: StreamsBuilder) -> None:
    counts = counted(b, TimeWindows(10, advance=5, grace=5))
    totals = counts.group_by(lambda k, v: (k.key, v), **NUMBERS).reduce(
        lambda agg, v: agg + v, lambda agg, v: agg - v, store=number_store("totals")
    )
    totals.to_stream().to("out")


@dsl
def window_minutes_random(b: StreamsBuilder) -> None:
    counted(b, TimeWindows(60_000, advance=20_000, grace=30_000)).to_stream().to("out")


@dsl
def window_minutes_uncached_random(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(60_000, grace=45_000))
    windowed.count(store=number_windows("counts", 200_000, caching=False)).to_stream().to("out")
