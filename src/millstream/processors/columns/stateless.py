"""Stateless operators over expressions. What each of them means, its twin in `processors.stateless` says."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, compress

import polars as pl

from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.processors.columns.expressions import Declared, Evaluation
from millstream.processors.operator import Operator

__all__ = [
    "ColumnBranch",
    "ColumnFilter",
    "ColumnFilterNot",
    "ColumnFlatMapValues",
    "ColumnMap",
    "ColumnMapValues",
    "ColumnSelectKey",
]


class ColumnFilter(Operator):
    """Keeps the rows for which the expression is true. Null is not true."""

    def __init__(self, predicate: pl.Expr, declared: Declared) -> None:
        self._verdict = Evaluation({"value": predicate}, declared, pl.Boolean)

    def process(self, batch: Batch) -> Batch:
        """See `Operator.process`."""
        found, batch = self._verdict.run(self.context, batch)
        return self.keep(batch, found["value"])

    def keep(self, batch: Batch, verdicts: Column) -> Batch:
        """The rows to hand on."""
        return _kept(batch, verdicts, wanted=True)


class ColumnFilterNot(ColumnFilter):
    """Keeps all other rows: those for which the expression is false or null."""

    def keep(self, batch: Batch, verdicts: Column) -> Batch:
        """See `ColumnFilter.keep`."""
        return _kept(batch, verdicts, wanted=False)


class ColumnMap(Operator):
    """A new key and value for each row."""

    def __init__(self, key: pl.Expr, value: pl.Expr, declared: Declared) -> None:
        self._pair = Evaluation({"key": key, "value": value}, declared)

    def process(self, batch: Batch) -> Batch:
        """See `Operator.process`."""
        found, batch = self._pair.run(self.context, batch)
        return batch.with_columns(found["key"], found["value"])


class ColumnMapValues(Operator):
    """A new value for each row."""

    def __init__(self, mapper: pl.Expr, declared: Declared) -> None:
        self._value = Evaluation({"value": mapper}, declared)

    def process(self, batch: Batch) -> Batch:
        """See `Operator.process`."""
        found, batch = self._value.run(self.context, batch)
        return batch.with_values(found["value"])


class ColumnSelectKey(Operator):
    """A new key for each row."""

    def __init__(self, mapper: pl.Expr, declared: Declared) -> None:
        self._key = Evaluation({"key": mapper}, declared)

    def process(self, batch: Batch) -> Batch:
        """See `Operator.process`."""
        found, batch = self._key.run(self.context, batch)
        return batch.with_columns(found["key"], batch.values)


class ColumnFlatMapValues(Operator):
    """As many new values for each row as the expression's list has. A null list has none."""

    def __init__(self, mapper: pl.Expr, declared: Declared) -> None:
        self._lists = Evaluation({"value": mapper}, declared, pl.List)

    def process(self, batch: Batch) -> Batch:
        """See `Operator.process`."""
        found, batch = self._lists.run(self.context, batch)
        lists = found["value"]
        if lists.in_arrow and isinstance(lists.dtype(), pl.List):
            rows = pl.int_range(len(lists), eager=True)
            exploded = pl.DataFrame({"row": rows, "value": lists.series()}).explode(
                "value", empty_as_null=False, keep_nulls=False
            )
            parents, values = Column.of_series(exploded["row"]), Column.of_series(exploded["value"])
        else:
            parents = Column([row for row, several in enumerate(lists) for _ in several or ()])
            values = Column(list(chain.from_iterable(several or () for several in lists)))
        return batch.expand(parents, None, values)


class ColumnBranch(Operator):
    """Sends each row to the child of the first expression that is true, else to the last child, or to none.

    An expression is worked out for those rows only that no earlier one took, as a function would be called.
    """

    def __init__(self, predicates: Sequence[pl.Expr], children: Sequence[str], declared: Declared) -> None:
        self._verdicts = [Evaluation({"value": one}, declared, pl.Boolean) for one in predicates]
        self.children = tuple(children)

    def process(self, batch: Batch) -> dict[str, Batch]:
        """See `Operator.process`."""
        branches: dict[str, Batch] = {}
        for child, verdict in zip(self.children, self._verdicts, strict=False):
            if len(batch):
                found, batch = verdict.run(self.context, batch)
                branches[child] = _kept(batch, found["value"], wanted=True)
                batch = _kept(batch, found["value"], wanted=False)
        if len(self.children) > len(self._verdicts):
            branches[self.children[-1]] = batch
        else:
            self.context.dropped(len(batch))
        return branches


def _kept(batch: Batch, verdicts: Column, *, wanted: bool) -> Batch:
    if not verdicts.in_arrow:
        return batch.take(list(compress(range(len(batch)), [bool(one) is wanted for one in verdicts])))
    verdict = verdicts.series().cast(pl.Boolean).fill_null(value=False)
    chosen = verdict if wanted else ~verdict
    if chosen.all():
        return batch
    return batch.kept(chosen, Column.of_series(chosen.arg_true().cast(pl.Int64)))
