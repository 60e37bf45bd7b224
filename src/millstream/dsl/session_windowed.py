"""`SessionWindowedKStream`: a grouped stream that is cut into sessions, ready to be aggregated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.dsl.aggregating import AGGREGATE, OperatorPlan
from millstream.dsl.functions import Initializer
from millstream.dsl.given import check_functions, check_strategy
from millstream.dsl.graph import Handle
from millstream.dsl.ktable import KTable
from millstream.dsl.materialized import StoreLike, as_store
from millstream.dsl.windowed import WindowedAggregating
from millstream.processors.aggregations.aggregate import aggregate_by
from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.windows.session_windows import SessionAggregation
from millstream.record import Windowed
from millstream.serdes import Serde
from millstream.windows import ON_WINDOW_UPDATE, EmitStrategy, SessionWindows

if TYPE_CHECKING:
    from millstream.dsl.grouped import KGroupedStream

K = TypeVar("K")
V = TypeVar("V")
VA = TypeVar("VA")

Merger = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SessionWindowedKStream(Handle, WindowedAggregating[K, V], Generic[K, V]):
    """A grouped stream in sessions. The keys of its tables are `Windowed`, with inclusive ends.

    >>> from millstream import SessionWindows, StreamsBuilder, serdes
    >>> clicks = StreamsBuilder().stream("clicks", key=serdes.string).group_by_key()
    >>> clicks.windowed_by(SessionWindows(60_000)).count().key_serde
    serdes.session_windowed(serdes.string)
    """

    grouped: KGroupedStream[K, V]
    windows: SessionWindows
    emit: EmitStrategy = ON_WINDOW_UPDATE

    def emit_strategy(self, strategy: EmitStrategy) -> SessionWindowedKStream[K, V]:
        """Say when a session is emitted: whenever it changes, or once, when it can't change any more.

        >>> from millstream import EmitStrategy, SessionWindows, StreamsBuilder
        >>> visits = StreamsBuilder().stream("clicks").group_by_key().windowed_by(SessionWindows(60_000))
        >>> visits.emit_strategy(EmitStrategy.on_window_close()).count(store="visits").queryable_store_name
        'visits'
        """
        check_strategy(strategy)
        return replace(self, emit=strategy)

    def aggregate(
        self,
        initializer: Initializer[VA],
        aggregator: Callable[[K, V, VA], VA],
        merger: Callable[[K, VA, VA], VA],
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[VA] | None = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], VA]:
        """Fold the values of each session: `aggregator(key, value, so_far)`, starting with `initializer()`.

        `merger(key, one, other)` makes one aggregate of two, when a record joins their sessions.

        >>> from millstream import SessionWindows, StreamsBuilder
        >>> clicks = StreamsBuilder().stream("clicks").group_by_key().windowed_by(SessionWindows(60_000))
        >>> paths = clicks.aggregate(
        ...     list,
        ...     lambda user, page, path: [*path, page],
        ...     lambda user, one, other: one + other,
        ...     store="paths",
        ... )
        >>> paths.queryable_store_name
        'paths'
        """
        check_functions("aggregate", initializer=initializer, aggregator=aggregator, merger=merger)
        plan = self._planned(aggregate_by(initializer, aggregator), merger)
        return self._aggregate(plan, as_store(store, key, value), AGGREGATE, name, value=None)

    def _in_rows(self, aggregation: Aggregation) -> OperatorPlan:
        merge = aggregation.merge
        assert merge is not None  # all but aggregate() have it

        def merger(key: Any, one: Any, other: Any) -> Any:
            del key
            return other if one is None else merge(one, other)

        return self._planned(aggregation, merger)

    def _planned(self, aggregation: Aggregation, merger: Merger) -> OperatorPlan:
        make = partial(
            SessionAggregation,
            windows=self.windows,
            aggregation=aggregation,
            merger=merger,
        )
        return self._emitting(make)
