"""`Column`: a sequence of keys, values, timestamps or row numbers that stays in Arrow or Polars memory.

It promises to be the same sequence whichever way it is looked at: as a Polars series, as an Arrow array, or
as Python objects. Each form is made when it is first asked for, and kept. It never changes.

Nothing here imports Polars before there is a column: programs without one don't pay for the import.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Column", "chain_columns", "take_rows"]


class Column(Sequence[Any]):
    """A column in one of its forms.

    >>> import polars as pl
    >>> words = Column.of_series(pl.Series(["to", None]))
    >>> words[1:], list(words)
    (Column([None]), ['to', None])
    """

    __slots__ = ("_array", "_series", "_values")

    def __init__(self, series: pl.Series | None, array: pa.Array | None) -> None:
        self._series = series
        self._array: Any = array
        self._values: list[Any] | None = None

    @classmethod
    def of_series(cls, series: pl.Series) -> Column:
        """A series as a column."""
        return cls(series, None)

    @classmethod
    def of_arrow(cls, array: pa.Array) -> Column:
        """An Arrow array as a column, not copied."""
        return cls(None, array)

    def series(self) -> pl.Series:
        """The column as Polars has it."""
        if self._series is None:
            import polars as pl  # noqa: PLC0415 - see above

            found = pl.from_arrow(self._array)
            assert isinstance(found, pl.Series)  # an array is no table
            self._series = found
        return self._series

    def arrow(self) -> pa.Array:
        """The column as Arrow has it, in one piece."""
        if self._array is None:
            assert self._series is not None  # it has one of the two
            self._array = self._series.rechunk().to_arrow()
        return self._array

    def values(self) -> list[Any]:
        """The column as Python objects: what a row operator reads."""
        if self._values is None:
            self._values = self._array.to_pylist() if self._series is None else self._series.to_list()
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
        return self.series()[row] if self._values is None else self._values[row]

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
            return Column(self._series[place], None)
        return Column(None, self._array[place])

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())

    def __contains__(self, value: object) -> bool:
        return self.null_count > 0 if value is None else value in self.values()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.values() == list(other)

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        return f"Column({self.values()!r})"


def take_rows(column: Sequence[Any], rows: Sequence[int]) -> Sequence[Any]:
    """The given rows of a column, in the given order; a `Column` if either is one."""
    if isinstance(column, Column):
        return Column.of_series(
            column.series().gather(rows.series() if isinstance(rows, Column) else list(rows))
        )
    if isinstance(column, range) and isinstance(rows, Column) and column.step == 1:
        return Column.of_series(rows.series() + column.start)
    return [column[row] for row in rows]


def chain_columns(columns: Sequence[Sequence[Any]]) -> Sequence[Any] | None:
    """One column after the other, if they are all columns of one type; else None."""
    if not all(isinstance(column, Column) for column in columns):
        return None
    import polars as pl  # noqa: PLC0415 - there are columns, so it is there

    series = [column.series() for column in columns if isinstance(column, Column)]
    if len({str(one.dtype) for one in series}) > 1:
        return None
    return Column.of_series(pl.concat(series))
