"""Sliding windows over batches: the traces by hand, and batches against records one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.processors.kit import fails_on
from tests.processors.window_kit import Input, Sent, Windows, records

from millstream import SlidingWindows, serdes
from millstream.processors.aggregations.aggregate import aggregate_by
from millstream.processors.aggregations.count import COUNT

COLLECT = aggregate_by(str, lambda key, value, so_far: f"{so_far}{value}")
TEN = SlidingWindows(10, grace=1000)


def collecting(windows: SlidingWindows = TEN, **settings: Any) -> Windows:
    return Windows(windows, COLLECT, value=serdes.string, **settings)


def test_a_record_has_the_window_that_ends_with_it() -> None:
    assert collecting().take(("k", "a", 20)) == [("k", 10, "a", 20)]


def test_the_window_behind_a_record_is_made_when_it_has_a_record() -> None:
    windows = collecting()
    windows.take(("k", "a", 20))
    assert windows.take(("k", "b", 25)) == [("k", 21, "b", 25), ("k", 15, "ab", 25)]


def test_a_record_before_others_gets_the_window_behind_it_out_of_theirs() -> None:
    windows = collecting()
    windows.take(("k", "a", 20))
    assert windows.take(("k", "b", 15)) == [("k", 10, "ab", 20), ("k", 5, "b", 15), ("k", 16, "a", 20)]


def test_existing_windows_come_first_from_the_latest_on() -> None:
    windows = collecting()
    windows.take(("k", "a", 20), ("k", "b", 25))
    assert [start for _, start, _, _ in windows.take(("k", "c", 27))] == [21, 26, 17]
    assert [start for _, start, _, _ in windows.take(("k", "d", 22))] == [21, 17, 15, 12, 23]


def test_records_at_one_time_share_their_windows() -> None:
    windows = collecting()
    assert windows.take(("k", "a", 20), ("k", "b", 20)) == [("k", 10, "a", 20), ("k", 10, "ab", 20)]


def test_early_records_share_the_window_at_time_0() -> None:
    assert collecting().take(("k", "a", 3), ("k", "b", 5), ("k", "c", 1), ("k", "d", 12)) == [
        ("k", 0, "a", 3),
        ("k", 4, "b", 5),
        ("k", 0, "ab", 5),
        ("k", 2, "ab", 5),
        ("k", 0, "abc", 5),
        ("k", 4, "bd", 12),
        ("k", 2, "abd", 12),
        ("k", 6, "d", 12),
    ]


@pytest.mark.parametrize(("time", "late"), [(15, 0), (14, 1)])
def test_a_record_is_late_when_all_its_windows_have_closed(time: int, late: int) -> None:
    windows = Windows(SlidingWindows(10, grace=5), COUNT)
    windows.take(("k", 1, 30))
    windows.take(("k", 1, time))
    assert windows.late == late + (time == 15)  # at 15 only the window behind it is open


def test_a_record_without_a_key_or_a_value_moves_no_time() -> None:
    windows = Windows(SlidingWindows(10), COUNT)
    assert windows.take((None, 1, 90), ("k", None, 80), ("k", 1, 20)) == [("k", 10, 1, 20)]
    assert (windows.notes.drops, windows.notes.times.observed) == (2, 20)


def test_a_new_window_has_no_old_value_though_it_is_made_of_another() -> None:
    windows = collecting(send_old=True)
    batch = windows.operator.process(records([("k", "a", 20), ("k", "b", 25), ("k", "c", 25)]))
    assert batch is not None
    assert list(batch.olds or ()) == [None, None, None, "b", "ab"]


def test_an_aggregate_of_none_deletes_the_window() -> None:
    fold = aggregate_by(str, lambda key, value, so_far: None if value == "x" else so_far + value)
    windows = Windows(TEN, fold, value=serdes.string)
    assert windows.take(("k", "a", 20), ("k", "x", 20), ("k", "b", 20)) == [
        ("k", 10, "a", 20),
        ("k", 10, None, 20),
        ("k", 10, "b", 20),
    ]


def test_a_list_that_is_changed_in_place_is_shared_by_no_two_windows() -> None:
    def append(key: str, value: str, so_far: list[str]) -> list[str]:
        so_far.append(value)
        return so_far

    windows = Windows(TEN, aggregate_by(list, append), value=serdes.json)
    windows.take(("k", "a", 20), ("k", "b", 25), ("k", "c", 22))
    assert {start: cell[0] for start, cell in windows.notes.table.cells_of([b"k"], 0, 99)[b"k"].items()} == {
        10: windows.notes.table.frozen(["a"]),
        12: windows.notes.table.frozen(["a", "c"]),
        15: windows.notes.table.frozen(["a", "b", "c"]),
        21: windows.notes.table.frozen(["b", "c"]),
        23: windows.notes.table.frozen(["b"]),
    }


@pytest.mark.parametrize("time", [35, 36])
def test_a_window_closes_after_the_time_of_its_end_and_grace(time: int) -> None:
    windows = Windows(SlidingWindows(10, grace=5), COUNT, on_close=True)
    windows.take(("k", 1, 30))
    assert windows.take(("k", 1, time)) == [("k", 20, 1, 30)] * (time == 36)


def test_a_record_that_failed_closes_nothing() -> None:
    windows = Windows(SlidingWindows(10), aggregate_by(lambda: 0, fails_on(13, result=1)), on_close=True)
    assert windows.take(("k", 1, 30), ("k", 13, 60)) == []
    assert windows.take(("other", 1, 60)) == [("k", 20, 1, 30)]


INPUTS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "ab", None]), st.sampled_from(["x", "y", "z"]), st.integers(0, 60)),
    max_size=25,
)


@given(
    st.sampled_from([SlidingWindows(10), SlidingWindows(4, grace=3), SlidingWindows(7, grace=30)]),
    INPUTS,
    st.sampled_from(["update", "cache", "close"]),
)
def test_a_batch_gives_what_its_records_one_by_one_give(
    windows: SlidingWindows, inputs: list[Input], emit: str
) -> None:
    def run(batches: list[list[Input]]) -> tuple[list[Sent], int, Any]:
        each = collecting(windows, caching=emit == "cache", on_close=emit == "close")
        found = [row for batch in batches for row in each.take(*batch)]
        return found + each.flush(), each.late, each.notes.times

    expected = run([[one] for one in inputs])
    assert run([inputs]) == expected
    assert run([inputs[:7], inputs[7:]]) == expected
