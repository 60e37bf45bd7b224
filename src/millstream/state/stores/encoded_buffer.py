r"""`EncodedBuffer`: a time-ordered buffer in bytes, as it is stored, and as operators use it: in bulk.

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
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from millstream.record import Headers
from millstream.serdes import Serde, serialize_column
from millstream.state.specs import StoreBuilder
from millstream.state.stores.overlay import Entry, Overlay
from millstream.state.stores.store import StateStore

__all__ = ["EncodedBuffer", "EncodedRecord"]

K = TypeVar("K")

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
_FIXED_BYTES: Final = len(_RECORD) + _TIME.size + _NUMBER.size + _HEAD.size
"""What a row has besides the record's key, headers and values."""


class EncodedRecord(NamedTuple):
    """A record that waits, as it is stored: key and values are bytes. For operators, which make many."""

    key: bytes
    value: bytes | None
    timestamp: int
    time: int
    headers: Headers = ()
    old_value: bytes | None = None
    number: int = 0
    """Tells records of a key apart that wait for the same time."""

    @property
    def row(self) -> bytes:
        """The key of its row. Records leave in the order of these."""
        return _RECORD + _TIME.pack(self.time) + self.key + _NUMBER.pack(self.number)

    @property
    def data(self) -> bytes:
        """The rest of it."""
        parts: list[bytes | None] = []
        for name, value in self.headers:
            parts += (name.encode(), value)
        parts += [data for data in (self.value, self.old_value) if data is not None]
        flags = (self.value is not None) * _HAS_VALUE + (self.old_value is not None) * _HAS_OLD
        return _HEAD.pack(self.timestamp, flags, len(self.headers)) + b"".join(
            _NUMBER.pack(_MISSING) if part is None else _NUMBER.pack(len(part)) + part for part in parts
        )

    @property
    def num_bytes(self) -> int:
        """How many bytes it takes."""
        size = _FIXED_BYTES + len(self.key)
        if self.value is not None:
            size += _NUMBER.size + len(self.value)
        if self.old_value is not None:
            size += _NUMBER.size + len(self.old_value)
        for name, value in self.headers:
            size += 2 * _NUMBER.size + len(name.encode()) + len(value or b"")
        return size

    @classmethod
    def of(cls, row: bytes, data: bytes) -> EncodedRecord:
        """Undo `row` and `data`."""
        timestamp, flags, headers = _HEAD.unpack_from(data)
        parts = _parts(data)
        named = tuple(((next(parts) or b"").decode(), next(parts)) for _ in range(headers))
        value = next(parts) if flags & _HAS_VALUE else None
        old = next(parts) if flags & _HAS_OLD else None
        (number,) = _NUMBER.unpack_from(row, len(row) - _NUMBER.size)
        return cls(row[9:-4], value, timestamp, _TIME.unpack_from(row, 1)[0], named, old, number)


class EncodedBuffer(StateStore[K]):
    """Records in bytes, by the time that they wait for. Every call takes many, with one read or one write.

    >>> from millstream import serdes, stores
    >>> from millstream.state.backends.memory import MemoryBackend
    >>> from millstream.state.stores.factory import open_store
    >>> buffer = open_store(
    ...     stores.time_ordered_buffer("waiting"), MemoryBackend(), serdes.string, serdes.string
    ... )
    >>> records = buffer.encode(["ann", "bob"], ["1", "2"], [5, 7], [5, 7], [(), ()], [None, "1"])
    >>> buffer.write((), records)
    >>> buffer.load([b"bob", b"eve"])[b"bob"].old_value
    b'1'
    >>> [record.key for record in buffer.waiting(until=6)], len(buffer)
    ([b'ann'], 2)
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

    def encode(
        self,
        keys: Sequence[K],
        values: Sequence[Any],
        timestamps: Sequence[int],
        times: Sequence[int],
        headers: Sequence[Headers],
        old_values: Sequence[Any],
    ) -> list[EncodedRecord]:
        """Records from columns. Raises a `ColumnError` if one of them can't be encoded."""
        data = (
            serialize_column(self.key_serde, keys),
            serialize_column(self.value_serde, values),
            serialize_column(self.value_serde, old_values),
        )
        return list(map(EncodedRecord, data[0], data[1], timestamps, times, headers, data[2]))

    def encode_one(
        self, key: K, value: Any, timestamp: int, time: int, headers: Headers, old_value: Any
    ) -> EncodedRecord:
        """A record from its fields."""
        data = self._key_bytes(key), self._encode(value), self._encode(old_value)
        return EncodedRecord(data[0], data[1], timestamp, time, headers, data[2])

    def next_number(self) -> int:
        """A number that tells records of a key apart that wait for the same time."""
        self._number = (self._number + 1) & 0x7FFFFFFF
        return self._number

    def load(self, keys: Iterable[bytes]) -> dict[bytes, EncodedRecord]:
        """The records of some keys, of those that have one waiting. Only with one record per key."""
        times = self.overlay.get_many([_INDEX + key for key in keys])
        rows = [
            _RECORD + time + index[1:] + _NUMBER.pack(0) for index, time in times.items() if time is not None
        ]
        found = self.overlay.get_many(rows) if rows else {}
        return {row[9:-4]: EncodedRecord.of(row, data) for row, data in found.items() if data is not None}

    def waiting(self, until: int | None = None) -> Iterator[EncodedRecord]:
        """What waits for a time up to this one, inclusive, or all that waits, in order; read when used."""
        if until is not None and until < 0:
            return iter(())
        behind = _INDEX if until is None else _RECORD + _BEHIND.pack(until + 1)
        return (EncodedRecord.of(row, data) for row, data in self.overlay.scan(self._lowest, behind))

    def write(self, taken: Iterable[EncodedRecord], put: Iterable[EncodedRecord]) -> None:
        """Take records out that wait, and put others in, or the same ones with other values.

        Those that leave for good must be the first ones that wait.
        """
        gone = {record.row: record for record in taken}
        new = {record.row: record for record in put}
        rows: dict[bytes, bytes | None] = {row: None for row in gone if row not in new}
        rows.update((row, record.data) for row, record in new.items())
        if not self.retain_duplicates:
            rows.update((_INDEX + record.key, None) for record in gone.values())
            rows.update((_INDEX + record.key, _TIME.pack(record.time)) for record in new.values())
        self.overlay.put_many(rows.items())
        self._lowest = min([max([self._lowest, *(gone.keys() - new.keys())]), *new])
        self._records += len(new) - len(gone)
        self._bytes += sum(record.num_bytes for record in new.values())
        self._bytes -= sum(record.num_bytes for record in gone.values())

    def _first(self) -> EncodedRecord | None:
        first = self.overlay.first(self._lowest, _INDEX)
        return None if first is None else EncodedRecord.of(*first)

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
