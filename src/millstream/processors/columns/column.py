"""`Column`: a sequence of keys, values, timestamps or row numbers that stays in Arrow or Polars memory.

It promises to be the same sequence whichever way it is looked at: as a Polars series, as an Arrow array, or
as Python objects. Each form is made when it is first asked for, and kept. It never changes. Pieces that were
read one after the other stay in pieces until somebody wants one array.

Nothing here imports Polars before there is a column: programs without one don't pay for the import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, overload

import pyarrow as pa

if TYPE_CHECKING:
    import polars as pl
else:
    from millstream.processors.columns import lazy_polars as pl

__all__ = ["Column", "are_few", "are_many", "chain_columns", "plain_column", "repeated_rows", "take_rows"]

MANY_ROWS: Final = 2_000
FEW_ROWS: Final = 500


class Column(Sequence[Any]):
    """A column in one of its forms.

    >>> import polars as pl
    >>> words = Column.of_series(pl.Series(["to", None]))
    >>> words[1:], list(words)
    (Column([None]), ['to', None])
    """

    __slots__ = ("_array", "_series", "_values", "shown_as")

    def __init__(
        self,
        series: pl.Series | None,
        array: pa.Array | pa.ChunkedArray | None,
        shown_as: Callable[[Any], Any] | None = None,
    ) -> None:
        self._series = series
        self._array: Any = array
        self._values: list[Any] | None = None
        self.shown_as = shown_as
        """What Python is shown of an entry, if not the entry itself."""

    @classmethod
    def of_series(cls, series: pl.Series, shown_as: Callable[[Any], Any] | None = None) -> Column:
        """A series as a column."""
        return cls(series, None, shown_as)

    @classmethod
    def of_arrow(cls, array: pa.Array | pa.ChunkedArray) -> Column:
        """An Arrow array as a column, not copied."""
        return cls(None, array)

    def series(self) -> pl.Series:
        """The column as Polars has it."""
        if self._series is None:
            found = pl.from_arrow(self._array)
            assert isinstance(found, pl.Series)  # an array is no table
            self._series = found
        return self._series

    def arrow(self) -> pa.Array:
        """The column as Arrow has it, in one piece."""
        if self._array is None:
            assert self._series is not None  # it has one of the two
            self._array = self._series.rechunk().to_arrow()
        elif isinstance(self._array, pa.ChunkedArray):
            self._array = pa.concat_arrays(self._array.chunks)
        return self._array

    def pieces(self) -> list[pa.Array]:
        """The column as Arrow has it, in one piece or in several."""
        return self._array.chunks if isinstance(self._array, pa.ChunkedArray) else [self.arrow()]

    def values(self) -> list[Any]:
        """The column as Python objects: what a row operator reads."""
        if self._values is None:
            values: list[Any]
            if self.null_count == len(self):
                values = [None] * len(self)  # keys of a topic without any
            else:
                values = self._array.to_pylist() if self._series is None else self._series.to_list()
            self._values = values if self.shown_as is None else list(map(self.shown_as, values))
        return self._values

    def dtype(self) -> pl.DataType:
        """The type of its entries, as Polars calls it."""
        return self.series().dtype

    @property
    def null_count(self) -> int:
        """How many entries are None."""
        return int(self._array.null_count if self._series is None else self._series.null_count())

    def item(self, row: int) -> Any:
        """One entry, without making Python objects of all."""
        if self._values is not None:
            return self._values[row]
        entry = self.series()[row]
        return entry if self.shown_as is None else self.shown_as(entry)

    def present(self) -> Column:
        """The rows whose entry is not None."""
        return Column.of_series(self.series().is_not_null().arg_true())

    def __len__(self) -> int:
        return len(self._array if self._series is None else self._series)

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> Column: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, int):
            return self.values()[place]
        if self._series is not None:
            return Column(self._series[place], None, self.shown_as)
        return Column(None, self._array[place], self.shown_as)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())

    def __contains__(self, value: object) -> bool:
        return self.null_count > 0 if value is None else value in self.values()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.values() == list(other)

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        return f"Column({self.values()!r})"


def are_many(rows: int) -> bool:
    """Whether so many rows are worth a column's fixed price, if they stand in lists now."""
    return rows >= MANY_ROWS


def are_few(rows: int) -> bool:
    """Whether so few rows are quicker as Python objects, even if they stand in columns now."""
    return rows <= FEW_ROWS


def take_rows(column: Sequence[Any], rows: Sequence[int]) -> Sequence[Any]:
    """The given rows of a column, in the given order; a `Column` if either is one."""
    if isinstance(column, Column):
        taken = column.series().gather(rows.series() if isinstance(rows, Column) else list(rows))
        return Column.of_series(taken, column.shown_as)
    if isinstance(column, range) and isinstance(rows, Column) and column.step == 1:
        return Column.of_series(rows.series() + column.start)
    return [column[row] for row in rows]


def chain_columns(columns: Sequence[Sequence[Any]]) -> Sequence[Any] | None:
    """One column after the other, if they are all columns of one type; else None."""
    parts = [column for column in columns if isinstance(column, Column)]
    if len(parts) < len(columns):
        return None
    if len({(str(part.dtype()), part.shown_as) for part in parts}) > 1:
        return None
    return Column.of_series(pl.concat([part.series() for part in parts]), parts[0].shown_as)


def plain_column(values: Sequence[Any]) -> Sequence[Any]:
    """Many values that are all text or all bytes as a column; others as they are.

    >>> plain_column(["to"] * 2_000)[:2]
    Column(['to', 'to'])
    >>> plain_column(["to", None])
    ['to', None]
    """
    if isinstance(values, Column) or not are_many(len(values)):
        return values
    kinds = set(map(type, values))
    if kinds not in ({str}, {bytes}):
        return values
    try:
        column = Column.of_series(pl.Series(values, dtype=pl.String if kinds == {str} else pl.Binary))
    except UnicodeEncodeError:  # half a surrogate pair: text that has no bytes
        return values
    column._values = values if isinstance(values, list) else list(values)  # noqa: SLF001 - its own
    return column


def repeated_rows(counts: Sequence[int]) -> Column:
    """Each row number as often as its count says.

    >>> list(repeated_rows([2, 0, 1]))
    [0, 0, 2]
    """
    often = pl.Series(counts, dtype=pl.Int64)
    rows = (often > 0).arg_true().cast(pl.Int64)
    if not len(rows):
        return Column.of_series(rows)
    return Column.of_series(rows.repeat_by(often.gather(rows)).explode())
