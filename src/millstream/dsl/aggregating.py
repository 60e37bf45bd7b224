"""The aggregations of a stream: one home for grouped streams, and for those cut into windows.

A handle that mixes one of these classes in says how a declared `Aggregation` becomes an operator, and what
table it writes; the methods that users call are here. A table's keys are those of the group, or those and
their windows (`RK`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast, overload

from millstream.dsl.functions import Initializer, is_expression
from millstream.dsl.given import check_function, check_functions
from millstream.dsl.graph import GraphNode
from millstream.dsl.ktable import KTable
from millstream.dsl.materialized import Materialized, StoreLike, as_store
from millstream.dsl.table_state import AggregateState
from millstream.kafka_names import KafkaNames
from millstream.processors.aggregations.aggregate import aggregate_by
from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.aggregations.count import COUNT
from millstream.processors.aggregations.mean import mean_of
from millstream.processors.aggregations.min_max import min_max
from millstream.processors.aggregations.reduce import reduce_by
from millstream.processors.aggregations.sum import sum_of
from millstream.processors.operator import Operator
from millstream.serdes import Serde, double, int64
from millstream.serdes.mean_serde import MeanSerde
from millstream.state.specs import Store
from millstream.topology.operator_spec import OperatorSpec
from millstream.topology.topology import Topology
from millstream.windows import Windows

if TYPE_CHECKING:
    import polars as pl

    from millstream.dsl.grouped import KGroupedStream

__all__ = [
    "AGGREGATE",
    "REDUCE",
    "Aggregating",
    "AggregatingFreely",
    "OperatorPlan",
    "aggregation_table",
]

K = TypeVar("K")
V = TypeVar("V")
VA = TypeVar("VA")
RK = TypeVar("RK")

AGGREGATE = "KSTREAM-AGGREGATE-"
REDUCE = "KSTREAM-REDUCE-"


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """The operator of an aggregation, before its store is known."""

    spec: OperatorSpec
    make: Callable[..., Operator]
    """From the store's name, `caching` and `send_old`."""
    value: Any = None
    """The serde of its results where that is known."""
    shown: Callable[[Any], Any] | None = None
    """From what its store has to the values of its table; None: they are the same."""


class _ByValue(Protocol[K, V, RK]):
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
    ) -> KTable[RK, V]: ...
    @overload
    def __call__(
        self,
        of: Callable[[V], VA],
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[VA] | None = None,
        name: str | None = None,
    ) -> KTable[RK, VA]: ...
    @overload
    def __call__(
        self,
        of: pl.Expr,
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: None = None,
        name: str | None = None,
    ) -> KTable[RK, Any]: ...
    @overload
    def __call__(
        self,
        of: pl.Expr,
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[VA],
        name: str | None = None,
    ) -> KTable[RK, VA]: ...


class _ByValueOf(Protocol):
    def __get__(self, stream: Aggregating[K, V, RK], owner: object = None, /) -> _ByValue[K, V, RK]: ...


def _typed_by_value(method: Callable[..., KTable[Any, Any]]) -> _ByValueOf:
    """The method as it is: only checkers of types see more of it."""
    return cast("_ByValueOf", method)


