"""How count, sum, min, max and mean fold a column by key: exactly as one value after the other would.

A fold has two ways. `last` gives one row per key, with Polars' own grouping. `each` gives the aggregate after
every row, with running totals in order; sums of doubles always go this way, because their result depends on
the order of the additions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from millstream.processors import fold as rows
from millstream.serdes.columns import CannotError
from millstream.serdes.mean_serde import Mean

__all__ = ["ColumnFold", "CountFold", "LargestFold", "MeanFold", "SmallestFold", "SumFold"]

_SAFE = float(2**62)
"""Totals below this can't leave 64 bits, however the doubles that tell are rounded."""


class ColumnFold:
    """One way to fold. `initializer` and `aggregator` are the same fold for single rows."""

    initializer: Callable[[], Any] = staticmethod(rows.nothing)
    aggregator: Callable[[Any, Any, Any], Any]
    looks_at_values = True
    in_order = False
    """Whether the result depends on the order of the rows."""
    state: tuple[str, ...] = ()
    """Columns besides `new` that the aggregate consists of."""

    def check(self, values: pl.Series) -> None:
        """Raise if the row tier has to do it."""

    def check_sums(self, frame: pl.DataFrame, before: pl.DataFrame) -> None:
        """Raise if a total might not fit."""

    def columns_of(self, values: Sequence[Any] | pl.Series, dtype: pl.DataType) -> dict[str, pl.Series]:
        """The aggregates that were there before, one per key; None for a new key."""
        if not isinstance(values, pl.Series):
            values = pl.Series(values, dtype=dtype, strict=True)
        if values.dtype != dtype:
            raise CannotError(f"{dtype} into an aggregate of {values.dtype}")
        return {"before": values}

    def values_of(self, last: pl.DataFrame) -> Sequence[Any] | pl.Series:
        """The new aggregates, as the store takes them."""
        return last["new"]

    def grouped(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows of each key folded, with the number of the last of them, in the order of the keys."""
        rows = frame.group_by("key").agg(
            row=pl.col("row").last(), time=pl.col("time").max(), new=self.whole(pl.col("value"))
        )
        return rows.sort("key")

    def last(self, grouped: pl.DataFrame, before: pl.DataFrame) -> pl.DataFrame:
        """The aggregate of each key after all of its rows. `before` has the same keys in the same order."""
        return pl.concat([grouped, before.drop("key")], how="horizontal").select(
            "row",
            "key",
            new=self.combined(pl.col("before"), pl.col("new")),
            time=pl.max_horizontal("time", "time_before"),
        )

    def each(self, frame: pl.DataFrame, before: pl.DataFrame) -> pl.DataFrame:
        """The aggregate of its key after each row, and before it."""
        running = frame.join(before, on="key", how="left", maintain_order="left").with_columns(
            new=self.combined(pl.col("before"), self.running(pl.col("value")).over("key")),
            time=pl.max_horizontal(pl.col("time").cum_max().over("key"), "time_before"),
        )
        return running.with_columns(old=pl.coalesce(pl.col("new").shift().over("key"), "before"))

    def whole(self, value: pl.Expr) -> pl.Expr:
        """The rows of one key, folded."""
        raise NotImplementedError

    def running(self, value: pl.Expr) -> pl.Expr:
        """The rows of one key, folded up to each of them."""
        raise NotImplementedError

    def combined(self, before: pl.Expr, new: pl.Expr) -> pl.Expr:
        """What was there before, which may be null, and what came now."""
        raise NotImplementedError


class SumFold(ColumnFold):
    """Adds up whole numbers; doubles in order."""

    initializer = staticmethod(rows.zero)

    def __init__(self) -> None:
        self.aggregator = rows.Sum(None)

    def check(self, values: pl.Series) -> None:
        """See `ColumnFold.check`."""
        if values.dtype not in {pl.Int64(), pl.Float64()}:
            raise CannotError(f"a sum of {values.dtype}")
        self.in_order = values.dtype == pl.Float64()

    def check_sums(self, frame: pl.DataFrame, before: pl.DataFrame) -> None:
        """See `ColumnFold.check_sums`."""
        if self.in_order:
            return
        largest = before["before"].cast(pl.Float64).abs().max()
        if (largest or 0) + frame["value"].cast(pl.Float64).abs().sum() >= _SAFE:  # type: ignore[operator]
            raise CannotError("a sum that may leave 64 bits")

    def each(self, frame: pl.DataFrame, before: pl.DataFrame) -> pl.DataFrame:
        """See `ColumnFold.each`."""
        if not self.in_order:
            return super().each(frame, before)
        # What was there comes first, so that every addition is the one that a single row would make.
        found = frame.join(before, on="key", how="left", maintain_order="left").with_columns(
            value=pl.when(pl.int_range(pl.len()).over("key") == 0)
            .then(pl.col("before").fill_null(0.0) + pl.col("value"))
            .otherwise(pl.col("value")),
            time=pl.max_horizontal(pl.col("time").cum_max().over("key"), "time_before"),
        )
        found = found.with_columns(new=pl.col("value").cum_sum().over("key"))
        return found.with_columns(old=pl.coalesce(pl.col("new").shift().over("key"), "before"))

    def whole(self, value: pl.Expr) -> pl.Expr:
        """See `ColumnFold.whole`."""
        return value.sum()

    def running(self, value: pl.Expr) -> pl.Expr:
        """See `ColumnFold.running`."""
        return value.cum_sum()

    def combined(self, before: pl.Expr, new: pl.Expr) -> pl.Expr:
        """See `ColumnFold.combined`."""
        return before.fill_null(0) + new


class CountFold(SumFold):
    """Counts: a sum of ones, whatever the values are."""

    looks_at_values = False

    def __init__(self) -> None:
        super().__init__()
        self.aggregator = rows.add_one

    def whole(self, value: pl.Expr) -> pl.Expr:
        """See `ColumnFold.whole`."""
        return pl.len().cast(pl.Int64)


class _Comparing(ColumnFold):
    """Keeps one of the values."""

    def check(self, values: pl.Series) -> None:
        """See `ColumnFold.check`."""
        if values.dtype == pl.Float64():
            _check_comparable(values)
        elif values.dtype not in {pl.Int64(), pl.String(), pl.Binary(), pl.Boolean()}:
            raise CannotError(f"a comparison of {values.dtype}")

    def check_sums(self, frame: pl.DataFrame, before: pl.DataFrame) -> None:
        """See `ColumnFold.check_sums`: what is in the store already is compared, too."""
        if before["before"].dtype == pl.Float64():
            _check_comparable(before["before"])


def _check_comparable(values: pl.Series) -> None:
    """NaN is neither smaller nor larger, and the two zeros are equal: the first of them stays."""
    odd = values.is_nan() | ((values == 0) & (1.0 / values < 0))
    if odd.any():
        raise CannotError("NaN or -0.0 in a comparison")


class SmallestFold(_Comparing):
    """Keeps the smallest."""

    def __init__(self) -> None:
        self.aggregator = rows.Min(None)

    def whole(self, value: pl.Expr) -> pl.Expr:
        """See `ColumnFold.whole`."""
        return value.min()

    def running(self, value: pl.Expr) -> pl.Expr:
        """See `ColumnFold.running`."""
        return value.cum_min()

    def combined(self, before: pl.Expr, new: pl.Expr) -> pl.Expr:
        """See `ColumnFold.combined`."""
        return pl.min_horizontal(before, new)


class LargestFold(_Comparing):
    """Keeps the largest."""

    def __init__(self) -> None:
        self.aggregator = rows.Max(None)

    def whole(self, value: pl.Expr) -> pl.Expr:
        """See `ColumnFold.whole`."""
        return value.max()

    def running(self, value: pl.Expr) -> pl.Expr:
        """See `ColumnFold.running`."""
        return value.cum_max()

    def combined(self, before: pl.Expr, new: pl.Expr) -> pl.Expr:
        """See `ColumnFold.combined`."""
        return pl.max_horizontal(before, new)


class MeanFold(ColumnFold):
    """Keeps total and count, and gives their quotient."""

    in_order = True
    state = ("total", "count")

    def __init__(self) -> None:
        self.aggregator = rows.MeanOf(None)

    def check(self, values: pl.Series) -> None:
        """See `ColumnFold.check`."""
        if values.dtype not in {pl.Int64(), pl.Float64()}:
            raise CannotError(f"a mean of {values.dtype}")

    def columns_of(self, values: Sequence[Any] | pl.Series, dtype: pl.DataType) -> dict[str, pl.Series]:
        """See `ColumnFold.columns_of`."""
        return {
            "before": pl.Series([None if one is None else float(one) for one in values], dtype=pl.Float64),
            "total_before": pl.Series([0.0 if one is None else one.total for one in values]),
            "count_before": pl.Series([0 if one is None else one.count for one in values]),
        }

    def values_of(self, last: pl.DataFrame) -> Sequence[Any]:
        """See `ColumnFold.values_of`."""
        return list(map(Mean, last["total"].to_list(), last["count"].to_list()))

    def each(self, frame: pl.DataFrame, before: pl.DataFrame) -> pl.DataFrame:
        """See `ColumnFold.each`."""
        first = pl.int_range(pl.len()).over("key") == 0
        value = pl.col("value").cast(pl.Float64)
        found = frame.join(before, on="key", how="left", maintain_order="left").with_columns(
            value=pl.when(first).then(pl.col("total_before") + value).otherwise(value),
            count=pl.col("count_before") + pl.int_range(1, pl.len() + 1).over("key"),
            time=pl.max_horizontal(pl.col("time").cum_max().over("key"), "time_before"),
        )
        found = found.with_columns(total=pl.col("value").cum_sum().over("key"))
        found = found.with_columns(new=pl.col("total") / pl.col("count"))
        return found.with_columns(old=pl.coalesce(pl.col("new").shift().over("key"), "before"))
