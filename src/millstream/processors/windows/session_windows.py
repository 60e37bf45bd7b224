"""An aggregation by session: records of a key that are at most a gap apart belong together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.table import TableOperator
from millstream.windows import SessionWindows

__all__ = ["SessionAggregation"]


class SessionAggregation(TableOperator):
    """Folds each row into the sessions that it belongs to, which become one."""

    def __init__(
        self,
        store: str,
        windows: SessionWindows,
        aggregation: Aggregation,
        merger: Callable[[Any, Any, Any], Any],
        *,
        caching: bool,
        send_old: bool,
        on_close: bool,
    ) -> None:
        super().__init__(store, caching=caching, send_old=send_old)
        raise NotImplementedError
