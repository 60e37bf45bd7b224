"""How an aggregation is done over columns: exactly as one value after the other would.

A form has two ways. `last` gives one row per key, with Polars' own grouping. `each` gives the aggregate after
every row, with running totals in order; what depends on the order of the values always goes this way.
A form keeps nothing: it is asked with frames whose columns are `row`, `key` (bytes), `value` and `time`, and
`before` and `time_before` for the cells that were there. Whatever it raises, the row form does it then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from millstream.processors.aggregations.hash_groups import ArrowFunction
else:
    from millstream.processors.columns import lazy_polars as pl

__all__ = ["ColumnForm", "first_of_key"]


class ColumnForm:
    """One aggregation over columns."""

    looks_at_values = True
    has_each = True
    """Whether it can give the aggregate after every row."""
    shown_as: Callable[[Any], Any] | None = None
    """What Python is shown of an aggregate, if not what the column has."""
    arrow_function: ArrowFunction | None = None
    """What Arrow calls the same, where its result depends on nothing but the values of the group."""
    state: tuple[str, ...] = ()
    """Columns besides `new` that the aggregate consists of."""

    def check(self, values: pl.Series) -> None:
        """Raise if the row form has to do it."""

    def in_order(self, dtype: pl.DataType) -> bool:
        """Whether the result depends on the order of values of a type."""
        del dtype
        return False

    def check_totals(self, frame: pl.DataFrame, before: pl.DataFrame) -> None:
        """Raise if the row form has to do it, now that the cells are known."""

    def columns_of(self, values: Sequence[Any] | pl.Series, dtype: pl.DataType) -> dict[str, pl.Series]:
        """The aggregates that were there before, one per key; None for a new key."""
        if not isinstance(values, pl.Series):
            values = pl.Series(values, dtype=dtype, strict=True)
        if values.dtype != dtype:
            raise TypeError(f"{dtype} into an aggregate of {values.dtype}")
        return {"before": values}

    def values_of(self, last: pl.DataFrame) -> Sequence[Any] | pl.Series:
        """The new aggregates, as the store takes them."""
        return last["new"]

    def grouped(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows of each key folded, with the number of the last of them."""
        if self.arrow_function is not None:
            # Only tasks need Polars: programs that are built, and not run, do without.
            from millstream.processors.aggregations.hash_groups import are_many_groups, grouped_by_arrow  # noqa: PLC0415

            if are_many_groups(frame["key"]):
                return grouped_by_arrow(frame, self.arrow_function)
        return frame.group_by("key").agg(
            row=pl.col("row").last(), time=pl.col("time").max(), new=self.whole(pl.col("value"))
        )

    def last(self, frame: pl.DataFrame, grouped: pl.DataFrame, before: pl.DataFrame) -> pl.DataFrame:
        """The aggregate of each key after all of its rows. All but `frame` have the same keys in order."""
        del frame
        return pl.concat([grouped, before.drop("key")], how="horizontal").select(
            "row",
            "key",
            new=self.combined(pl.col("before"), pl.col("new")),
            time=pl.max_horizontal("time", "time_before"),
        )

    def each(self, frame: pl.DataFrame, before: pl.DataFrame) -> pl.DataFrame:
        """The aggregate of its key after each row, as `new`."""
        new = self.combined(pl.col("before"), self.running(pl.col("value")).over("key"))
        return self.in_turn(frame, before, new=new)

    def in_turn(self, frame: pl.DataFrame, before: pl.DataFrame, **columns: pl.Expr) -> pl.DataFrame:
        """The rows beside what was there before, with the time of the aggregate after each of them."""
        time = pl.max_horizontal(pl.col("time").cum_max().over("key"), "time_before")
        found = frame.join(before, on="key", how="left", maintain_order="left")
        return found.with_columns(time=time, **columns)

    def whole(self, value: pl.Expr) -> pl.Expr:
        """The rows of one key, folded."""
        raise NotImplementedError

    def running(self, value: pl.Expr) -> pl.Expr:
        """The rows of one key, folded up to each of them."""
        raise NotImplementedError

    def combined(self, before: pl.Expr, new: pl.Expr) -> pl.Expr:
        """What was there before, which may be null, and what came now."""
        raise NotImplementedError


def first_of_key() -> pl.Expr:
    """Whether a row is the first of its key."""
    return pl.int_range(pl.len()).over("key") == 0
