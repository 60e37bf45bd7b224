"""Key-value stores as a user's processor sees them.

Keys order by their bytes, not by their Python value. A value is encoded when it is put, so changing an
object afterwards changes nothing in the store. Iterators see the store as it was when they were made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from millstream.errors import StoreError
from millstream.record import ValueAndTimestamp
from millstream.serdes import Serde
from millstream.state.backends.key_ranges import after_prefix
from millstream.state.stores.cell_store import CellStore, TimestampedStore
from millstream.state.stores.overlay import Overlay  # noqa: F401 - for the examples
from millstream.state.stores.store import StateStore

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class KeyValueIterator(Generic[K, V]):
    """Key-value pairs in key order. A context manager, because a backend may hold resources for it.

    >>> with KeyValueIterator(iter([("a", 1), ("b", 2)])) as pairs:
    ...     dict(pairs)
    {'a': 1, 'b': 2}
    """

    def __init__(self, pairs: Iterator[tuple[K, V]]) -> None:
        self._pairs = pairs

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return self

    def __next__(self) -> tuple[K, V]:
        return next(self._pairs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of what the iterator holds.

        >>> pairs = KeyValueIterator(pair for pair in [("a", 1), ("b", 2)])
        >>> next(pairs)
        ('a', 1)
        >>> pairs.close()
        >>> list(pairs)
        []
        """
        close = getattr(self._pairs, "close", None)
        if close is not None:
            close()


