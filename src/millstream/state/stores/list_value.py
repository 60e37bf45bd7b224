"""List-valued stores: every put adds a value to a key's list. For results that wait for their match.

A list is stored in the bytes of Kafka's list serde::

    01 | number of values (4) | length (4) | value | length (4) | value ...
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Generic, TypeVar

from millstream.state.stores.key_value_iterator import KeyValueIterator
from millstream.state.stores.store import StateStore

K = TypeVar("K")
V = TypeVar("V")

_HEAD: Final = struct.Struct(">BI")
_LENGTH: Final = struct.Struct(">I")
_VARIABLE_SIZES: Final = 1


class ListValueStore(StateStore[K], Generic[K, V]):
    """Lists of values by key.

    >>> from millstream import serdes, stores
    >>> from millstream.state.backends.memory import MemoryBackend
    >>> from millstream.state.stores.factory import open_store
    >>> store = open_store(stores.list_value("waiting"), MemoryBackend(), serdes.string, serdes.int64)
    >>> store.put("ann", 1)
    >>> store.put("ann", 2)
    >>> store.put("bob", 3)
    >>> store.get("ann")
    [1, 2]
    >>> list(store.range(None, "ann")), list(store.all())
    ([('ann', 1), ('ann', 2)], [('ann', 1), ('ann', 2), ('bob', 3)])
    >>> store.delete("ann")
    [1, 2]
    >>> store.get("ann")
    []
    >>> store.save_encoded([(b"eve", [bytes(8), bytes(8)]), (b"bob", [])])
    >>> [row for row, _ in store.scan_encoded()], store.load_encoded([b"ann", b"bob"])
    ([b'eve'], {})
    """

    def put(self, key: K, value: V | None) -> None:
        """Add a value to the list of a key; None removes the list."""
        row = self._key_bytes(key)
        if value is None:
            self.overlay.put(row, None)
            return
        data = self._value_bytes(value)
        before = self.overlay.get(row) or _HEAD.pack(_VARIABLE_SIZES, 0)
        _, count = _HEAD.unpack_from(before)
        head = _HEAD.pack(_VARIABLE_SIZES, count + 1)
        self.overlay.put(row, head + before[_HEAD.size :] + _LENGTH.pack(len(data)) + data)

    def get(self, key: K) -> list[V]:
        """The values of a key, in the order in which they were put."""
        data = self.overlay.get(self._key_bytes(key))
        return [] if data is None else list(self._values(data))

    def delete(self, key: K) -> list[V]:
        """Remove the list of a key. The values that were in it."""
        values = self.get(key)
        self.put(key, None)
        return values

    def range(self, key_from: K | None, key_to: K | None) -> KeyValueIterator[K, V]:
        """A pair for each value of a range of keys, both inclusive; None leaves a side open."""
        first = None if key_from is None else self._key_bytes(key_from)
        behind = None if key_to is None else self._key_bytes(key_to) + b"\0"
        rows = self.overlay.scan(first, behind)
        return KeyValueIterator(
            (self.key_serde.deserialize(row), value) for row, data in rows for value in self._values(data)
        )

    def all(self) -> KeyValueIterator[K, V]:
        """A pair for each value of all keys."""
        return self.range(None, None)

    def load_encoded(self, rows: Iterable[bytes]) -> dict[bytes, list[bytes]]:
        """The lists of those keys that have one, keys and values as bytes, with one read."""
        found = self.overlay.get_many(rows)
        return {row: list(_encoded_values(data)) for row, data in found.items() if data is not None}

    def scan_encoded(self, *, backward: bool = False) -> Iterator[tuple[bytes, list[bytes]]]:
        """All lists in the order of their keys, keys and values as bytes."""
        scan = self.overlay.scan_reverse if backward else self.overlay.scan
        return ((row, list(_encoded_values(data))) for row, data in scan(None, None))

    def save_encoded(self, lists: Iterable[tuple[bytes, Sequence[bytes]]]) -> None:
        """Write lists, keys and values as bytes; an empty one is removed."""
        self.overlay.put_many([(row, _encoded_list(values) if values else None) for row, values in lists])

    def _values(self, data: bytes) -> Iterator[V]:
        return map(self.value_serde.deserialize, _encoded_values(data))


def _encoded_values(data: bytes) -> Iterator[bytes]:
    position = _HEAD.size
    while position < len(data):
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size + length
        yield data[position - length : position]


def _encoded_list(values: Sequence[bytes]) -> bytes:
    parts = [part for value in values for part in (_LENGTH.pack(len(value)), value)]
    return b"".join([_HEAD.pack(_VARIABLE_SIZES, len(values)), *parts])
