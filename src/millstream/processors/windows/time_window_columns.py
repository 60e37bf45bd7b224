"""An aggregation by time windows over the columns of a batch: the operator of the column tier.

State, updates, timestamps and late records are those of `time_windows`, which also takes over whatever
columns can't do exactly, and windows that are emitted on close.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.aggregations.column_form import ColumnForm
from millstream.processors.aggregations.column_groups import FAILURES, ColumnGroups, encoded_keys, operand
from millstream.processors.aggregations.keyed_columns import evaluated
from millstream.processors.batch import Batch, concatenate
from millstream.processors.columns.column import Column
from millstream.processors.columns.expressions import Declared, Evaluation
from millstream.processors.windows.time_windows import TimeWindowAggregation
from millstream.processors.windows.window_columns import WindowFold
from millstream.serdes.columns import CannotError
from millstream.windows import TimeWindows, UnlimitedWindows

__all__ = ["ColumnTimeWindowAggregation"]


class ColumnTimeWindowAggregation(TimeWindowAggregation):
    """Folds the values of each key and window, or what an expression makes of the record."""

    def __init__(
        self,
        store: str,
        windows: TimeWindows | UnlimitedWindows,
        aggregation: Aggregation,
        of: pl.Expr | None,
        declared: Declared,
        *,
        caching: bool,
        send_old: bool,
        on_close: bool,
        after_idle_ms: int | None = None,
    ) -> None:
        super().__init__(
            store,
            windows,
            aggregation,
            caching=caching,
            send_old=send_old,
            on_close=on_close,
            after_idle_ms=after_idle_ms,
        )
        self._declared = declared
        self._of = None if of is None else Evaluation({"value": of}, declared)
        self._on_close = on_close

    def process(self, batch: Batch) -> Batch | None:
        """See `Operator.process`."""
        batch = evaluated(self.context, self._of, self.without_nulls(batch))
        form = self.aggregation.columns
        assert form is not None  # all that the column tier has by windows have one
        emitted = [done for part in self._pieces(form, batch) if (done := self._fold_part(form, part))]
        return concatenate(emitted) if emitted else None

    def _pieces(self, form: ColumnForm, batch: Batch) -> Iterator[Batch]:
        """What is folded at once: all of it, unless every row has to be put into each of its windows."""
        if self.caching and not self._on_close and not self._in_order(form, batch):
            yield from (batch,) if len(batch) else ()
        else:
            yield from self.parts(batch)

    def _in_order(self, form: ColumnForm, batch: Batch) -> bool:
        if not form.looks_at_values:
            return False
        return not batch.values.in_arrow or form.in_order(batch.values.dtype())

    def _fold_part(self, form: ColumnForm, batch: Batch) -> Batch | None:
        try:
            fold = self._folded(form, batch)
            fold.save()
        except FAILURES:  # what columns can't do, rows can, or they find the record to blame
            self.context.fell_back("columns", len(batch))
            return self.fold_in_rows(batch)
        fold.finish(self, batch)
        return None if self.caching or fold.groups is None else self._emitted(batch, fold.groups, fold)

    def _folded(self, form: ColumnForm, batch: Batch) -> WindowFold:
        if self._on_close:
            raise CannotError("windows that are emitted on close")
        fold = WindowFold(self.store, self.windows, self.aggregation, self.context.times.observed)
        keys = encoded_keys(self.store.key_serde, batch.keys, self._declared.key)
        values = operand(form, batch.values, None if self._of is not None else self._declared.value)
        fold.run(keys, values, batch.timestamps.series(pl.Int64()), each=not self.caching)
        return fold

    def _emitted(self, batch: Batch, groups: ColumnGroups, fold: WindowFold) -> Batch:
        """Without caching: an update for every row and window."""
        each = groups.each
        keys = self.table_keys(Column.of_series(fold.cells.keys(each["key"])), batch.keys)
        changed = batch.expand(Column.of_series(fold.rows), keys, Column.of_series(each["new"]))
        return replace(
            changed,
            timestamps=Column.of_series(each["time"]),
            olds=Column.of_series(each["old"]) if self.send_old else None,
        )
