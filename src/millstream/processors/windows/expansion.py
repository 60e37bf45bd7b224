"""Which windows each row of a batch belongs to, and which of them have closed for it already.

A window closes when the operator's stream time reaches its end and its grace on top. Stream time goes on with
every row, so a row can be too late for a window that an earlier row of the same batch was in time for. Small
batches are gone through in Python, large ones and those in Arrow in columns; both answer the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.processors.columns.column import Column, are_few, are_many
from millstream.record import MAX_TIME
from millstream.windows import TimeWindows, UnlimitedWindows

if TYPE_CHECKING:
    import polars as pl
else:
    from millstream.processors.columns import lazy_polars as pl

__all__ = ["Expansion", "expand"]


@dataclass(frozen=True, slots=True)
class Expansion:
    """One entry per row and window that it changes, in the order of the rows, the earliest window first."""

    rows: Column
    starts: Column
    """Where the windows start."""
    late: Sequence[int]
    """Rows that came too late, each as often as there are windows for which it did."""
    stream_times: Column
    """The operator's stream time after each row of the batch."""


def expand(timestamps: Column, windows: TimeWindows | UnlimitedWindows, observed: int) -> Expansion:
    """The windows of each row; `observed` is the operator's stream time before the first.

    >>> found = expand(Column([12, 3, 20]), TimeWindows(10, advance=5), observed=-1)
    >>> list(zip(found.rows, found.starts)), found.late
    ([(0, 5), (0, 10), (2, 15), (2, 20)], [1])
    """
    times = timestamps.running_maximum(observed)
    if are_many(len(timestamps)) or (timestamps.in_arrow and not are_few(len(timestamps))):
        return _in_columns(timestamps, times, windows)
    if isinstance(windows, UnlimitedWindows):
        rows = [row for row, timestamp in enumerate(timestamps) if timestamp >= windows.start_ms]
        return Expansion(Column(rows), Column([windows.start_ms] * len(rows)), (), times)
    return _in_rows(timestamps, times, windows)


def _in_rows(timestamps: Column, times: Column, windows: TimeWindows) -> Expansion:
    size, advance = windows.size_ms, windows.advance_ms
    life = size + windows.grace_ms
    rows: list[int] = []
    starts: list[int] = []
    late: list[int] = []
    for row, (timestamp, now) in enumerate(zip(timestamps, times, strict=True)):
        first = max(0, timestamp - size + advance) // advance * advance
        for start in range(first, timestamp + 1, advance):
            if start + life > now:
                rows.append(row)
                starts.append(start)
            else:
                late.append(row)
    return Expansion(Column(rows), Column(starts), late, times)


def _in_columns(timestamps: Column, times: Column, windows: TimeWindows | UnlimitedWindows) -> Expansion:
    frame = pl.DataFrame({"timestamp": timestamps.series(pl.Int64()), "now": times.series(pl.Int64())})
    frame = frame.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    if isinstance(windows, UnlimitedWindows):
        rows = frame.filter(pl.col("timestamp") >= windows.start_ms)
        return _expansion(rows.with_columns(start=pl.lit(windows.start_ms)), rows.clear(), times)
    size, advance = windows.size_ms, windows.advance_ms
    if size == advance:
        found = frame.with_columns(start=pl.col("timestamp") - pl.col("timestamp") % size)
    else:
        first = (pl.col("timestamp") - size + advance).clip(lower_bound=0) // advance * advance
        found = frame.with_columns(start=pl.int_ranges(first, pl.col("timestamp") + 1, advance))
        found = found.explode("start")
    # A grace may be as long as time itself: now less the grace can't overflow.
    in_time = pl.col("start") > pl.col("now") - min(size + windows.grace_ms, MAX_TIME)
    return _expansion(found.filter(in_time), found.filter(~in_time), times)


def _expansion(in_time: pl.DataFrame, late: pl.DataFrame, times: Column) -> Expansion:
    rows, starts = Column.of_series(in_time["row"]), Column.of_series(in_time["start"])
    return Expansion(rows, starts, late["row"].to_list(), times)
