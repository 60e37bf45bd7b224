"""The rows of a batch, grouped and aggregated by key and time window in columns, into the cells of a table.

What `aggregations.column_groups` is to a table by key. State, updates, timestamps and late records are those
of the row form.

A group, a key and a window, is a number: that of the key among the batch's keys in ascending order, and that
of the window among those that the batch could touch. So a row belongs to a run of numbers, one for each of
its windows that has not closed. Where the order of rows does not matter, rows of the same run are folded
first, and the runs are then halved and folded again until they are single windows: a row costs the same,
however many windows it is in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl
import pyarrow as pa

from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.aggregations.column_form import ColumnForm
from millstream.processors.aggregations.column_groups import (
    FAILURES,
    PLAIN,
    ColumnGroups,
    can_decode,
    decoded_cells,
    encoded_cells,
    encoded_keys,
    load_cells,
    plain_operand,
)
from millstream.processors.aggregations.groups import key_type
from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column, repeated_rows
from millstream.processors.windows.expansion import runs_of_windows
from millstream.processors.windows.windowed_table import WindowedTable
from millstream.serdes.columns import CannotError
from millstream.serdes.columns.primitive_codecs import big_endian
from millstream.state.stores.window import TimestampedWindowStore
from millstream.windows import TimeWindows, UnlimitedWindows

__all__ = ["WindowFold", "fold_in_windows"]

_START_BYTES: Final = 8
_MOST_GROUPS: Final = 2**62
_LATE_AT_ONCE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class WindowCells:
    """The cells of a windowed table, by the numbers of groups: see `aggregations.column_groups.Cells`."""

    store: TimestampedWindowStore[Any]
    names: pl.Series
    """The keys of the batch in bytes, ascending."""
    first: int
    """The start of the first window."""
    advance_ms: int
    windows: int
    """How many windows there are to each key."""

    def keys(self, groups: pl.Series) -> pl.Series:
        """See `Cells.keys`."""
        starts = big_endian(self._starts(groups), _START_BYTES)
        return pl.select(pl.lit(self._names(groups)) + pl.lit(starts)).to_series()

    def load(self, groups: pl.Series) -> tuple[Sequence[Any] | pl.Series, pl.Series]:
        """See `Cells.load`."""
        if not can_decode(self.store):
            return load_cells(self.store, self.keys(groups).to_list())
        return decoded_cells(self.store, self.store.load_windows(self._names(groups), self._starts(groups)))

    def save(
        self, groups: pl.Series, values: Sequence[Any] | pl.Series, times: pl.Series, turns: pl.Series
    ) -> None:
        """See `Cells.save`."""
        data = encoded_cells(self.store, values, times)
        if data is not None:
            self.store.save_windows(self._names(groups), self._starts(groups), data, times, turns)
            return
        cells = list(zip(self.keys(groups).to_list(), zip(values, times, strict=True), strict=True))
        order = turns.to_frame("turn").select(pl.arg_sort_by("turn", maintain_order=True)).to_series()
        self.store.save(dict(cells[place] for place in order))

    def _names(self, groups: pl.Series) -> pl.Series:
        return self.names.gather(groups // self.windows)

    def _starts(self, groups: pl.Series) -> pl.Series:
        return groups % self.windows * self.advance_ms + self.first


class WindowFold:
    """A batch in its windows: late records known, groups read and folded, ready to be written."""

    def __init__(
        self,
        store: TimestampedWindowStore[Any],
        windows: TimeWindows | UnlimitedWindows,
        aggregation: Aggregation,
        observed: int,
    ) -> None:
        if not store.has_columns:
            raise CannotError("a store whose rows are ordered by time")
        self._store = store
        self._windows = windows
        self._aggregation = aggregation
        self._observed = observed
        self._advance_ms = windows.advance_ms if isinstance(windows, TimeWindows) else 1
        self._late = pl.Series(dtype=pl.Int64)
        self.groups: ColumnGroups | None = None
        """None if no row is in time for any window."""

    def run(self, keys: pl.Series, values: pl.Series, times: pl.Series, *, each: bool) -> None:
        """Fold columns of one length: keys in bytes, what is folded, timestamps. Nothing is changed yet."""
        form = self._aggregation.columns
        assert form is not None  # the caller has looked
        now = times.cum_max().clip(lower_bound=self._observed)
        self._observed = int(now[-1])
        rows = runs_of_windows(times, now, self._windows)
        self._late = rows["late"]
        rows = rows.with_columns(value=values, time=times, name=keys).with_row_index("row")
        rows = rows.filter(pl.col("width") > 0)
        if rows.is_empty():
            return
        self.cells, rows = self._numbered(rows)
        if each or form.in_order(values.dtype):
            rows = _expanded(rows)
            self.groups = ColumnGroups(form, rows, self.cells, each=each)
        else:
            grouped = self._grouped(form, rows)
            self.groups = ColumnGroups(form, rows, self.cells, each=False, grouped=grouped)
        self.rows = rows["row"]
        """For each row of `groups.each`, the row of the batch."""

    def save(self) -> None:
        """Write the new cells."""
        if self.groups is not None:
            self.groups.save()

    def finish(self, table: WindowedTable, batch: Batch) -> None:
        """All was saved: count late records, move the operator's stream time, and hold updates back."""
        for late in _late_rows(self._late):
            table.context.late(batch, late)
        table.context.times.observed = self._observed
        if self.groups is not None and table.caching:
            # Keys and values of the updates are those of the cells: row numbers in their place cost nothing.
            rows = range(len(batch))
            self.groups.hold_back(table, batch.with_columns(rows, rows))

    def _numbered(self, rows: pl.DataFrame) -> tuple[WindowCells, pl.DataFrame]:
        """The groups of the rows: `key` is the first one of each row, and `width` says how many follow."""
        found = rows["name"].to_arrow().dictionary_encode()
        distinct = _series(found.dictionary)
        order = distinct.arg_sort()
        numbers = pl.int_range(len(distinct), eager=True)
        first, last = int(rows["first"].min()), int(rows["last"].max())  # type: ignore[arg-type]
        windows = (last - first) // self._advance_ms + 1
        if windows * (len(distinct) + 1) >= _MOST_GROUPS:
            raise CannotError("more windows than can be numbered")
        cells = WindowCells(self._store, distinct.gather(order), first, self._advance_ms, windows)
        names = numbers.scatter(order, numbers).gather(_series(found.indices))
        window = (rows["first"] - first) // self._advance_ms
        return cells, rows.select("row", "width", "value", "time", key=names * windows + window)

    def _grouped(self, form: ColumnForm, rows: pl.DataFrame) -> pl.DataFrame:
        """One row per group, as `ColumnForm.grouped` gives it."""
        most = int(rows["width"].max())  # type: ignore[arg-type]
        if most == 1:
            return form.grouped(rows).sort("key")
        merging = (self._aggregation.partials or self._aggregation).columns
        assert merging is not None  # what folds values in columns folds partial aggregates so, too
        found = _merged(rows, form.whole(pl.col("value")))
        while most > 1:
            half = 1 << (most - 1).bit_length() - 1
            long = pl.col("width") > half
            found = _merged(
                pl.concat(
                    [
                        found.with_columns(width=pl.col("width").clip(upper_bound=half)),
                        found.filter(long).with_columns(
                            key=pl.col("key") + half, width=pl.col("width") - half
                        ),
                    ]
                ),
                merging.whole(pl.col("new")),
            )
            most = half
        return found.drop("width").sort("key")


