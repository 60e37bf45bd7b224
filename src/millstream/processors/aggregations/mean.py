"""mean: the store keeps a `Mean`, which knows its total and count; what goes on is a plain float.

The order of the additions matters, so means are never combined, and columns are added up in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from millstream.processors.aggregations.aggregation import Aggregation, looking_at
from millstream.processors.aggregations.column_form import ColumnForm, first_of_key
from millstream.serdes.mean_serde import Mean

if TYPE_CHECKING:
    import polars as pl
else:
    from millstream.processors.columns import lazy_polars as pl

__all__ = ["mean_of"]


def _with_one_more(key: Any, value: Any, so_far: Mean | None) -> Mean:
    seen = float(value)
    return Mean(seen, 1) if so_far is None else Mean(so_far.total + seen, so_far.count + 1)


def _merged(one: Mean, other: Mean) -> Mean:
    return Mean(one.total + other.total, one.count + other.count)


class MeanColumns(ColumnForm):
    """Total and count of each key, and their quotient."""

    state = ("total", "count")

    def check(self, values: pl.Series) -> None:
        """See `ColumnForm.check`."""
        if values.dtype not in {pl.Int64(), pl.Float64()}:
            raise TypeError(f"a mean of {values.dtype}")

    def in_order(self, dtype: pl.DataType) -> bool:
        """See `ColumnForm.in_order`."""
        return True

    def columns_of(self, values: Sequence[Any] | pl.Series, dtype: pl.DataType) -> dict[str, pl.Series]:
        """See `ColumnForm.columns_of`."""
        return {
            "before": pl.Series([None if one is None else float(one) for one in values], dtype=pl.Float64),
            "total_before": pl.Series([0.0 if one is None else one.total for one in values]),
            "count_before": pl.Series([0 if one is None else one.count for one in values]),
        }

    def values_of(self, last: pl.DataFrame) -> Sequence[Any]:
        """See `ColumnForm.values_of`."""
        return list(map(Mean, last["total"].to_list(), last["count"].to_list()))

    def each(self, frame: pl.DataFrame, before: pl.DataFrame) -> pl.DataFrame:
        """See `ColumnForm.each`."""
        value = pl.col("value").cast(pl.Float64)
        found = self.in_turn(
            frame,
            before,
            value=pl.when(first_of_key()).then(pl.col("total_before") + value).otherwise(value),
            count=pl.col("count_before") + pl.int_range(1, pl.len() + 1).over("key"),
        ).with_columns(total=pl.col("value").cum_sum().over("key"))
        return found.with_columns(new=pl.col("total") / pl.col("count"))


def mean_of(of: Callable[[Any], Any] | None) -> Aggregation:
    """The mean of the values, or of what a function makes of them.

    >>> mean_of(len).fold("key", "abc", Mean(5.0, 1))
    4.0
    """
    return Aggregation(
        looking_at(_with_one_more, of),
        columns=MeanColumns() if of is None else None,
        shown=float,
        merge=_merged,
        skips_nulls=True,
    )
