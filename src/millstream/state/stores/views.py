"""Views of stores: the read-only interfaces, answered by stores that are somewhere else.

`KeyValueView` and its like say what a query is; what they are mixed with says who answers it: one store, as
it is (`GlobalStore`) or with its timestamps out of sight (the test driver), or the partitions of a replica.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar, overload

from millstream.errors import StoreError
from millstream.record import ValueAndTimestamp, VersionedRecord, Windowed
from millstream.serdes import Serde
from millstream.state.stores.key_value_iterator import KeyValueIterator
from millstream.state.stores.read_only import (
    ReadOnlyKeyValueStore,
    ReadOnlySessionStore,
    ReadOnlyVersionedKeyValueStore,
    ReadOnlyWindowStore,
)
from millstream.state.stores.store import StateStore

P = TypeVar("P")

Pairs = KeyValueIterator[Any, Any]
WindowedPairs = KeyValueIterator[Windowed[Any], Any]


class View(ABC):
    """Who answers."""

    @abstractmethod
    def _one(self, ask: Callable[[Any], Any], key: Any = None) -> Any:
        """What the store answers that knows; None if none does.

        `key`: what is asked is about this one, so whoever knows where it is need not ask everybody.
        """

    @abstractmethod
    def _pairs(self, scan: Callable[[Any], Pairs], key: Any = None) -> Pairs:
        """What all stores have to say; about a key, if there is one."""


class KeyValueView(View, ReadOnlyKeyValueStore[Any, Any]):
    """A view of key-value stores."""

    def get(self, key: Any) -> Any:
        return self._one(lambda store: store.get(key), key)

    def range(self, start: Any, end: Any) -> Pairs:
        return self._pairs(lambda store: store.range(start, end))

    def reverse_range(self, start: Any, end: Any) -> Pairs:
        return self._pairs(lambda store: store.reverse_range(start, end))

    def prefix_scan(self, prefix: P, prefix_serde: Serde[P]) -> Pairs:
        return self._pairs(lambda store: store.prefix_scan(prefix, prefix_serde))

    def approximate_num_entries(self) -> int:
        count: int = self._one(lambda store: store.approximate_num_entries())
        return count


class WindowView(View, ReadOnlyWindowStore[Any, Any]):
    """A view of window stores."""

    @overload
    def fetch(self, key: Any, time_from: int) -> Any: ...
    @overload
    def fetch(self, key: Any, time_from: int, time_to: int) -> KeyValueIterator[int, Any]: ...
    def fetch(self, key: Any, time_from: int, time_to: int | None = None) -> Any:
        if time_to is None:
            return self._one(lambda store: store.fetch(key, time_from), key)
        return self._pairs(lambda store: store.fetch(key, time_from, time_to), key)

    def backward_fetch(self, key: Any, time_from: int, time_to: int) -> KeyValueIterator[int, Any]:
        return self._pairs(lambda store: store.backward_fetch(key, time_from, time_to), key)

    def fetch_range(self, key_from: Any, key_to: Any, time_from: int, time_to: int) -> WindowedPairs:
        return self._pairs(lambda store: store.fetch_range(key_from, key_to, time_from, time_to))

    def backward_fetch_range(self, key_from: Any, key_to: Any, time_from: int, time_to: int) -> WindowedPairs:
        return self._pairs(lambda store: store.backward_fetch_range(key_from, key_to, time_from, time_to))


class SessionView(View, ReadOnlySessionStore[Any, Any]):
    """A view of session stores."""

    def fetch_session(self, key: Any, start: int, end: int) -> Any:
        return self._one(lambda store: store.fetch_session(key, start, end), key)

    def find_sessions(self, key: Any, earliest_end: int, latest_start: int) -> WindowedPairs:
        return self._pairs(lambda store: store.find_sessions(key, earliest_end, latest_start), key)

    def backward_find_sessions(self, key: Any, earliest_end: int, latest_start: int) -> WindowedPairs:
        return self._pairs(lambda store: store.backward_find_sessions(key, earliest_end, latest_start), key)

    def find_sessions_range(
        self, key_from: Any, key_to: Any, earliest_end: int, latest_start: int
    ) -> WindowedPairs:
        return self._pairs(
            lambda store: store.find_sessions_range(key_from, key_to, earliest_end, latest_start)
        )

    def backward_find_sessions_range(
        self, key_from: Any, key_to: Any, earliest_end: int, latest_start: int
    ) -> WindowedPairs:
        return self._pairs(
            lambda store: store.backward_find_sessions_range(key_from, key_to, earliest_end, latest_start)
        )


class VersionedView(View, ReadOnlyVersionedKeyValueStore[Any, Any]):
    """A view of versioned stores."""

    def get(self, key: Any, as_of: int | None = None) -> VersionedRecord[Any] | None:
        found: VersionedRecord[Any] | None = self._one(lambda store: store.get(key, as_of), key)
        return found

    def versions(self, key: Any, time_from: int, time_to: int) -> list[VersionedRecord[Any]]:
        return self._one(lambda store: store.versions(key, time_from, time_to) or None, key) or []

    def all(self) -> KeyValueIterator[Any, VersionedRecord[Any]]:
        return self._pairs(lambda store: store.all())


class GlobalStore(View):
    """A global store as processors see it: only its own source writes to it."""

    _WRITES = frozenset({"put", "put_if_absent", "put_all", "delete", "remove"})

    def __init__(self, store: StateStore[Any]) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name in self._WRITES:
            raise StoreError(
                f"store {self._store.name!r} is global and can only be read here. Remedy: write to its "
                "topic, and its source updates it on every instance"
            )
        return getattr(self._store, name)

    def _one(self, ask: Callable[[Any], Any], key: Any = None) -> Any:
        del key
        return ask(self._store)

    def _pairs(self, scan: Callable[[Any], Pairs], key: Any = None) -> Pairs:
        del key
        return scan(self._store)


class _GlobalKeyValueStore(GlobalStore, KeyValueView): ...


class _GlobalWindowStore(GlobalStore, WindowView): ...


class _GlobalSessionStore(GlobalStore, SessionView): ...


class _GlobalVersionedStore(GlobalStore, VersionedView): ...


_GLOBAL: Final[tuple[tuple[type, type[GlobalStore]], ...]] = (
    (ReadOnlyKeyValueStore, _GlobalKeyValueStore),
    (ReadOnlyWindowStore, _GlobalWindowStore),
    (ReadOnlySessionStore, _GlobalSessionStore),
    (ReadOnlyVersionedKeyValueStore, _GlobalVersionedStore),
)


def global_store(store: StateStore[Any]) -> GlobalStore:
    """A global store, with the read-only interface of its kind, if there is one."""
    return next((view for kind, view in _GLOBAL if isinstance(store, kind)), GlobalStore)(store)


def plain(value: Any) -> Any:
    """A value with its timestamp out of sight, if it has one."""
    return value.value if isinstance(value, ValueAndTimestamp) else value


def plain_pairs(pairs: Pairs) -> Iterator[tuple[Any, Any]]:
    """Pairs with the timestamps of their values out of sight."""
    with pairs:
        for key, value in pairs:
            yield key, plain(value)
