"""count: how many values a key has had."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import add
from typing import TYPE_CHECKING, Any, Final

from millstream.processors.aggregations.aggregation import Aggregation, Combiner
from millstream.processors.aggregations.sum import SumColumns, sum_of

if TYPE_CHECKING:
    import polars as pl
else:
    from millstream.processors.columns import lazy_polars as pl

__all__ = ["COUNT"]


def _one_more(key: Any, value: Any, count: int | None) -> int:
    return 1 if count is None else count + 1


def _one_less(key: Any, value: Any, count: int) -> int:
    return count - 1


def _counts(keys: Sequence[Any], values: Sequence[Any]) -> Mapping[Any, int]:
    del values
    return Counter(keys) if len(keys) > 1 else dict.fromkeys(keys, 1)


class CountColumns(SumColumns):
    """A sum of ones, whatever the values are."""

    looks_at_values = False
    arrow_function = "count_all"

    def whole(self, value: pl.Expr) -> pl.Expr:
        """See `ColumnForm.whole`."""
        return pl.len().cast(pl.Int64)


COUNT: Final = Aggregation(
    fold=_one_more,
    subtract=_one_less,
    combiner=Combiner(_counts, add),
    columns=CountColumns(),
    partials=sum_of(None),
    merge=add,
)
