"""`CogroupedKStream`: several grouped streams, each with its own aggregator, into one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.dsl.functions import Initializer
from millstream.dsl.graph import Graph, GraphNode
from millstream.dsl.ktable import KTable
from millstream.dsl.materialized import Materialized, StoreLike, as_store
from millstream.dsl.table_state import MergedState, TableState
from millstream.errors import TopologyError
from millstream.processors.aggregations.aggregate import aggregate_by
from millstream.processors.aggregations.keyed import KeyedAggregation
from millstream.processors.stateless import PassThrough
from millstream.serdes import Serde
from millstream.topology.operator_spec import CHAINED, PLAIN
from millstream.topology.topology import Topology

if TYPE_CHECKING:
    from millstream.dsl.grouped import KGroupedStream

K = TypeVar("K")
V = TypeVar("V")
VA = TypeVar("VA")

AGGREGATE = "COGROUPKSTREAM-AGGREGATE-"
MERGE = "COGROUPKSTREAM-MERGE-"


@dataclass(frozen=True, slots=True, eq=False)
class CogroupedKStream(Generic[K, VA]):
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
        if grouped.graph is not self.graph:
            message = "cogroup() of streams from two StreamsBuilders: build both with the same one"
            raise TopologyError(message)
        by_stream = dict(self.groups)
        by_stream[grouped] = aggregator
        return CogroupedKStream(self.graph, tuple(by_stream.items()))

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
        spec = as_store(store, key, value)
        own = Materialized.of(self.graph, as_store(spec, self._key_serde()), AGGREGATE)
        places = [grouped.repartitioned(own.name) for grouped, _ in self.groups]
        sources = frozenset[str]().union(*(names for _, names in places))
        self.graph.copartitions.append(sources)
        states = [TableState(is_versioned=own.is_versioned) for _ in self.groups]
        nodes = [
            self._aggregation(number, name, own, initializer, aggregator, state, parent)
            for number, ((_, aggregator), state, (parent, _)) in enumerate(
                zip(self.groups, states, places, strict=True)
            )
        ]
        merge = self.graph.suffixed_or_new(name, "-cogroup-merge", MERGE)

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            topology.add_operator(merge, PassThrough, parents, CHAINED)

        node = self.graph.add(GraphNode(merge, write), *nodes)
        store_spec = own.store
        return KTable(
            self.graph,
            node,
            store_spec.key,
            store_spec.value,
            sources,
            own.queryable_name,
            MergedState(states),
        )

    def _aggregation(
        self,
        number: int,
        name: str | None,
        own: Materialized,
        initializer: Initializer[VA],
        aggregator: Callable[[K, Any, VA], VA],
        state: TableState,
        parent: GraphNode,
    ) -> GraphNode:
        node_name = self.graph.suffixed_or_new(name, f"-cogroup-agg-{number}", AGGREGATE)

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            make = partial(
                KeyedAggregation,
                own.name,
                aggregate_by(initializer, aggregator),
                caching=own.caching,
                send_old=state.sends_old,
            )
            topology.add_operator(node_name, make, parents, PLAIN)
            topology.add_state_store(own.builder, node_name)

        return self.graph.add(GraphNode(node_name, write), parent)

    def _key_serde(self) -> Any:
        return next((grouped.key_serde for grouped, _ in self.groups if grouped.key_serde is not None), None)
