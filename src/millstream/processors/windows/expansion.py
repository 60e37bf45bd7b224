"""Which windows each row of a batch belongs to, and which of them have closed for it already.

A window closes when the operator's stream time reaches its end and its grace on top. Stream time goes on with
every row, so a row can be too late for a window that an earlier row of the same batch was in time for. Small
batches are gone through in Python, large ones and those in Arrow in columns; both answer the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.processors.columns.column import Column, are_few, are_many, repeated_rows
from millstream.record import MAX_TIME
from millstream.windows import TimeWindows, UnlimitedWindows

if TYPE_CHECKING:
    import polars as pl
else:
    from millstream.processors.columns import lazy_polars as pl

__all__ = ["Expansion", "expand", "runs_of_windows"]


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
    life = windows.size_ms + windows.grace_ms
    rows: list[int] = []
    starts: list[int] = []
    late: list[int] = []
    for row, (timestamp, now) in enumerate(zip(timestamps, times, strict=True)):
        for start in windows.starts_of(timestamp):
            if start + life > now:
                rows.append(row)
                starts.append(start)
            else:
                late.append(row)
    return Expansion(Column(rows), Column(starts), late, times)


def _in_columns(timestamps: Column, times: Column, windows: TimeWindows | UnlimitedWindows) -> Expansion:
    runs = runs_of_windows(timestamps.series(pl.Int64()), times.series(pl.Int64()), windows)
    late = list(repeated_rows(runs["late"].to_list())) if runs["late"].sum() else []
    found = (
        runs.with_row_index("row")
        .filter(pl.col("width") > 0)
        .select(pl.col("row").cast(pl.Int64), "first", "last")
    )
    if (found["first"] != found["last"]).any():
        assert isinstance(windows, TimeWindows)  # there is but one unlimited window
        starts = pl.int_ranges("first", pl.col("last") + 1, windows.advance_ms)
        found = found.with_columns(first=starts).explode("first")
    return Expansion(Column.of_series(found["row"]), Column.of_series(found["first"]), late, times)


def runs_of_windows(
    times: pl.Series, now: pl.Series, windows: TimeWindows | UnlimitedWindows
) -> pl.DataFrame:
    """Of each row the windows that it is in time for: first, last, how many; and for how many it is late.

    `now` is the operator's stream time after each row.
    """
    frame = pl.DataFrame({"time": times, "now": now})
    if isinstance(windows, UnlimitedWindows):
        return frame.select(
            first=pl.lit(windows.start_ms),
            last=pl.lit(windows.start_ms),
            width=(pl.col("time") >= windows.start_ms).cast(pl.Int64),
            late=pl.lit(0, pl.Int64),
        )
    advance = windows.advance_ms
    # A grace may be as long as time itself: now less the grace can't overflow.
    closed = (pl.col("now") - min(windows.size_ms + windows.grace_ms, MAX_TIME)).clip(lower_bound=-1)
    last = pl.col("time") - pl.col("time") % advance
    earliest = (pl.col("time") - windows.size_ms + advance).clip(lower_bound=0) // advance * advance
    open_from = (closed // advance + 1) * advance
    frame = frame.select(last=last, earliest=last if windows.size_ms == advance else earliest, open=open_from)
    found = frame.with_columns(first=pl.max_horizontal("earliest", "open"))
    width = ((pl.col("last") - pl.col("first")) // advance + 1).clip(lower_bound=0)
    found = found.with_columns(width=width)
    windows_of_row = (pl.col("last") - pl.col("earliest")) // advance + 1
    return found.select("first", "last", "width", late=windows_of_row - pl.col("width"))
