"""Runs expressions over the rows of a batch, and finds the rows on which they fail.

An expression is elementwise (`dsl.columns` sees to that), so a batch gives what its rows give one by one.
When it fails on a batch, the batch is halved until single rows are left that fail: those go to the handler,
as in the row tier, and cost nobody else anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import polars as pl
from polars.exceptions import PanicException

from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.processors.columns.python_types import column_type
from millstream.processors.operator import Form
from millstream.serdes.columns.types import canonical

__all__ = ["Declared", "Evaluation"]

_ROW = "\x00row"
_FAILURES = (Exception, PanicException)
_TYPES_OF_NULL = (pl.String(), pl.Int64(), pl.Float64(), pl.Boolean(), pl.Binary())


class EvaluationContext(Protocol):
    """What an evaluation tells: see `OperatorContext`."""

    def failed(self, batch: Batch, row: int, error: Exception) -> None:
        """An expression failed on a row: raise, or return to go on without the row."""

    def fell_back(self, form: Form, count: int) -> None:
        """So many rows could not be handled in columns of one type."""


@dataclass(frozen=True, slots=True)
class Declared:
    """The types of keys and values in front of an operator, where serdes tell them."""

    key: pl.DataType | None = None
    value: pl.DataType | None = None
    other: pl.DataType | None = None
    """In a join: the value that a record is joined with."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of a batch whose keys and values are of one type."""

    rows: Sequence[int] | None
    """None: all of them."""
    frame: pl.DataFrame
    untyped_nulls: bool
    """A column that is used here is None throughout, and nobody knows of which type."""


