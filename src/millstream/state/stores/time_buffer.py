r"""Time-ordered buffers: records that wait until time has come far enough. For suppression and join grace.

Records leave in the order of their times, then of the bytes of their rows: of their keys, unless one key is
another one with zero bytes behind it. A buffer keeps one record per key, as suppression needs it (a later one
takes the place, and the time, of the one that waits), or, with `retain_duplicates`, every record.

::

    (empty)                          -> number of records (8) | their bytes (8) | last number given (4)
    00 | time (8) | key | number (4) -> the record
    01 | key                         -> time (8)                         only with one record per key

The record is its timestamp (8), a byte with bit 0 for a value and bit 1 for an old value, the number of
headers (4), then name, value, key ... each as a length (4) and bytes, a missing header value as ff ff ff ff.
All numbers are big endian.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from millstream.record import Headers
from millstream.serdes import Serde
from millstream.state.specs import StoreBuilder
from millstream.state.stores.overlay import Entry, Overlay
from millstream.state.stores.store import StateStore

__all__ = ["Buffered", "TimeOrderedBuffer"]

K = TypeVar("K")
V = TypeVar("V")

_NOTE_KEY: Final = b""
_NOTE: Final = struct.Struct(">QQI")
_RECORD: Final = b"\0"
_INDEX: Final = b"\1"
_TIME: Final = struct.Struct(">q")
_BEHIND: Final = struct.Struct(">Q")
_NUMBER: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">qBI")
_MISSING: Final = 0xFFFFFFFF
_HAS_VALUE: Final = 1
_HAS_OLD: Final = 2


@dataclass(frozen=True, slots=True)
class Buffered(Generic[K, V]):
    """A record that waits.

    >>> Buffered("ann", 1, timestamp=7, time=5).time
    5
    """

    key: K
    value: V | None
    timestamp: int
    time: int
    """When it may leave: the time that it waits for."""
    headers: Headers = ()
    old_value: V | None = None
    """What the receiver was told of this key last, for operators that send old values along."""


class TimeOrderedBuffer(StateStore[K], Generic[K, V]):
    """Records by the time that they wait for.

    >>> from millstream import serdes, stores
    >>> from millstream.state.backends.memory import MemoryBackend
    >>> from millstream.state.stores.factory import open_store
    >>> spec = stores.time_ordered_buffer("waiting")
    >>> buffer = open_store(spec, MemoryBackend(), serdes.string, serdes.int64)
    >>> buffer.put(Buffered("bob", 1, timestamp=5, time=5))
    >>> buffer.put(Buffered("ann", 2, timestamp=7, time=7))
    >>> buffer.put(Buffered("bob", 3, timestamp=9, time=9))
    >>> len(buffer), buffer.earliest_time(), buffer.get("bob").value
    (2, 5, 3)
    >>> [(record.key, record.value) for record in buffer.evict_while(lambda: buffer.earliest_time() <= 5)]
    [('bob', 3)]
    >>> [record.key for record in buffer.all()], buffer.num_bytes > 0
    (['ann'], True)
    """

    def __init__(self, spec: StoreBuilder, overlay: Overlay, key: Serde[K], value: Serde[Any]) -> None:
        super().__init__(spec, overlay, key, value)
        self.retain_duplicates = spec.retain_duplicates
        self._records = self._bytes = self._number = 0
        self._note_before = b""
        self._lowest = _RECORD
        """No record is before this row. Records leave at the front, so it is where what was deleted ends."""
        self._read_note()

    def __len__(self) -> int:
        return self._records

    @property
    def num_bytes(self) -> int:
        """How many bytes the keys and records take that wait."""
        return self._bytes

    def put(self, record: Buffered[K, V]) -> None:
        """Let a record wait.

        With one record per key, one that waits already is replaced, and the new one waits for the time, and
        has the old value, of the one before it.
        """
        key = self._key_bytes(record.key)
        if self.retain_duplicates:
            self._number = (self._number + 1) & 0x7FFFFFFF
            self._put_row(key, record.time, self._number, self._record_bytes(record))
            return
        waiting = self.overlay.get(_INDEX + key)
        if waiting is None:
            self.overlay.put(_INDEX + key, _TIME.pack(record.time))
            self._put_row(key, record.time, 0, self._record_bytes(record))
            return
        (time,) = _TIME.unpack(waiting)
        row = _RECORD + waiting + key + _NUMBER.pack(0)
        before = self.overlay.get(row)
        assert before is not None  # the index and the records change together
        self._count(-1, row, before)
        old = self._record(row, before).old_value
        kept = Buffered(record.key, record.value, record.timestamp, time, record.headers, old)
        self._put_row(key, time, 0, self._record_bytes(kept))

    def get(self, key: K) -> Buffered[K, V] | None:
        """The record of a key that waits; None if there is none. Only with one record per key."""
        data = self._key_bytes(key)
        waiting = self.overlay.get(_INDEX + data)
        if waiting is None:
            return None
        row = _RECORD + waiting + data + _NUMBER.pack(0)
        found = self.overlay.get(row)
        return None if found is None else self._record(row, found)

    def earliest_time(self) -> int | None:
        """The time of the record that leaves next; None if nothing waits."""
        first = self._first()
        return None if first is None else _time_of(first[0])

    def evict_while(self, may_leave: Callable[[], bool]) -> Iterator[Buffered[K, V]]:
        """Take records out in order, for as long as the predicate holds and there are any.

        The predicate is asked before each record, and may look at the buffer. If time alone decides,
        `evict_until` is faster.
        """
        while (first := self._first()) is not None and may_leave():
            yield self._take(*first)

    def evict_until(self, time: int) -> list[Buffered[K, V]]:
        """Take all records out that wait for a time up to this one, inclusive.

        >>> from millstream import serdes, stores
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> from millstream.state.stores.factory import open_store
        >>> spec = stores.time_ordered_buffer("waiting", retain_duplicates=True)
        >>> buffer = open_store(spec, MemoryBackend(), serdes.string, serdes.int64)
        >>> for time in (5, 5, 9):
        ...     buffer.put(Buffered("ann", time, timestamp=time, time=time))
        >>> [record.value for record in buffer.evict_until(5)], len(buffer)
        ([5, 5], 1)
        """
        if time < 0:
            return []
        behind = _RECORD + _BEHIND.pack(time + 1)
        return [self._take(row, data) for row, data in self.overlay.scan(self._lowest, behind)]

    def all(self) -> Iterator[Buffered[K, V]]:
        """All records that wait, in order."""
        return (self._record(row, data) for row, data in self.overlay.scan(_RECORD, _INDEX))

    def _first(self) -> tuple[bytes, bytes] | None:
        return self.overlay.first(self._lowest, _INDEX)

    def _take(self, row: bytes, data: bytes) -> Buffered[K, V]:
        self.overlay.put(row, None)
        self._lowest = row
        if not self.retain_duplicates:
            self.overlay.put(_INDEX + row[9:-4], None)
        self._count(-1, row, data)
        return self._record(row, data)

    def _put_row(self, key: bytes, time: int, number: int, data: bytes) -> None:
        row = _RECORD + _TIME.pack(time) + key + _NUMBER.pack(number)
        self.overlay.put(row, data)
        self._lowest = min(self._lowest, row)
        self._count(1, row, data)

    def _count(self, sign: int, row: bytes, data: bytes) -> None:
        self._records += sign
        self._bytes += sign * (len(row) + len(data))

    def _record_bytes(self, record: Buffered[K, V]) -> bytes:
        parts: list[bytes | None] = []
        for name, value in record.headers:
            parts += (name.encode(), value)
        has_value, has_old = record.value is not None, record.old_value is not None
        if has_value:
            parts.append(self._value_bytes(record.value))
        if has_old:
            parts.append(self._value_bytes(record.old_value))
        flags = has_value * _HAS_VALUE + has_old * _HAS_OLD
        head = _HEAD.pack(record.timestamp, flags, len(record.headers))
        return head + b"".join(
            _NUMBER.pack(_MISSING) if part is None else _NUMBER.pack(len(part)) + part for part in parts
        )

    def _record(self, row: bytes, data: bytes) -> Buffered[K, V]:
        timestamp, flags, headers = _HEAD.unpack_from(data)
        parts = _parts(data)
        named = tuple(((next(parts) or b"").decode(), next(parts)) for _ in range(headers))
        value = self._decode(next(parts) or b"") if flags & _HAS_VALUE else None
        old = self._decode(next(parts) or b"") if flags & _HAS_OLD else None
        key = self.key_serde.deserialize(row[9:-4])
        return Buffered(key, value, timestamp, _time_of(row), named, old)

    def _changes(self) -> Sequence[Entry]:
        entries = super()._changes()
        note = _NOTE.pack(self._records, self._bytes, self._number)
        return entries if note == self._note_before else [(_NOTE_KEY, note), *entries]

    def _committed(self) -> None:
        super()._committed()
        self._read_note()

    def _forget(self) -> None:
        super()._forget()
        self._lowest = _RECORD
        self._read_note()

    def _read_note(self) -> None:
        data = self.overlay.committed.get_many((_NOTE_KEY,))[0] or _NOTE.pack(0, 0, 0)
        self._note_before = data
        self._records, self._bytes, self._number = _NOTE.unpack(data)


def _time_of(row: bytes) -> int:
    time: int = _TIME.unpack_from(row, 1)[0]
    return time


def _parts(data: bytes) -> Iterator[bytes | None]:
    position = _HEAD.size
    while position < len(data):
        (length,) = _NUMBER.unpack_from(data, position)
        position += _NUMBER.size
        if length == _MISSING:
            yield None
            continue
        yield data[position : position + length]
        position += length
