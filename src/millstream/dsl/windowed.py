"""`TimeWindowedKStream`: a grouped stream that is cut into windows of one size, ready to be aggregated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.dsl.aggregating import (
    AGGREGATE,
    Aggregating,
    AggregatingFreely,
    OperatorPlan,
    aggregation_table,
)
from millstream.dsl.given import check_strategy
from millstream.dsl.graph import Handle
from millstream.dsl.ktable import KTable
from millstream.dsl.materialized import as_store
from millstream.dsl.window_operators import aggregation_by
from millstream.dsl.windowed_store import windowed_keys, windowed_store
from millstream.errors import TopologyError
from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.operator import Operator
from millstream.record import Windowed
from millstream.state.specs import Store
from millstream.topology.operator_spec import COLUMNAR, PLAIN, OperatorSpec
from millstream.windows import (
    ON_WINDOW_UPDATE,
    EmitStrategy,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Windows,
)

if TYPE_CHECKING:
    import polars as pl

    from millstream.dsl.grouped import KGroupedStream

K = TypeVar("K")
V = TypeVar("V")


class WindowedAggregating(Aggregating[K, V, Windowed[K]]):
    """What all windowed streams have in common."""

    __slots__ = ()

    grouped: KGroupedStream[K, V]
    windows: Windows
    emit: EmitStrategy

    @property
    def _value_serde(self) -> Any:
        return self.grouped.value_serde

    @property
    def _prefers_columns(self) -> bool:
        return False

    def _in_columns(self, name: str, aggregation: Aggregation, of: pl.Expr | None) -> OperatorPlan:
        del aggregation, of
        raise TopologyError(
            f"{name}: an expression can be aggregated by time windows only, not by {self.windows}. Remedy: "
            "map_values() the expression first, or a function in its place"
        )

    def _reduce_in_columns(self, reducer: pl.Expr) -> OperatorPlan:
        del reducer
        raise TopologyError("reduce: windows take a function, not an expression. Remedy: min(), max(), sum()")

    def _use_up_a_store_name(self) -> None:
        if not isinstance(self.windows, SlidingWindows):
            self.grouped.graph.new_store_name(AGGREGATE)

    def _aggregate(
        self, plan: OperatorPlan, spec: Store, prefix: str, name: str | None, *, value: Any
    ) -> KTable[Windowed[K], Any]:
        grouped, windows = self.grouped, self.windows
        store = as_store(spec, grouped.key_serde, value)
        own = windowed_store(grouped.graph, store, prefix, windows, self.emit)
        keys = windowed_keys(store.key, windows)
        return aggregation_table(grouped, plan, own, prefix, name, key=keys, windows=windows)

    def _emitting(
        self, make: Callable[..., Operator], spec: OperatorSpec = PLAIN, value: Any = None
    ) -> OperatorPlan:
        """The plan of an operator that emits as it was asked to."""
        emit = self.emit
        operator = partial(make, on_close=emit.on_close, after_idle_ms=emit.after_idle_ms)
        spec = replace(spec, may_schedule=emit.after_idle_ms is not None, hides_writes=True)
        return OperatorPlan(spec, operator, value)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TimeWindowedKStream(
    Handle, WindowedAggregating[K, V], AggregatingFreely[K, V, Windowed[K]], Generic[K, V]
):
    """A grouped stream in windows. The keys of its tables are `Windowed`.

    >>> from millstream import StreamsBuilder, TimeWindows, serdes
    >>> clicks = StreamsBuilder().stream("clicks", key=serdes.string).group_by_key()
    >>> clicks.windowed_by(TimeWindows(60_000, grace=5_000)).count().key_serde
    serdes.time_windowed(serdes.string, window_size_ms=60000)
    """

    grouped: KGroupedStream[K, V]
    windows: TimeWindows | SlidingWindows | UnlimitedWindows
    emit: EmitStrategy = ON_WINDOW_UPDATE

    def emit_strategy(self, strategy: EmitStrategy) -> TimeWindowedKStream[K, V]:
        """Say when a window is emitted: whenever it changes, or once, when it can't change any more.

        >>> from millstream import EmitStrategy, StreamsBuilder, TimeWindows
        >>> clicks = StreamsBuilder().stream("clicks").group_by_key().windowed_by(TimeWindows(60_000))
        >>> final = clicks.emit_strategy(EmitStrategy.on_window_close()).count(store="per-minute")
        >>> final.queryable_store_name
        'per-minute'
        """
        check_strategy(strategy)
        if isinstance(self.windows, UnlimitedWindows) and strategy.on_close:
            raise TopologyError(
                "an unlimited window never closes, so it can't be emitted on close. Remedy: "
                "EmitStrategy.on_window_update(), or windows that end"
            )
        return replace(self, emit=strategy)

    def _in_rows(self, aggregation: Aggregation) -> OperatorPlan:
        return self._emitting(partial(aggregation_by(self.windows), aggregation=aggregation))

    @property
    def _prefers_columns(self) -> bool:
        return self.grouped.in_columns and not isinstance(self.windows, SlidingWindows)

    def _in_columns(self, name: str, aggregation: Aggregation, of: pl.Expr | None) -> OperatorPlan:
        if isinstance(self.windows, SlidingWindows):
            return WindowedAggregating._in_columns(self, name, aggregation, of)  # noqa: SLF001 - its own
        from millstream.dsl.columns import column_aggregate  # noqa: PLC0415 - imports Polars, which is there

        serdes = (self.grouped.key_serde, self.grouped.value_serde)
        columns = column_aggregate(name, aggregation, of, *serdes, self.windows)
        return self._emitting(columns.make, COLUMNAR, columns.serdes[0])
