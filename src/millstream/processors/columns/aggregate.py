"""Aggregations over columns: count, sum, min, max and mean, grouped by Polars.

The keys of a batch are read from the store in one go, the groups folded in one go, and written in one go:
Python sees each key once, not each record. State, updates and timestamps are those of the row tier
(`processors.aggregate`), which also takes over whatever columns can't do exactly: a sum that leaves 64 bits,
NaN among numbers to compare, keys or values without a column type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
from polars.exceptions import PanicException

from millstream.processors.aggregate import StreamAggregate
from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.processors.columns.expressions import Declared, Evaluation, series_of
from millstream.processors.columns.folds import ColumnFold
from millstream.processors.fold import Combined
from millstream.processors.mean import SendsFloats
from millstream.processors.table import Updates, drop_nulls
from millstream.serdes import ColumnError
from millstream.serdes.columns import CannotError, codec_to_write, learn

__all__ = ["ColumnAggregate", "ColumnMean", "key_bytes"]

_FAILURES = (Exception, PanicException)


class ColumnAggregate(StreamAggregate):
    """Folds the values of each key, or what an expression makes of the record."""

    columnar = True

    def __init__(
        self,
        store: str,
        make_fold: Callable[[], ColumnFold],
        of: pl.Expr | None,
        declared: Declared,
        *,
        caching: bool,
        send_old: bool,
    ) -> None:
        fold = make_fold()
        super().__init__(store, fold.initializer, fold.aggregator, caching=caching, send_old=send_old)
        self._fold = fold
        self._declared = declared
        self._of = None if of is None else Evaluation({"value": of}, declared)

    def process(self, batch: Batch) -> Batch | None:
        """See `Operator.process`."""
        batch = drop_nulls(self.context, batch)
        if not isinstance(batch.values, Column) and Combined in set(map(type, batch.values)):
            return super().process(batch)  # a row per key: most was done in front of the repartition
        if self._of is not None and len(batch):
            found, batch = self._of.run(self.context, batch)
            # Nothing to add or to compare: the record is left out like one without a value.
            batch = drop_nulls(self.context, batch.with_values(found["value"]))
        if not len(batch):
            return None
        try:
            groups = self._grouped(batch)
        except _FAILURES:  # what columns can't do, rows can, or they find the record to blame
            return super().process(batch)
        try:
            self.store.save(groups.cells())
        except ColumnError:
            return super().process(batch)
        if not self.caching:
            return self._emitted(batch, groups)
        self._hold_back(batch, groups)
        return None

    def _grouped(self, batch: Batch) -> _Groups:
        frame = pl.DataFrame(
            {
                "key": key_bytes(self.store.key_serde, batch.keys, self._declared.key),
                "value": self._operand(batch),
                "time": series_of(batch.timestamps, pl.Int64()),
            }
        ).with_row_index("row")
        keys = frame["key"].unique(maintain_order=True)
        cells = self.store.load(keys.to_list())
        return _Groups(self._fold, frame, keys, list(cells.values()), each=not self.caching)

    def _operand(self, batch: Batch) -> pl.Series:
        if not self._fold.looks_at_values:
            return pl.Series([1], dtype=pl.Int64).new_from_index(0, len(batch))
        values = series_of(batch.values, None if self._of is not None else self._declared.value)
        self._fold.check(values)
        return values

    def _hold_back(self, batch: Batch, groups: _Groups) -> None:
        """With caching: one update per key, at its last row."""
        last = batch.take(Column.of_series(groups.last["row"]))
        updates = Updates()
        updates.rows = list(range(len(last)))
        updates.key_bytes, updates.news, updates.timestamps = groups.keys, groups.values, groups.times
        updates.olds = [None] * len(last)
        self._remember(last, updates)

    def _emitted(self, batch: Batch, groups: _Groups) -> Batch:
        """Without caching: an update for every row."""
        return Batch(
            keys=batch.keys,
            values=Column.of_series(groups.each["new"]),
            timestamps=Column.of_series(groups.each["time"]),
            headers=batch.headers,
            origins=batch.origins,
            olds=Column.of_series(groups.each["old"]) if self.send_old else None,
            order=batch.order,
        )


class ColumnMean(SendsFloats, ColumnAggregate):
    """The mean of the values of each key."""


class _Groups:
    """The rows of a batch, folded by key."""

    def __init__(
        self, fold: ColumnFold, frame: pl.DataFrame, keys: pl.Series, cells: Sequence[Any], *, each: bool
    ) -> None:
        before = pl.DataFrame(
            {
                "key": keys,
                **fold.columns_of(
                    [None if cell is None else cell[0] for cell in cells], frame["value"].dtype
                ),
                "time_before": pl.Series(
                    [None if cell is None else cell[1] for cell in cells], dtype=pl.Int64
                ),
            }
        )
        fold.check_sums(frame, before)
        self.each = frame.clear()
        if each or fold.in_order:
            rows = fold.each(frame, before)
            self.each = rows.select("row", "key", "new", "old", "time", *fold.state)
            last = self.each.group_by("key").last()
        else:
            last = fold.last(frame, before)
        self.last = last.sort("row")
        """One row per key, in the order of their last rows."""
        self.keys: list[bytes] = self.last["key"].to_list()
        self.values: list[Any] = fold.values_of(self.last)
        self.times: list[int] = self.last["time"].to_list()

    def cells(self) -> dict[bytes, tuple[Any, int] | None]:
        """What is to be written, by key."""
        return dict(zip(self.keys, zip(self.values, self.times, strict=True), strict=True))


def key_bytes(serde: Any, keys: Sequence[Any], declared: pl.DataType | None) -> pl.Series:
    """Keys as the store's bytes. Raises if they have to be taken one by one."""
    series = series_of(keys, declared)
    codec = codec_to_write(serde, series.dtype)
    if codec is None:
        raise CannotError(f"keys of {series.dtype}")
    encoded = codec.encode(series)
    learn(serde, series.dtype)
    return encoded
