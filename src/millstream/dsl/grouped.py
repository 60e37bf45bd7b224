"""`KGroupedStream`: a stream grouped by key, ready to be aggregated into a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast, overload

from millstream.dsl.cogrouped import CogroupedKStream
from millstream.dsl.functions import Initializer, is_expression
from millstream.dsl.graph import Graph, GraphNode, first_given
from millstream.dsl.ktable import KTable
from millstream.dsl.materialized import Materialized, StoreLike, as_store
from millstream.dsl.repartition import repartition_node
from millstream.dsl.table_state import TableState
from millstream.processors.aggregations.aggregate import aggregate_by
from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.aggregations.count import COUNT
from millstream.processors.aggregations.keyed import KeyedAggregation
from millstream.processors.aggregations.mean import mean_of
from millstream.processors.aggregations.min_max import min_max
from millstream.processors.aggregations.reduce import reduce_by
from millstream.processors.aggregations.sum import sum_of
from millstream.processors.operator import Operator
from millstream.serdes import Serde, double, int64
from millstream.serdes.mean_serde import MeanSerde
from millstream.topology.operator_spec import COLUMNAR, OperatorSpec
from millstream.topology.topology import Topology

if TYPE_CHECKING:
    import polars as pl

K = TypeVar("K")
V = TypeVar("V")
VA = TypeVar("VA")

AGGREGATE = "KSTREAM-AGGREGATE-"
REDUCE = "KSTREAM-REDUCE-"


class _ByValue(Protocol[K, V]):
    """How `sum`, `min` and `max` are called: of the values, of what a function makes of them, of a column."""

    @overload
    def __call__(
        self,
        of: None = None,
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        name: str | None = None,
    ) -> KTable[K, V]: ...
    @overload
    def __call__(
        self,
        of: Callable[[V], VA],
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[VA] | None = None,
        name: str | None = None,
    ) -> KTable[K, VA]: ...
    @overload
    def __call__(
        self,
        of: pl.Expr,
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: None = None,
        name: str | None = None,
    ) -> KTable[K, Any]: ...
    @overload
    def __call__(
        self,
        of: pl.Expr,
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[VA],
        name: str | None = None,
    ) -> KTable[K, VA]: ...


class _ByValueOf(Protocol):
    def __get__(self, grouped: KGroupedStream[K, V], owner: object = None, /) -> _ByValue[K, V]: ...


def _typed_by_value(method: Callable[..., KTable[Any, Any]]) -> _ByValueOf:
    """The method as it is: only checkers of types see more of it."""
    return cast("_ByValueOf", method)


@dataclass(frozen=True, slots=True, eq=False)
class KGroupedStream(Generic[K, V]):
    """A grouped stream. If its keys were changed, the aggregation repartitions it first."""

    graph: Graph
    node: GraphNode
    key_serde: Any
    value_serde: Any
    source_names: frozenset[str]
    needs_repartition: bool
    name: str | None
    _shared_repartition: list[GraphNode] = field(default_factory=list)
    """With a named group, the repartition that all its aggregations share."""
    in_columns: bool = False
    """Its records come out of an operator of the column tier."""

    def count(
        self,
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[int] | None = None,
        name: str | None = None,
    ) -> KTable[K, int]:
        """How many records each key has had. Records without a value do not count.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("clicks").group_by_key().count(
        ...     store="clicks-per-user"
        ... ).queryable_store_name
        'clicks-per-user'
        """
        spec = as_store(store, key, value)
        if spec.name is None and (store is not None or key is not None or value is not None):
            self.graph.new_store_name(AGGREGATE)  # Kafka uses up a number here
        operator, make, _ = self._in_its_tier("count", lambda _: COUNT, None)
        return self._aggregate(operator, make, spec, AGGREGATE, name, value=int64)

    def reduce(
        self,
        reducer: Callable[[V, V], V] | pl.Expr,
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        name: str | None = None,
        commutative: bool = False,
    ) -> KTable[K, V]:
        """Combine the values of each key: `reducer(so_far, new)`. The first value is the first result.

        `commutative=True` promises that the order and grouping of the values do not matter, so that values
        may be combined before they are moved to the partition of their key. An expression makes one value of
        several and must be associative, as `value.max()` is.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("bids").group_by_key().reduce(max, store="highest").queryable_store_name
        'highest'
        """
        make: Callable[..., Operator]
        if is_expression(reducer):
            from millstream.dsl.columns import column_reduce  # noqa: PLC0415 - imports Polars, which is there

            operator, make = COLUMNAR, column_reduce(reducer, self.key_serde, self.value_serde).make
        else:
            operator, make = _in_rows(reduce_by(reducer, commutative=commutative))
        spec = as_store(store, key, value)
        return self._aggregate(operator, make, spec, REDUCE, name, value=self.value_serde)

    def aggregate(
        self,
        initializer: Initializer[VA],
        aggregator: Callable[[K, V, VA], VA],
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[VA] | None = None,
        name: str | None = None,
    ) -> KTable[K, VA]:
        """Fold the values of each key: `aggregator(key, value, so_far)`, starting with `initializer()`.

        >>> from millstream import StreamsBuilder
        >>> grouped = StreamsBuilder().stream("orders").group_by_key()
        >>> totals = grouped.aggregate(lambda: 0, lambda key, amount, total: total + amount, store="totals")
        >>> totals.queryable_store_name
        'totals'
        """
        operator, make = _in_rows(aggregate_by(initializer, aggregator))
        return self._aggregate(operator, make, as_store(store, key, value), AGGREGATE, name, value=None)

    @_typed_by_value
    def sum(
        self,
        of: Callable[[V], Any] | pl.Expr | None = None,
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[Any] | None = None,
        name: str | None = None,
    ) -> KTable[K, Any]:
        """The sum of the values of each key, or of `of(value)`, or of an expression.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("orders").group_by_key().sum(lambda order: order["amount"]).node.name
        'KSTREAM-AGGREGATE-0000000002'
        """
        operator, make, serde = self._in_its_tier("sum", sum_of, of)
        return self._aggregate(operator, make, as_store(store, key, value), AGGREGATE, name, value=serde)

    @_typed_by_value
    def min(
        self,
        of: Callable[[V], Any] | pl.Expr | None = None,
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[Any] | None = None,
        name: str | None = None,
    ) -> KTable[K, Any]:
        """The smallest value of each key, or of `of(value)`, or of an expression.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("temperatures").group_by_key().min(store="coldest").queryable_store_name
        'coldest'
        """
        operator, make, serde = self._in_its_tier("min", partial(min_max, "min"), of)
        return self._aggregate(operator, make, as_store(store, key, value), AGGREGATE, name, value=serde)

    @_typed_by_value
    def max(
        self,
        of: Callable[[V], Any] | pl.Expr | None = None,
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[Any] | None = None,
        name: str | None = None,
    ) -> KTable[K, Any]:
        """The largest value of each key, or of `of(value)`, or of an expression.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("temperatures").group_by_key().max(store="hottest").queryable_store_name
        'hottest'
        """
        operator, make, serde = self._in_its_tier("max", partial(min_max, "max"), of)
        return self._aggregate(operator, make, as_store(store, key, value), AGGREGATE, name, value=serde)

    def mean(
        self,
        of: Callable[[V], float] | pl.Expr | None = None,
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        name: str | None = None,
    ) -> KTable[K, float]:
        """The mean of the values of each key, or of `of(value)`, or of an expression.

        The table's values are floats; the store keeps total and count beside them.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("temperatures").group_by_key().mean(store="usual").queryable_store_name
        'usual'
        """
        operator, make, _ = self._in_its_tier("mean", mean_of, of)
        spec = replace(as_store(store, key), value=MeanSerde())
        table: KTable[K, float] = self._aggregate(operator, make, spec, AGGREGATE, name, value=None)
        return replace(table, value_serde=double)

    def cogroup(self, aggregator: Callable[[K, V, VA], VA]) -> CogroupedKStream[K, VA]:
        """Aggregate this stream together with others into one table.

        >>> from millstream import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> clicks = builder.stream("clicks").group_by_key()
        >>> buys = builder.stream("buys").group_by_key()
        >>> def more(key, value, score):
        ...     return score + value
        >>> clicks.cogroup(more).cogroup(buys, more).aggregate(lambda: 0, store="score").queryable_store_name
        'score'
        """
        return CogroupedKStream(self.graph, ((self, aggregator),))

    def _in_its_tier(
        self, name: str, aggregation: Callable[[Any], Aggregation], of: Any
    ) -> tuple[OperatorSpec, Callable[..., Operator], Any]:
        """A built-in aggregation in its tier, and the serde of its result where that is known."""
        if is_expression(of) or (of is None and self.in_columns):
            from millstream.dsl.columns import column_aggregate  # noqa: PLC0415 - imports Polars

            found = aggregation(None)
            columns = column_aggregate(name, found, of, self.key_serde, self.value_serde)
            # What an expression looks at is only known behind the repartition.
            known_in_front = found.columns is None or not found.columns.looks_at_values
            return (
                replace(COLUMNAR, combine=found if known_in_front else None),
                columns.make,
                columns.serdes[0],
            )
        return *_in_rows(aggregation(of)), None

    def _aggregate(
        self,
        operator: OperatorSpec,
        make: Callable[..., Operator],
        spec: Any,
        prefix: str,
        name: str | None,
        *,
        value: Any,
    ) -> KTable[K, Any]:
        """Build the aggregation. `value` is the serde of the result where the user gives none."""
        spec = as_store(spec, self.key_serde, value)
        own = Materialized.of(self.graph, spec, prefix)
        table_name = self.graph.name_or_new(name, prefix)
        state = TableState()
        if not own.caching:  # every record is an update of its own
            operator = replace(operator, combine=None)

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            aggregation = partial(make, own.name, caching=own.caching, send_old=state.sends_old)
            topology.add_operator(table_name, aggregation, parents, operator)
            topology.add_state_store(own.builder, table_name)

        parent, sources = self.repartitioned(own.name)
        node = self.graph.add(GraphNode(table_name, write), parent)
        return KTable(self.graph, node, spec.key, spec.value, sources, own.queryable_name, state)

    def repartitioned(self, store_name: str) -> tuple[GraphNode, frozenset[str]]:
        """The node to aggregate behind, and its sources: the stream itself, or a repartition of it."""
        if not self.needs_repartition:
            return self.node, self.source_names
        fresh = repartition_node(
            self.graph, first_given(self.name, store_name), self.key_serde, self.value_serde
        )
        node = self._shared_repartition[0] if self._shared_repartition else fresh
        if self.name is not None and not self._shared_repartition:
            self._shared_repartition.append(fresh)
        self.graph.add(node, self.node)
        return node, frozenset({node.name})


def _in_rows(aggregation: Aggregation) -> tuple[OperatorSpec, Callable[..., Operator]]:
    """An aggregation in the row tier."""
    combine = aggregation if aggregation.combiner is not None else None
    return OperatorSpec(combine=combine), partial(KeyedAggregation, aggregation=aggregation)
