"""Tumbling, hopping and unlimited windows over batches, and windows that are emitted on close."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.processors.kit import fails_on
from tests.processors.window_kit import Input, Sent, Windows, records

from millstream import TimeWindows, UnlimitedWindows, serdes
from millstream.processors.aggregations.aggregate import aggregate_by
from millstream.processors.aggregations.count import COUNT
from millstream.processors.aggregations.mean import mean_of
from millstream.processors.aggregations.reduce import reduce_by
from millstream.processors.aggregations.sum import sum_of
from millstream.processors.windows import time_windows
from millstream.processors.windows.on_close import CloseRule
from millstream.serdes.mean_serde import MeanSerde

COLLECT = aggregate_by(str, lambda key, value, so_far: f"{so_far}{value}")
INPUTS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "a\0", None]), st.sampled_from([1, 2, None]), st.integers(0, 60)),
    max_size=25,
)


def test_every_record_updates_its_windows_the_earliest_first() -> None:
    windows = Windows(TimeWindows(10, advance=5), COUNT)
    assert windows.take(("a", 1, 12), ("b", 1, 13), ("a", 1, 3)) == [
        ("a", 5, 1, 12),
        ("a", 10, 1, 12),
        ("b", 5, 1, 13),
        ("b", 10, 1, 13),
    ]
    assert windows.late == 1


def test_the_timestamp_is_the_largest_in_the_window() -> None:
    windows = Windows(TimeWindows(10), COUNT)
    assert windows.take(("a", 1, 7), ("a", 1, 3)) == [("a", 0, 1, 7), ("a", 0, 2, 7)]


def test_a_record_without_a_key_is_dropped_and_moves_no_time() -> None:
    windows = Windows(TimeWindows(10), COUNT)
    assert windows.take((None, 1, 50), ("a", 1, 5)) == [("a", 0, 1, 5)]
    assert (windows.notes.drops, windows.late, windows.notes.times.observed) == (1, 0, 5)


def test_a_record_without_a_value_counts() -> None:
    assert Windows(TimeWindows(10), COUNT).take(("a", None, 5)) == [("a", 0, 1, 5)]


def test_a_record_without_a_value_is_reduced() -> None:
    windows = Windows(TimeWindows(10), reduce_by(lambda one, other: one if other is None else one + other))
    assert windows.take(("a", None, 5), ("a", 2, 6), ("a", None, 7)) == [
        ("a", 0, None, 5),
        ("a", 0, 2, 6),
        ("a", 0, 2, 7),
    ]


def test_a_sum_has_no_use_for_a_record_without_a_value() -> None:
    windows = Windows(TimeWindows(10), sum_of(None))
    assert windows.take(("a", None, 50), ("a", 2, 6)) == [("a", 0, 2, 6)]
    assert windows.notes.drops == 1


def test_an_unlimited_window_takes_all_records_from_its_start_on() -> None:
    windows = Windows(UnlimitedWindows(10), COUNT)
    assert windows.take(("a", 1, 9), ("a", 1, 900), ("a", 1, 10)) == [("a", 10, 1, 900), ("a", 10, 2, 900)]
    assert windows.late == 0


def test_stream_time_is_kept_from_batch_to_batch() -> None:
    windows = Windows(TimeWindows(10), COUNT)
    windows.take(("a", 1, 10))
    assert (windows.take(("a", 1, 9)), windows.late) == ([], 1)


def test_with_caching_the_last_update_of_each_window_goes_on_at_the_end() -> None:
    windows = Windows(TimeWindows(10), COUNT, caching=True)
    assert windows.take(("a", 1, 5), ("b", 1, 6), ("a", 1, 7), ("a", 1, 15)) == []
    assert windows.flush() == [("b", 0, 1, 6), ("a", 0, 2, 7), ("a", 10, 1, 15)]


def test_old_values_are_those_of_the_window() -> None:
    windows = Windows(TimeWindows(10), COUNT, send_old=True)
    batch = windows.operator.process(records([("a", 1, 1), ("a", 1, 2), ("a", 1, 12)]))
    assert batch is not None
    assert batch.olds == [None, 1, None]


def test_a_mean_is_shown_as_a_number() -> None:
    windows = Windows(TimeWindows(10), mean_of(None), value=MeanSerde())
    assert windows.take(("a", 1, 1), ("a", 2, 2)) == [("a", 0, 1.0, 1), ("a", 0, 1.5, 2)]


def test_a_record_that_fails_at_one_window_is_left_out_from_there_on() -> None:
    def fails_at_second(key: Any, value: Any, so_far: int) -> int:
        if so_far == value:
            raise ValueError("enough")
        return so_far + 1

    windows = Windows(TimeWindows(10, advance=5), aggregate_by(lambda: 0, fails_at_second))
    windows.take(("a", 9, 7))  # in 0 and in 5
    assert windows.take(("a", 9, 12), ("a", 2, 13), ("a", 9, 14)) == [
        ("a", 5, 2, 12),
        ("a", 10, 1, 12),
        ("a", 5, 3, 14),
        ("a", 10, 2, 14),
    ]
    assert windows.notes.messages == [(2, "enough")]  # once, though it is in two windows


def test_headers_are_those_of_the_record() -> None:
    windows = Windows(TimeWindows(10, advance=5), COUNT)
    headers = [(("h", b"1"),), (("h", b"2"),)]
    batch = windows.operator.process(records([("a", 1, 7), ("a", 1, 8)], headers))
    assert batch is not None
    assert batch.headers == [headers[0], headers[0], headers[1], headers[1]]
    assert batch.order == [(0, 0), (0, 1), (1, 0), (1, 1)]


# On close.


@pytest.mark.parametrize(("grace", "time"), [(0, 10), (5, 15)])
def test_a_window_is_emitted_when_stream_time_reaches_its_end_and_grace(grace: int, time: int) -> None:
    windows = Windows(TimeWindows(10, grace=grace), COUNT, on_close=True)
    assert windows.take(("a", 1, 3), ("a", 1, 2), ("b", 1, time - 1)) == []
    assert windows.take(("b", 1, time)) == [("a", 0, 2, 3)] + [("b", 0, 1, 9)] * (grace == 0)


def test_windows_come_out_by_start_and_then_by_the_bytes_of_their_keys() -> None:
    windows = Windows(TimeWindows(10, grace=20), COUNT, on_close=True)
    windows.take(("b", 1, 15), ("a\0", 1, 15), ("a", 1, 15), ("c", 1, 5))
    windows.notes.commit()
    assert [(key, start) for key, start, _, _ in windows.take(("z", 1, 100))] == [
        ("c", 0),
        ("a", 10),
        ("a\0", 10),
        ("b", 10),
    ]


def test_each_window_is_caused_by_the_record_that_closed_it() -> None:
    windows = Windows(TimeWindows(10), COUNT, on_close=True)
    inputs = [("a", 1, 5), ("a", 1, 15), ("b", 1, 16), ("a", 1, 30)]
    headers = [((str(row), b""),) for row in range(4)]
    batch = windows.operator.process(records(inputs, headers))
    assert batch is not None
    assert (list(batch.origins), batch.headers) == ([1, 3, 3], [headers[1], headers[3], headers[3]])


def test_no_window_is_lost_when_time_jumps() -> None:
    windows = Windows(TimeWindows(10), COUNT, on_close=True)
    assert windows.take(("a", 1, 5), ("b", 1, 10**9), ("c", 1, 10**12)) == [
        ("a", 0, 1, 5),
        ("b", 10**9, 1, 10**9),
    ]
    windows.notes.commit()
    assert windows.take(("a", 1, 10**15)) == [("c", 10**12, 1, 10**12)]


def test_the_store_is_looked_at_only_when_the_end_of_a_window_was_passed() -> None:
    windows = Windows(TimeWindows(10, advance=5), COUNT, on_close=True)
    with patch.object(type(windows.notes.table), "load_between", autospec=True, return_value={}) as load:
        windows.take(("a", 1, 9), ("a", 1, 10), ("a", 1, 12))
        windows.take(("a", 1, 14))
        windows.take(("a", 1, 15))
    assert [call.args[1:] for call in load.call_args_list] == [(0, 0), (5, 5)]


def test_a_record_that_failed_closes_nothing_and_the_next_one_does() -> None:
    fold = aggregate_by(lambda: 0, fails_on(13, result=1))
    windows = Windows(TimeWindows(10), fold, on_close=True)
    assert windows.take(("a", 1, 5), ("a", 13, 20)) == []
    assert windows.take(("b", 1, 20)) == [("a", 0, 1, 5)]


def test_windows_are_emitted_once_over_a_restart() -> None:
    windows = Windows(TimeWindows(10), COUNT, on_close=True)
    assert windows.take(("a", 1, 5), ("a", 1, 11)) == [("a", 0, 1, 5)]
    windows.notes.commit()
    again = Windows(TimeWindows(10), COUNT, on_close=True)
    again.notes.backend, again.notes.times = windows.notes.backend, windows.notes.times
    again.notes.table = windows.notes.table
    again.operator.open(again.notes)
    assert again.take(("a", 1, 4), ("a", 1, 20)) == [("a", 10, 1, 11)]
    assert again.late == 1


@pytest.mark.parametrize(
    ("emitted", "observed", "expected"),
    [(-1, 11, None), (-1, 12, (0, 0)), (10, 16, None), (10, 17, (5, 5)), (15, 17, None)],
)
def test_windows_close_from_where_they_were_emitted_last(
    emitted: int, observed: int, expected: tuple[int, int] | None
) -> None:
    assert CloseRule(10, 2, 5).closed_starts(emitted, observed) == expected


# Batches.


def run(batches: list[list[Input]], **settings: Any) -> tuple[list[Sent], int, Any]:
    windows = Windows(**settings)
    found: list[Sent] = []
    for batch in batches:
        found += windows.take(*batch)
    found += windows.flush()
    return found, windows.late, windows.notes.times


SETTINGS = st.sampled_from(
    [
        {"windows": TimeWindows(10), "aggregation": COUNT},
        {"windows": TimeWindows(10, advance=3, grace=7), "aggregation": COUNT},
        {"windows": TimeWindows(8, grace=20), "aggregation": COLLECT, "value": serdes.string},
        {"windows": TimeWindows(10, advance=5), "aggregation": sum_of(None)},
        {
            "windows": UnlimitedWindows(7),
            "aggregation": reduce_by(lambda one, other: (one or 0) + (other or 0)),
        },
    ]
)


@given(SETTINGS, INPUTS, st.sampled_from(["update", "cache", "close"]))
def test_a_batch_gives_what_its_records_one_by_one_give(
    settings: dict[str, Any], inputs: list[Input], emit: str
) -> None:
    if emit == "close" and isinstance(settings["windows"], UnlimitedWindows):
        emit = "update"
    flags = {"caching": emit == "cache", "on_close": emit == "close"}
    expected = run([[one] for one in inputs], **settings, **flags)
    assert run([inputs], **settings, **flags) == expected
    assert run([inputs[:7], inputs[7:]], **settings, **flags) == expected
    with patch.object(time_windows, "_MOST_WINDOWS", 8):  # in parts
        assert run([inputs], **settings, **flags) == expected
