r"""The keys of rows that belong to a key and a time, within their segment: two orders, each as Kafka has it.

A row is known by the bytes of its key and two numbers, its **time** (which also chooses its segment) and a
second one. For a window these are its start and a sequence number (0, unless duplicates are kept); for a
session its end and its start.

::

    by key    key | time (8) | second                        second: 4 bytes for windows, 8 for sessions
    by time   00 | time (8) | second | key    -> value
              01 | key | time (8) | second    -> empty       the index, to find the rows of a key

All numbers are big endian and not negative, so that bytes and numbers have one order. Keys have no length in
front of them: that would not sort. So a range of the rows of one key may hold rows of longer keys that begin
with it, and these are told by their length and left out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeAlias

from millstream.state.backends.key_ranges import after_prefix, disjoint
from millstream.state.stores.overlay import Entry, Overlay
from millstream.state.stores.segments import SEGMENT_BYTES

__all__ = ["SESSION", "WINDOW", "KeyBounds", "Rows", "RowsByKey", "RowsByTime", "Scan", "WindowedRow"]

WINDOW: Final = struct.Struct(">qI")
SESSION: Final = struct.Struct(">qq")
_TIME: Final = struct.Struct(">Q")
_HIGHEST: Final = {WINDOW.format: 2**32 - 1, SESSION.format: 2**63 - 1}
_DENSE_FROM: Final = 4
"""If one row of so many is wanted, it is cheaper to read all of them."""
_ROW: Final = b"\0"
_INDEX: Final = b"\1"

WindowedRow: TypeAlias = tuple[bytes, int, int, bytes]
"""Key, time, second number, value."""
KeyBounds: TypeAlias = tuple[bytes | None, bytes | None]
"""The first and the last key, both inclusive; None leaves a side open."""
Scan: TypeAlias = Callable[[bytes | None, bytes | None], Iterator[tuple[bytes, bytes]]]
"""`Overlay.scan` or `Overlay.scan_reverse`."""


class Rows(Protocol):
    """Where the rows of a segment are. What a method gives was there when it was called."""

    def entries(
        self, segment: bytes, key: bytes, numbers: tuple[int, int], value: bytes | None
    ) -> tuple[Entry, ...]:
        """What has to be written for a row; None deletes it."""

    def row_key(self, segment: bytes, key: bytes, numbers: tuple[int, int]) -> bytes:
        """Under which key the value of a row is stored."""

    def of_key(
        self, overlay: Overlay, scan: Scan, segment: bytes, key: bytes, first: int, last: int
    ) -> Iterator[WindowedRow]:
        """The rows of a key between two times, both inclusive, by time."""

    def of_each(
        self, overlay: Overlay, segments: Sequence[bytes], keys: Iterable[bytes], first: int, last: int
    ) -> Iterator[WindowedRow]:
        """The rows of some keys between two times, those of each key by time."""

    def of_keys(
        self, scan: Scan, segment: bytes, keys: KeyBounds, first: int, last: int
    ) -> Iterator[WindowedRow]:
        """The rows of a range of keys between two times, in the order of the rows."""


class RowsByKey:
    """Rows in the order of their keys."""

    def __init__(self, numbers: struct.Struct) -> None:
        self._numbers = numbers
        self._highest = _HIGHEST[numbers.format]

    def entries(
        self, segment: bytes, key: bytes, numbers: tuple[int, int], value: bytes | None
    ) -> tuple[Entry, ...]:
        """See `Rows.entries`."""
        return ((segment + key + self._numbers.pack(*numbers), value),)

    def row_key(self, segment: bytes, key: bytes, numbers: tuple[int, int]) -> bytes:
        """See `Rows.row_key`."""
        return segment + key + self._numbers.pack(*numbers)

    def of_key(
        self, overlay: Overlay, scan: Scan, segment: bytes, key: bytes, first: int, last: int
    ) -> Iterator[WindowedRow]:
        """See `Rows.of_key`."""
        del overlay
        numbers, start = self._numbers, segment + key
        length = len(start) + numbers.size
        rows = scan(start + numbers.pack(first, 0), start + numbers.pack(last, self._highest) + b"\0")
        return (
            (key, *numbers.unpack_from(row, len(start)), value) for row, value in rows if len(row) == length
        )

    def of_each(
        self, overlay: Overlay, segments: Sequence[bytes], keys: Iterable[bytes], first: int, last: int
    ) -> Iterator[WindowedRow]:
        """See `Rows.of_each`."""
        wanted = set(keys)
        low, high = self._numbers.pack(first, 0), self._numbers.pack(last, self._highest) + b"\0"
        if len(wanted) * len(segments) * _DENSE_FROM < overlay.committed.size().approximate_entries:
            starts = [segment + key for segment in segments for key in wanted]
            ranges = disjoint([(start + low, start + high) for start in starts])
        else:  # all rows are read anyway
            ranges = [(segment, end) for segment in segments if (end := after_prefix(segment)) is not None]
        rows = overlay.scan_ranges(ranges)
        head = len(segments[0]) if segments else 0
        return self._wanted(rows, head, wanted, first, last)

    def of_keys(
        self, scan: Scan, segment: bytes, keys: KeyBounds, first: int, last: int
    ) -> Iterator[WindowedRow]:
        """See `Rows.of_keys`."""
        low, high = keys
        end = after_prefix(segment) if high is None else segment + self._behind(high, last)
        return self._between(scan(segment + (low or b""), end), keys, first, last)

    def _between(
        self, rows: Iterator[tuple[bytes, bytes]], keys: KeyBounds, first: int, last: int
    ) -> Iterator[WindowedRow]:
        for row, value in rows:
            split = len(row) - self._numbers.size
            time, second = self._numbers.unpack_from(row, split)
            key = row[SEGMENT_BYTES:split]
            if first <= time <= last and is_between(key, keys):
                yield key, time, second, value

    def _wanted(
        self, rows: Iterator[tuple[bytes, bytes]], head: int, keys: Container[bytes], first: int, last: int
    ) -> Iterator[WindowedRow]:
        size, unpack = self._numbers.size, self._numbers.unpack_from
        for row, value in rows:
            split = len(row) - size
            key = row[head:split]
            if key in keys:
                time, second = unpack(row, split)
                if first <= time <= last:
                    yield key, time, second, value

    def _behind(self, high: bytes, last: int) -> bytes:
        """Behind all rows of keys up to `high`: of shorter ones, too, that `high` begins with."""
        highest = self._numbers.pack(last, self._highest) + b"\0"
        return max(high[:length] + highest for length in range(len(high) + 1))


class RowsByTime:
    """Rows in the order of their times, and an index by key."""

    def __init__(self, numbers: struct.Struct) -> None:
        self._numbers = numbers
        self._index = RowsByKey(numbers)

    def entries(
        self, segment: bytes, key: bytes, numbers: tuple[int, int], value: bytes | None
    ) -> tuple[Entry, ...]:
        """See `Rows.entries`."""
        row = (segment + _ROW + self._numbers.pack(*numbers) + key, value)
        return (row, *self._index.entries(segment + _INDEX, key, numbers, None if value is None else b""))

    def row_key(self, segment: bytes, key: bytes, numbers: tuple[int, int]) -> bytes:
        """See `Rows.row_key`."""
        return segment + _ROW + self._numbers.pack(*numbers) + key

    def of_key(
        self, overlay: Overlay, scan: Scan, segment: bytes, key: bytes, first: int, last: int
    ) -> Iterator[WindowedRow]:
        """See `Rows.of_key`."""
        pack = self._numbers.pack
        found = {
            segment + _ROW + pack(time, second) + key: (time, second)
            for _, time, second, _ in self._index.of_key(overlay, scan, segment + _INDEX, key, first, last)
        }
        values = overlay.get_many(found)
        return iter(
            [(key, *numbers, value) for row, numbers in found.items() if (value := values[row]) is not None]
        )

    def of_each(
        self, overlay: Overlay, segments: Sequence[bytes], keys: Iterable[bytes], first: int, last: int
    ) -> Iterator[WindowedRow]:
        """See `Rows.of_each`."""
        wanted, pack = set(keys), self._numbers.pack
        found = {
            segment + _ROW + pack(time, second) + key: (key, time, second)
            for segment in segments
            for key, time, second, _ in self._index.of_each(overlay, [segment + _INDEX], wanted, first, last)
        }
        values = overlay.get_many(found)
        return iter([(*place, value) for row, place in found.items() if (value := values[row]) is not None])

    def of_keys(
        self, scan: Scan, segment: bytes, keys: KeyBounds, first: int, last: int
    ) -> Iterator[WindowedRow]:
        """See `Rows.of_keys`."""
        start = segment + _ROW
        rows = scan(start + _TIME.pack(first), start + _TIME.pack(last + 1))
        return self._between(rows, keys)

    def _between(self, rows: Iterator[tuple[bytes, bytes]], keys: KeyBounds) -> Iterator[WindowedRow]:
        numbers = self._numbers
        head = SEGMENT_BYTES + 1
        split = head + numbers.size
        for row, value in rows:
            key = row[split:]
            if is_between(key, keys):
                yield (key, *numbers.unpack_from(row, head), value)


def is_between(key: bytes, keys: KeyBounds) -> bool:
    """Whether a key is within bounds."""
    low, high = keys
    return (low is None or key >= low) and (high is None or key <= high)
