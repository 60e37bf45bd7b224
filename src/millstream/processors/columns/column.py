"""`Column`: a sequence of keys, values, timestamps or row numbers, in Python's memory or in Arrow's.

It promises to be the same sequence whichever way it is looked at: as Python objects, as a Polars series, or
as an Arrow array. What it was made of costs nothing to ask for; another form is made when it is first asked
for, and kept. Only a series of Python objects is made anew each time, of the type that is asked for. It never
changes. Pieces that were read one after the other stay in pieces until somebody wants one array.

Nothing here imports Polars before a column stands in Arrow: programs without one don't pay for the import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Final, overload

import pyarrow as pa

from millstream.record import Windowed
from millstream.serdes.records import ShownAs, is_record_class, plain_records
from millstream.serdes.windowed import as_record, of_record

if TYPE_CHECKING:
    import polars as pl
else:
    from millstream.processors.columns import lazy_polars as pl

__all__ = ["Column", "are_few", "are_many", "repeated_rows"]

MANY_ROWS: Final = 2_000
FEW_ROWS: Final = 500
_KINDS: Final = {"String": str, "Binary": bytes, "Int64": int, "Float64": float, "Boolean": bool}
"""The types of Python's objects, by those of Polars."""


class Column(Sequence[Any]):
    """A column in one of its forms.

    >>> import polars as pl
    >>> words = Column.of_series(pl.Series(["to", None]))
    >>> words[1:], list(words), words == Column(["to", None])
    (Column([None]), ['to', None], True)
    """

    __slots__ = ("_array", "_rows", "_series", "in_arrow", "shown_as")

    def __init__(
        self,
        rows: Sequence[Any] | None,
        series: pl.Series | None = None,
        array: pa.Array | pa.ChunkedArray | None = None,
        shown_as: Callable[[Any], Any] | None = None,
    ) -> None:
        self._rows: Sequence[Any] | None = rows
        self._series = series
        self._array: Any = array
        self.in_arrow = series is not None or array is not None
        """Whether it can be had as a series or as an array without looking at its entries."""
        self.shown_as = shown_as
        """What Python is shown of an entry, if not the entry itself."""

    @classmethod
    def of(cls, rows: Sequence[Any]) -> Column:
        """A sequence as a column, not copied; a column is one already."""
        return rows if isinstance(rows, Column) else cls(rows)

    @classmethod
    def of_series(cls, series: pl.Series, shown_as: Callable[[Any], Any] | None = None) -> Column:
        """A series as a column."""
        return cls(None, series, None, shown_as)

    @classmethod
    def of_arrow(cls, array: pa.Array | pa.ChunkedArray) -> Column:
        """An Arrow array as a column, not copied."""
        return cls(None, None, array)

    @classmethod
    def concat(cls, columns: Sequence[Column]) -> Column:
        """One column after the other. If all stand in Arrow and are of one type, it does so, too."""
        if len(columns) == 1:
            return columns[0]
        if columns and all(column.in_arrow for column in columns):
            if all(column._series is None for column in columns):  # noqa: SLF001 - its own
                pieces = [piece for column in columns for piece in column.pieces()]
                if len({piece.type for piece in pieces}) == 1:
                    return cls.of_arrow(pa.chunked_array(pieces))
            if len({(str(column.dtype()), column.shown_as) for column in columns}) == 1:
                whole = pl.concat([column.series() for column in columns])
                return cls.of_series(whole, columns[0].shown_as)
        return cls(list(chain.from_iterable(columns)))

    # The forms.

    def rows(self) -> Sequence[Any]:
        """The column as Python objects: what a row operator reads."""
        if self._rows is None:
            rows: list[Any]
            if self.null_count == len(self):
                rows = [None] * len(self)  # keys of a topic without any
            else:
                rows = self._array.to_pylist() if self._series is None else self._series.to_list()
            self._rows = rows if self.shown_as is None else list(map(self.shown_as, rows))
        return self._rows

    def series(self, declared: pl.DataType | None = None) -> pl.Series:
        """The column as Polars has it. Python objects need a declared type, or have to be all of one type.

        Raises if they are not. The type does not matter to a column that stands in Arrow.
        """
        if self._series is None and self._array is not None:
            found = pl.from_arrow(self._array)
            assert isinstance(found, pl.Series)  # an array is no table
            self._series = found
        if self._series is not None:
            return self._series
        rows = self.rows()
        if declared is None:
            from millstream.processors.columns.python_types import column_type  # noqa: PLC0415 - imports Polars

            kinds = self.kinds()
            if len(kinds) != 1 or kinds & {dict, list, type(None)} or self._record_class():
                raise TypeError("values of several types")
            declared = column_type(rows[0])
        if isinstance(declared, pl.Struct) and self.shows(Windowed):
            rows = list(map(as_record, rows))
        if declared.is_nested():
            rows = plain_records(rows)
        return pl.Series(rows, dtype=declared, strict=True)

    def arrow(self) -> Any:
        """The column as Arrow takes it: in one piece if it stands in Arrow, else as Python objects."""
        if self._series is not None and self._array is None:
            self._array = self._series.rechunk().to_arrow()
        elif isinstance(self._array, pa.ChunkedArray):
            self._array = pa.concat_arrays(self._array.chunks)
        return self._rows if self._array is None else self._array

    def pieces(self) -> list[pa.Array]:
        """The column as Arrow has it, in one piece or in several."""
        return self._array.chunks if isinstance(self._array, pa.ChunkedArray) else [self.arrow()]

    def moved_to_arrow(self, declared: pl.DataType | None = None) -> Column:
        """The same in Arrow. Raises as `series` does."""
        if self.in_arrow:
            return self
        series = self.series(declared)
        shown_as: Callable[[Any], Any] | None = None
        if isinstance(series.dtype, pl.Struct):
            kind = self._record_class()
            shown_as = of_record if self.shows(Windowed) else None if kind is None else ShownAs(kind)
        return Column(self._rows, series, None, shown_as)

    def packed(self) -> Column:
        """The same in Arrow if it is worth it and safe: many values that are all text or all bytes.

        >>> Column(["to"] * 2_000).packed().in_arrow, Column(["to", None] * 2_000).packed().in_arrow
        (True, False)
        """
        if self.in_arrow or not are_many(len(self)):
            return self
        kinds = self.kinds()
        if kinds not in ({str}, {bytes}):
            return self
        try:
            return self.moved_to_arrow(pl.String() if kinds == {str} else pl.Binary())
        except UnicodeEncodeError:  # half a surrogate pair: text that has no bytes
            return self

    # Questions.

    def dtype(self) -> pl.DataType:
        """The type of its entries, as Polars calls it, if it stands in Arrow."""
        return self.series().dtype

    def kinds(self) -> set[type]:
        """The exact types of its entries as Python objects; `object` is one that only looking would tell."""
        if not self.in_arrow:
            return set(map(type, self.rows()))
        kinds: set[type] = set()
        if self.null_count < len(self):
            shown = self.shown_as
            kinds.add(shown if isinstance(shown, type) else _KINDS.get(str(self.dtype()), object))
        return kinds | ({type(None)} if self.null_count else set())

    def _record_class(self) -> type | None:
        """The dataclass of the user's that all entries are of, if there is one."""
        kinds = self.kinds() - {type(None), Windowed}
        return kinds.pop() if len(kinds) == 1 and all(map(is_record_class, kinds)) else None

    def shows(self, kind: type) -> bool:
        """Whether some entry is of a type of our own: those in Arrow are only if `shown_as` makes them so."""
        return self.shown_as is kind if self.in_arrow else kind in set(map(type, self.rows()))

    @property
    def null_count(self) -> int:
        """How many entries are None."""
        if self.in_arrow:
            return int(self._array.null_count if self._series is None else self._series.null_count())
        return sum(row is None for row in self.rows())

    def item(self, row: int) -> Any:
        """One entry, without making Python objects of all."""
        if self._rows is not None:
            return self._rows[row]
        entry = self.series()[row]
        return entry if self.shown_as is None else self.shown_as(entry)

    def is_sorted(self) -> bool:
        """Whether it ascends."""
        if self.in_arrow:
            return bool(self.series().is_sorted())
        rows = self.rows() if isinstance(self.rows(), list) else list(self.rows())
        return rows == sorted(rows)

    def smallest(self, default: int) -> int:
        """The smallest of some numbers, `default` if there are none."""
        found: Any = self.series().min() if self.in_arrow else min(self.rows(), default=None)
        return default if found is None else int(found)

    def largest(self, default: int) -> int:
        """The largest of some numbers, `default` if there are none."""
        found: Any = self.series().max() if self.in_arrow else max(self.rows(), default=None)
        return default if found is None else int(found)

    # Other columns.

    def take(self, rows: Column) -> Column:
        """The given rows, in the given order."""
        if self.in_arrow:
            series = self.series()
            if series.null_count() == len(series):  # keys of a topic without any
                return Column.of_series(series.clear(len(rows)), self.shown_as)
            taken = series.gather(rows.series() if rows.in_arrow else list(rows.rows()))
            return Column.of_series(taken, self.shown_as)
        own = self._rows
        assert own is not None  # it has one of the three
        if isinstance(own, range) and own.step == 1:
            if rows.in_arrow:
                return Column.of_series(rows.series() + own.start)
            if own.start == 0:
                return rows  # row numbers are their own rows
        return Column([own[row] for row in rows.rows()])

    def kept(self, chosen: pl.Series, rows: Column) -> Column:
        """The rows for which `chosen` is true; `rows` are their numbers."""
        if not self.in_arrow:
            return self.take(rows)
        return Column.of_series(self.series().filter(chosen), self.shown_as)

    def at(self, rows: Sequence[int]) -> Column:
        """The given rows: a slice of it, or as `take` gives them."""
        if isinstance(rows, range):
            return self if len(rows) == len(self) else self[rows.start : rows.stop]
        return self.take(Column.of(rows))

    def places(self) -> dict[Any, Column]:
        """The rows of each distinct entry, in the order of their first ones.

        >>> Column(["b", "a", "b"]).places()
        {'b': Column([0, 2]), 'a': Column([1])}
        """
        if self.in_arrow:
            series = self.series()
            entries = series.unique(maintain_order=True).to_list()
            return {entry: Column.of_series((series == entry).arg_true().cast(pl.Int64)) for entry in entries}
        rows: dict[Any, list[int]] = {}
        for row, entry in enumerate(self.rows()):
            rows.setdefault(entry, []).append(row)
        return {entry: Column(places) for entry, places in rows.items()}

    def places_in_order(self) -> Column:
        """The rows of its entries in ascending order, those of equal ones as they stand.

        >>> Column([3, 1, 3, 2]).places_in_order()
        Column([1, 3, 0, 2])
        """
        if self.in_arrow:
            frame = pl.DataFrame({"entry": self.series()})
            return Column.of_series(frame.select(pl.arg_sort_by("entry", maintain_order=True)).to_series())
        return Column(sorted(range(len(self)), key=self.rows().__getitem__))

    def shifted(self, by: int) -> Column:
        """Numbers, so much larger."""
        if self.in_arrow:
            return Column.of_series(self.series() + by)
        return Column([number + by for number in self.rows()])

    def present(self) -> Column:
        """The rows whose entry is not None."""
        if self.in_arrow:
            return Column.of_series(self.series().is_not_null().arg_true())
        return Column([row for row, entry in enumerate(self.rows()) if entry is not None])

    def running_maximum(self, start: int) -> Column:
        """The largest entry up to each row, or `start` where that is larger."""
        if self.in_arrow:
            return Column.of_series(self.series().cum_max().clip(lower_bound=start))
        return Column(list(accumulate(self.rows(), max, initial=start))[1:])

    # A sequence like any other.

    def __len__(self) -> int:
        if self._rows is not None:
            return len(self._rows)
        return len(self._array if self._series is None else self._series)

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> Column: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, int):
            return self.rows()[place]
        if self._series is not None:
            return Column(None, self._series[place], None, self.shown_as)
        if self._array is not None:
            return Column(None, None, self._array[place], self.shown_as)
        return Column(self.rows()[place])

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows() if self._rows is None else self._rows)

    def __contains__(self, value: object) -> bool:
        if self.in_arrow:
            return self.null_count > 0 if value is None else value in self.rows()
        return value in self._rows  # type: ignore[operator]  # it has one of the three

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self.rows()) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        return f"Column({list(self.rows())!r})"


def are_many(rows: int) -> bool:
    """Whether so many rows are worth a column's fixed price, if they stand in lists now."""
    return rows >= MANY_ROWS


def are_few(rows: int) -> bool:
    """Whether so few rows are quicker as Python objects, even if they stand in columns now."""
    return rows <= FEW_ROWS


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