class Evaluation:
    """Some expressions over `key`, `value` and `timestamp`, by the name of the column they make.

    In a join there is `other`, too, a column that is given for each batch.
    """

    def __init__(
        self,
        expressions: Mapping[str, pl.Expr],
        declared: Declared,
        must_be: type[pl.DataType] | None = None,
    ) -> None:
        self._expressions = {name: expression.alias(name) for name, expression in expressions.items()}
        self._must_be = must_be
        self._declared = {
            "key": declared.key,
            "value": declared.value,
            "other": declared.other,
            "timestamp": pl.Int64(),
        }
        self._other = Column(())
        self._roots = sorted({root for one in expressions.values() for root in one.meta.root_names()})

    def run(
        self, context: EvaluationContext, batch: Batch, other: Column | None = None
    ) -> tuple[dict[str, Column], Batch]:
        """The columns that the expressions make, and the rows that they belong to."""
        self._other = Column(()) if other is None else other
        try:
            parts = [self._whole(batch)]
        except _FAILURES:
            context.fell_back("columns", len(batch))
            parts = list(self._by_type(context, batch))
        found: list[tuple[Sequence[int], pl.DataFrame]] = []
        for part in parts:
            found += self._over(context, batch, part)
        if len(found) == 1 and len(found[0][1]) == len(batch):
            return {name: Column.of_series(found[0][1][name]) for name in self._expressions}, batch
        return self._joined(batch, found)

    def _joined(
        self, batch: Batch, found: Sequence[tuple[Sequence[int], pl.DataFrame]]
    ) -> tuple[dict[str, Column], Batch]:
        """Pieces of the results, put into the order of the batch."""
        place = {row: number for number, row in enumerate(row for rows, _ in found for row in rows)}
        kept = sorted(place)
        columns: dict[str, Column] = {}
        for name in self._expressions:
            pieces = [frame[name] for _, frame in found]
            if len({str(piece.dtype) for piece in pieces}) == 1:
                columns[name] = Column.of_series(pl.concat(pieces).gather([place[row] for row in kept]))
            else:
                values = [value for piece in pieces for value in piece.to_list()]
                columns[name] = Column([values[place[row]] for row in kept])
        if not found:
            columns = {name: Column([]) for name in self._expressions}
        return columns, batch if len(kept) == len(batch) else batch.take(kept)

    # The columns that are looked at.

    def _column(self, batch: Batch, name: str) -> Column:
        columns = {"timestamp": batch.timestamps, "key": batch.keys, "other": self._other}
        return columns.get(name, batch.values)

    def _whole(self, batch: Batch) -> _Part:
        """The batch as one frame. Raises if the type of a column is not known."""
        columns = {root: self._column(batch, root).series(self._declared[root]) for root in self._roots}
        return _Part(None, _frame(columns, len(batch)), untyped_nulls=False)

    def _by_type(self, context: EvaluationContext, batch: Batch) -> Iterator[_Part]:
        """The rows of each type as a frame."""
        groups: dict[str, tuple[list[int], dict[str, pl.DataType]]] = {}
        for row in range(len(batch)):
            try:
                types = {root: self._type_of(self._column(batch, root), row, root) for root in self._roots}
            except TypeError as error:
                context.failed(batch, row, error)
            else:
                groups.setdefault(str(types), ([], types))[0].append(row)
        for rows, types in groups.values():
            yield from self._typed(context, batch, rows, types)

    def _typed(
        self, context: EvaluationContext, batch: Batch, rows: list[int], types: Mapping[str, pl.DataType]
    ) -> Iterator[_Part]:
        try:
            columns = {
                root: Column([self._column(batch, root)[row] for row in rows]).series(kind)
                for root, kind in types.items()
            }
        except _FAILURES as error:  # a number that is too large for its column, say
            if len(rows) == 1:
                context.failed(batch, rows[0], _as_exception(error))
                return
            for row in rows:
                yield from self._typed(context, batch, [row], types)
        else:
            nulls = any(kind == pl.Null() for kind in types.values())
            yield _Part(rows, _frame(columns, len(rows)), nulls)

    def _type_of(self, column: Column, row: int, root: str) -> pl.DataType:
        if column.in_arrow:
            return column.dtype()
        declared = self._declared[root]
        if column[row] is None and declared is not None:
            return declared
        return column_type(column[row])

    # The results.

    def _over(
        self, context: EvaluationContext, batch: Batch, part: _Part
    ) -> Iterator[tuple[Sequence[int], pl.DataFrame]]:
        rows = range(len(part.frame)) if part.rows is None else part.rows
        try:
            yield rows, self._select(part.frame)
        except _FAILURES as error:
            always = self._always_fails(part.frame)
            if always and part.untyped_nulls:
                yield from self._over_nulls(context, batch, part)
            elif always or len(rows) == 1:
                for row in rows:
                    context.failed(batch, row, _as_exception(error))
            else:
                half = len(rows) // 2
                for start, stop in ((0, half), (half, len(rows))):
                    piece = _Part(
                        rows[start:stop], part.frame.slice(start, stop - start), untyped_nulls=False
                    )
                    yield from self._over(context, batch, piece)

    def _over_nulls(
        self, context: EvaluationContext, batch: Batch, part: _Part
    ) -> Iterator[tuple[Sequence[int], pl.DataFrame]]:
        """The results where a None may be of any type: those of the first type that the expression takes."""
        nulls = [name for name, dtype in part.frame.schema.items() if dtype == pl.Null()]
        for kind in _TYPES_OF_NULL:
            typed = part.frame.with_columns(pl.col(nulls).cast(kind))
            if not self._always_fails(typed):
                yield from self._over(context, batch, _Part(part.rows, typed, untyped_nulls=False))
                return
        rows = range(len(part.frame)) if part.rows is None else part.rows
        yield rows, pl.DataFrame({name: [None] * len(rows) for name in self._expressions})

    def _always_fails(self, frame: pl.DataFrame) -> bool:
        """Whether the types are at fault, and no row can do better."""
        try:
            self._select(frame.clear())
        except _FAILURES:
            return True
        return False

    def _select(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The results for a frame, in the types that go from operator to operator."""
        names = list(self._expressions)
        found = frame.with_columns(**self._expressions).select(names)
        for name, dtype in found.schema.items():
            if self._must_be is not None and not isinstance(dtype, self._must_be | pl.Null):
                raise TypeError(f"the expression must give {self._must_be.__name__}, but it gives {dtype}")
            wanted = canonical(dtype)
            if dtype != wanted:
                found = found.with_columns(pl.col(name).cast(wanted, strict=True))
        return found


def _frame(columns: Mapping[str, pl.Series], height: int) -> pl.DataFrame:
    # An expression without columns (a literal) has to know for how many rows it is.
    return pl.DataFrame({_ROW: pl.int_range(height, eager=True), **columns})


def _as_exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(str(error))
