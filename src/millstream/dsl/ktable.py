"""`KTable`: the current value of each key, as a stream of updates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from millstream.dsl.foreign_key_joins import ForeignKeyResult, join_by_foreign_key
from millstream.dsl.given import (
    check_function,
    check_serdes,
    check_suppressed,
    check_transformer,
    check_values_function,
)
from millstream.dsl.graph import Graph, GraphNode, Handle, first_given
from millstream.dsl.joins import FOREIGN_KEY, INNER, LEFT, LEFT_FOREIGN_KEY, OUTER
from millstream.dsl.materialized import Materialized, StoreLike, as_store
from millstream.dsl.table_joins import TableJoined, join_tables
from millstream.dsl.table_state import DerivedState, FilterState, SourceState, SuppressedState, TableState
from millstream.dsl.window_grace import window_grace_ms
from millstream.errors import TopologyError
from millstream.kafka_names import KafkaNames
from millstream.processors.api import ValueTransformerWithKey
from millstream.processors.joins.table_view import ComputedView, TransformedView
from millstream.processors.suppress import Suppress
from millstream.processors.table_group import TableGroupBy
from millstream.processors.table_source import StoredTableSource, TableSource
from millstream.processors.table_values import (
    Compute,
    KeepIf,
    KeepIfNot,
    MapIfPresent,
    MapWithKeyIfPresent,
    StoredTableTransformValues,
    StoredTableValues,
    TableToStream,
    TableTransformValues,
    TableValues,
)
from millstream.serdes import Serde
from millstream.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde
from millstream.state.specs import time_ordered_buffer
from millstream.suppressed import Suppressed
from millstream.topology.operator_spec import PLAIN, PROCESSOR, OperatorSpec
from millstream.topology.topology import Topology

if TYPE_CHECKING:
    from millstream.dsl.grouped_table import KGroupedTable
    from millstream.dsl.kstream import KStream

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
KO = TypeVar("KO")
VO = TypeVar("VO")

SUPPRESS = "KTABLE-SUPPRESS-"

_NEW_KEY = OperatorSpec(changes_key=True)
_TRANSFORMER = replace(PROCESSOR, changes_key=False)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KTable(Handle, KafkaNames, Generic[K, V]):
    """A table. Each operator returns a new handle; a handle never changes.

    Name the store (`store="..."`) of what you want to query or keep across changes of the program.
    """

    graph: Graph
    node: GraphNode
    key_serde: Any
    value_serde: Any
    source_names: frozenset[str]
    queryable_store_name: str | None
    """The name of the store to query, None if the table has none that was named."""
    state: TableState

    def __post_init__(self) -> None:
        check_serdes(self.key_serde, self.value_serde)

    def filter(
        self,
        predicate: Callable[[K, V], object],
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Keep the rows for which the predicate holds; a row that no longer does is deleted.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().table("stock").filter(
        ...     lambda item, count: count < 5, store="low"
        ... ).queryable_store_name
        'low'
        """
        check_function("filter()", predicate, "key", "value")
        return self._filter(KeepIf(predicate), store, key, value, name)

    def filter_not(
        self,
        predicate: Callable[[K, V], object],
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Keep the rows for which the predicate does not hold.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().table("stock").filter_not(lambda item, count: count == 0).node.name
        'KTABLE-FILTER-0000000003'
        """
        check_function("filter_not()", predicate, "key", "value")
        return self._filter(KeepIfNot(predicate), store, key, value, name)

    def map_values(
        self,
        mapper: Callable[[V], V2],
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]:
        """A new value for each row.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().table("names").map_values(str.upper).node.name
        'KTABLE-MAPVALUES-0000000003'
        """
        check_values_function("map_values", mapper)
        return self._map(MapIfPresent(mapper), store, key, value, name)

    def map_values_with_key(
        self,
        mapper: Callable[[K, V], V2],
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]:
        """A new value for each row, from key and value.

        >>> from millstream import StreamsBuilder
        >>> table = StreamsBuilder().table("names")
        >>> table.map_values_with_key(lambda key, value: f"{key}={value}").node.name
        'KTABLE-MAPVALUES-0000000003'
        """
        check_values_function("map_values_with_key", mapper)
        return self._map(MapWithKeyIfPresent(mapper), store, key, value, name)

    def transform_values(
        self,
        supplier: Callable[[], ValueTransformerWithKey[K, V, V2]],
        *stores: str,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]:
        """A new value for each row by a transformer of your own, with access to the named stores.

        >>> from millstream import StreamsBuilder
        >>> class Length:
        ...     def init(self, context): ...
        ...     def transform(self, key, value):
        ...         return None if value is None else len(value)
        ...
        ...     def close(self): ...
        >>> StreamsBuilder().table("names").transform_values(Length).node.name
        'KTABLE-TRANSFORMVALUES-0000000003'
        """
        check_transformer(supplier)
        spec = as_store(store, first_given(key, self.key_serde), value)
        own = Materialized(spec.name, True, spec) if spec.name is not None else None
        table_name = self.graph.name_or_new(name, "KTABLE-TRANSFORMVALUES-")
        state = DerivedState(self.state, own, partial(TransformedView, supplier=supplier, own_stores=stores))

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            if own is None:
                make = partial(TableTransformValues, supplier, send_old=state.sends_old)
                topology.add_operator(table_name, make, parents, _TRANSFORMER)
            else:
                stored = partial(StoredTableTransformValues, own.name, supplier, send_old=state.sends_old)
                topology.add_table_operator(table_name, stored, parents, _TRANSFORMER, caching=own.caching)
                topology.add_state_store(own.builder, table_name)
            topology.connect(table_name, stores)

        return self._derived(GraphNode(table_name, write), spec.key, spec.value, own, state)

    @overload
    def to_stream(self, mapper: None = None, *, name: str | None = None) -> KStream[K, V]: ...
    @overload
    def to_stream(self, mapper: Callable[[K, V], K2], *, name: str | None = None) -> KStream[K2, V]: ...
    def to_stream(
        self, mapper: Callable[[K, V], K2] | None = None, *, name: str | None = None
    ) -> KStream[K, V] | KStream[K2, V]:
        """The table's updates as a stream (None for a deleted row), with a new key if a mapper is given.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().table("names").to_stream().node.name
        'KTABLE-TOSTREAM-0000000003'
        """
        stream_name = self.graph.name_or_new(name, "KTABLE-TOSTREAM-")

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            topology.add_operator(stream_name, TableToStream, parents, PLAIN)

        node = self.graph.add(GraphNode(stream_name, write), self.node)
        stream: KStream[K, V] = self.graph.handles.stream(
            self.graph,
            node,
            self.key_serde,
            self.value_serde,
            self.source_names,
            False,
        )
        return stream if mapper is None else stream.select_key(mapper)

    def group_by(
        self,
        mapper: Callable[[K, V], tuple[K2, V2]],
        *,
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KGroupedTable[K2, V2]:
        """Group rows anew: the mapper returns group and value. `name` names the repartition.

        >>> from millstream import StreamsBuilder
        >>> users = StreamsBuilder().table("users")
        >>> by_city = users.group_by(lambda user, row: (row["city"], row["age"]))
        >>> by_city.count(store="users-per-city").queryable_store_name
        'users-per-city'
        """
        check_function("group_by()", mapper, "key", "value")
        select = self.graph.name_or_new(name, "KTABLE-SELECT-")

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            topology.add_operator(select, partial(TableGroupBy, mapper), parents, _NEW_KEY)

        # Windows go through a new group only if it has one, which its serde says.
        leaves_windows = not isinstance(key, TimeWindowedSerde | SessionWindowedSerde)
        node = self.graph.add(GraphNode(select, write, leaves_windows=leaves_windows), self.node)
        self.state.demand_old_values()
        return self.graph.handles.grouped_table(self.graph, node, key, value, name)

    def join(
        self,
        other: KTable[K, VO],
        joiner: Callable[..., V2],
        *,
        with_key: bool = False,
        name: str | None = None,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[V2] | None = None,
    ) -> KTable[K, V2]:
        """The rows of both tables that have the same key: `joiner(left, right)`, or with the key in front.

        An update of either table updates the result. It has a store only if one is named.

        >>> from millstream import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> names, ages = builder.table("names"), builder.table("ages")
        >>> names.join(ages, lambda name, age: f"{name}, {age}", store="people").queryable_store_name
        'people'
        """
        return join_tables(self, other, joiner, INNER, TableJoined(with_key, key, value, name, store=store))

    def left_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[..., V2],
        *,
        with_key: bool = False,
        name: str | None = None,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[V2] | None = None,
    ) -> KTable[K, V2]:
        """Like `join`, and a row that has none in the other table is joined with None.

        >>> from millstream import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> names, ages = builder.table("names"), builder.table("ages")
        >>> names.left_join(ages, lambda name, age: (name, age)).node.name
        'KTABLE-MERGE-0000000006'
        """
        return join_tables(self, other, joiner, LEFT, TableJoined(with_key, key, value, name, store=store))

    def outer_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[..., V2],
        *,
        with_key: bool = False,
        name: str | None = None,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[V2] | None = None,
    ) -> KTable[K, V2]:
        """Like `left_join`, and rows of the other table that have none in this one are joined with None, too.

        >>> from millstream import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> names, ages = builder.table("names"), builder.table("ages")
        >>> names.outer_join(ages, lambda name, age: (name, age), name="known").node.name
        'known'
        """
        return join_tables(self, other, joiner, OUTER, TableJoined(with_key, key, value, name, store=store))

    def foreign_key_join(
        self,
        other: KTable[KO, VO],
        foreign_key: Callable[[K, V], KO | None],
        joiner: Callable[..., V2],
        *,
        with_key: bool = False,
        name: str | None = None,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[V2] | None = None,
    ) -> KTable[K, V2]:
        """Each row with the row of another table that it refers to: `joiner(left, right)`.

        `foreign_key(key, value)` returns the key of that row, or None. With `with_key` the joiner gets the
        key of the left row in front. An update of either table updates the result: that of a right row all
        rows that refer to it.

        >>> from millstream import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> orders, customers = builder.table("orders"), builder.table("customers")
        >>> orders.foreign_key_join(
        ...     customers,
        ...     lambda order_id, order: order["customer"],
        ...     lambda order, customer: {**order, "name": customer["name"]},
        ...     store="orders-with-names",
        ... ).queryable_store_name
        'orders-with-names'
        """
        joined = TableJoined(with_key, key, value, name, store=store)
        return self._foreign_key_result(
            join_by_foreign_key(self, other, foreign_key, joiner, FOREIGN_KEY, joined)
        )

    def left_foreign_key_join(
        self,
        other: KTable[KO, VO],
        foreign_key: Callable[[K, V], KO | None],
        joiner: Callable[..., V2],
        *,
        with_key: bool = False,
        name: str | None = None,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[V2] | None = None,
    ) -> KTable[K, V2]:
        """Like `foreign_key_join`, and a row that refers to none, or to none that is there, gets None.

        >>> from millstream import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> orders, customers = builder.table("orders"), builder.table("customers")
        >>> orders.left_foreign_key_join(
        ...     customers,
        ...     lambda order_id, order: order["customer"],
        ...     lambda order, customer: (order, customer),
        ...     name="with-customer",
        ... ).node.name
        'with-customer-result'
        """
        joined = TableJoined(with_key, key, value, name, store=store)
        return self._foreign_key_result(
            join_by_foreign_key(self, other, foreign_key, joiner, LEFT_FOREIGN_KEY, joined)
        )

    def _foreign_key_result(self, result: ForeignKeyResult) -> KTable[K, Any]:
        return stored_source_table(
            self.graph, result.name, result.materialized, result.node, result.source_names
        )

    def suppress(self, suppressed: Suppressed, *, name: str | None = None) -> KTable[K, V]:
        """Hold updates back until their window closes, or for some time; the last one of each row goes on.

        >>> from millstream import StreamsBuilder, Suppressed
        >>> clicks = StreamsBuilder().stream("clicks").group_by_key().count()
        >>> clicks.suppress(Suppressed.until_time_limit(10_000)).node.name
        'KTABLE-SUPPRESS-0000000003'
        """
        check_suppressed(suppressed)
        if self.state.is_versioned:
            raise TopologyError(
                f"suppress() of the versioned table at {self.node.name!r}: its updates may be older than "
                "others that were sent, so there is no last one to wait for. Remedy: suppress a table "
                "without Store(versioned=...)"
            )
        table_name = self.graph.new_name(SUPPRESS) if name is None else name
        grace = window_grace_ms(self.node) if suppressed.limit_ms is None else None
        store = self.graph.new_store_name(SUPPRESS) if name is None else f"{name}-store"
        state = SuppressedState(self.state, store)

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            duration = first_given(suppressed.limit_ms, grace)
            make = partial(Suppress, store, suppressed, duration_ms=duration, send_old=state.sends_old)
            operator = replace(PLAIN, may_schedule=suppressed.after_idle_ms is not None)
            topology.add_operator(table_name, make, parents, operator)
            buffer = time_ordered_buffer(store, key=self.key_serde, value=self.value_serde)
            # With a longer grace, results that were final would be sent once more.
            closes = None if grace is None else f"windows whose final results wait for {grace} ms"
            topology.add_state_store(replace(buffer, windows=closes), table_name)

        return self._derived(GraphNode(table_name, write), self.key_serde, self.value_serde, None, state)

    def _filter(
        self, compute: Compute, store: StoreLike, key: Any, value: Any, name: str | None
    ) -> KTable[K, V]:
        own, spec = self._own_store(store, key, value, "KTABLE-FILTER-", inherited_value=self.value_serde)
        state = FilterState(self.state, own, partial(ComputedView, compute=compute))
        # A versioned table tells of a row that was not there, too: it was not there at that time.
        skips = not self.state.is_versioned
        return self._computed(compute, own, spec, state, "KTABLE-FILTER-", name, skip_if_both_null=skips)

    def _map(
        self, compute: Compute, store: StoreLike, key: Any, value: Any, name: str | None
    ) -> KTable[K, Any]:
        own, spec = self._own_store(store, key, value, "KTABLE-MAPVALUES-", inherited_value=None)
        state = DerivedState(self.state, own, partial(ComputedView, compute=compute))
        return self._computed(compute, own, spec, state, "KTABLE-MAPVALUES-", name, skip_if_both_null=False)

    def _own_store(
        self, store: StoreLike, key: Any, value: Any, prefix: str, *, inherited_value: Any
    ) -> tuple[Materialized | None, Any]:
        """The store the user asked for by name. Asked for without one, it costs a number and is not made."""
        spec = as_store(store, first_given(key, self.key_serde), first_given(value, inherited_value))
        if spec.name is not None:
            return Materialized(spec.name, True, spec), spec
        if store is not None or key is not None or value is not None:
            self.graph.new_store_name(prefix)
        return None, spec

    def _computed(
        self,
        compute: Compute,
        own: Materialized | None,
        spec: Any,
        state: DerivedState,
        prefix: str,
        name: str | None,
        *,
        skip_if_both_null: bool,
    ) -> KTable[K, Any]:
        table_name = self.graph.name_or_new(name, prefix)

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            rule = {"send_old": state.sends_old, "skip_if_both_null": skip_if_both_null}
            if own is None:
                topology.add_operator(table_name, partial(TableValues, compute, **rule), parents, PLAIN)
                return
            make = partial(StoredTableValues, own.name, compute, **rule)
            topology.add_table_operator(table_name, make, parents, PLAIN, caching=own.caching)
            topology.add_state_store(own.builder, table_name)

        return self._derived(GraphNode(table_name, write), spec.key, spec.value, own, state)

    def _derived(
        self, node: GraphNode, key: Any, value: Any, own: Materialized | None, state: TableState
    ) -> KTable[Any, Any]:
        self.graph.add(node, self.node)
        queryable = own.name if own is not None else None
        return KTable(self.graph, node, key, value, self.source_names, queryable, state)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GlobalKTable(Handle, KafkaNames, Generic[K, V]):
    """A table of which every instance has a full copy. Made for joins and queries; it has no operators."""

    queryable_store_name: str
    graph: Graph
    key_serde: Any
    value_serde: Any


def stored_source_table(
    graph: Graph,
    name: str,
    materialized: Materialized,
    parent: GraphNode,
    source_names: frozenset[str],
) -> KTable[Any, Any]:
    """A stream's records as a table."""
    state = SourceState(materialized)

    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        write_table_source(topology, name, state, parents)

    node = graph.add(GraphNode(name, write), parent)
    spec = materialized.store
    return KTable(graph, node, spec.key, spec.value, source_names, materialized.queryable_name, state)


def write_table_source(
    topology: Topology,
    name: str,
    state: SourceState,
    parents: tuple[str, ...],
    *,
    source_topic: str | None = None,
) -> None:
    """Add the node that turns records into table updates, with its store if it has one."""
    if not state.stored:
        topology.add_operator(name, TableSource, parents, PLAIN)
        return
    own = state.materialized
    make = partial(StoredTableSource, own.name, send_old=state.sends_old)
    topology.add_table_operator(name, make, parents, PLAIN, caching=own.caching)
    store = own.builder if source_topic is None else replace(own.builder, source_topic=source_topic)
    topology.add_state_store(store, name)
