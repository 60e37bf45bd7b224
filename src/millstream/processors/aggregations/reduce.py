"""reduce: the first value of a key is its first aggregate, and a reducer of two makes one of it and the next.

A reducer that is declared to be commutative and associative has a partial form. In the column tier the
reducer is an expression that makes one value of several, as `value.max()` does. With caching on it is given
the aggregate and all new values of a key at once, so it must be associative: what it makes of all must be
what it makes of the first two, then of that and the third. Without caching every record is an update, and it
is called for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from millstream.processors.aggregations.aggregation import Aggregation, Combiner
from millstream.processors.aggregations.column_form import ColumnForm
from millstream.processors.columns.column import Column
from millstream.serdes.records import ShownAs, is_record_class

if TYPE_CHECKING:
    import polars as pl
else:
    from millstream.processors.columns import lazy_polars as pl

__all__ = ["reduce_by", "reduce_in_columns"]

_UNCHANGEABLE: Final = frozenset({int, str, bytes, float, bool})

Reducer = Callable[[Any, Any], Any]


def reduce_by(
    reducer: Reducer, subtractor: Reducer | None = None, *, commutative: bool = False
) -> Aggregation:
    """Combine values by a function of two; a subtractor, for tables, takes a value back.

    >>> reduce_by(max).fold("key", 2, 1)
    2
    """

    def fold(key: Any, value: Any, so_far: Any) -> Any:
        return value if so_far is None else reducer(so_far, value)

    def combine(keys: Sequence[Any], values: Sequence[Any]) -> Mapping[Any, Any] | None:
        kinds = set(map(type, values))
        if len(kinds) != 1 or not kinds <= _UNCHANGEABLE:
            return None  # what could be changed in place is reduced one by one
        reduced: dict[Any, Any] = {}
        for key, value in zip(keys, values, strict=True):
            reduced[key] = reducer(reduced[key], value) if key in reduced else value
        return reduced if set(map(type, reduced.values())) == kinds else None

    return Aggregation(
        fold,
        None if subtractor is None else lambda _, value, so_far: subtractor(so_far, value),
        Combiner(combine, reducer) if commutative else None,
        merge=reducer,
    )


def reduce_in_columns(
    expression: pl.Expr, dtype: pl.DataType | None, shown_as: Callable[[Any], Any] | None = None
) -> Aggregation:
    """Combine values by an expression; `dtype` is their type, where serdes tell it.

    `shown_as` is what Python is shown of them, if not what the column has.
    """

    def of_two(so_far: Any, new: Any) -> Any:
        from millstream.processors.columns.python_types import column_type  # noqa: PLC0415 - imports Polars

        known = column_type(new) if dtype is None else dtype
        both = pl.DataFrame({"value": Column([so_far, new]).series(known)})
        found = _checked(both.select(new=expression), known)["new"].item()
        show = ShownAs(type(new)) if shown_as is None and is_record_class(type(new)) else shown_as
        return found if show is None else show(found)

    return replace(reduce_by(of_two), columns=ReduceColumns(expression, shown_as))


class ReduceColumns(ColumnForm):
    """What was there before is the first of the values of its key."""

    has_each = False

    def __init__(self, expression: pl.Expr, shown_as: Callable[[Any], Any] | None = None) -> None:
        self._expression = expression
        self.shown_as = shown_as

    def grouped(self, frame: pl.DataFrame) -> pl.DataFrame:
        """See `ColumnForm.grouped`."""
        return frame.select(pl.col("key").unique())

    def last(self, frame: pl.DataFrame, grouped: pl.DataFrame, before: pl.DataFrame) -> pl.DataFrame:
        """See `ColumnForm.last`."""
        there = before.filter(pl.col("time_before").is_not_null()).select(
            row=pl.lit(-1, pl.Int64), key="key", value="before", time="time_before"
        )
        rows = pl.concat([there, frame.select(pl.col("row").cast(pl.Int64), "key", "value", "time")])
        reduced = rows.group_by("key").agg(
            new=self._expression, row=pl.col("row").last(), time=pl.col("time").max()
        )
        return _checked(reduced, frame.schema["value"]).sort("key")


def _checked(reduced: pl.DataFrame, dtype: pl.DataType) -> pl.DataFrame:
    """The results, if they are of the type of the values."""
    from millstream.serdes.columns.types import canonical  # noqa: PLC0415 - imports Polars

    found = reduced.schema["new"]
    if canonical(found) != dtype:
        raise TypeError(f"a reducer of {dtype} must give {dtype}, not {found}")
    return reduced.with_columns(pl.col("new").cast(dtype))
