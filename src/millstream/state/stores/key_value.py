"""Key-value stores as a user's processor sees them.

Keys order by their bytes, not by their Python value. A value is encoded when it is put, so changing an
object afterwards changes nothing in the store. Iterators see the store as it was when they were made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from millstream.record import ValueAndTimestamp
from millstream.serdes import Serde
from millstream.state.backends.key_ranges import after_prefix
from millstream.state.stores.cell_store import Cell, CellStore, TimestampedStore
from millstream.state.stores.key_value_iterator import KeyValueIterator
from millstream.state.stores.read_only import ReadOnlyKeyValueStore
from millstream.state.stores.store import StateStore

K = TypeVar("K")
V = TypeVar("V")
P = TypeVar("P")


class KeyValueStore(StateStore[K], ReadOnlyKeyValueStore[K, V]):
    """A store of one task, as a processor sees it: committed state and what the epoch has written.

    >>> from millstream import serdes, stores
    >>> from millstream.state.backends.memory import MemoryBackend
    >>> from millstream.state.stores.factory import open_store
    >>> store = open_store(stores.key_value("stock"), MemoryBackend(), serdes.string, serdes.int64)
    >>> store.put("bread", 3)
    >>> store.put_if_absent("bread", 4)
    3
    >>> store.put_all([("flour", 5), ("salt", 6), ("bread", None)])
    >>> store.delete("salt")
    6
    >>> list(store.all())
    [('flour', 5)]
    """

    def get(self, key: K) -> V | None:
        data = self.overlay.get(self._key_bytes(key))
        return None if data is None else self._decode(data)

    def put(self, key: K, value: V | None) -> None:
        """Set the value of a key; None deletes it."""
        self.overlay.put(self._key_bytes(key), self._encode(value))

    def put_if_absent(self, key: K, value: V | None) -> V | None:
        """Set the value of a key that has none. The value that was there, or None."""
        current = self.get(key)
        if current is None:
            self.put(key, value)
        return current

    def put_all(self, entries: Iterable[tuple[K, V | None]]) -> None:
        """Set many values; None deletes."""
        self.overlay.put_many([(self._key_bytes(key), self._encode(value)) for key, value in entries])

    def delete(self, key: K) -> V | None:
        """Remove a key. The value that was there, or None."""
        current = self.get(key)
        self.overlay.put(self._key_bytes(key), None)
        return current

    def range(self, start: K | None, end: K | None) -> KeyValueIterator[K, V]:
        return self._pairs(self.overlay.scan(*self._bounds(start, end)))

    def reverse_range(self, start: K | None, end: K | None) -> KeyValueIterator[K, V]:
        return self._pairs(self.overlay.scan_reverse(*self._bounds(start, end)))

    def prefix_scan(self, prefix: P, prefix_serde: Serde[P]) -> KeyValueIterator[K, V]:
        start = prefix_serde.serialize(prefix)
        return self._pairs(self.overlay.scan(start, after_prefix(start)))

    def approximate_num_entries(self) -> int:
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

    >>> from millstream import serdes, stores
    >>> from millstream.state.backends.memory import MemoryBackend
    >>> from millstream.state.stores.factory import open_store
    >>> spec = stores.timestamped_key_value("prices")
    >>> prices = open_store(spec, MemoryBackend(), serdes.string, serdes.int64)
    >>> prices.put("bread", ValueAndTimestamp(3, timestamp=5))
    >>> prices.get("bread")
    ValueAndTimestamp(value=3, timestamp=5)
    """

    def as_of_now(self, keys: Iterable[bytes]) -> Callable[[Iterable[bytes]], Mapping[bytes, Cell]]:
        """See `CellStore.as_of_now`: what is committed does not change, so it can be read later."""
        written = self.overlay.written(keys)

        def read(wanted: Iterable[bytes]) -> Mapping[bytes, Cell]:
            found = {key: written[key] for key in wanted if key in written}
            found.update(self._read_committed(key for key in wanted if key not in written))
            return self._frozen(found)

        return read
