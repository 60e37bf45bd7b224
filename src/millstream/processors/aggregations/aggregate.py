"""aggregate: functions of the user's. They have the row form alone, for only the user knows what they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.processors.aggregations.aggregation import Aggregation, Fold, Merge

__all__ = ["aggregate_by"]


def aggregate_by(
    initializer: Callable[[], Any],
    aggregator: Fold,
    subtractor: Fold | None = None,
    merger: Merge | None = None,
) -> Aggregation:
    """Start with what the initializer answers; a subtractor, for tables, takes a value back.

    A merger, for sessions, makes one of two aggregates; it too starts with what the initializer answers.

    >>> aggregate_by(list, lambda key, value, so_far: [*so_far, value]).fold("key", 1, None)
    [1]
    """

    def fold(key: Any, value: Any, so_far: Any) -> Any:
        return aggregator(key, value, initializer() if so_far is None else so_far)

    if merger is None:
        return Aggregation(fold, subtractor)
    merge = merger
    return Aggregation(
        fold,
        subtractor,
        merge=lambda key, one, other: merge(key, initializer() if one is None else one, other),
    )
