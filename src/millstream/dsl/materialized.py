"""Where a table of the DSL lives: `store=` resolved into names and serdes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from millstream.clock import milliseconds
from millstream.dsl.given import check_serdes
from millstream.dsl.graph import Graph, first_given
from millstream.errors import TopologyError
from millstream.state.specs import Store, StoreBuilder, StoreKind

StoreLike = str | Store | None


def as_store(store: StoreLike, key: Any = None, value: Any = None) -> Store:
    """`store=`, `key=` and `value=` as one description; the store's own serdes come first."""
    if isinstance(store, StoreBuilder):
        raise TopologyError(
            f"store={store.name!r} is a StoreBuilder, which is for add_state_store() and processors. Remedy: "
            f"store={store.name!r}, or Store({store.name!r}, ...) with what it should be like"
        )
    if store is not None and not isinstance(store, str | Store):
        raise TopologyError(f"store={store!r}. Remedy: give the store's name, or Store(name, ...)")
    given = store if isinstance(store, Store) else Store(store)
    check_serdes(given.key, given.value)
    check_serdes(key, value)
    return replace(given, key=first_given(given.key, key), value=first_given(given.value, value))


@dataclass(frozen=True, eq=False)
class Materialized:
    """A store that a table has, or will have if somebody needs it."""

    name: str
    queryable: bool
    """The user named it."""
    store: Store
    kind: StoreKind = StoreKind.TIMESTAMPED_KEY_VALUE
    """A kind of `CellStore`: tables are kept by key, by window or by session."""
    window_size_ms: int | None = None
    windows: str | None = None
    """See `StoreBuilder.windows`."""
    time_ordered: bool = False
    """Windows of all keys are found by time quickly: those that have closed, say."""

    @classmethod
    def of(
        cls,
        graph: Graph,
        store: Store,
        prefix: str,
        kind: StoreKind = StoreKind.TIMESTAMPED_KEY_VALUE,
        window_size_ms: int | None = None,
        *,
        windows: str | None = None,
        time_ordered: bool = False,
    ) -> Materialized:
        """The store with the user's name, or with a numbered one."""
        name = graph.new_store_name(prefix) if store.name is None else store.name
        return cls(name, store.name is not None, store, kind, window_size_ms, windows, time_ordered)

    @property
    def queryable_name(self) -> str | None:
        """The name under which users may query it."""
        return self.name if self.queryable else None

    def __post_init__(self) -> None:
        if self.is_versioned and self.kind is not StoreKind.TIMESTAMPED_KEY_VALUE:
            raise TopologyError(
                f"the store {self.name!r} is to be versioned, but it is a {self.kind.value} store: its "
                "windows have a time of their own. Remedy: leave versioned= out"
            )
        if self.store.retention_ms is not None and self.kind is StoreKind.TIMESTAMPED_KEY_VALUE:
            raise TopologyError(
                f"the store {self.name!r} has a retention of {self.store.retention_ms} ms, but it is kept "
                "by key: its rows stay until they are deleted. Retention is for windows. Remedy: leave "
                "retention= out; Store(versioned=...) keeps the history of each row for so long"
            )

    @property
    def is_versioned(self) -> bool:
        """Whether the table knows what its rows were at a time."""
        return self.history_ms is not None

    @property
    def history_ms(self) -> int | None:
        """For how long the table knows that; None if it does not."""
        return None if self.store.versioned is None else milliseconds(self.store.versioned)

    @property
    def caching(self) -> bool:
        """Whether updates of an epoch collapse."""
        return self.store.caching and not self.is_versioned

    @cached_property
    def builder(self) -> StoreBuilder:
        """The store as the topology knows it: one object, however many operators share it."""
        history = self.history_ms
        return StoreBuilder(
            name=self.name,
            kind=self.kind if history is None else StoreKind.VERSIONED_KEY_VALUE,
            key=self.store.key,
            value=self.store.value,
            caching=self.caching,
            logging=self.store.logging,
            backend=self.store.backend,
            retention_ms=self.store.retention_ms if history is None else history,
            window_size_ms=self.window_size_ms,
            windows=self.windows,
            time_ordered=self.time_ordered,
        )
