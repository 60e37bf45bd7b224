"""The rows of a batch, folded by key into the cells of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from millstream.processors.batch import Batch
from millstream.processors.columns.cells import load_cells, save_cells
from millstream.processors.columns.column import Column
from millstream.processors.columns.expressions import series_of
from millstream.processors.columns.folds import ColumnFold
from millstream.processors.record_cache import HeldBack
from millstream.state.stores.cell_store import CellStore

__all__ = ["FoldedGroups", "rows_by_key"]


def rows_by_key(keys: pl.Series, values: pl.Series, timestamps: Sequence[int]) -> pl.DataFrame:
    """Rows as `FoldedGroups` takes them. The keys are the store's bytes."""
    columns = {"key": keys, "value": values, "time": series_of(timestamps, pl.Int64())}
    return pl.DataFrame(columns).with_row_index("row")


class FoldedGroups:
    """Read, folded, ready to be written: whatever can go wrong went wrong before anything has changed."""

    def __init__(self, fold: ColumnFold, frame: pl.DataFrame, store: CellStore[Any], *, each: bool) -> None:
        self._fold = fold
        self.each = frame.clear()
        """The aggregate after every row, if `each` asks for it."""
        if each or fold.in_order:
            before = _before(fold, frame, frame["key"].unique().sort(), store)
            rows = fold.each(frame, before)
            self.each = rows.select("row", "key", "new", "old", "time", *fold.state)
            self.last = self.each.group_by("key").last().sort("key")
            """One row per key, in the order of the keys."""
        else:
            grouped = fold.grouped(frame)
            self.last = fold.last(grouped, _before(fold, frame, grouped["key"], store))

    def save(self, store: CellStore[Any]) -> None:
        """Write the new cells."""
        save_cells(store, self.last["key"], self._fold.values_of(self.last), self.last["time"])

    def held_back(self, batch: Batch) -> HeldBack:
        """With caching: one update per key, in the order of their last rows."""
        last = self.last.sort("row")
        values = self._fold.values_of(last)
        held = replace(
            batch.take(Column.of_series(last["row"])),
            values=Column.of_series(values) if isinstance(values, pl.Series) else values,
            timestamps=Column.of_series(last["time"]),
            olds=None,
            order=None,
        )
        return Column.of_series(last["key"]), held


def _before(fold: ColumnFold, frame: pl.DataFrame, keys: pl.Series, store: CellStore[Any]) -> pl.DataFrame:
    """The cells of keys in ascending order, as they are now."""
    values, times = load_cells(store, keys.to_list())
    columns = fold.columns_of(values, frame.schema["value"])
    before = pl.DataFrame({"key": keys, **columns, "time_before": times})
    fold.check_sums(frame, before)
    return before
