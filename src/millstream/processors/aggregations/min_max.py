"""min and max: the smallest and the largest value of a key. Of equal values the first one stays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from millstream.processors.aggregations.aggregation import Aggregation, Combiner, looking_at
from millstream.processors.aggregations.column_form import ColumnForm

if TYPE_CHECKING:
    import polars as pl
else:
    from millstream.processors.columns import lazy_polars as pl

__all__ = ["Direction", "min_max"]

Direction = Literal["min", "max"]
_TOTALLY_ORDERED: Final = frozenset({int, str, bytes})
"""Types whose values equal each other only if they are the same."""
_CHOOSE: Final[dict[Direction, Callable[[Any, Any], Any]]] = {"min": min, "max": max}


def _chosen(
    choose: Callable[[Any, Any], Any], keys: Sequence[Any], values: Sequence[Any]
) -> Mapping[Any, Any] | None:
    kinds = set(map(type, values))
    if len(kinds) != 1 or not kinds <= _TOTALLY_ORDERED or len(values) != len(keys):
        return None
    chosen: dict[Any, Any] = {}
    for key, value in zip(keys, values, strict=True):
        chosen[key] = choose(chosen[key], value) if key in chosen else value
    return chosen


class MinMaxColumns(ColumnForm):
    """Comparisons. The direction is the first half of the names of what Polars does."""

    def __init__(self, direction: Direction) -> None:
        self._direction = direction

    def check(self, values: pl.Series) -> None:
        """See `ColumnForm.check`."""
        if values.dtype == pl.Float64():
            _check_comparable(values)
        elif values.dtype not in {pl.Int64(), pl.String(), pl.Binary(), pl.Boolean()}:
            raise TypeError(f"a comparison of {values.dtype}")

    def check_totals(self, frame: pl.DataFrame, before: pl.DataFrame) -> None:
        """See `ColumnForm.check_totals`: what is in the store already is compared, too."""
        if before["before"].dtype == pl.Float64():
            _check_comparable(before["before"])

    def whole(self, value: pl.Expr) -> pl.Expr:
        """See `ColumnForm.whole`."""
        return value.min() if self._direction == "min" else value.max()

    def running(self, value: pl.Expr) -> pl.Expr:
        """See `ColumnForm.running`."""
        return value.cum_min() if self._direction == "min" else value.cum_max()

    def combined(self, before: pl.Expr, new: pl.Expr) -> pl.Expr:
        """See `ColumnForm.combined`."""
        return (pl.min_horizontal if self._direction == "min" else pl.max_horizontal)(before, new)


def _check_comparable(values: pl.Series) -> None:
    """NaN is neither smaller nor larger, and the two zeros are equal: the first of them stays."""
    odd = values.is_nan() | ((values == 0) & (1.0 / values < 0))
    if odd.any():
        raise ValueError("NaN or -0.0 in a comparison")


def min_max(direction: Direction, of: Callable[[Any], Any] | None) -> Aggregation:
    """The smallest or largest of the values, or of what a function makes of them.

    >>> min_max("max", len).fold("key", "abc", 4)
    4
    """
    if of is None:
        return _PLAIN[direction]
    choose = _CHOOSE[direction]
    return Aggregation(
        looking_at(_PLAIN[direction].fold, of),
        combiner=Combiner(lambda keys, values: _chosen(choose, keys, list(map(of, values))), choose),
        partials=_PLAIN[direction],
        merge=choose,
        skips_nulls=True,
    )


def _plain(direction: Direction) -> Aggregation:
    choose = _CHOOSE[direction]

    def fold(key: Any, value: Any, so_far: Any) -> Any:
        # At a tie, and beside NaN, both builtins answer their first argument.
        return value if so_far is None else choose(so_far, value)

    combiner = Combiner(lambda keys, values: _chosen(choose, keys, values), choose)
    return Aggregation(
        fold, combiner=combiner, columns=MinMaxColumns(direction), merge=choose, skips_nulls=True
    )


_PLAIN: Final[dict[Direction, Aggregation]] = {"min": _plain("min"), "max": _plain("max")}
