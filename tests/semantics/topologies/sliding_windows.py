"""Sliding windows: a window for each set of records that are close together. Both ends are inclusive."""

from __future__ import annotations

from functools import partial

from tests.semantics.registry import case, dsl
from tests.semantics.shapes import WORDS, text, words
from tests.semantics.window_shapes import KEEP, grouped, in_windows, number_windows, word_windows

from millstream import SlidingWindows, StreamsBuilder, serdes

IN_TENS = in_windows(10)

COLLECTING_WITH_GRACE = {
    "sliding_left_and_right_windows": 100,
    "sliding_difference_is_inclusive": 100,
    "sliding_difference_and_one_more": 100,
    "sliding_equal_timestamps": 100,
    "sliding_out_of_order": 100,
    "sliding_backwards": 100,
    "sliding_gap_is_filled": 100,
    "sliding_near_zero": 100,
    "sliding_near_zero_in_order": 100,
    "sliding_near_zero_backwards": 100,
    "sliding_first_record_at_the_difference": 100,
    "sliding_keys_have_windows_of_their_own": 100,
    "sliding_skips_null_keys_and_values": 0,
    "sliding_headers": 0,
    "sliding_collect_random": 20,
}

COUNTING = {
    "sliding_difference_of_one": SlidingWindows(1, grace=100),
    "sliding_late_at_the_bound": SlidingWindows(10),
    "sliding_late_at_the_bound_of_grace": SlidingWindows(10, grace=5),
    "sliding_left_window_closed_right_one_open": SlidingWindows(10, grace=2),
    "sliding_late_near_zero": SlidingWindows(10),
    "sliding_jump_of_time": SlidingWindows(10, grace=5),
    "sliding_count_random": SlidingWindows(10),
    "sliding_count_random_with_grace": SlidingWindows(10, grace=8),
    "sliding_count_random_sparse": SlidingWindows(10, grace=15),
    "sliding_count_random_dense": SlidingWindows(4, grace=3),
}

WINDOWS_REFUSED = {
    "sliding_negative_difference_is_refused": {"difference": -1, "grace": 5},
    "sliding_negative_grace_is_refused": {"difference": 10, "grace": -1},
}


def _collect(b: StreamsBuilder, grace: int, *, caching: bool = True) -> None:
    log = word_windows("log", KEEP, caching=caching)
    windowed = grouped(b).windowed_by(SlidingWindows(10, grace=grace))
    windowed.aggregate(lambda: "", lambda k, v, agg: f"{agg}{text(v)};", store=log).to_stream().to("out")


def _count(b: StreamsBuilder, windows: SlidingWindows) -> None:
    grouped(b).windowed_by(windows).count(store=number_windows("counts", KEEP)).to_stream().to("out")


def _count_in_bad_windows(b: StreamsBuilder, arguments: dict[str, int]) -> None:
    _count(b, SlidingWindows(**arguments))


def _register() -> None:
    for name, grace in COLLECTING_WITH_GRACE.items():
        case(name, partial(_collect, grace=grace))
    for name, windows in COUNTING.items():
        case(name, partial(_count, windows=windows))
    for name, arguments in WINDOWS_REFUSED.items():
        case(name, partial(_count_in_bad_windows, arguments=arguments))


_register()


@dsl
def sliding_collect_uncached_random(b: StreamsBuilder) -> None:
    _collect(b, 20, caching=False)


@dsl
def sliding_reduce(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(SlidingWindows(10, grace=5))
    windowed.reduce(lambda agg, v: agg + v, store=number_windows("sums", KEEP)).to_stream().to("out")


@dsl
def sliding_reduce_uncached(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(SlidingWindows(10, grace=5))
    sums = windowed.reduce(lambda agg, v: agg + v, store=number_windows("sums", KEEP, caching=False))
    sums.to_stream().to("out")


@dsl
def sliding_aggregate_named(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(SlidingWindows(10, grace=5))
    sums = windowed.aggregate(
        lambda: 0, lambda k, v, agg: agg + v, name="total", store=number_windows("sums", KEEP)
    )
    sums.to_stream().to("out")


@dsl
def sliding_count_unnamed_store(b: StreamsBuilder) -> None:
    counts = grouped(b).windowed_by(SlidingWindows(10, grace=5)).count()
    counts.to_stream().to("out", key=IN_TENS, value=serdes.int64)


@dsl
def sliding_max(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(SlidingWindows(10, grace=5))
    windowed.max(store=number_windows("greatest", KEEP)).to_stream().to("out")


@dsl
def sliding_count_of_rekeyed_stream(b: StreamsBuilder) -> None:
    by_word = words(b, "words").group_by(lambda k, v: v, **WORDS)
    counts = by_word.windowed_by(SlidingWindows(10)).count()
    counts.to_stream().to("out", key=IN_TENS, value=serdes.int64)


@dsl
def sliding_retention_too_short_is_refused(b: StreamsBuilder) -> None:
    grouped(b).windowed_by(SlidingWindows(10, grace=5)).count(store=number_windows("counts", 24))


@dsl
def sliding_reduce_uncached_random(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(SlidingWindows(10, grace=10))
    mixed = windowed.reduce(
        lambda agg, v: agg * 3 % 1009 + v, store=number_windows("mixed", KEEP, caching=False)
    )
    mixed.to_stream().to("out")


@dsl
def sliding_sum_random(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(SlidingWindows(10, grace=5))
    windowed.sum(store=number_windows("sums", KEEP)).to_stream().to("out")


@dsl
def sliding_minutes_random(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(SlidingWindows(60_000, grace=30_000))
    windowed.count(store=number_windows("counts", 10_000_000)).to_stream().to("out")


@dsl
def sliding_default_retention_uncached_random(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(SlidingWindows(10, grace=5))
    windowed.count(store=number_windows("counts", caching=False)).to_stream().to("out")
