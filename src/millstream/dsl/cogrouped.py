"""`CogroupedKStream`: several grouped streams, each with its own aggregator, into one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from millstream.dsl.cogroup_table import AGGREGATE, cogroup_table, cogrouped_keys
from millstream.dsl.functions import Initializer
from millstream.dsl.given import check_functions, check_windows
from millstream.dsl.graph import Graph, Handle
from millstream.dsl.ktable import KTable
from millstream.dsl.materialized import Materialized, StoreLike, as_store
from millstream.dsl.windowed_cogrouped import SessionWindowedCogroupedKStream, TimeWindowedCogroupedKStream
from millstream.errors import TopologyError
from millstream.kafka_names import KafkaNames
from millstream.processors.aggregations.keyed import KeyedAggregation
from millstream.serdes import Serde
from millstream.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, Windows

if TYPE_CHECKING:
    from millstream.dsl.grouped import KGroupedStream

K = TypeVar("K")
V = TypeVar("V")
VA = TypeVar("VA")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CogroupedKStream(Handle, KafkaNames, Generic[K, VA]):
    """Grouped streams and their aggregators so far."""

    graph: Graph
    groups: tuple[tuple[KGroupedStream[K, Any], Callable[[K, Any, VA], VA]], ...]

    def cogroup(
        self, grouped: KGroupedStream[K, V], aggregator: Callable[[K, V, VA], VA]
    ) -> CogroupedKStream[K, VA]:
        """Take one more grouped stream in. The same one again gets the new aggregator.

        >>> from millstream import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> one, two = builder.stream("a").group_by_key(), builder.stream("b").group_by_key()
        >>> len(one.cogroup(lambda k, v, n: n + 1).cogroup(two, lambda k, v, n: n - 1).groups)
        2
        """
        if not callable(getattr(grouped, "repartitioned", None)):
            raise TopologyError(
                f"cogroup() with {grouped!r}. Remedy: group the stream first: stream.group_by_key()"
            )
        if grouped.graph is not self.graph:
            message = "cogroup() of streams from two StreamsBuilders: build both with the same one"
            raise TopologyError(message)
        check_functions("cogroup", aggregator=aggregator)
        by_stream = dict(self.groups)
        by_stream[grouped] = aggregator
        return CogroupedKStream(self.graph, tuple(by_stream.items()))

    @overload
    def windowed_by(
        self, windows: TimeWindows | SlidingWindows | UnlimitedWindows
    ) -> TimeWindowedCogroupedKStream[K, VA]: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedCogroupedKStream[K, VA]: ...
    def windowed_by(
        self, windows: Windows
    ) -> TimeWindowedCogroupedKStream[K, VA] | SessionWindowedCogroupedKStream[K, VA]:
        """Cut the records of each key by time, each stream by its own stream time.

        >>> from millstream import StreamsBuilder, TimeWindows
        >>> grouped = StreamsBuilder().stream("a").group_by_key()
        >>> windowed = grouped.cogroup(lambda k, v, n: n + 1).windowed_by(TimeWindows(60_000))
        >>> windowed.aggregate(lambda: 0, store="per-minute").queryable_store_name
        'per-minute'
        """
        check_windows(windows)
        if isinstance(windows, SessionWindows):
            return SessionWindowedCogroupedKStream(self, windows)
        return TimeWindowedCogroupedKStream(self, windows)

    def aggregate(
        self,
        initializer: Initializer[VA],
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[VA] | None = None,
        name: str | None = None,
    ) -> KTable[K, VA]:
        """The table that all streams are folded into.

        >>> from millstream import StreamsBuilder
        >>> grouped = StreamsBuilder().stream("a").group_by_key()
        >>> grouped.cogroup(lambda k, v, n: n + 1).aggregate(lambda: 0).node.name
        'COGROUPKSTREAM-MERGE-0000000003'
        """
        spec = as_store(as_store(store, key, value), cogrouped_keys(self))
        own = Materialized.of(self.graph, spec, AGGREGATE)
        return cogroup_table(self, own, name, initializer, KeyedAggregation, key=spec.key)
