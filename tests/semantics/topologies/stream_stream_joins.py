"""Streams joined with streams: inner, left and outer, in windows of all shapes."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.semantics.join_shapes import KINDS, by_value, for_each, keyed, plus
from tests.semantics.registry import case, dsl
from tests.semantics.shapes import NUMBERS, WORDS, number_store, numbers, words

from millstream import JoinWindows, KStream, StreamsBuilder, serdes

SHAPES = {
    "symmetric": (10, 10, 0),
    "with_grace": (10, 10, 5),
    "before_only": (10, 0, 3),
    "after_only": (0, 10, 3),
    "negative_after": (10, -3, 2),
    "negative_before": (-3, 10, 2),
    "equal_times_only": (0, 0, 0),
}

OF_EACH_KIND = {
    "nulls_and_headers": (10, 10, 0),
    "equal_keys_and_times": (5, 5, 2),
    "near_zero": (10, 10, 0),
    "dense_random": (2, 3, 1),
    "minutes_random": (60_000, 90_000, 30_000),
}

OF_ONE_KIND = {
    "left_join_left_waits_for_after_and_grace": (3, 10, 5),
    "outer_join_each_side_waits_for_its_own_bound": (3, 10, 5),
    "outer_join_released_by_time_then_side_then_key": (5, 5, 0),
    "outer_join_released_before_its_own_pairs": (10, 10, 0),
    "outer_join_partial_release": (2, 10, 0),
    "left_join_partial_release": (5, 5, 0),
    "left_join_a_match_takes_all_that_wait_at_its_time": (5, 5, 0),
    "outer_join_a_match_takes_all_that_wait_at_its_time": (5, 5, 0),
    "left_join_a_tie_with_stream_time_releases": (5, 5, 0),
    "outer_join_null_keys_do_not_release": (5, 5, 0),
    "left_join_right_alone_releases": (5, 5, 0),
    "outer_join_released_with_headers_of_the_trigger": (5, 5, 0),
    "left_join_late_goes_out_alone_and_in_a_pair": (5, 5, 20),
    "outer_join_late_goes_out_alone_and_in_a_pair": (5, 5, 20),
    "join_partner_kept_until_its_own_side_moves_on": (5, 5, 0),
    "join_partner_kept_for_window_and_grace": (5, 5, 7),
    "join_partner_kept_for_uneven_window": (2, 8, 0),
    "outer_join_jump_of_time": (5, 5, 2),
}


def left(b: StreamsBuilder) -> KStream[Any, Any]:
    return words(b, "left")


def right(b: StreamsBuilder) -> KStream[Any, Any]:
    return words(b, "right")


def joined(
    method: str,
    one: KStream[Any, Any],
    other: KStream[Any, Any],
    before: int,
    after: int,
    grace: int,
    **options: Any,
) -> KStream[Any, Any]:
    """Words with words; `options` may say something else."""
    serdes_of_words = {**WORDS, "other_value": serdes.string}
    windows = JoinWindows(before, after, grace)
    stream: KStream[Any, Any] = getattr(one, method)(other, plus, windows, **{**serdes_of_words, **options})
    return stream


def _plain(b: StreamsBuilder, method: str, windows: tuple[int, int, int]) -> None:
    joined(method, left(b), right(b), *windows).to("out", **WORDS)


def _register() -> None:
    of_each_kind = dict(OF_EACH_KIND)
    for shape, windows in SHAPES.items():
        of_each_kind |= {f"{shape}_bounds": windows, f"{shape}_random": windows}
    for method in KINDS:
        for name, windows in of_each_kind.items():
            case(f"stream_stream_{method}_{name}", partial(_plain, method=method, windows=windows))
    for name, windows in OF_ONE_KIND.items():
        method = name[: name.index("join") + len("join")]
        case(f"stream_stream_{name}", partial(_plain, method=method, windows=windows))


_register()


@for_each("stream_stream")
def with_key(b: StreamsBuilder, method: str) -> None:
    windows = JoinWindows(10)
    getattr(left(b), method)(right(b), keyed, windows, **WORDS, with_key=True).to("out", **WORDS)


@for_each("stream_stream")
def named(b: StreamsBuilder, method: str) -> None:
    joined(method, left(b), right(b), 10, 10, 0, name="pairs").to("out", **WORDS)


@for_each("stream_stream")
def named_stores(b: StreamsBuilder, method: str) -> None:
    joined(method, left(b), right(b), 10, 10, 0, store="kept").to("out", **WORDS)


@for_each("stream_stream")
def named_nodes_and_stores(b: StreamsBuilder, method: str) -> None:
    pairs = joined(method, left(b), right(b), 10, 10, 0, name="pairs", store="kept", logging=False)
    pairs.to("out", **WORDS)


@for_each("stream_stream")
def rekeyed_left(b: StreamsBuilder, method: str) -> None:
    joined(method, by_value(left(b)), right(b), 10, 10, 0).to("out", **WORDS)


@for_each("stream_stream")
def rekeyed_right_named(b: StreamsBuilder, method: str) -> None:
    joined(method, left(b), by_value(right(b)), 10, 10, 0, name="pairs").to("out", **WORDS)


@for_each("stream_stream")
def rekeyed_both_random(b: StreamsBuilder, method: str) -> None:
    joined(method, by_value(left(b)), by_value(right(b)), 10, 10, 3).to("out", **WORDS)


@for_each("stream_stream")
def of_two_types_random(b: StreamsBuilder, method: str) -> None:
    pairs = joined(method, left(b), numbers(b, "right"), 6, 6, 4, other_value=serdes.int64)
    pairs.to("out", **WORDS)


@for_each("stream_stream")
def then_count(b: StreamsBuilder, method: str) -> None:
    pairs = joined(method, left(b), right(b), 10, 10, 0)
    pairs.group_by_key(**WORDS).count(store=number_store("counts")).to_stream().to("out", **NUMBERS)


@dsl
def stream_stream_join_of_one_rekeyed_stream_twice(b: StreamsBuilder) -> None:
    stream = by_value(left(b))
    joined("join", stream, right(b), 10, 10, 0).to("out", **WORDS)
    joined("left_join", stream, right(b), 5, 5, 0).to("out2", **WORDS)


@dsl
def stream_stream_join_of_one_rekeyed_stream_twice_named(b: StreamsBuilder) -> None:
    stream = by_value(left(b))
    joined("join", stream, right(b), 10, 10, 0, name="one").to("out", **WORDS)
    joined("left_join", stream, right(b), 5, 5, 0, name="two").to("out2", **WORDS)


@dsl
def stream_stream_join_of_joins(b: StreamsBuilder) -> None:
    once = joined("join", left(b), right(b), 10, 10, 0)
    joined("left_join", once, words(b, "third"), 10, 10, 0).to("out", **WORDS)


@dsl
def stream_stream_join_then_rekeyed_join(b: StreamsBuilder) -> None:
    once = joined("join", left(b), right(b), 10, 10, 0).select_key(lambda k, v: f"k{k}")
    other = right(b).select_key(lambda k, v: "knull" if k is None else f"k{k}")
    joined("outer_join", once, other, 10, 10, 0).to("out", **WORDS)


@dsl
def stream_stream_join_of_merged_and_filtered(b: StreamsBuilder) -> None:
    merged = left(b).merge(right(b))
    joined("left_join", merged, right(b).filter(lambda k, v: v != "r2"), 10, 10, 0).to("out", **WORDS)


@dsl
def stream_stream_join_of_joins_random(b: StreamsBuilder) -> None:
    once = joined("outer_join", left(b), right(b), 6, 4, 3)
    joined("outer_join", once, words(b, "third"), 8, 8, 0).to("out", **WORDS)


@dsl
def stream_stream_join_window_below_zero_is_refused(b: StreamsBuilder) -> None:
    joined("join", left(b), right(b), 5, -6, 0).to("out")


@dsl
def stream_stream_join_negative_grace_is_refused(b: StreamsBuilder) -> None:
    joined("join", left(b), right(b), 5, 5, -1).to("out")


@dsl
def stream_stream_join_twice_under_one_name_is_refused(b: StreamsBuilder) -> None:
    joined("join", left(b), right(b), 5, 5, 0, name="pairs").to("out")
    joined("join", left(b), right(b), 5, 5, 0, name="pairs").to("out")


@dsl
def stream_stream_join_twice_under_one_store_name_is_refused(b: StreamsBuilder) -> None:
    joined("join", left(b), right(b), 5, 5, 0, store="kept").to("out")
    joined("join", left(b), right(b), 5, 5, 0, store="kept").to("out")
