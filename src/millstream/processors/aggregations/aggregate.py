"""aggregate: functions of the user's. They have the row form alone, for only the user knows what they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.processors.aggregations.aggregation import Aggregation, Fold

__all__ = ["aggregate_by"]


def aggregate_by(
    initializer: Callable[[], Any], aggregator: Fold, subtractor: Fold | None = None
) -> Aggregation:
    """Start with what the initializer answers; a subtractor, for tables, takes a value back.

    >>> aggregate_by(list, lambda key, value, so_far: [*so_far, value]).fold("key", 1, None)
    [1]
    """

    def fold(key: Any, value: Any, so_far: Any) -> Any:
        return aggregator(key, value, initializer() if so_far is None else so_far)

    return Aggregation(fold, subtractor, initializer=initializer, aggregator=aggregator)
