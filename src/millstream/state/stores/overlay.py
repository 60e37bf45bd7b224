"""What an epoch has written so far, over what was committed before it.

Readers see both as one store. The backend is not touched: the overlay, sorted, becomes the changelog
rows and the backend's write batch when the epoch is committed, and is forgotten when it is not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from millstream.state.backends.api import KeyRange, StoreSize
from millstream.state.stores.written_columns import Entry, WrittenColumns

__all__ = ["CommittedReader", "Entry", "Overlay"]

_FEW: Final = 64
"""Up to so many new keys are moved into their places one by one; more are sorted in."""


class CommittedReader(Protocol):
    """The part of a backend that an overlay reads."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values of keys sorted in ascending order, in the same order."""

    def scan(self, start: bytes | None, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Entries from `start` (inclusive) to `end` (exclusive), ascending."""

    def scan_reverse(self, start: bytes | None, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """The same entries, descending."""

    def scan_ranges(self, ranges: Sequence[KeyRange], /) -> Iterator[tuple[bytes, bytes]]:
        """Entries of ascending ranges that do not overlap, ascending."""

    def size(self) -> StoreSize:
        """About how many entries there are; cheap."""


class Overlay:
    """The writes of one epoch to one store."""

    def __init__(self, committed: CommittedReader) -> None:
        self.committed = committed
        self._writes: dict[bytes, bytes | None] = {}
        self._ordered: list[bytes] | None = None
        """The keys in order, from the first scan on: an epoch that never scans never sorts them."""
        self._columns: WrittenColumns | None = None
        """All writes, if they came in one go and nobody has looked at single ones since."""

    def __len__(self) -> int:
        return len(self._writes) if self._columns is None else len(self._columns)

    def get(self, key: bytes) -> bytes | None:
        """The value as of now."""
        if self._columns is not None:
            self._leave_columns()
        if key in self._writes:
            return self._writes[key]
        return self.committed.get_many((key,))[0]

    def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes | None]:
        """The values as of now of all distinct keys, with one read of the backend."""
        if self._columns is not None:
            self._leave_columns()
        found: dict[bytes, bytes | None] = dict.fromkeys(keys)
        writes = self._writes
        if writes:
            missing = sorted(key for key in found if key not in writes)
            found.update((key, writes[key]) for key in found if key in writes)
        else:
            missing = sorted(found)
        found.update(zip(missing, self.committed.get_many(missing), strict=True))
        return found

    def written(self, keys: Iterable[bytes]) -> dict[bytes, bytes | None]:
        """The values of those keys that this epoch has written, without a read of the backend."""
        if self._columns is not None:
            self._leave_columns()
        writes = self._writes
        return {key: writes[key] for key in keys if key in writes} if writes else {}

    def get_ascending(self, keys: list[bytes]) -> list[bytes | None]:
        """The values as of now of distinct keys in ascending order, in the same order."""
        if not len(self):
            return self.committed.get_many(keys)
        if len(self) >= len(keys):  # few of them may be left to read
            found = self.get_many(keys)
            return [found[key] for key in keys]
        if self._columns is not None:
            self._leave_columns()
        return list(map(self._writes.get, keys, self.committed.get_many(keys)))

    def approximate_count(self) -> int:
        """About how many entries there are as of now.

        What is committed is counted as its backend counts it, without a scan; this epoch's writes exactly.
        """
        if self._columns is not None:
            self._leave_columns()
        committed = self.committed.size().approximate_entries
        keys = self._in_order()
        was_there = (old is not None for old in self.committed.get_many(keys))
        is_there = (self._writes[key] is not None for key in keys)
        return max(0, committed + sum(is_there) - sum(was_there))

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write one value; None deletes."""
        if self._columns is not None:
            self._leave_columns()
        if self._ordered is not None and key not in self._writes:
            insort(self._ordered, key)
        self._writes[key] = value

    def put_many(self, entries: Iterable[Entry]) -> None:
        """Write many values; None deletes."""
        if self._columns is not None:
            self._leave_columns()
        if self._ordered is None:
            self._writes.update(entries)
            return
        new = dict(entries)
        keys = [key for key in new if key not in self._writes]
        if len(keys) <= _FEW:
            for key in keys:
                insort(self._ordered, key)
        else:
            self._ordered += sorted(keys)
            self._ordered.sort()  # two runs that are in order: merged, not sorted
        self._writes.update(new)

    def put_columns(self, written: WrittenColumns) -> None:
        """Write many values that stand in columns."""
        if len(self):
            self.put_many(written.entries())
        else:
            self._columns, self._ordered = written, None

    def scan(self, start: bytes | None, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Entries from `start` (inclusive) to `end` (exclusive), ascending.

        Writes made after the call are not seen, so a caller may delete what it iterates over.
        """
        return _merge(iter(self._between(start, end)), self.committed.scan(start, end), ascending=True)

    def scan_reverse(self, start: bytes | None, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """The same entries, descending."""
        writes = reversed(self._between(start, end))
        return _merge(writes, self.committed.scan_reverse(start, end), ascending=False)

    def scan_ranges(self, ranges: Sequence[KeyRange]) -> Iterator[tuple[bytes, bytes]]:
        """The entries of ascending ranges that do not overlap, as `scan` gives those of one."""
        committed = self.committed.scan_ranges(ranges)
        return _merge(iter(self._in_ranges(ranges)), committed, ascending=True) if len(self) else committed

    def first(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """The first entry of a range, or None. Unlike a scan it costs nothing for what lies behind it."""
        if self._columns is not None:
            self._leave_columns()
        keys = self._ordered = self._in_order()
        at = range(bisect_left(keys, start), bisect_left(keys, end))
        writes = ((keys[number], self._writes[keys[number]]) for number in at)
        return next(_merge(writes, self.committed.scan(start, end), ascending=True), None)

    def sorted_entries(self) -> Sequence[Entry]:
        """All writes by key: the changelog rows and the backend's write batch."""
        if self._columns is not None:
            return self._columns
        return [(key, self._writes[key]) for key in self._in_order()]

    def clear(self) -> None:
        """Forget the writes: they were committed, or their epoch never will be."""
        self._writes = {}
        self._ordered = None
        self._columns = None

    def _leave_columns(self) -> None:
        """Hold the writes one by one from now on."""
        assert self._columns is not None  # the caller has looked
        self._writes = dict(self._columns.entries())
        self._columns = None

    def _between(self, start: bytes | None, end: bytes | None) -> list[Entry]:
        if self._columns is not None:
            self._leave_columns()
        if not self._writes:
            return []
        keys = self._ordered = self._in_order()
        first = 0 if start is None else bisect_left(keys, start)
        last = len(keys) if end is None else bisect_left(keys, end)
        return [(key, self._writes[key]) for key in keys[first:last]]

    def _in_ranges(self, ranges: Sequence[KeyRange]) -> list[Entry]:
        if len(ranges) <= len(self):
            return [entry for start, end in ranges for entry in self._between(start, end)]
        starts = [start for start, _ in ranges]
        return [
            (key, value)
            for key, value in self._between(None, None)
            if (at := bisect_right(starts, key)) and key < ranges[at - 1][1]
        ]

    def _in_order(self) -> list[bytes]:
        return sorted(self._writes) if self._ordered is None else self._ordered


def _merge(
    writes: Iterator[Entry], committed: Iterator[tuple[bytes, bytes]], *, ascending: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Two ordered streams of entries as one, in which a write hides what was committed."""
    write, old = next(writes, None), next(committed, None)
    while write is not None or old is not None:
        if write is None or (old is not None and old[0] != write[0] and (old[0] < write[0]) is ascending):
            assert old is not None  # one of the two is there
            yield old
            old = next(committed, None)
            continue
        if old is not None and old[0] == write[0]:
            old = next(committed, None)
        if write[1] is not None:
            yield write[0], write[1]
        write = next(writes, None)
