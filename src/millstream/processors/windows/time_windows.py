"""An aggregation by time windows: tumbling, hopping or unlimited."""

from __future__ import annotations

from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.aggregations.keyed import KeyedAggregation
from millstream.windows import TimeWindows, UnlimitedWindows

__all__ = ["TimeWindowAggregation"]


class TimeWindowAggregation(KeyedAggregation):
    """Folds each row into the cells of its key and windows, in order."""

    def __init__(
        self,
        store: str,
        windows: TimeWindows | UnlimitedWindows,
        aggregation: Aggregation,
        *,
        caching: bool,
        send_old: bool,
        on_close: bool,
    ) -> None:
        super().__init__(store, aggregation, caching=caching, send_old=send_old)
        raise NotImplementedError
