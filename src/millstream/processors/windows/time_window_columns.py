"""An aggregation by time windows over the columns of a batch: the operator of the column tier.

State, updates, timestamps and late records are those of `time_windows`, which also takes over whatever
columns can't do exactly, and windows that are emitted on close.

An expression that fails on a record fails as a function would: where the record is folded, after it has moved
the operator's stream time, and not if it is late. What an expression makes null is left out like a record
without a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from millstream.processors.aggregations.aggregation import Aggregation, Fold
from millstream.processors.aggregations.column_form import ColumnForm
from millstream.processors.aggregations.column_groups import FAILURES, ColumnGroups, encoded_keys, operand
from millstream.processors.batch import Batch, concatenate
from millstream.processors.columns.column import Column
from millstream.processors.columns.expressions import Declared, Evaluation
from millstream.processors.operator import Form, OperatorContext
from millstream.processors.table import drop_nulls
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
        if of is not None:
            aggregation = replace(aggregation, fold=_failing(aggregation.fold))
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
        batch = self._evaluated(self.without_nulls(batch))
        form = self.aggregation.columns
        assert form is not None  # all that the column tier has by windows have one
        emitted = [done for part in self._pieces(form, batch) if (done := self._fold_part(form, part))]
        return concatenate(emitted) if emitted else None

    def _evaluated(self, batch: Batch) -> Batch:
        """The rows with what the expression makes of each in place of its value, or with its failure."""
        if self._of is None or not len(batch):
            return batch
        failures = _Failures(self.context)
        found, _ = self._of.run(failures, batch)
        values = found["value"]
        if failures.errors:
            made = iter(values)
            values = Column(
                [failures.errors[row] if row in failures.errors else next(made) for row in range(len(batch))]
            )
        return drop_nulls(self.context, batch.with_values(values))

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


@dataclass(frozen=True, slots=True)
class _Failure:
    """In place of a value: why there is none."""

    error: Exception


class _Failures:
    """Takes down on which rows an expression fails."""

    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        self.errors: dict[int, _Failure] = {}

    def failed(self, batch: Batch, row: int, error: Exception) -> None:
        """See `OperatorContext.failed`."""
        del batch
        self.errors[row] = _Failure(error)

    def fell_back(self, form: Form, count: int) -> None:
        """See `OperatorContext.fell_back`."""
        self._context.fell_back(form, count)


def _failing(fold: Fold) -> Fold:
    """A row form that fails where the expression has."""

    def fold_or_fail(key: Any, value: Any, so_far: Any) -> Any:
        if type(value) is _Failure:
            raise value.error
        return fold(key, value, so_far)

    return fold_or_fail
