"""suppress: updates of a table wait until their window closes, or for a time, or until the buffer is full."""

from __future__ import annotations

from functools import partial

from tests.semantics.registry import case, dsl
from tests.semantics.shapes import NULL, NUMBERS, number_store, number_table, numbers, word_table
from tests.semantics.window_shapes import KEEP, Counts, counted, grouped, in_windows, number_windows

from millstream import (
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    serdes,
)

IN_TENS = in_windows(10)
UNTIL_CLOSED = Suppressed.until_window_closes()

CLOSING: dict[str, TimeWindows | SlidingWindows] = {
    "suppress_until_tumbling_closes": TimeWindows(10),
    "suppress_until_grace_is_over": TimeWindows(10, grace=5),
    "suppress_until_hopping_closes": TimeWindows(10, advance=5, grace=2),
    "suppress_until_windows_close_after_a_jump": TimeWindows(10, grace=5),
    "suppress_keys_in_order_of_windows": TimeWindows(10, grace=5),
    "suppress_headers_of_the_last_update": TimeWindows(10, grace=5),
    "suppress_emits_nothing_by_wall_clock": TimeWindows(10),
    "suppress_until_tumbling_closes_random": TimeWindows(10, grace=5),
    "suppress_until_hopping_closes_random": TimeWindows(10, advance=4, grace=8),
    "suppress_until_sliding_closes": SlidingWindows(10),
    "suppress_until_sliding_grace_is_over": SlidingWindows(10, grace=5),
    "suppress_until_sliding_closes_random": SlidingWindows(10, grace=6),
}

CLOSING_SESSIONS = {
    "suppress_until_session_closes": SessionWindows(5),
    "suppress_until_session_grace_is_over": SessionWindows(5, grace=3),
    "suppress_session_merged_before_it_closes": SessionWindows(5, grace=20),
    "suppress_until_session_closes_random": SessionWindows(5, grace=8),
}

LIMITED = {
    "suppress_for_a_time": Suppressed.until_time_limit(5),
    "suppress_for_no_time": Suppressed.until_time_limit(0),
    "suppress_for_long": Suppressed.until_time_limit(30),
    "suppress_at_the_limit": Suppressed.until_time_limit(5),
    "suppress_updates_do_not_reset_the_time": Suppressed.until_time_limit(5),
    "suppress_sends_tombstones": Suppressed.until_time_limit(5),
    "suppress_out_of_order": Suppressed.until_time_limit(5),
    "suppress_headers_of_a_table": Suppressed.until_time_limit(5),
    "suppress_for_a_time_random": Suppressed.until_time_limit(10),
    "suppress_two_records_emit_early": Suppressed.until_time_limit(100, max_records=2),
    "suppress_one_record_emits_early": Suppressed.until_time_limit(100, max_records=1),
    "suppress_no_record_is_kept": Suppressed.until_time_limit(100, max_records=0),
    "suppress_updates_of_a_bounded_buffer": Suppressed.until_time_limit(100, max_records=1),
    "suppress_two_records_random": Suppressed.until_time_limit(100, max_records=2),
    "suppress_two_records_shut_down": Suppressed.until_time_limit(100, max_records=2, when_full="shut-down"),
    "suppress_three_records_shut_down_later": Suppressed.until_time_limit(
        100, max_records=3, when_full="shut-down"
    ),
}

BOUNDED_IN_BYTES = {
    "suppress_bytes_emit_early": Suppressed.until_time_limit(100, max_bytes=2_500),
    "suppress_bytes_or_records_emit_early": Suppressed.until_time_limit(100, max_bytes=4_800, max_records=1),
    "suppress_bytes_shut_down": Suppressed.until_time_limit(100, max_bytes=4_800, when_full="shut-down"),
}


def _closing(b: StreamsBuilder, windows: TimeWindows | SlidingWindows) -> None:
    _closed(b, windows).to_stream().to("out")


def _closed(b: StreamsBuilder, windows: TimeWindows | SlidingWindows) -> Counts:
    return counted(b, windows, KEEP).suppress(UNTIL_CLOSED)


def _closing_sessions(b: StreamsBuilder, windows: SessionWindows) -> None:
    counts = grouped(b).windowed_by(windows).count(store=number_windows("counts", KEEP))
    counts.suppress(UNTIL_CLOSED).to_stream().to("out")


def _limited(b: StreamsBuilder, suppressed: Suppressed) -> None:
    number_table(b, "in", "store").suppress(suppressed).to_stream().to("out")


def _limited_words(b: StreamsBuilder, suppressed: Suppressed) -> None:
    word_table(b, "in", "store").suppress(suppressed).to_stream().to("out")


def _register() -> None:
    for name, windows in CLOSING.items():
        case(name, partial(_closing, windows=windows))
    for name, sessions in CLOSING_SESSIONS.items():
        case(name, partial(_closing_sessions, windows=sessions))
    for name, suppressed in LIMITED.items():
        case(name, partial(_limited, suppressed=suppressed))
    for name, suppressed in BOUNDED_IN_BYTES.items():
        case(name, partial(_limited_words, suppressed=suppressed))


_register()


@dsl
def suppress_drops_tombstones_of_windows(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10))
    sums = windowed.aggregate(
        lambda: 0, lambda k, v, agg: NULL if v % 3 == 0 else agg + v, store=number_windows("sums")
    )
    sums.suppress(UNTIL_CLOSED).to_stream().to("out")


@dsl
def suppress_of_uncached_windows(b: StreamsBuilder) -> None:
    windowed = grouped(b).windowed_by(TimeWindows(10, grace=5))
    counts = windowed.count(store=number_windows("counts", caching=False))
    counts.suppress(UNTIL_CLOSED).to_stream().to("out")


