"""sum: the values of a key, added up from 0 on.

Whole numbers may be added in any order, and so in every form. What `of` makes of a value is only known row by
row, so the column form is one of the values themselves. The order of doubles matters: they are never
combined, and columns of them are added up in order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from operator import add
from typing import TYPE_CHECKING, Any, Final

from millstream.processors.aggregations.aggregation import Aggregation, Combiner, looking_at
from millstream.processors.aggregations.column_form import ColumnForm, first_of_key

if TYPE_CHECKING:
    import polars as pl

    from millstream.processors.aggregations.hash_groups import ArrowFunction
else:
    from millstream.processors.columns import lazy_polars as pl

__all__ = ["SumColumns", "sum_of"]

_SAFE: Final = float(2**62)
"""Totals below this can't leave 64 bits, however the doubles that tell are rounded."""


def _added(key: Any, value: Any, total: Any) -> Any:
    return (0 if total is None else total) + value


def _sums(keys: Sequence[Any], values: Sequence[Any]) -> Mapping[Any, Any] | None:
    if set(map(type, values)) != {int} or len(values) != len(keys):
        return None
    sums: defaultdict[Any, int] = defaultdict(int)
    for key, value in zip(keys, values, strict=True):
        sums[key] += value
    return sums


def _merged(total: Any, partial: int) -> int:
    if type(total) is not int:
        raise TypeError("the order matters when anything but whole numbers is summed")
    return total + partial


class SumColumns(ColumnForm):
    """Whole numbers in any order, doubles in order: these are not grouped."""

    arrow_function: ArrowFunction | None = "sum"

    def check(self, values: pl.Series) -> None:
        """See `ColumnForm.check`."""
        if values.dtype not in {pl.Int64(), pl.Float64()}:
            raise TypeError(f"a sum of {values.dtype}")

    def in_order(self, dtype: pl.DataType) -> bool:
        """See `ColumnForm.in_order`."""
        return dtype == pl.Float64()

    def check_totals(self, frame: pl.DataFrame, before: pl.DataFrame) -> None:
        """See `ColumnForm.check_totals`."""
        if self.in_order(frame.schema["value"]):
            return
        largest = before["before"].cast(pl.Float64).abs().max()
        if (largest or 0) + frame["value"].cast(pl.Float64).abs().sum() >= _SAFE:  # type: ignore[operator]
            raise OverflowError("a sum that may leave 64 bits")

    def each(self, frame: pl.DataFrame, before: pl.DataFrame) -> pl.DataFrame:
        """See `ColumnForm.each`."""
        if not self.in_order(frame.schema["value"]):
            return super().each(frame, before)
        # What was there comes first, so that every addition is the one that a single row would make.
        return self.in_turn(
            frame,
            before,
            value=pl.when(first_of_key())
            .then(pl.col("before").fill_null(0.0) + pl.col("value"))
            .otherwise(pl.col("value")),
        ).with_columns(new=pl.col("value").cum_sum().over("key"))

    def whole(self, value: pl.Expr) -> pl.Expr:
        """See `ColumnForm.whole`."""
        return value.sum()

    def running(self, value: pl.Expr) -> pl.Expr:
        """See `ColumnForm.running`."""
        return value.cum_sum()

    def combined(self, before: pl.Expr, new: pl.Expr) -> pl.Expr:
        """See `ColumnForm.combined`."""
        return before.fill_null(0) + new


def sum_of(of: Callable[[Any], Any] | None) -> Aggregation:
    """The sum of the values, or of what a function makes of them.

    >>> sum_of(len).fold("key", "abc", 4)
    7
    """
    if of is None:
        return _PLAIN
    return Aggregation(
        looking_at(_added, of),
        combiner=Combiner(lambda keys, values: _sums(keys, list(map(of, values))), _merged),
        partials=_PLAIN,
        merge=add,
        skips_nulls=True,
    )


_PLAIN: Final = Aggregation(
    _added, combiner=Combiner(_sums, _merged), columns=SumColumns(), merge=add, skips_nulls=True
)
