"""Typed faces of a key-value store: what a user's processor calls, and the bulk calls of operators.

Keys order by their bytes, not by their Python value. A value is encoded when it is put, so changing an
object afterwards changes nothing in the store. Iterators see the store as it was when they were made.

A timestamped value is the 8 bytes of its timestamp (big endian) and then the value's own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from millstream.errors import StoreError
from millstream.record import ValueAndTimestamp
from millstream.serdes import Serde, deserialize_column, serialize_column
from millstream.state.backends.key_ranges import after_prefix
from millstream.state.stores.overlay import Overlay
from millstream.state.stores.store import StateStore

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

_TIMESTAMP = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class Frozen:
    """A value that stays bytes until somebody reads it, and is decoded anew for each reader.

    A user's function may change a list or an object in place. One record at a time, every read of a store
    gives a fresh object; a batch keeps values in a dictionary, so it keeps such values as bytes.
    """

    data: bytes


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

    def _encode(self, value: V | None) -> bytes | None:
        return None if value is None else self._value_bytes(value)

    def _decode(self, data: bytes) -> V:
        value: V = self.value_serde.deserialize(data)
        return value


class TimestampedKeyValueStore(KeyValueStore[K, ValueAndTimestamp[Any]]):
    """A key-value store that keeps a timestamp beside each value. Tables live in one.

    The methods below are for operators: whole columns, one read and one write of the backend.

    >>> from millstream import serdes
    >>> from millstream.state.backends.memory import MemoryBackend
    >>> prices = TimestampedKeyValueStore("prices", Overlay(MemoryBackend()), serdes.string, serdes.int64)
    >>> prices.put("bread", ValueAndTimestamp(3, timestamp=5))
    >>> prices.get("bread")
    ValueAndTimestamp(value=3, timestamp=5)
    """

    def __init__(self, name: str, overlay: Overlay, key: Serde[K], value: Serde[Any]) -> None:
        super().__init__(name, overlay, key, value)
        self.pending_updates: list[tuple[Sequence[bytes], Any]] = []
        """With caching: updates that go on when the epoch ends, as key bytes and rows of operators."""

    def _forget(self) -> None:
        """Drop what the epoch has written and held back."""
        super()._forget()
        self.pending_updates = []

    def encode_keys(self, keys: Sequence[K]) -> list[bytes]:
        """The bytes of a column of keys, none of them None.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> prices = TimestampedKeyValueStore("prices", Overlay(MemoryBackend()), serdes.string, serdes.int64)
        >>> prices.encode_keys(["a", "b"])
        [b'a', b'b']
        """
        return serialize_column(self.key_serde, keys)  # type: ignore[return-value]

    def load(self, keys: Iterable[bytes]) -> dict[bytes, tuple[Any, int] | None]:
        """Value and timestamp of each distinct key, as of now.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> prices = TimestampedKeyValueStore("prices", Overlay(MemoryBackend()), serdes.string, serdes.int64)
        >>> prices.save({b"a": (1, 5)})
        >>> prices.load([b"a", b"b", b"a"])
        {b'a': (1, 5), b'b': None}
        """
        return self._cells(self.overlay.get_many(keys))

    def load_settled(self, keys: Iterable[bytes]) -> dict[bytes, tuple[Any, int] | None]:
        """Like `load`, but what a user's function might change in place stays bytes: see `Frozen`.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> lists = TimestampedKeyValueStore("lists", Overlay(MemoryBackend()), serdes.string, serdes.json)
        >>> lists.save({b"a": ([1], 5)})
        >>> lists.load_settled([b"a"])
        {b'a': (Frozen(data=b'[1]'), 5)}
        """
        if self.exact_types:
            return self.load(keys)
        unpack = _TIMESTAMP.unpack_from
        return {
            key: None if data is None else (Frozen(data[8:]), unpack(data)[0])
            for key, data in self.overlay.get_many(keys).items()
        }

    @property
    def exact_types(self) -> frozenset[type]:
        """Types whose values a cell keeps as they are.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> names = TimestampedKeyValueStore("names", Overlay(MemoryBackend()), serdes.string, serdes.string)
        >>> names.exact_types
        frozenset({<class 'str'>})
        """
        exact: frozenset[type] = getattr(self.value_serde, "exact_types", frozenset())
        return exact

    def frozen(self, value: Any) -> Any:
        """A value as a cell keeps it: itself, if nobody can change it and its bytes give it back; else bytes.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> lists = TimestampedKeyValueStore("lists", Overlay(MemoryBackend()), serdes.string, serdes.json)
        >>> lists.frozen([1])
        Frozen(data=b'[1]')
        """
        kind = type(value)
        if kind in self.exact_types or value is None or kind is Frozen:
            return value
        return Frozen(self._value_bytes(value))

    def encode_value(self, value: Any) -> bytes:
        """The bytes of a value, settled or not.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> names = TimestampedKeyValueStore("names", Overlay(MemoryBackend()), serdes.string, serdes.string)
        >>> names.encode_value("a")
        b'a'
        """
        return value.data if type(value) is Frozen else self._value_bytes(value)

    def thawed(self, frozen: Any) -> Any:
        """What a reader of a cell gets: an object that nobody else holds.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> lists = TimestampedKeyValueStore("lists", Overlay(MemoryBackend()), serdes.string, serdes.json)
        >>> lists.thawed(lists.frozen([1]))
        [1]
        """
        return self.value_serde.deserialize(frozen.data) if type(frozen) is Frozen else frozen

    def load_committed(self, keys: Iterable[bytes]) -> dict[bytes, tuple[Any, int] | None]:
        """Value and timestamp of each distinct key, as of the end of the last epoch.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> prices = TimestampedKeyValueStore("prices", Overlay(MemoryBackend()), serdes.string, serdes.int64)
        >>> prices.save({b"a": (1, 5)})
        >>> prices.load_committed([b"a"])
        {b'a': None}
        """
        ordered = sorted(set(keys))
        return self._cells(dict(zip(ordered, self.overlay.committed.get_many(ordered), strict=True)))

    def save(self, cells: Mapping[bytes, tuple[Any, int] | None]) -> None:
        """Write cells; None deletes.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> prices = TimestampedKeyValueStore("prices", Overlay(MemoryBackend()), serdes.string, serdes.int64)
        >>> prices.save({b"a": (1, 5), b"b": None})
        >>> prices.load([b"a", b"b"])
        {b'a': (1, 5), b'b': None}
        """
        present = [cell for cell in cells.values() if cell is not None]
        encoded = self._encoded([cell[0] for cell in present])
        times = map(_TIMESTAMP.pack, [cell[1] for cell in present])
        written: Iterable[bytes] = cells
        if len(present) < len(cells):
            self.overlay.put_many((key, None) for key, cell in cells.items() if cell is None)
            written = [key for key, cell in cells.items() if cell is not None]
        self.overlay.put_many(zip(written, map(bytes.__add__, times, encoded), strict=True))

    def _encoded(self, values: Sequence[Any]) -> list[bytes]:
        if Frozen not in set(map(type, values)):
            return serialize_column(self.value_serde, values)  # type: ignore[return-value]
        return [self.encode_value(value) for value in values]

    def _cells(self, found: Mapping[bytes, bytes | None]) -> dict[bytes, tuple[Any, int] | None]:
        present = [data for data in found.values() if data is not None]
        values = deserialize_column(self.value_serde, [data[8:] for data in present])
        times = struct.unpack(f">{len(present)}q", b"".join([data[:8] for data in present]))
        if len(present) == len(found):
            return dict(zip(found, zip(values, times, strict=True), strict=True))
        cells: dict[bytes, tuple[Any, int] | None] = dict.fromkeys(found)
        cells.update(
            zip(
                [key for key, data in found.items() if data is not None],
                zip(values, times, strict=True),
                strict=True,
            )
        )
        return cells

    def _encode(self, value: ValueAndTimestamp[Any] | None) -> bytes | None:
        if value is None:
            return None
        return _TIMESTAMP.pack(value.timestamp) + self._value_bytes(value.value)

    def _decode(self, data: bytes) -> ValueAndTimestamp[Any]:
        return ValueAndTimestamp(self.value_serde.deserialize(data[8:]), _TIMESTAMP.unpack_from(data)[0])


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
