"""Aggregations over columns: count, sum, min, max and mean, grouped by Polars.

The keys of a batch are read from the store in one go, the groups folded in one go, and written in one go:
Python sees each key once, not each record. State, updates and timestamps are those of the row tier
(`processors.aggregate`), which also takes over whatever columns can't do exactly: a sum that leaves 64 bits,
NaN among numbers to compare, keys or values without a column type.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
from polars.exceptions import PanicException

from millstream.processors.aggregate import StreamAggregate
from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.processors.columns.expressions import Declared, Evaluation, series_of
from millstream.processors.columns.folded_groups import FoldedGroups, rows_by_key
from millstream.processors.columns.folds import ColumnFold
from millstream.processors.columns.key_columns import key_bytes
from millstream.processors.groups import has_partials
from millstream.processors.mean import SendsFloats
from millstream.processors.table import drop_nulls

__all__ = ["ColumnAggregate", "ColumnMean"]

_FAILURES = (Exception, PanicException)


class ColumnAggregate(StreamAggregate):
    """Folds the values of each key, or what an expression makes of the record."""

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
        if has_partials(batch.values):
            return super().process(batch)  # a row per key: most was done in front of the repartition
        if self._of is not None and len(batch):
            found, batch = self._of.run(self.context, batch)
            # Nothing to add or to compare: the record is left out like one without a value.
            batch = drop_nulls(self.context, batch.with_values(found["value"]))
        if not len(batch):
            return None
        try:
            groups = self._grouped(batch)
            groups.save(self.store)
        except _FAILURES:  # what columns can't do, rows can, or they find the record to blame
            return super().process(batch)
        if not self.caching:
            return self._emitted(batch, groups)
        self.cache.hold(groups.held_back(batch))
        return None

    def _grouped(self, batch: Batch) -> FoldedGroups:
        frame = rows_by_key(
            key_bytes(self.store.key_serde, batch.keys, self._declared.key),
            self._operand(batch),
            batch.timestamps,
        )
        return FoldedGroups(self._fold, frame, self.store, each=not self.caching)

    def _operand(self, batch: Batch) -> pl.Series:
        if not self._fold.looks_at_values:
            return pl.Series([1], dtype=pl.Int64).new_from_index(0, len(batch))
        values = series_of(batch.values, None if self._of is not None else self._declared.value)
        self._fold.check(values)
        return values

    def _emitted(self, batch: Batch, groups: FoldedGroups) -> Batch:
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
