"""What a store can be asked, by its kind: Kafka's read-only interfaces.

Stores of processors, replicas of committed state (`Streams.store` and its like), global stores and the stores
of the test driver have them in common, so a function that only reads a store can be written for all of them.
Every query that answers with many has a backward variant: the same, the last one first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar, overload

from millstream.notebook import Shown, ShownAsTable
from millstream.record import MAX_TIME, VersionedRecord, Windowed
from millstream.serdes import Serde
from millstream.state.stores.key_value_iterator import KeyValueIterator

K = TypeVar("K")
V = TypeVar("V")
P = TypeVar("P")

_BY_WINDOW: Final = ("key", "start", "end", "value")


class ReadOnlyKeyValueStore(ShownAsTable, ABC, Generic[K, V]):
    """Values by key. Keys are in the order of their bytes.

    >>> from millstream import serdes, stores
    >>> from millstream.state.backends.memory import MemoryBackend
    >>> from millstream.state.stores.factory import open_store
    >>> store = open_store(stores.key_value("seen"), MemoryBackend(), serdes.string, serdes.int64)
    >>> store.put_all([("rain", 1), ("river", 2), ("road", 3)])
    >>> store.get("rain"), store.get("snow")
    (1, None)
    >>> with store.range("river", None) as pairs:
    ...     list(pairs)
    [('river', 2), ('road', 3)]
    >>> list(store.reverse_range(None, "river"))
    [('river', 2), ('rain', 1)]
    >>> list(store.prefix_scan("ri", serdes.string))
    [('river', 2)]
    >>> list(store.all()) == list(store.reverse_all())[::-1], store.approximate_num_entries()
    (True, 3)
    """

    @abstractmethod
    def get(self, key: K) -> V | None:
        """The value of a key, or None."""

    @abstractmethod
    def range(self, start: K | None, end: K | None) -> KeyValueIterator[K, V]:
        """Pairs from `start` to `end`, both inclusive; None leaves a side open."""

    @abstractmethod
    def reverse_range(self, start: K | None, end: K | None) -> KeyValueIterator[K, V]:
        """The same pairs, last key first."""

    @abstractmethod
    def prefix_scan(self, prefix: P, prefix_serde: Serde[P]) -> KeyValueIterator[K, V]:
        """Pairs whose key bytes begin with the serialized prefix."""

    @abstractmethod
    def approximate_num_entries(self) -> int:
        """About how many pairs there are, without a scan: RocksDB estimates it, memory knows it.

        RocksDB counts a pair again for each time that it was overwritten, until it is compacted.
        """

    def _shown(self) -> Shown:
        return ("key", "value"), self.all()

    def all(self) -> KeyValueIterator[K, V]:
        """All pairs."""
        return self.range(None, None)

    def reverse_all(self) -> KeyValueIterator[K, V]:
        """All pairs, last key first."""
        return self.reverse_range(None, None)


class ReadOnlyWindowStore(ShownAsTable, ABC, Generic[K, V]):
    """Values by key and window, for as long as the retention says. A window is known by its start.

    Results of one key come in the order of time; those of several keys come segment by segment, within a
    segment in the order of the keys' bytes, or of time if the store is `time_ordered`.

    >>> from millstream import serdes, stores
    >>> from millstream.state.backends.memory import MemoryBackend
    >>> from millstream.state.stores.factory import open_store
    >>> clicks = stores.window("clicks", window_size_ms=10, retention_ms=20)
    >>> store = open_store(clicks, MemoryBackend(), serdes.string, serdes.int64)
    >>> for key, value, start in [("ann", 1, 0), ("ann", 2, 10), ("bob", 3, 10), ("ann", 4, 20)]:
    ...     store.put(key, value, start)
    >>> store.fetch("ann", 10), store.fetch("ann", 0)  # the first one has expired
    (2, None)
    >>> with store.fetch("ann", 0, 20) as windows:
    ...     list(windows)
    [(10, 2), (20, 4)]
    >>> list(store.backward_fetch("ann", 0, 20))
    [(20, 4), (10, 2)]
    >>> list(store.fetch_range("b", None, 0, 20))
    [(Windowed(key='bob', window=Window(start=10, end=20)), 3)]
    >>> [value for _, value in store.backward_fetch_range(None, "b", 0, 20)]
    [4, 2]
    >>> (
    ...     [value for _, value in store.fetch_all(5, 15)],
    ...     [value for _, value in store.backward_fetch_all(5, 15)],
    ... )
    ([2, 3], [3, 2])
    >>> list(store.all()) == list(store.backward_all())[::-1]
    True
    """

    @overload
    def fetch(self, key: K, time_from: int) -> V | None: ...
    @overload
    def fetch(self, key: K, time_from: int, time_to: int) -> KeyValueIterator[int, V]: ...
    @abstractmethod
    def fetch(
        self, key: K, time_from: int, time_to: int | None = None
    ) -> V | KeyValueIterator[int, V] | None:
        """The value of the window that starts at a time; or the windows that start between two, by start.

        Both ends are inclusive. Of a window with duplicates the single value is the first.
        """

    @abstractmethod
    def backward_fetch(self, key: K, time_from: int, time_to: int) -> KeyValueIterator[int, V]:
        """The same windows of a key, the last one first."""

    @abstractmethod
    def fetch_range(
        self, key_from: K | None, key_to: K | None, time_from: int, time_to: int
    ) -> KeyValueIterator[Windowed[K], V]:
        """Windows of a range of keys that start between two times; None leaves a side of the keys open."""

    @abstractmethod
    def backward_fetch_range(
        self, key_from: K | None, key_to: K | None, time_from: int, time_to: int
    ) -> KeyValueIterator[Windowed[K], V]:
        """The same windows, the last one first."""

    def fetch_all(self, time_from: int, time_to: int) -> KeyValueIterator[Windowed[K], V]:
        """Windows of all keys that start between two times."""
        return self.fetch_range(None, None, time_from, time_to)

    def backward_fetch_all(self, time_from: int, time_to: int) -> KeyValueIterator[Windowed[K], V]:
        """The same windows, the last one first."""
        return self.backward_fetch_range(None, None, time_from, time_to)

    def _shown(self) -> Shown:
        return _BY_WINDOW, _rows_of(self.all())

    def all(self) -> KeyValueIterator[Windowed[K], V]:
        """All windows that have not expired."""
        return self.fetch_all(0, MAX_TIME)

    def backward_all(self) -> KeyValueIterator[Windowed[K], V]:
        """The same windows, the last one first."""
        return self.backward_fetch_all(0, MAX_TIME)


class ReadOnlySessionStore(ShownAsTable, ABC, Generic[K, V]):
    """Values by key and session, for as long as the retention says. A session's end is inclusive.

    Results of one key come in the order of ends, then of starts; those of several keys come segment by
    segment, within a segment in the order of the keys' bytes, or of ends if the store is `time_ordered`.

    >>> from millstream import Window, Windowed, serdes, stores
    >>> from millstream.state.backends.memory import MemoryBackend
    >>> from millstream.state.stores.factory import open_store
    >>> visits = stores.session("visits", retention_ms=100)
    >>> store = open_store(visits, MemoryBackend(), serdes.string, serdes.int64)
    >>> for key, start, end, value in [("ann", 0, 5, 1), ("ann", 20, 30, 2), ("bob", 7, 7, 3)]:
    ...     store.put(Windowed(key, Window(start, end)), value)
    >>> store.fetch_session("ann", 20, 30)
    2
    >>> with store.find_sessions("ann", earliest_end=4, latest_start=10) as sessions:
    ...     list(sessions)
    [(Windowed(key='ann', window=Window(start=0, end=5)), 1)]
    >>> [value for _, value in store.backward_find_sessions("ann", 0, 20)]
    [2, 1]
    >>> [value for _, value in store.find_sessions_range("ann", "az", 0, 9)]
    [1]
    >>> [value for _, value in store.backward_find_sessions_range(None, None, 0, 9)]
    [3, 1]
    >>> [value for _, value in store.fetch("ann")], [value for _, value in store.backward_fetch("ann")]
    ([1, 2], [2, 1])
    >>> [value for _, value in store.fetch_range(None, None)]
    [1, 2, 3]
    >>> [value for _, value in store.backward_fetch_range("b", None)]
    [3]
    """

    def _shown(self) -> Shown:
        return _BY_WINDOW, _rows_of(self.fetch_range(None, None))

    @abstractmethod
    def fetch_session(self, key: K, start: int, end: int) -> V | None:
        """The value of the session with exactly these bounds, or None."""

    @abstractmethod
    def find_sessions(self, key: K, earliest_end: int, latest_start: int) -> KeyValueIterator[Windowed[K], V]:
        """The sessions of a key that end at `earliest_end` or later and start at `latest_start` or before."""

    @abstractmethod
    def backward_find_sessions(
        self, key: K, earliest_end: int, latest_start: int
    ) -> KeyValueIterator[Windowed[K], V]:
        """The same sessions, the last one first."""

    @abstractmethod
    def find_sessions_range(
        self, key_from: K | None, key_to: K | None, earliest_end: int, latest_start: int
    ) -> KeyValueIterator[Windowed[K], V]:
        """The same for a range of keys; None leaves a side open."""

    @abstractmethod
    def backward_find_sessions_range(
        self, key_from: K | None, key_to: K | None, earliest_end: int, latest_start: int
    ) -> KeyValueIterator[Windowed[K], V]:
        """The same sessions, the last one first."""

    def fetch(self, key: K) -> KeyValueIterator[Windowed[K], V]:
        """All sessions of a key that have not expired."""
        return self.find_sessions(key, 0, MAX_TIME)

    def backward_fetch(self, key: K) -> KeyValueIterator[Windowed[K], V]:
        """The same sessions, the last one first."""
        return self.backward_find_sessions(key, 0, MAX_TIME)

    def fetch_range(self, key_from: K | None, key_to: K | None) -> KeyValueIterator[Windowed[K], V]:
        """All sessions of a range of keys; None leaves a side open."""
        return self.find_sessions_range(key_from, key_to, 0, MAX_TIME)

    def backward_fetch_range(self, key_from: K | None, key_to: K | None) -> KeyValueIterator[Windowed[K], V]:
        """The same sessions, the last one first."""
        return self.backward_find_sessions_range(key_from, key_to, 0, MAX_TIME)


class ReadOnlyVersionedKeyValueStore(ShownAsTable, ABC, Generic[K, V]):
    """Values by key and time.

    >>> from millstream import serdes, stores
    >>> from millstream.state.backends.memory import MemoryBackend
    >>> from millstream.state.stores.factory import open_store
    >>> prices = stores.versioned_key_value("prices", history_retention_ms=100)
    >>> store = open_store(prices, MemoryBackend(), serdes.string, serdes.int64)
    >>> for time in (10, 20, 30):
    ...     _ = store.put("bread", time, time)
    >>> store.get("bread")
    VersionedRecord(value=30, timestamp=30, valid_to=None)
    >>> store.get("bread", as_of=29)
    VersionedRecord(value=20, timestamp=20, valid_to=30)
    >>> [version.value for version in store.versions("bread", 15, 20)]
    [10, 20]
    >>> [(key, version.value) for key, version in store.all()]
    [('bread', 30)]
    """

    def _shown(self) -> Shown:
        rows = ((key, record.value, record.timestamp) for key, record in self.all())
        return ("key", "value", "timestamp"), rows

    @abstractmethod
    def get(self, key: K, as_of: int | None = None) -> VersionedRecord[V] | None:
        """The latest version of a key, or the one that was valid at a time; None if there is none.

        Of times before the history retention only the latest version is known, if it is as old as that.
        """

    @abstractmethod
    def versions(self, key: K, time_from: int, time_to: int) -> list[VersionedRecord[V]]:
        """The versions of a key that were valid at some time between two, both inclusive, oldest first."""

    @abstractmethod
    def all(self) -> KeyValueIterator[K, VersionedRecord[V]]:
        """The latest version of every key."""


def _rows_of(pairs: KeyValueIterator[Windowed[Any], Any]) -> Iterator[tuple[Any, int, int, Any]]:
    for key, value in pairs:
        yield key.key, key.window.start, key.window.end, value
