"""An aggregation by sliding windows: one for each set of records that are close together."""

from __future__ import annotations

from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.aggregations.keyed import KeyedAggregation
from millstream.windows import SlidingWindows

__all__ = ["SlidingWindowAggregation"]


class SlidingWindowAggregation(KeyedAggregation):
    """Folds each row into the windows that it is in, and makes those that begin or end with it."""

    def __init__(
        self,
        store: str,
        windows: SlidingWindows,
        aggregation: Aggregation,
        *,
        caching: bool,
        send_old: bool,
        on_close: bool,
    ) -> None:
        super().__init__(store, aggregation, caching=caching, send_old=send_old)
        raise NotImplementedError
