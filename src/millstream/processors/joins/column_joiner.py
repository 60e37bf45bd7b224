"""`ColumnJoiner`: a joiner of the column tier, an expression over the record and the `other` value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.processors.columns.expressions import Declared, Evaluation
from millstream.processors.joins.stream_table import StreamTableJoiner
from millstream.processors.operator import OperatorContext

__all__ = ["ColumnJoiner"]


@dataclass(frozen=True, slots=True)
class ColumnJoiner(StreamTableJoiner):
    """What an expression makes of a record and a row of a table."""

    joiner: pl.Expr
    with_key: bool
    left: bool
    key_of: Callable[[Any, Any], Any] | None = None
    declared: Declared = field(default_factory=Declared)

    @property
    def in_columns(self) -> bool:
        """See `StreamTableJoiner.in_columns`."""
        return True

    def values(
        self, context: OperatorContext, batch: Batch, others: Sequence[Any]
    ) -> tuple[Sequence[Any], Batch]:
        """See `StreamTableJoiner.values`."""
        if not len(batch):
            return (), batch
        evaluation = Evaluation({"value": self.joiner}, self.declared)
        found, batch = evaluation.run(context, batch, Column.of(others))
        return found["value"], batch