class Aggregating(KafkaNames, Generic[K, V, RK]):
    """A stream whose records can be counted, reduced, added up and compared."""

    __slots__ = ()

    def count(
        self,
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[int] | None = None,
        name: str | None = None,
    ) -> KTable[RK, int]:
        """How many records each key has had. Records without a value count in time and session windows only.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("clicks").group_by_key().count(
        ...     store="clicks-per-user"
        ... ).queryable_store_name
        'clicks-per-user'
        """
        spec = as_store(store, key, value)
        if spec.name is None and (store is not None or key is not None or value is not None):
            self._use_up_a_store_name()
        plan = self._in_its_tier("count", lambda _: COUNT, None)
        return self._aggregate(plan, spec, AGGREGATE, name, value=int64)

    def reduce(
        self,
        reducer: Callable[[V, V], V] | pl.Expr,
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        name: str | None = None,
        commutative: bool = False,
    ) -> KTable[RK, V]:
        """Combine the values of each key: `reducer(so_far, new)`. The first value is the first result.

        `commutative=True` promises that the order and grouping of the values do not matter, so that values
        may be combined before they are moved to the partition of their key. An expression makes one value of
        several and must be associative, as `value.max()` is.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("bids").group_by_key().reduce(max, store="highest").queryable_store_name
        'highest'
        """
        if is_expression(reducer):
            plan = self._reduce_in_columns(reducer)
        else:
            check_functions("reduce", reducer=reducer)
            plan = self._in_rows(reduce_by(reducer, commutative=commutative))
        return self._aggregate(plan, as_store(store, key, value), REDUCE, name, value=self._value_serde)

    @_typed_by_value
    def sum(
        self,
        of: Callable[[V], Any] | pl.Expr | None = None,
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[Any] | None = None,
        name: str | None = None,
    ) -> KTable[RK, Any]:
        """The sum of the values of each key, or of `of(value)`, or of an expression.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("orders").group_by_key().sum(lambda order: order["amount"]).node.name
        'KSTREAM-AGGREGATE-0000000002'
        """
        plan = self._in_its_tier("sum", sum_of, of)
        return self._aggregate(plan, as_store(store, key, value), AGGREGATE, name, value=plan.value)

    @_typed_by_value
    def min(
        self,
        of: Callable[[V], Any] | pl.Expr | None = None,
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[Any] | None = None,
        name: str | None = None,
    ) -> KTable[RK, Any]:
        """The smallest value of each key, or of `of(value)`, or of an expression.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("temperatures").group_by_key().min(store="coldest").queryable_store_name
        'coldest'
        """
        plan = self._in_its_tier("min", partial(min_max, "min"), of)
        return self._aggregate(plan, as_store(store, key, value), AGGREGATE, name, value=plan.value)

    @_typed_by_value
    def max(
        self,
        of: Callable[[V], Any] | pl.Expr | None = None,
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[Any] | None = None,
        name: str | None = None,
    ) -> KTable[RK, Any]:
        """The largest value of each key, or of `of(value)`, or of an expression.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("temperatures").group_by_key().max(store="hottest").queryable_store_name
        'hottest'
        """
        plan = self._in_its_tier("max", partial(min_max, "max"), of)
        return self._aggregate(plan, as_store(store, key, value), AGGREGATE, name, value=plan.value)

    def mean(
        self,
        of: Callable[[V], float] | pl.Expr | None = None,
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        name: str | None = None,
    ) -> KTable[RK, float]:
        """The mean of the values of each key, or of `of(value)`, or of an expression.

        The table's values are floats; the store keeps total and count beside them.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream("temperatures").group_by_key().mean(store="usual").queryable_store_name
        'usual'
        """
        plan = self._in_its_tier("mean", mean_of, of)
        plan = replace(plan, shown=mean_of(None).shown)
        spec = replace(as_store(store, key), value=MeanSerde())
        table: KTable[RK, float] = self._aggregate(plan, spec, AGGREGATE, name, value=None)
        return replace(table, value_serde=double)

    @property
    def _value_serde(self) -> Any:
        """The serde of the values that are aggregated."""
        raise NotImplementedError

    @property
    def _prefers_columns(self) -> bool:
        """Whether a built-in aggregation is done in the column tier without being told."""
        raise NotImplementedError

    def _in_its_tier(self, name: str, aggregation: Callable[[Any], Aggregation], of: Any) -> OperatorPlan:
        """A built-in aggregation in its tier."""
        if is_expression(of) or (of is None and self._prefers_columns):
            return self._in_columns(name, aggregation(None), of)
        if of is not None:
            check_function(f"{name}()", of, "value")
        return self._in_rows(aggregation(of))

    def _in_rows(self, aggregation: Aggregation) -> OperatorPlan:
        """An aggregation in the row tier."""
        raise NotImplementedError

    def _in_columns(self, name: str, aggregation: Aggregation, of: pl.Expr | None) -> OperatorPlan:
        """A built-in aggregation of the column tier."""
        raise NotImplementedError

    def _reduce_in_columns(self, reducer: pl.Expr) -> OperatorPlan:
        """A reduction of the column tier."""
        raise NotImplementedError

    def _use_up_a_store_name(self) -> None:
        """Count without a name for its store: for most streams, Kafka numbers one store too many."""
        raise NotImplementedError

    def _aggregate(
        self, plan: OperatorPlan, spec: Store, prefix: str, name: str | None, *, value: Any
    ) -> KTable[RK, Any]:
        """Build the aggregation. `value` is the serde of the result where the user gives none."""
        raise NotImplementedError


class AggregatingFreely(Aggregating[K, V, RK]):
    """A stream whose records can also be folded by a function alone."""

    __slots__ = ()

    def aggregate(
        self,
        initializer: Initializer[VA],
        aggregator: Callable[[K, V, VA], VA],
        *,
        store: StoreLike = None,
        key: Serde[K] | None = None,
        value: Serde[VA] | None = None,
        name: str | None = None,
    ) -> KTable[RK, VA]:
        """Fold the values of each key: `aggregator(key, value, so_far)`, starting with `initializer()`.

        >>> from millstream import StreamsBuilder
        >>> grouped = StreamsBuilder().stream("orders").group_by_key()
        >>> totals = grouped.aggregate(lambda: 0, lambda key, amount, total: total + amount, store="totals")
        >>> totals.queryable_store_name
        'totals'
        """
        check_functions("aggregate", initializer=initializer, aggregator=aggregator)
        plan = self._in_rows(aggregate_by(initializer, aggregator))
        return self._aggregate(plan, as_store(store, key, value), AGGREGATE, name, value=None)


def aggregation_table(
    grouped: KGroupedStream[Any, Any],
    plan: OperatorPlan,
    own: Materialized,
    prefix: str,
    name: str | None,
    *,
    key: Any,
    windows: Windows | None = None,
) -> KTable[Any, Any]:
    """Build an aggregation. `key` is the serde of the table's keys; `windows` cut the stream by time."""
    graph = grouped.graph
    table_name = graph.name_or_new(name, prefix)
    state = AggregateState(own, plan.shown)
    # Without caching, every record is an update of its own.
    operator = plan.spec if own.caching else replace(plan.spec, combine=None)

    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        aggregation = partial(plan.make, own.name, send_old=state.sends_old)
        topology.add_table_operator(table_name, aggregation, parents, operator, caching=own.caching)
        topology.add_state_store(own.builder, table_name)

    parent, sources = grouped.repartitioned(own.name)
    node = graph.add(GraphNode(table_name, write, windows=windows), parent)
    return KTable(graph, node, key, own.store.value, sources, own.queryable_name, state)