class KeyValueStore(StateStore[K], Generic[K, V]):
    """A store of one task, as a processor sees it: committed state and what the epoch has written.

    >>> from millstream import serdes
    >>> from millstream.state.backends.memory import MemoryBackend
    >>> store = KeyValueStore("stock", Overlay(MemoryBackend()), serdes.string, serdes.int64)
    >>> store.put("bread", 3)
    >>> store.get("bread")
    3
    """

    def get(self, key: K) -> V | None:
        """The value of a key, or None.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> store = KeyValueStore("stock", Overlay(MemoryBackend()), serdes.string, serdes.int64)
        >>> store.get("bread") is None
        True
        """
        data = self.overlay.get(self._key_bytes(key))
        return None if data is None else self._decode(data)

    def put(self, key: K, value: V | None) -> None:
        """Set the value of a key; None deletes it.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> store = KeyValueStore("stock", Overlay(MemoryBackend()), serdes.string, serdes.int64)
        >>> store.put("bread", 3)
        >>> store.put("bread", None)
        >>> store.get("bread") is None
        True
        """
        self.overlay.put(self._key_bytes(key), self._encode(value))

    def put_if_absent(self, key: K, value: V | None) -> V | None:
        """Set the value of a key that has none. The value that was there, or None.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> store = KeyValueStore("stock", Overlay(MemoryBackend()), serdes.string, serdes.int64)
        >>> store.put_if_absent("bread", 3)
        >>> store.put_if_absent("bread", 4)
        3
        """
        current = self.get(key)
        if current is None:
            self.put(key, value)
        return current

    def put_all(self, entries: Iterable[tuple[K, V | None]]) -> None:
        """Set many values; None deletes.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> store = KeyValueStore("stock", Overlay(MemoryBackend()), serdes.string, serdes.int64)
        >>> store.put_all([("bread", 3), ("flour", 5), ("bread", None)])
        >>> list(store.all())
        [('flour', 5)]
        """
        self.overlay.put_many([(self._key_bytes(key), self._encode(value)) for key, value in entries])

    def delete(self, key: K) -> V | None:
        """Remove a key. The value that was there, or None.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> store = KeyValueStore("stock", Overlay(MemoryBackend()), serdes.string, serdes.int64)
        >>> store.put("bread", 3)
        >>> store.delete("bread")
        3
        """
        current = self.get(key)
        self.overlay.put(self._key_bytes(key), None)
        return current

    def range(self, start: K | None, end: K | None) -> KeyValueIterator[K, V]:
        """Pairs from `start` to `end`, both inclusive; None leaves a side open.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> store = KeyValueStore("stock", Overlay(MemoryBackend()), serdes.string, serdes.int64)
        >>> store.put_all([("a", 1), ("b", 2), ("c", 3)])
        >>> with store.range("b", None) as pairs:
        ...     list(pairs)
        [('b', 2), ('c', 3)]
        """
        return self._pairs(self.overlay.scan(*self._bounds(start, end)))

    def reverse_range(self, start: K | None, end: K | None) -> KeyValueIterator[K, V]:
        """The same pairs, last key first.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> store = KeyValueStore("stock", Overlay(MemoryBackend()), serdes.string, serdes.int64)
        >>> store.put_all([("a", 1), ("b", 2), ("c", 3)])
        >>> with store.reverse_range("a", "b") as pairs:
        ...     list(pairs)
        [('b', 2), ('a', 1)]
        """
        return self._pairs(self.overlay.scan_reverse(*self._bounds(start, end)))

    def prefix_scan(self, prefix: T, prefix_serde: Serde[T]) -> KeyValueIterator[K, V]:
        """Pairs whose key bytes begin with the serialized prefix.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> store = KeyValueStore("stock", Overlay(MemoryBackend()), serdes.string, serdes.int64)
        >>> store.put_all([("rain", 1), ("river", 2), ("road", 3)])
        >>> with store.prefix_scan("r", serdes.string) as pairs:
        ...     [key for key, _ in pairs]
        ['rain', 'river', 'road']
        >>> with store.prefix_scan("ri", serdes.string) as pairs:
        ...     dict(pairs)
        {'river': 2}
        """
        start = prefix_serde.serialize(prefix)
        return self._pairs(self.overlay.scan(start, after_prefix(start)))

    def all(self) -> KeyValueIterator[K, V]:
        """All pairs.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> store = KeyValueStore("stock", Overlay(MemoryBackend()), serdes.string, serdes.int64)
        >>> store.put_all([("b", 2), ("a", 1)])
        >>> with store.all() as pairs:
        ...     list(pairs)
        [('a', 1), ('b', 2)]
        """
        return self._pairs(self.overlay.scan(None, None))

    def reverse_all(self) -> KeyValueIterator[K, V]:
        """All pairs, last key first.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> store = KeyValueStore("stock", Overlay(MemoryBackend()), serdes.string, serdes.int64)
        >>> store.put_all([("b", 2), ("a", 1)])
        >>> with store.reverse_all() as pairs:
        ...     list(pairs)
        [('b', 2), ('a', 1)]
        """
        return self._pairs(self.overlay.scan_reverse(None, None))

    def approximate_num_entries(self) -> int:
        """About how many pairs there are, without a scan: RocksDB estimates it, memory knows it.

        RocksDB counts a pair again for each time that it was overwritten, until it is compacted.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> store = KeyValueStore("stock", Overlay(MemoryBackend()), serdes.string, serdes.int64)
        >>> store.put("bread", 3)
        >>> store.approximate_num_entries()
        1
        """
        return self.overlay.approximate_count()

    def _pairs(self, entries: Iterator[tuple[bytes, bytes]]) -> KeyValueIterator[K, V]:
        return KeyValueIterator(
            (self.key_serde.deserialize(key), self._decode(data)) for key, data in entries
        )

    def _bounds(self, start: K | None, end: K | None) -> tuple[bytes | None, bytes | None]:
        first = None if start is None else self._key_bytes(start)
        last = None if end is None else self._key_bytes(end)
        if first is not None and last is not None and first > last:
            return first, first
        return first, None if last is None else last + b"\x00"


class TimestampedKeyValueStore(KeyValueStore[K, ValueAndTimestamp[Any]], TimestampedStore[K], CellStore[K]):
    """A key-value store that keeps a timestamp beside each value. Tables live in one.

    >>> from millstream import serdes
    >>> from millstream.state.backends.memory import MemoryBackend
    >>> prices = TimestampedKeyValueStore("prices", Overlay(MemoryBackend()), serdes.string, serdes.int64)
    >>> prices.put("bread", ValueAndTimestamp(3, timestamp=5))
    >>> prices.get("bread")
    ValueAndTimestamp(value=3, timestamp=5)
    """


class ReadOnlyStore:
    """A store that may be looked at: a global one, which only its own source writes."""

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
