"""Windows that are emitted once, when they close."""

from __future__ import annotations

from functools import partial

from tests.semantics.registry import case, dsl
from tests.semantics.shapes import NULL, WORDS, words
from tests.semantics.window_shapes import KEEP, Counts, grouped, in_sessions, in_windows, number_windows

from millstream import (
    EmitStrategy,
    SessionWindowedKStream,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindowedKStream,
    TimeWindows,
    UnlimitedWindows,
    serdes,
)

IN_TENS = in_windows(10)
ON_CLOSE = EmitStrategy.on_window_close()

COUNTED: dict[str, TimeWindows | SlidingWindows] = {
    "emit_tumbling_at_its_end": TimeWindows(10),
    "emit_tumbling_when_grace_is_over": TimeWindows(10, grace=5),
    "emit_tumbling_several_at_once": TimeWindows(10, grace=20),
    "emit_tumbling_near_zero": TimeWindows(10),
    "emit_tumbling_jump_of_time": TimeWindows(10, grace=5),
    "emit_hopping": TimeWindows(10, advance=5),
    "emit_hopping_partly_late": TimeWindows(10, advance=5, grace=2),
    "emit_keys_in_order_of_windows": TimeWindows(10, grace=5),
    "emit_time_of_one_key_closes_another": TimeWindows(10),
    "emit_headers_of_the_closing_record": TimeWindows(10),
    "emit_nothing_by_wall_clock": TimeWindows(10),
    "emit_sliding_after_its_end": SlidingWindows(10),
    "emit_sliding_when_grace_is_over": SlidingWindows(10, grace=5),
    "emit_sliding_near_zero": SlidingWindows(10),
    "emit_sliding_out_of_order": SlidingWindows(10, grace=20),
    "emit_tumbling_random": TimeWindows(10),
    "emit_tumbling_random_with_grace": TimeWindows(10, grace=7),
    "emit_hopping_random": TimeWindows(10, advance=5, grace=5),
    "emit_hopping_random_sparse": TimeWindows(10, advance=3, grace=15),
    "emit_sliding_random": SlidingWindows(10),
    "emit_sliding_random_with_grace": SlidingWindows(10, grace=8),
}

SESSIONS = {
    "emit_session_after_its_gap": SessionWindows(5),
    "emit_session_when_grace_is_over": SessionWindows(5, grace=3),
    "emit_session_merged_before_it_closes": SessionWindows(5, grace=20),
    "emit_session_of_several_keys": SessionWindows(5),
    "emit_session_closed_by_another_key": SessionWindows(5),
    "emit_session_random": SessionWindows(5),
    "emit_session_random_with_grace": SessionWindows(5, grace=10),
}


def _windowed(
    b: StreamsBuilder, windows: TimeWindows | SlidingWindows | UnlimitedWindows
) -> TimeWindowedKStream[str, int]:
    return grouped(b).windowed_by(windows).emit_strategy(ON_CLOSE)


def _in_sessions(b: StreamsBuilder, windows: SessionWindows) -> SessionWindowedKStream[str, int]:
    return grouped(b).windowed_by(windows).emit_strategy(ON_CLOSE)


def _count(b: StreamsBuilder, windows: TimeWindows | SlidingWindows) -> None:
    _windowed(b, windows).count(store=number_windows("counts", KEEP)).to_stream().to("out")


def _count_sessions(b: StreamsBuilder, windows: SessionWindows) -> None:
    _in_sessions(b, windows).count(store=number_windows("counts", KEEP)).to_stream().to("out")


def _register() -> None:
    for name, windows in COUNTED.items():
        case(name, partial(_count, windows=windows))
    for name, sessions in SESSIONS.items():
        case(name, partial(_count_sessions, windows=sessions))


_register()


def _tens(b: StreamsBuilder) -> Counts:
    return _windowed(b, TimeWindows(10)).count(store=number_windows("counts", KEEP))


@dsl
def emit_reduce(b: StreamsBuilder) -> None:
    windowed = _windowed(b, TimeWindows(10, grace=5))
    windowed.reduce(lambda agg, v: agg * 10 + v, store=number_windows("digits", KEEP)).to_stream().to("out")


@dsl
def emit_aggregate_returning_null(b: StreamsBuilder) -> None:
    sums = _windowed(b, TimeWindows(10)).aggregate(
        lambda: 0, lambda k, v, agg: NULL if v % 3 == 0 else agg + v, store=number_windows("sums", KEEP)
    )
    sums.to_stream().to("out")


@dsl
def emit_count_uncached(b: StreamsBuilder) -> None:
    windowed = _windowed(b, TimeWindows(10, grace=5))
    windowed.count(store=number_windows("counts", KEEP, caching=False)).to_stream().to("out")


@dsl
def emit_on_update_is_the_default(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10, grace=5)).emit_strategy(EmitStrategy.on_window_update())
    windowed.count(store=number_windows("counts", KEEP)).to_stream().to("out")


@dsl
def emit_count_named(b: StreamsBuilder) -> None:
    windowed = _windowed(b, TimeWindows(10, grace=5))
    windowed.count(name="counter", store=number_windows("counts", KEEP)).to_stream().to("out")


@dsl
def emit_count_unnamed_store(b: StreamsBuilder) -> None:
    counts = _windowed(b, TimeWindows(10, grace=5)).count()
    counts.to_stream().to("out", key=IN_TENS, value=serdes.int64)


@dsl
def emit_then_filter(b: StreamsBuilder) -> None:
    _tens(b).filter(lambda k, v: v > 1).to_stream().to("out", key=IN_TENS, value=serdes.int64)


@dsl
def emit_then_map_values(b: StreamsBuilder) -> None:
    _tens(b).map_values(lambda v: v * 10).to_stream().to("out", key=IN_TENS, value=serdes.int64)


@dsl
def emit_of_rekeyed_stream(b: StreamsBuilder) -> None:
    by_word = words(b, "words").group_by(lambda k, v: v, **WORDS)
    windowed = by_word.windowed_by(TimeWindows(10)).emit_strategy(ON_CLOSE)
    windowed.count(store=number_windows("counts", KEEP)).to_stream().to("out")


@dsl
def emit_of_unlimited_windows_is_refused(b: StreamsBuilder) -> None:
    _windowed(b, UnlimitedWindows()).count()


@dsl
def emit_session_reduce(b: StreamsBuilder) -> None:
    windowed = _in_sessions(b, SessionWindows(5))
    windowed.reduce(lambda agg, v: agg + v, store=number_windows("sums", KEEP)).to_stream().to("out")


@dsl
def emit_session_unnamed_store(b: StreamsBuilder) -> None:
    counts = _in_sessions(b, SessionWindows(5)).count()
    counts.to_stream().to("out", key=in_sessions(), value=serdes.int64)


@dsl
def emit_aggregate_with_tombstones_random(b: StreamsBuilder) -> None:
    sums = _windowed(b, TimeWindows(10, grace=10)).aggregate(
        lambda: 100,
        lambda k, v, agg: NULL if v is None or v == 7 else agg + v,
        store=number_windows("sums", KEEP, caching=False),
    )
    sums.to_stream().to("out")


@dsl
def emit_minutes_random(b: StreamsBuilder) -> None:
    windowed = _windowed(b, TimeWindows(60_000, advance=30_000, grace=30_000))
    windowed.count(store=number_windows("counts", 10_000_000)).to_stream().to("out")


@dsl
def emit_session_minutes_random(b: StreamsBuilder) -> None:
    windowed = _in_sessions(b, SessionWindows(30_000, grace=60_000))
    windowed.count(store=number_windows("counts", 10_000_000)).to_stream().to("out")
