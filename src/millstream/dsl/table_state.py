"""What a table decides late: whether it has a store and whether it sends old values.

Both depend on what is built behind it, so a handle shares its `TableState` with the operators behind
it, and the answers are read at `build()`. The rules, and their dependence on the order of calls, are
Kafka's: a filter asks for old values when it is *called*, and gets them only from a table that has a
store by then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.dsl.graph import GraphNode
from millstream.dsl.materialized import Materialized
from millstream.processors.joins.table_view import (
    ComputedView,
    JoinedView,
    PairJoiner,
    StoreView,
    SuppressedView,
    TableView,
)
from millstream.processors.table_values import MapIfPresent
from millstream.timestamps import TimestampExtractor


class TableState(ABC):
    """What is decided late of a table."""

    def __init__(self, history_ms: int | None = None) -> None:
        self.sends_old = False
        self.history_ms = history_ms
        """For how long the table knows what its rows were at a time; None if it is not versioned."""

    @property
    def is_versioned(self) -> bool:
        """Its updates may be older than the latest of their key, and say so."""
        return self.history_ms is not None

    def demand_old_values(self) -> None:
        """Somebody behind the table can't do without old values: get a store if that is what it takes."""
        self.sends_old = True

    def offer_old_values(self) -> bool:
        """Send old values if that needs no store that is not there yet. True if they will be sent."""
        self.sends_old = True
        return True

    @abstractmethod
    def look_up(self) -> TableView:
        """Somebody looks the table up: how that is done. A table that has to gets a store."""


class AggregateState(TableState):
    """A table that always has a store: an aggregation."""

    def __init__(self, own: Materialized, shown: Callable[[Any], Any] | None = None) -> None:
        super().__init__(own.history_ms)
        self.store = own.name
        self.caching = own.caching
        self.shown = shown
        """From what the store has to the values of the table; None: they are the same."""

    def look_up(self) -> TableView:
        """See `TableState.look_up`."""
        view = StoreView(self.store, self.caching)
        return view if self.shown is None else ComputedView(view, MapIfPresent(self.shown))


class SourceState(TableState):
    """A topic read as a table: gets a store if it is named or if somebody needs it."""

    def __init__(self, materialized: Materialized) -> None:
        super().__init__(materialized.history_ms)
        self.materialized = materialized
        self.stored = materialized.queryable or materialized.is_versioned

    def demand_old_values(self) -> None:
        """See `TableState.demand_old_values`."""
        self.stored = True
        self.sends_old = True

    def offer_old_values(self) -> bool:
        """See `TableState.offer_old_values`."""
        if self.stored:
            self.sends_old = True
        return self.sends_old

    def look_up(self) -> TableView:
        """See `TableState.look_up`."""
        self.stored = True
        return StoreView(self.materialized.name, self.materialized.caching)


@dataclass(eq=False, repr=False, kw_only=True)
class TableSourceNode(GraphNode):
    """The source of a table, as far as optimisations have to know it."""

    state: SourceState
    timestamp_extractor: TimestampExtractor | None


class DerivedState(TableState):
    """A table computed from another one: has a store only if it is named."""

    def __init__(
        self, parent: TableState, own: Materialized | None, view: Callable[[TableView], TableView]
    ) -> None:
        """`view` says how it is looked up without a store, from how that is done with the other one."""
        super().__init__(parent.history_ms if own is None else own.history_ms)
        self.parent = parent
        self.own = own
        self.stored = own is not None
        self._view = view

    def demand_old_values(self) -> None:
        """See `TableState.demand_old_values`."""
        if not self.stored:
            self.parent.demand_old_values()
        self.sends_old = True

    def offer_old_values(self) -> bool:
        """See `TableState.offer_old_values`."""
        if self.stored or self.parent.offer_old_values():
            self.sends_old = True
        return self.sends_old

    def look_up(self) -> TableView:
        """See `TableState.look_up`."""
        return (
            self._view(self.parent.look_up())
            if self.own is None
            else StoreView(self.own.name, self.own.caching)
        )


class FilterState(DerivedState):
    """A filter takes old values where it can have them, to spare its children needless tombstones."""

    def __init__(
        self, parent: TableState, own: Materialized | None, view: Callable[[TableView], TableView]
    ) -> None:
        super().__init__(parent, own, view)
        self.sends_old = parent.offer_old_values()


class SuppressedState(TableState):
    """A table behind `suppress`: always knows what it has sent, so it may always send old values."""

    def __init__(self, parent: TableState, buffer: str) -> None:
        super().__init__()
        parent.demand_old_values()
        self.parent = parent
        self.buffer = buffer

    def look_up(self) -> TableView:
        """See `TableState.look_up`."""
        return SuppressedView(self.parent.look_up(), self.buffer)


class MergedState(TableState):
    """The result of a cogroup: several aggregations over one store."""

    def __init__(self, parents: Sequence[TableState]) -> None:
        super().__init__(parents[0].history_ms)
        self.parents = tuple(parents)

    def demand_old_values(self) -> None:
        """See `TableState.demand_old_values`."""
        self.offer_old_values()

    def offer_old_values(self) -> bool:
        """See `TableState.offer_old_values`."""
        for parent in self.parents:
            parent.offer_old_values()
        return super().offer_old_values()

    def look_up(self) -> TableView:
        """See `TableState.look_up`."""
        return self.parents[0].look_up()


class JoinedState(TableState):
    """A join of two tables: has a store only if it was asked for."""

    def __init__(
        self, left: TableState, right: TableState, own: Materialized | None, join: PairJoiner
    ) -> None:
        super().__init__(None if own is None else own.history_ms)
        self.sides = (left, right)
        self.own = own
        self._join = join

    def demand_old_values(self) -> None:
        """See `TableState.demand_old_values`."""
        self.offer_old_values()

    def offer_old_values(self) -> bool:
        """See `TableState.offer_old_values`: both tables have stores, so they can always be had."""
        if self.own is None:
            for side in self.sides:
                side.demand_old_values()
        return super().offer_old_values()

    def look_up(self) -> TableView:
        """See `TableState.look_up`."""
        if self.own is not None:
            return StoreView(self.own.name, self.own.caching)
        left, right = (side.look_up() for side in self.sides)
        return JoinedView(left, right, self._join)
