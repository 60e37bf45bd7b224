"""What a table decides late: whether it has a store and whether it sends old values.

Both depend on what is built behind it, so a handle shares its `TableState` with the operators behind
it, and the answers are read at `build()`. The rules, and their dependence on the order of calls, are
Kafka's: a filter asks for old values when it is *called*, and gets them only from a table that has a
store by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.dsl.graph import GraphNode
from millstream.dsl.materialized import Materialized
from millstream.timestamps import TimestampExtractor


class TableState:
    """A table that always has a store: an aggregation."""

    def __init__(self, *, is_versioned: bool = False) -> None:
        self.sends_old = False
        self.is_versioned = is_versioned
        """Its updates may be older than the latest of their key, and say so."""

    def demand_old_values(self) -> None:
        """Somebody behind the table can't do without old values: get a store if that is what it takes."""
        self.sends_old = True

    def offer_old_values(self) -> bool:
        """Send old values if that needs no store that is not there yet. True if they will be sent."""
        self.sends_old = True
        return True


class SourceState(TableState):
    """A topic read as a table: gets a store if it is named or if somebody needs it."""

    def __init__(self, materialized: Materialized) -> None:
        super().__init__(is_versioned=materialized.is_versioned)
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


@dataclass(eq=False, kw_only=True)
class TableSourceNode(GraphNode):
    """The source of a table, as far as optimisations have to know it."""

    state: SourceState
    timestamp_extractor: TimestampExtractor | None


class DerivedState(TableState):
    """A table computed from another one: has a store only if it is named."""

    def __init__(self, parent: TableState, own: Materialized | None) -> None:
        super().__init__(is_versioned=parent.is_versioned if own is None else own.is_versioned)
        self.parent = parent
        self.stored = own is not None

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


class FilterState(DerivedState):
    """A filter takes old values where it can have them, to spare its children needless tombstones."""

    def __init__(self, parent: TableState, own: Materialized | None) -> None:
        super().__init__(parent, own)
        self.sends_old = parent.offer_old_values()


class SuppressedState(TableState):
    """A table behind `suppress`: always knows what it has sent, so it may always send old values."""

    def __init__(self, parent: TableState) -> None:
        super().__init__()
        parent.demand_old_values()


class MergedState(TableState):
    """The result of a cogroup: several aggregations over one store."""

    def __init__(self, parents: Sequence[TableState]) -> None:
        super().__init__(is_versioned=all(parent.is_versioned for parent in parents))
        self.parents = tuple(parents)

    def demand_old_values(self) -> None:
        """See `TableState.demand_old_values`."""
        self.offer_old_values()

    def offer_old_values(self) -> bool:
        """See `TableState.offer_old_values`."""
        for parent in self.parents:
            parent.offer_old_values()
        return super().offer_old_values()
