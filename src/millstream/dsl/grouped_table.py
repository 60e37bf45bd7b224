"""`KGroupedTable`: a table grouped anew. Every update takes its old value out and puts its new one in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from millstream.dsl.functions import Initializer
from millstream.dsl.given import check_functions, check_serdes
from millstream.dsl.graph import Graph, GraphNode, Handle
from millstream.dsl.ktable import KTable
from millstream.dsl.materialized import Materialized, StoreLike, as_store
from millstream.dsl.repartition import SUFFIX
from millstream.dsl.table_state import AggregateState
from millstream.kafka_names import KafkaNames
from millstream.processors.aggregations.aggregate import aggregate_by
from millstream.processors.aggregations.count import COUNT
from millstream.processors.aggregations.reduce import reduce_by
from millstream.processors.operator import Operator
from millstream.processors.table_group import TableAggregation
from millstream.serdes import Serde, int64
from millstream.topology.operator_spec import PLAIN
from millstream.topology.topology import Topology

K = TypeVar("K")
V = TypeVar("V")
VA = TypeVar("VA")

AGGREGATE = "KTABLE-AGGREGATE-"
REDUCE = "KTABLE-REDUCE-"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KGroupedTable(Handle, KafkaNames, Generic[K, V]):
    """A regrouped table on its way through a repartition."""

    graph: Graph
    node: GraphNode
    key_serde: Any
    value_serde: Any
    name: str | None
    _shared_repartition: list[GraphNode] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_serdes(self.key_serde, self.value_serde)

    def count(
        self,
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[int] | None = None,
        name: str | None = None,
    ) -> KTable[K, int]:
        """How many rows each group has now.

        >>> from millstream import StreamsBuilder
        >>> users = StreamsBuilder().table("users")
        >>> users.group_by(lambda user, city: (city, user)).count(store="per-city").queryable_store_name
        'per-city'
        """
        make = partial(TableAggregation, aggregation=COUNT)
        return self._aggregate(make, as_store(store, key, value), AGGREGATE, name, value=int64)

    def reduce(
        self,
        adder: Callable[[V, V], V],
        subtractor: Callable[[V, V], V],
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Combine the values of each group: `adder(so_far, new)` and `subtractor(so_far, old)`.

        >>> from operator import add, sub
        >>> from millstream import StreamsBuilder
        >>> ages = StreamsBuilder().table("users").group_by(lambda user, row: (row["city"], row["age"]))
        >>> ages.reduce(add, sub, store="years-per-city").queryable_store_name
        'years-per-city'
        """
        check_functions("reduce", adder=adder, subtractor=subtractor)
        make = partial(TableAggregation, aggregation=reduce_by(adder, subtractor))
        return self._aggregate(make, as_store(store, key, value), REDUCE, name, value=self.value_serde)

    def aggregate(
        self,
        initializer: Initializer[VA],
        adder: Callable[[K, V, VA], VA],
        subtractor: Callable[[K, V, VA], VA],
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[VA] | None = None,
        name: str | None = None,
    ) -> KTable[K, VA]:
        """Fold the values of each group: `adder(group, new, so_far)`, `subtractor(group, old, so_far)`.

        >>> from millstream import StreamsBuilder
        >>> stock = StreamsBuilder().table("stock").group_by(lambda item, row: (row["shop"], row["count"]))
        >>> total = stock.aggregate(lambda: 0, lambda s, n, t: t + n, lambda s, n, t: t - n, store="per-shop")
        >>> total.queryable_store_name
        'per-shop'
        """
        check_functions("aggregate", initializer=initializer, adder=adder, subtractor=subtractor)
        make = partial(TableAggregation, aggregation=aggregate_by(initializer, adder, subtractor))
        return self._aggregate(make, as_store(store, key, value), AGGREGATE, name, value=None)

    def _aggregate(
        self, make: Callable[..., Operator], spec: Any, prefix: str, name: str | None, *, value: Any
    ) -> KTable[K, Any]:
        """Build the aggregation. `value` is the serde of the result where the user gives none."""
        own = Materialized.of(self.graph, as_store(spec, self.key_serde, value), AGGREGATE)
        sink = self.graph.suffixed_or_new(name, "-sink", "KSTREAM-SINK-")
        source = self.graph.suffixed_or_new(name, "-source", "KSTREAM-SOURCE-")
        table_name = self.graph.name_or_new(name, prefix)
        topic = (self.name if self.name is not None else own.name) + SUFFIX
        repartition = self._repartition(sink, source, topic)
        self.graph.add(repartition, self.node)
        state = AggregateState(own)

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            operator = partial(make, own.name, send_old=state.sends_old)
            topology.add_table_operator(table_name, operator, parents, PLAIN, caching=own.caching)
            topology.add_state_store(own.builder, table_name)

        node = self.graph.add(GraphNode(table_name, write), repartition)
        spec = own.store
        sources = frozenset({repartition.name})
        return KTable(self.graph, node, spec.key, spec.value, sources, own.queryable_name, state)

    def _repartition(self, sink: str, source: str, topic: str) -> GraphNode:
        if self._shared_repartition:
            return self._shared_repartition[0]

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            topology.add_internal_topic(topic, None)
            topology.add_sink_node(
                sink, topic, parents, self.key_serde, self.value_serde, None, carries_changes=True
            )
            topology.add_repartition_source(
                source, topic, self.key_serde, self.value_serde, carries_changes=True
            )

        node = GraphNode(source, write)
        if self.name is not None:
            self._shared_repartition.append(node)
        return node