@dsl
def suppress_behind_filter_and_map_values(b: StreamsBuilder) -> None:
    tens = (
        counted(b, TimeWindows(10, grace=5), KEEP)
        .filter(lambda k, v: v != 2)
        .map_values(lambda v: v * 10, store=Store("tens", key=IN_TENS, value=serdes.int64))
    )
    tens.suppress(UNTIL_CLOSED).to_stream().to("out")


@dsl
def suppress_then_filter(b: StreamsBuilder) -> None:
    several = _closed(b, TimeWindows(10, grace=5)).filter(lambda k, v: v > 1)
    several.to_stream().to("out", key=IN_TENS, value=serdes.int64)


@dsl
def suppress_then_map_values(b: StreamsBuilder) -> None:
    tens = _closed(b, TimeWindows(10, grace=5)).map_values(lambda v: v * 10)
    tens.to_stream().to("out", key=IN_TENS, value=serdes.int64)


@dsl
def suppress_then_map_values_with_store(b: StreamsBuilder) -> None:
    store = Store("tens", key=IN_TENS, value=serdes.int64)
    tens = _closed(b, TimeWindows(10, grace=5)).map_values(lambda v: v * 10, store=store)
    tens.to_stream().to("out")


@dsl
def suppress_then_stream_with_new_key(b: StreamsBuilder) -> None:
    named = _closed(b, TimeWindows(10, grace=5)).to_stream(lambda k, v: f"{k.key}@{k.window.start}")
    named.to("out", **NUMBERS)


@dsl
def suppress_named(b: StreamsBuilder) -> None:
    counts = counted(b, TimeWindows(10, grace=5), KEEP)
    counts.suppress(UNTIL_CLOSED, name="final").to_stream().to("out")


@dsl
def suppress_two_of_one_table(b: StreamsBuilder) -> None:
    counts = counted(b, TimeWindows(10, grace=5), KEEP)
    counts.suppress(UNTIL_CLOSED).to_stream().to("out")
    counts.suppress(Suppressed.until_time_limit(3)).to_stream().to("soon")


@dsl
def suppress_windows_for_a_time(b: StreamsBuilder) -> None:
    counts = counted(b, TimeWindows(10, grace=20), KEEP)
    counts.suppress(Suppressed.until_time_limit(4)).to_stream().to("out")


@dsl
def suppress_until_window_closes_without_windows_is_refused(b: StreamsBuilder) -> None:
    number_table(b, "in").suppress(UNTIL_CLOSED).to_stream().to("out")


@dsl
def suppress_of_a_versioned_table_is_refused(b: StreamsBuilder) -> None:
    table = b.table("in", **NUMBERS, store=Store("store", **NUMBERS, versioned=100))
    table.suppress(Suppressed.until_time_limit(5)).to_stream().to("out")


@dsl
def suppress_then_plain_filter(b: StreamsBuilder) -> None:
    suppressed = number_table(b, "in", "store").suppress(Suppressed.until_time_limit(5))
    suppressed.filter(lambda k, v: v > 2).to_stream().to("out", **NUMBERS)


@dsl
def suppress_count_for_a_time(b: StreamsBuilder) -> None:
    counts = numbers(b, "in").group_by_key(**NUMBERS).count(store=number_store("counts"))
    counts.suppress(Suppressed.until_time_limit(5)).to_stream().to("out", **NUMBERS)


@dsl
def suppress_twice(b: StreamsBuilder) -> None:
    once = number_table(b, "in", "store").suppress(Suppressed.until_time_limit(3))
    once.suppress(Suppressed.until_time_limit(5)).to_stream().to("out", **NUMBERS)


@dsl
def suppress_strict_buffer_within_bounds(b: StreamsBuilder) -> None:
    counts = counted(b, TimeWindows(10, grace=5), KEEP)
    counts.suppress(Suppressed.until_window_closes(max_records=2)).to_stream().to("out")


@dsl
def suppress_strict_buffer_overflows(b: StreamsBuilder) -> None:
    counts = counted(b, TimeWindows(10, grace=15), KEEP)
    counts.suppress(Suppressed.until_window_closes(max_records=2)).to_stream().to("out")


@dsl
def suppress_windows_for_a_time_random(b: StreamsBuilder) -> None:
    counts = counted(b, TimeWindows(10, advance=5, grace=10), KEEP)
    counts.suppress(Suppressed.until_time_limit(7)).to_stream().to("out")


@dsl
def suppress_windows_three_records_random(b: StreamsBuilder) -> None:
    counts = counted(b, TimeWindows(10, advance=5, grace=10), KEEP)
    counts.suppress(Suppressed.until_time_limit(50, max_records=3)).to_stream().to("out")


@dsl
def suppress_then_map_values_random(b: StreamsBuilder) -> None:
    suppressed = number_table(b, "in", "store").suppress(Suppressed.until_time_limit(8))
    suppressed.map_values(lambda v: v * 10).to_stream().to("out", **NUMBERS)


@dsl
def suppress_then_filter_random(b: StreamsBuilder) -> None:
    many = _closed(b, TimeWindows(10, grace=5)).filter(lambda k, v: v > 2)
    many.to_stream().to("out", key=IN_TENS, value=serdes.int64)


@dsl
def suppress_then_plain_map_values(b: StreamsBuilder) -> None:
    suppressed = number_table(b, "in", "store").suppress(Suppressed.until_time_limit(5))
    suppressed.map_values(lambda v: v * 10).to_stream().to("out", **NUMBERS)
