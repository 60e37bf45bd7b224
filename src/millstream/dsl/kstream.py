"""`KStream`: a stream of independent facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TextIO, TypeVar, overload

from millstream.dsl.branched import BranchedKStream
from millstream.dsl.functions import is_expression
from millstream.dsl.given import (
    check_function,
    check_partitioner,
    check_serdes,
    check_topics,
    check_values_function,
)
from millstream.dsl.graph import Graph, GraphNode, Handle, first_given
from millstream.dsl.grouped import KGroupedStream
from millstream.dsl.join_dispatch import join_stream
from millstream.dsl.joins import INNER, LEFT, OUTER
from millstream.dsl.ktable import GlobalKTable, KTable, stored_source_table
from millstream.dsl.materialized import Materialized, StoreLike, as_store
from millstream.dsl.repartition import repartition_node
from millstream.dsl.typed_joins import typed_join, typed_outer_join
from millstream.errors import TopologyError
from millstream.kafka_names import KafkaNames
from millstream.processors import stateless
from millstream.processors.api import FixedKeyProcessor, Processor
from millstream.processors.operator import Operator
from millstream.processors.printing import PrintLine
from millstream.serdes import Serde
from millstream.topology.operator_spec import CHAIN_TAIL, CHAINED, COLUMNAR, PLAIN, PROCESSOR, OperatorSpec
from millstream.topology.topology import Topology, operator_of
from millstream.windows import JoinWindows

if TYPE_CHECKING:
    import polars as pl

    from millstream.dsl.columns import ColumnOperator

_NEW_KEY = replace(CHAINED, changes_key=True)
_NEW_KEY_IN_COLUMNS = replace(COLUMNAR, changes_key=True)
_NEW_KEY_AND_ROWS = replace(CHAIN_TAIL, changes_key=True)

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
VO = TypeVar("VO")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KStream(Handle, KafkaNames, Generic[K, V]):
    """A stream of records. Each operator returns a new handle; a handle never changes.

    Operators that may change the key mark the stream, and the next operator that needs records of one
    key together (an aggregation, `to_table`) repartitions it first. Nothing is repartitioned twice.
    """

    graph: Graph
    node: GraphNode
    key_serde: Any
    value_serde: Any
    source_names: frozenset[str]
    """The sources of its sub-topology, for co-partitioning."""
    needs_repartition: bool
    in_columns: bool = False
    """Its records come out of an operator of the column tier."""

    def __post_init__(self) -> None:
        check_serdes(self.key_serde, self.value_serde)

    def filter(
        self, predicate: Callable[[K, V], object] | pl.Expr, *, name: str | None = None
    ) -> KStream[K, V]:
        """Keep the records for which the predicate, a function or an expression, holds.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("orders").filter(lambda key, value: value > 10).node.name
        'KSTREAM-FILTER-0000000001'
        """
        return self._filter("filter", stateless.Filter, predicate, name)

    def filter_not(
        self, predicate: Callable[[K, V], object] | pl.Expr, *, name: str | None = None
    ) -> KStream[K, V]:
        """Keep the records for which the predicate does not hold.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("orders").filter_not(lambda key, value: value is None).node.name
        'KSTREAM-FILTER-0000000001'
        """
        return self._filter("filter_not", stateless.FilterNot, predicate, name)

    @overload
    def map(self, mapper: Callable[[K, V], tuple[K2, V2]], *, name: str | None = None) -> KStream[K2, V2]: ...
    @overload
    def map(self, mapper: tuple[pl.Expr, pl.Expr], *, name: str | None = None) -> KStream[Any, Any]: ...
    def map(self, mapper: Any, *, name: str | None = None) -> KStream[Any, Any]:
        """A new key and value for each record: the mapper returns a pair, or is a pair of expressions.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("orders").map(lambda key, value: (value, key)).needs_repartition
        True
        """
        if isinstance(mapper, tuple):
            columns = self._in_columns("map", *mapper)
            return self._then(_NEW_KEY_IN_COLUMNS, columns.make, "KSTREAM-MAP-", name, *columns.serdes)
        check_function("map()", mapper, "key", "value")
        return self._then(_NEW_KEY, partial(stateless.Map, mapper), "KSTREAM-MAP-", name, None, None)

    @overload
    def map_values(self, mapper: Callable[[V], V2], *, name: str | None = None) -> KStream[K, V2]: ...
    @overload
    def map_values(self, mapper: pl.Expr, *, name: str | None = None) -> KStream[K, Any]: ...
    def map_values(self, mapper: Any, *, name: str | None = None) -> KStream[K, Any]:
        """A new value for each record. An expression may look at the key and the timestamp, too.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("lines").map_values(len).node.name
        'KSTREAM-MAPVALUES-0000000001'
        """
        if is_expression(mapper):
            columns = self._in_columns("map_values", mapper)
            return self._new_values(COLUMNAR, columns.make, "KSTREAM-MAPVALUES-", name, *columns.serdes)
        check_values_function("map_values", mapper)
        return self._new_values(CHAINED, partial(stateless.MapValues, mapper), "KSTREAM-MAPVALUES-", name)

    def map_values_with_key(self, mapper: Callable[[K, V], V2], *, name: str | None = None) -> KStream[K, V2]:
        """A new value for each record, from key and value. The key must not be changed.

        >>> from millstream import StreamsBuilder
        >>> stream = StreamsBuilder().stream("lines")
        >>> stream.map_values_with_key(lambda key, value: f"{key}: {value}").needs_repartition
        False
        """
        check_values_function("map_values_with_key", mapper)
        make = partial(stateless.MapValuesWithKey, mapper)
        return self._new_values(CHAINED, make, "KSTREAM-MAPVALUES-", name)

    def flat_map(
        self, mapper: Callable[[K, V], Iterable[tuple[K2, V2]]], *, name: str | None = None
    ) -> KStream[K2, V2]:
        """Any number of new records for each: the mapper returns pairs.

        >>> from millstream import StreamsBuilder
        >>> stream = StreamsBuilder().stream("lines")
        >>> stream.flat_map(lambda key, line: [(word, 1) for word in line.split()]).node.name
        'KSTREAM-FLATMAP-0000000001'
        """
        check_function("flat_map()", mapper, "key", "value")
        make = partial(stateless.FlatMap, mapper)
        return self._then(_NEW_KEY_AND_ROWS, make, "KSTREAM-FLATMAP-", name, None, None)

    @overload
    def flat_map_values(
        self, mapper: Callable[[V], Iterable[V2]], *, name: str | None = None
    ) -> KStream[K, V2]: ...
    @overload
    def flat_map_values(self, mapper: pl.Expr, *, name: str | None = None) -> KStream[K, Any]: ...
    def flat_map_values(self, mapper: Any, *, name: str | None = None) -> KStream[K, Any]:
        """Any number of new values for each record: an iterable of them, or an expression that gives a list.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("lines").flat_map_values(str.split).node.name
        'KSTREAM-FLATMAPVALUES-0000000001'
        """
        if is_expression(mapper):
            columns = self._in_columns("flat_map_values", mapper)
            return self._new_values(COLUMNAR, columns.make, "KSTREAM-FLATMAPVALUES-", name, *columns.serdes)
        check_values_function("flat_map_values", mapper)
        make = partial(stateless.FlatMapValues, mapper)
        return self._new_values(CHAIN_TAIL, make, "KSTREAM-FLATMAPVALUES-", name)

    def flat_map_values_with_key(
        self, mapper: Callable[[K, V], Iterable[V2]], *, name: str | None = None
    ) -> KStream[K, V2]:
        """Any number of new values for each record, from key and value.

        >>> from millstream import StreamsBuilder
        >>> stream = StreamsBuilder().stream("lines")
        >>> stream.flat_map_values_with_key(lambda key, line: [key, line]).node.name
        'KSTREAM-FLATMAPVALUES-0000000001'
        """
        check_values_function("flat_map_values_with_key", mapper)
        make = partial(stateless.FlatMapValuesWithKey, mapper)
        return self._new_values(CHAIN_TAIL, make, "KSTREAM-FLATMAPVALUES-", name)

    @overload
    def select_key(self, mapper: Callable[[K, V], K2], *, name: str | None = None) -> KStream[K2, V]: ...
    @overload
    def select_key(self, mapper: pl.Expr, *, name: str | None = None) -> KStream[Any, V]: ...
    def select_key(self, mapper: Any, *, name: str | None = None) -> KStream[Any, V]:
        """A new key for each record.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("orders").select_key(lambda key, order: order["shop"]).needs_repartition
        True
        """
        return self._select_key("select_key", mapper, name)

    def peek(self, action: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Show each record to an action and hand it on.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("orders").peek(print).node.name
        'KSTREAM-PEEK-0000000001'
        """
        check_function("peek()", action, "key", "value")
        return self._same_types(CHAINED, partial(stateless.Peek, action), "KSTREAM-PEEK-", name)

    def foreach(self, action: Callable[[K, V], object], *, name: str | None = None) -> None:
        """Show each record to an action. An epoch that is replayed shows them again.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("orders").foreach(print)
        """
        check_function("foreach()", action, "key", "value")
        self._same_types(CHAIN_TAIL, partial(stateless.Foreach, action), "KSTREAM-FOREACH-", name)

    def print(
        self,
        *,
        label: str | None = None,
        file: TextIO | None = None,
        mapper: Callable[[K, V], object] | None = None,
        name: str | None = None,
    ) -> None:
        """Print each record as `[label]: key, value`.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("orders").print(label="order")
        """
        if mapper is not None:
            check_function("print()", mapper, "key", "value")
        action = PrintLine(label if label is not None else self.node.name, file, mapper)
        self._same_types(CHAIN_TAIL, partial(stateless.Foreach, action), "KSTREAM-PRINTER-", name)

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """Both streams as one.

        >>> from millstream import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> builder.stream("web").merge(builder.stream("shop")).node.name
        'KSTREAM-MERGE-0000000002'
        """
        if not isinstance(other, KStream):
            raise TopologyError(f"merge() with {other!r}. Remedy: merge a stream with a stream")
        if other.graph is not self.graph:
            message = "merge() of streams from two StreamsBuilders: build both with the same one"
            raise TopologyError(message)
        merged = self.graph.name_or_new(name, "KSTREAM-MERGE-")
        self.graph.keep_row_serdes(self, other)
        node = self.graph.add(
            GraphNode(merged, _operator(merged, stateless.PassThrough, CHAINED), merges=True),
            self.node,
            other.node,
        )
        return KStream(
            self.graph,
            node,
            None,
            None,
            self.source_names | other.source_names,
            self.needs_repartition or other.needs_repartition,
        )

    @typed_join
    def join(
        self,
        other: KStream[K, Any] | KTable[K, Any] | GlobalKTable[Any, Any],
        joiner: Callable[..., Any] | pl.Expr,
        windows: JoinWindows | None = None,
        **given: Any,
    ) -> KStream[K, Any]:
        """Join with records of the same key of another stream, or with the rows of a table.

        `joiner(left, right)` makes the value of each pair, or `joiner(key, left, right)` with `with_key`.
        With tables it may be an expression, in which `other` is the table's value.

        With a stream: the other's record may be up to `windows.before_ms` earlier and `windows.after_ms`
        later. `store` is the base of the stores' names, `name` that of the operators.

        With a table: each record is joined with the row of its key as it is when the record comes, or, if the
        table is versioned, as it was at the record's time; with `grace`, when stream time is so much later.
        With a global table: with the row that `key_of(key, value)` names. Updates of tables cause nothing.

        >>> from millstream import JoinWindows, StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> orders, payments = builder.stream("orders"), builder.stream("payments")
        >>> orders.join(payments, lambda order, payment: (order, payment), JoinWindows(60_000)).node.name
        'KSTREAM-MERGE-0000000006'
        >>> customers = builder.table("customers")
        >>> orders.join(customers, lambda order, customer: (order, customer), name="with-customer").node.name
        'with-customer'
        """
        return join_stream(self, other, joiner, windows, INNER, given)

    @typed_join
    def left_join(
        self,
        other: KStream[K, Any] | KTable[K, Any] | GlobalKTable[Any, Any],
        joiner: Callable[..., Any] | pl.Expr,
        windows: JoinWindows | None = None,
        **given: Any,
    ) -> KStream[K, Any]:
        """Like `join`, and a record that has found no partner goes on with None when its window has closed.

        So does a record without a key, at once. With a table a record without a row goes on with None.

        >>> from millstream import JoinWindows, StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> orders, payments = builder.stream("orders"), builder.stream("payments")
        >>> paid = orders.left_join(
        ...     payments,
        ...     lambda order, payment: payment is not None,
        ...     JoinWindows(before=0, after=60_000, grace=5_000),
        ...     name="paid",
        ... )
        >>> paid.node.name
        'paid-merge'
        """
        return join_stream(self, other, joiner, windows, LEFT, given)

    @typed_outer_join
    def outer_join(
        self,
        other: KStream[K, Any],
        joiner: Callable[..., Any],
        windows: JoinWindows | None = None,
        **given: Any,
    ) -> KStream[K, Any]:
        """Like `left_join`, and records of the other stream go on without a partner, too.

        Tables have none: their updates cause nothing.

        >>> from millstream import JoinWindows, StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> web, shop = builder.stream("web"), builder.stream("shop")
        >>> visits = web.outer_join(shop, lambda one, other: (one, other), JoinWindows(60_000))
        >>> visits.needs_repartition
        False
        """
        return join_stream(self, other, joiner, windows, OUTER, given)

    def split(self, *, name: str | None = None) -> BranchedKStream[K, V]:
        """Send each record to the first branch whose predicate holds.

        >>> from millstream import StreamsBuilder
        >>> branches = (
        ...     StreamsBuilder()
        ...     .stream("orders")
        ...     .split(name="size-")
        ...     .branch(lambda key, value: value > 100, name="large")
        ...     .default_branch(name="small")
        ... )
        >>> sorted(branches)
        ['size-large', 'size-small']
        """
        return BranchedKStream.of(self, name)

    def repartition(
        self,
        *,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        partitions: int | None = None,
        partitioner: Callable[[str, K, V, int], int | None] | None = None,
    ) -> KStream[K, V]:
        """Move records to the partitions of their keys now. Records without a key are left out.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("orders").repartition(name="by-shop", partitions=8).node.name
        'by-shop-repartition-source'
        """
        if partitions is not None and not isinstance(partitions, int):
            raise TopologyError(f"repartition(partitions={partitions!r}). Remedy: give a whole number")
        if partitions is not None and partitions < 1:
            message = f"repartition(partitions={partitions}): a topic has at least one partition"
            raise TopologyError(message)
        check_partitioner(partitioner)
        prefix = name if name is not None else self.graph.new_name("KSTREAM-REPARTITION-")
        value_serde = first_given(value, self.value_serde)
        node = repartition_node(
            self.graph,
            prefix,
            first_given(key, self.key_serde),
            value_serde,
            partitions=partitions,
            partitioner=partitioner,
            by_hand=True,
        )
        self.graph.add(node, self.node)
        return KStream(
            self.graph,
            node,
            first_given(key, self.key_serde),
            value_serde,
            frozenset({node.name}),
            False,
        )

    def to(
        self,
        topic: str | Callable[[K, V, Any], str],
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        partitioner: Callable[[str, K, V, int], int | None] | None = None,
        name: str | None = None,
    ) -> None:
        """Write the stream to a topic, or to the one that `extractor(key, value, record_context)` names.

        >>> from millstream import StreamsBuilder, serdes
        >>> StreamsBuilder().stream("lines").map_values(len).to("lengths", value=serdes.int64)
        """
        check_serdes(key, value)
        check_partitioner(partitioner)
        if isinstance(topic, str):
            check_topics(topic)
        else:
            check_function("to()", topic, "key", "value", "context")
        sink = self.graph.name_or_new(name, "KSTREAM-SINK-")
        key_serde = first_given(key, self.key_serde)
        value_serde = first_given(value, self.value_serde)

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            topology.add_sink_node(sink, topic, parents, key_serde, value_serde, partitioner)

        self.graph.add(GraphNode(sink, write), self.node)

    def to_table(
        self,
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """The stream as a table: the last value of each key; None deletes.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("prices").to_table(store="prices").queryable_store_name
        'prices'
        """
        table_name = self.graph.name_or_new(name, "KSTREAM-TOTABLE-")
        spec = as_store(store, first_given(key, self.key_serde), first_given(value, self.value_serde))
        materialized = Materialized.of(self.graph, spec, "KSTREAM-TOTABLE-")
        parent, sources = self.node, self.source_names
        if self.needs_repartition:
            parent = repartition_node(self.graph, table_name, spec.key, spec.value)
            self.graph.add(parent, self.node)
            sources = frozenset({parent.name})
        return stored_source_table(self.graph, table_name, materialized, parent, sources)

    def group_by_key(
        self,
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[K, V]:
        """Group by the key as it is. `name` names the repartition, if one is needed.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("orders").group_by_key().count().node.name
        'KSTREAM-AGGREGATE-0000000002'
        """
        return KGroupedStream(
            self.graph,
            self.node,
            first_given(key, self.key_serde),
            first_given(value, self.value_serde),
            self.source_names,
            self.needs_repartition,
            name,
            in_columns=self.in_columns,
        )

    @overload
    def group_by(
        self,
        mapper: Callable[[K, V], K2],
        *,
        key: Serde[K2] | None = None,
        value: Serde[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[K2, V]: ...
    @overload
    def group_by(
        self,
        mapper: pl.Expr,
        *,
        key: None = None,
        value: Serde[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[Any, V]: ...
    @overload
    def group_by(
        self,
        mapper: pl.Expr,
        *,
        key: Serde[K2],
        value: Serde[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[K2, V]: ...
    def group_by(
        self,
        mapper: Any,
        *,
        key: Serde[Any] | None = None,
        value: Serde[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[Any, V]:
        """Group by a new key, which repartitions the stream. `name` names the repartition.

        >>> from millstream import StreamsBuilder
        >>> grouped = StreamsBuilder().stream("words").group_by(lambda key, word: word)
        >>> grouped.count(store="counts").queryable_store_name
        'counts'
        """
        return self._select_key("group_by", mapper, name).group_by_key(key=key, value=value, name=name)

    def process(
        self,
        supplier: Callable[[], Processor[K, V, K2, V2]],
        *stores: str,
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """Run a processor of your own, with access to the named stores.

        >>> from millstream import Processor, StreamsBuilder
        >>> class Echo(Processor[str, str, str, str]):
        ...     def process(self, record):
        ...         self.context.forward(record)
        >>> StreamsBuilder().stream("orders").process(Echo).needs_repartition
        True
        """
        return self._process(PROCESSOR, supplier, stores, "KSTREAM-PROCESSOR-", name, None)

    def process_values(
        self,
        supplier: Callable[[], FixedKeyProcessor[K, V, V2]],
        *stores: str,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Run a processor of your own that can't change the key, with access to the named stores.

        >>> from millstream import FixedKeyProcessor, StreamsBuilder
        >>> class Length(FixedKeyProcessor[str, str, int]):
        ...     def process(self, record):
        ...         self.context.forward(record.with_value(len(record.value)))
        >>> StreamsBuilder().stream("orders").process_values(Length).needs_repartition
        False
        """
        spec = replace(PROCESSOR, changes_key=False)
        return self._process(spec, supplier, stores, "KSTREAM-PROCESSVALUES-", name, self.key_serde)

    def at_node(self, node: GraphNode) -> KStream[K, V]:
        """The same stream behind a node that changes neither keys nor values."""
        return self._at(node, PLAIN, self.key_serde, self.value_serde)

    def _process(
        self,
        spec: OperatorSpec,
        supplier: Callable[[], Any],
        stores: tuple[str, ...],
        prefix: str,
        name: str | None,
        key: Any,
    ) -> KStream[Any, Any]:
        # Unlike other operators, a named processor uses up no number.
        processor = name if name is not None else self.graph.new_name(prefix)
        make = operator_of(supplier)

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            topology.add_operator(processor, make, parents, spec)
            topology.connect(processor, stores)

        # Whether it changes keys, values or both: nothing can be moved from behind it to the front.
        node = self.graph.add(GraphNode(processor, write, changes="value"), self.node)
        return self._at(node, spec, key, None)

    def _in_columns(self, operator: str, *expressions: pl.Expr) -> ColumnOperator:
        from millstream.dsl.columns import column_step  # noqa: PLC0415 - imports Polars, which is there

        return column_step(operator, expressions, self.key_serde, self.value_serde)

    def _filter(
        self, operator: str, filtering: Callable[[Any], Operator], predicate: Any, name: str | None
    ) -> KStream[K, V]:
        if is_expression(predicate):
            columns = self._in_columns(operator, predicate)
            return self._same_types(COLUMNAR, columns.make, "KSTREAM-FILTER-", name)
        check_function(f"{operator}()", predicate, "key", "value")
        return self._same_types(CHAINED, partial(filtering, predicate), "KSTREAM-FILTER-", name)

    def _select_key(self, operator: str, mapper: Any, name: str | None) -> KStream[Any, V]:
        prefix = "KSTREAM-KEY-SELECT-"
        if is_expression(mapper):
            columns = self._in_columns(operator, mapper)
            serde = columns.serdes[0]
            return self._then(_NEW_KEY_IN_COLUMNS, columns.make, prefix, name, serde, self.value_serde)
        check_function(f"{operator}()", mapper, "key", "value")
        make = partial(stateless.SelectKey, mapper)
        return self._then(_NEW_KEY, make, prefix, name, None, self.value_serde)

    def _new_values(
        self,
        spec: OperatorSpec,
        make: Callable[[], Operator],
        prefix: str,
        name: str | None,
        value: Any = None,
    ) -> KStream[K, Any]:
        return self._then(spec, make, prefix, name, self.key_serde, value, changes="value")

    def _same_types(
        self, spec: OperatorSpec, make: Callable[[], Operator], prefix: str, name: str | None
    ) -> KStream[K, V]:
        return self._then(spec, make, prefix, name, self.key_serde, self.value_serde)

    def _then(
        self,
        spec: OperatorSpec,
        make: Callable[[], Operator],
        prefix: str,
        name: str | None,
        key: Any,
        value: Any,
        *,
        changes: Literal["value"] | None = None,
    ) -> KStream[Any, Any]:
        """The stream behind one more operator, with the serdes of what comes out of it."""
        node_name = self.graph.name_or_new(name, prefix)
        node = GraphNode(
            node_name, _operator(node_name, make, spec), changes="key" if spec.changes_key else changes
        )
        return self._at(self.graph.add(node, self.node), spec, key, value)

    def _at(self, node: GraphNode, spec: OperatorSpec, key: Any, value: Any) -> KStream[Any, Any]:
        needs_repartition = self.needs_repartition or spec.changes_key
        return KStream(self.graph, node, key, value, self.source_names, needs_repartition, spec.columnar)


def _operator(
    name: str, make: Callable[[], Operator], spec: OperatorSpec
) -> Callable[[Topology, tuple[str, ...]], None]:
    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_operator(name, make, parents, spec)

    return write