def fold_in_windows(table: WindowedTable, batch: Batch, windows: TimeWindows | UnlimitedWindows) -> bool:
    """Fold plain keys and values into a cached table. False if it can't: nothing has happened then."""
    form, store = table.aggregation.columns, table.store
    if form is None:
        return False
    try:
        kind = key_type(batch.keys, store.key_serde)
        if kind is None:
            raise CannotError("keys that may be equal without having the same bytes")
        fold = WindowFold(store, windows, table.aggregation, table.context.times.observed)
        keys = encoded_keys(store.key_serde, batch.keys, PLAIN[kind])
        values = plain_operand(form, batch.values, store)
        fold.run(keys, values, batch.timestamps.series(pl.Int64()), each=False)
        fold.save()
    except FAILURES:  # row by row it fails again, and it is known where
        table.context.fell_back("columns", len(batch))
        return False
    fold.finish(table, batch)
    return True


def _expanded(rows: pl.DataFrame) -> pl.DataFrame:
    """A row for each of its groups, in order."""
    if (rows["width"] == 1).all():
        return rows.drop("width")
    runs = pl.int_ranges("key", pl.col("key") + pl.col("width"))
    return rows.with_columns(key=runs).drop("width").explode("key")


def _merged(rows: pl.DataFrame, new: pl.Expr) -> pl.DataFrame:
    """The rows of each run, folded."""
    return rows.group_by("key", "width").agg(row=pl.col("row").max(), time=pl.col("time").max(), new=new)


def _late_rows(late: pl.Series) -> Iterator[Column]:
    """Each row as often as it was late, not too many at a time."""
    rows = (late > 0).arg_true()
    if rows.is_empty():
        return
    counts = late.gather(rows)
    for _, part in pl.DataFrame({"row": rows, "count": counts}).group_by(
        counts.cum_sum() // _LATE_AT_ONCE, maintain_order=True
    ):
        yield Column.of_series(part["row"]).take(repeated_rows(part["count"].to_list()))


def _series(array: pa.Array) -> pl.Series:
    found = pl.from_arrow(array)
    assert isinstance(found, pl.Series)  # an array is no table
    return found
