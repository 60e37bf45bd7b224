"""Cogrouped streams that are cut into windows: several streams, each with its own aggregator, into one table.

Every stream has a stream time of its own: one that runs ahead closes no windows for the others. Windows are
emitted whenever they change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.dsl.cogroup_table import AGGREGATE, cogroup_table, cogrouped_keys
from millstream.dsl.functions import Initializer
from millstream.dsl.given import check_functions
from millstream.dsl.graph import Handle
from millstream.dsl.ktable import KTable
from millstream.dsl.materialized import StoreLike, as_store
from millstream.dsl.window_operators import aggregation_by
from millstream.dsl.windowed_store import windowed_keys, windowed_store
from millstream.kafka_names import KafkaNames
from millstream.processors.operator import Operator
from millstream.processors.windows.session_windows import SessionAggregation
from millstream.record import Windowed
from millstream.serdes import Serde
from millstream.state.specs import Store
from millstream.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, Windows

if TYPE_CHECKING:
    from millstream.dsl.cogrouped import CogroupedKStream

__all__ = ["SessionWindowedCogroupedKStream", "TimeWindowedCogroupedKStream"]

K = TypeVar("K")
VA = TypeVar("VA")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TimeWindowedCogroupedKStream(Handle, KafkaNames, Generic[K, VA]):
    """Cogrouped streams in windows of one size. The keys of the table are `Windowed`.

    >>> from millstream import SlidingWindows, StreamsBuilder, serdes
    >>> grouped = StreamsBuilder().stream("clicks", key=serdes.string).group_by_key()
    >>> windowed = grouped.cogroup(lambda user, page, n: n + 1).windowed_by(SlidingWindows(1_000))
    >>> windowed.aggregate(lambda: 0).key_serde
    serdes.time_windowed(serdes.string, window_size_ms=1000)
    """

    cogrouped: CogroupedKStream[K, VA]
    windows: TimeWindows | SlidingWindows | UnlimitedWindows

    def aggregate(
        self,
        initializer: Initializer[VA],
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[VA] | None = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], VA]:
        """The table that all streams are folded into, with a row per key and window.

        >>> from millstream import StreamsBuilder, TimeWindows
        >>> grouped = StreamsBuilder().stream("a").group_by_key()
        >>> windowed = grouped.cogroup(lambda k, v, n: n + 1).windowed_by(TimeWindows(60_000))
        >>> windowed.aggregate(lambda: 0).node.name
        'COGROUPKSTREAM-MERGE-0000000003'
        """
        make = aggregation_by(self.windows)
        return _table(self.cogrouped, self.windows, initializer, make, as_store(store, key, value), name)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SessionWindowedCogroupedKStream(Handle, KafkaNames, Generic[K, VA]):
    """Cogrouped streams in sessions. The keys of the table are `Windowed`, with inclusive ends.

    >>> from millstream import SessionWindows, StreamsBuilder, serdes
    >>> grouped = StreamsBuilder().stream("clicks", key=serdes.string).group_by_key()
    >>> visits = grouped.cogroup(lambda user, page, n: n + 1).windowed_by(SessionWindows(1_000))
    >>> visits.aggregate(lambda: 0, lambda user, one, other: one + other).key_serde
    serdes.session_windowed(serdes.string)
    """

    cogrouped: CogroupedKStream[K, VA]
    windows: SessionWindows

    def aggregate(
        self,
        initializer: Initializer[VA],
        merger: Callable[[K, VA, VA], VA],
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[VA] | None = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], VA]:
        """The table that all streams are folded into, with a row per session.

        `merger(key, one, other)` makes one aggregate of two, when a record joins their sessions.

        >>> from millstream import SessionWindows, StreamsBuilder
        >>> grouped = StreamsBuilder().stream("a").group_by_key()
        >>> visits = grouped.cogroup(lambda k, v, n: n + 1).windowed_by(SessionWindows(1_000))
        >>> visits.aggregate(lambda: 0, lambda k, one, other: one + other).node.name
        'COGROUPKSTREAM-MERGE-0000000003'
        """
        check_functions("aggregate", merger=merger)
        make = partial(SessionAggregation, windows=self.windows, merger=merger)
        return _table(self.cogrouped, self.windows, initializer, make, as_store(store, key, value), name)


def _table(
    cogrouped: CogroupedKStream[Any, Any],
    windows: Windows,
    initializer: Initializer[Any],
    make: Callable[..., Operator],
    store: Store,
    name: str | None,
) -> KTable[Any, Any]:
    spec = as_store(store, cogrouped_keys(cogrouped))
    own = windowed_store(cogrouped.graph, spec, AGGREGATE, windows)
    return cogroup_table(
        cogrouped,
        own,
        name,
        initializer,
        partial(make, on_close=False),
        key=windowed_keys(spec.key, windows),
        windows=windows,
    )
