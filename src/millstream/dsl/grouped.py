"""`KGroupedStream`: a stream grouped by key, ready to be aggregated into a table, or cut into windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from millstream.dsl.aggregating import AGGREGATE, AggregatingFreely, OperatorPlan, aggregation_table
from millstream.dsl.cogrouped import CogroupedKStream
from millstream.dsl.given import check_serdes, check_windows
from millstream.dsl.graph import Graph, GraphNode, Handle, first_given
from millstream.dsl.ktable import KTable
from millstream.dsl.materialized import Materialized, as_store
from millstream.dsl.repartition import repartition_node
from millstream.dsl.session_windowed import SessionWindowedKStream
from millstream.dsl.windowed import TimeWindowedKStream
from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.aggregations.keyed import KeyedAggregation
from millstream.state.specs import Store
from millstream.topology.operator_spec import COLUMNAR, OperatorSpec
from millstream.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, Windows

if TYPE_CHECKING:
    import polars as pl

K = TypeVar("K")
V = TypeVar("V")
VA = TypeVar("VA")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KGroupedStream(Handle, AggregatingFreely[K, V, K], Generic[K, V]):
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

    def __post_init__(self) -> None:
        check_serdes(self.key_serde, self.value_serde)

    @overload
    def windowed_by(
        self, windows: TimeWindows | SlidingWindows | UnlimitedWindows
    ) -> TimeWindowedKStream[K, V]: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[K, V]: ...
    def windowed_by(self, windows: Windows) -> TimeWindowedKStream[K, V] | SessionWindowedKStream[K, V]:
        """Cut the records of each key by time: an aggregation then has a result per key and window.

        >>> from datetime import timedelta
        >>> from millstream import StreamsBuilder, TimeWindows
        >>> clicks = StreamsBuilder().stream("clicks").group_by_key()
        >>> clicks.windowed_by(TimeWindows(timedelta(minutes=1))).count(store="per-minute").node.name
        'KSTREAM-AGGREGATE-0000000001'
        """
        check_windows(windows)
        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self, windows)
        return TimeWindowedKStream(self, windows)

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
        none: CogroupedKStream[K, VA] = CogroupedKStream(self.graph, ())
        return none.cogroup(self, aggregator)

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

    @property
    def _value_serde(self) -> Any:
        return self.value_serde

    @property
    def _prefers_columns(self) -> bool:
        return self.in_columns

    def _in_rows(self, aggregation: Aggregation) -> OperatorPlan:
        combine = aggregation if aggregation.combiner is not None else None
        return OperatorPlan(OperatorSpec(combine=combine), partial(KeyedAggregation, aggregation=aggregation))

    def _in_columns(self, name: str, aggregation: Aggregation, of: pl.Expr | None) -> OperatorPlan:
        from millstream.dsl.columns import column_aggregate  # noqa: PLC0415 - imports Polars

        columns = column_aggregate(name, aggregation, of, self.key_serde, self.value_serde)
        # What an expression looks at is only known behind the repartition.
        known_in_front = aggregation.columns is None or not aggregation.columns.looks_at_values
        spec = replace(COLUMNAR, combine=aggregation if known_in_front else None)
        return OperatorPlan(spec, columns.make, columns.serdes[0])

    def _reduce_in_columns(self, reducer: pl.Expr) -> OperatorPlan:
        from millstream.dsl.columns import column_reduce  # noqa: PLC0415 - imports Polars, which is there

        return OperatorPlan(COLUMNAR, column_reduce(reducer, self.key_serde, self.value_serde).make)

    def _use_up_a_store_name(self) -> None:
        self.graph.new_store_name(AGGREGATE)

    def _aggregate(
        self, plan: OperatorPlan, spec: Store, prefix: str, name: str | None, *, value: Any
    ) -> KTable[K, Any]:
        own = Materialized.of(self.graph, as_store(spec, self.key_serde, value), prefix)
        return aggregation_table(self, plan, own, prefix, name, key=own.store.key)
