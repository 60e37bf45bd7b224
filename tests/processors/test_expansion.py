"""Rows into windows: which, and which of them in time; in Python and in columns alike."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.engine import columns_for_any_number

from millstream import TimeWindows, UnlimitedWindows
from millstream.processors.columns.column import Column
from millstream.processors.windows.expansion import Expansion, expand
from millstream.record import MAX_TIME

WINDOWS = st.one_of(
    st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(0, 30)).map(
        lambda drawn: TimeWindows(drawn[0], advance=min(drawn[0], drawn[1]), grace=drawn[2])
    ),
    st.integers(0, 20).map(UnlimitedWindows),
)


def plain(found: Expansion) -> tuple[list[Any], ...]:
    pairs = list(zip(found.rows, found.starts, strict=True))
    return pairs, list(found.late), list(found.stream_times)


@pytest.mark.parametrize(
    ("windows", "timestamp", "starts"),
    [
        (TimeWindows(10), 9, [0]),
        (TimeWindows(10), 10, [10]),
        (TimeWindows(10, advance=5), 3, [0]),  # no window starts before time
        (TimeWindows(10, advance=5), 12, [5, 10]),
        (TimeWindows(10, advance=4), 12, [4, 8, 12]),
        (UnlimitedWindows(5), 4, []),
        (UnlimitedWindows(5), 5, [5]),
    ],
)
def test_a_record_belongs_to_windows(windows: Any, timestamp: int, starts: list[int]) -> None:
    assert list(expand(Column([timestamp]), windows, -1).starts) == starts


@pytest.mark.parametrize(("grace", "late"), [(4, [1]), (5, [])])
def test_a_window_is_open_until_stream_time_reaches_its_end_and_grace(grace: int, late: list[int]) -> None:
    assert list(expand(Column([14, 9]), TimeWindows(10, grace=grace), -1).late) == late


def test_a_row_may_be_late_for_some_of_its_windows() -> None:
    found = expand(Column([17, 12]), TimeWindows(10, advance=5), -1)
    assert plain(found) == ([(0, 10), (0, 15), (1, 10)], [1], [17, 17])


def test_stream_time_goes_on_from_where_it_was() -> None:
    assert plain(expand(Column([5]), TimeWindows(10), 10)) == ([], [0], [10])


def test_a_grace_may_be_as_long_as_time() -> None:
    windows = TimeWindows(10, grace=MAX_TIME)
    with columns_for_any_number():
        assert plain(expand(Column([MAX_TIME - 20, 3]), windows, -1))[1] == []


@given(WINDOWS, st.lists(st.integers(0, 60), max_size=20), st.integers(-1, 60))
def test_columns_answer_as_python_does(windows: Any, timestamps: list[int], observed: int) -> None:
    expected = plain(expand(Column(timestamps), windows, observed))
    with columns_for_any_number():
        assert plain(expand(Column(timestamps), windows, observed)) == expected
        series = Column.of_series(pl.Series(timestamps, dtype=pl.Int64))
        assert plain(expand(series, windows, observed)) == expected
