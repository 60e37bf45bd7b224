"""An aggregation of a grouped stream over the columns of a batch: the operator of the column tier.

State, updates and timestamps are those of `keyed`, which also takes over whatever columns can't do exactly: a
sum that leaves 64 bits, NaN among numbers to compare, keys or values without a column type.
"""

from __future__ import annotations

import polars as pl

from millstream.processors.aggregations.aggregation import Aggregation, has_partials
from millstream.processors.aggregations.column_form import ColumnForm
from millstream.processors.aggregations.column_groups import (
    FAILURES,
    ColumnGroups,
    TableCells,
    operand,
    rows_by_key,
)
from millstream.processors.aggregations.keyed import KeyedAggregation
from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.processors.columns.expressions import Declared, Evaluation
from millstream.processors.operator import OperatorContext
from millstream.processors.table import drop_nulls

__all__ = ["ColumnAggregation", "evaluated"]


class ColumnAggregation(KeyedAggregation):
    """Folds the values of each key, or what an expression makes of the record."""

    def __init__(
        self,
        store: str,
        aggregation: Aggregation,
        of: pl.Expr | None,
        declared: Declared,
        *,
        caching: bool,
        send_old: bool,
    ) -> None:
        super().__init__(store, aggregation, caching=caching, send_old=send_old)
        self._declared = declared
        self._of = None if of is None else Evaluation({"value": of}, declared)

    def process(self, batch: Batch) -> Batch | None:
        """See `Operator.process`."""
        batch = drop_nulls(self.context, batch)
        form = self.aggregation.columns
        if form is None or has_partials(batch.values) or not (self.caching or form.has_each):
            return super().process(batch)  # of partials a row per key: most was done in front
        batch = evaluated(self.context, self._of, batch)
        if not len(batch):
            return None
        if self.history is not None:  # every row's result is wanted as the store would have it
            return self.fold_rows(batch)
        try:
            groups = self._grouped(form, batch)
            groups.save()
        except FAILURES:  # what columns can't do, rows can, or they find the record to blame
            self.context.fell_back("columns", len(batch))
            return self.fold_rows(batch)
        if not self.caching:
            return self._emitted(batch, groups)
        groups.hold_back(self, batch)
        return None

    def _grouped(self, form: ColumnForm, batch: Batch) -> ColumnGroups:
        values = operand(form, batch.values, None if self._of is not None else self._declared.value)
        frame = rows_by_key(self.store.key_serde, batch, values, self._declared.key)
        return ColumnGroups(form, frame, TableCells(self.store), each=not self.caching)

    def _emitted(self, batch: Batch, groups: ColumnGroups) -> Batch:
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


def evaluated(context: OperatorContext, of: Evaluation | None, batch: Batch) -> Batch:
    """The rows with what an expression makes of each in place of its value, if there is an expression."""
    if of is None or not len(batch):
        return batch
    found, batch = of.run(context, batch)
    # Nothing to add or to compare: the record is left out like one without a value.
    return drop_nulls(context, batch.with_values(found["value"]))
