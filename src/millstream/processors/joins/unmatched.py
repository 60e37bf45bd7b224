"""Records of an outer join that have found no partner yet, and when they leave without one.

They are kept by time, side and key, those of equal ones in a list. A record closes when the operator's stream
time is beyond its window and grace. What has closed does not leave at once, but when the operator looks for
it, and when that is follows Kafka's rule to the letter: it notes the time of the last record that it came by
when it looked (or of an earlier one that has come to wait since), and looks again when that one would have
closed. It goes through the records in order and comes to a halt behind the first open one of each side, or at
the end. So a record can leave later than it could.

Of what waits, only this is read into memory: the records of the batch's keys, those that close while the
batch is at work, and, where both sides wait, what lies before the first open one of each side.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from millstream.processors.operator_times import UNKNOWN_TIME
from millstream.state.stores.list_value import ListValueStore

__all__ = ["LEFT", "RIGHT", "Released", "Unmatched", "unmatched_row"]

LEFT: Final = 0
RIGHT: Final = 1

_TIME: Final = struct.Struct(">q")
_TIME_AND_SIDE: Final = struct.Struct(">qB")
_MANY: Final = 64
"""More rows are sorted in, fewer are moved into their places one by one."""


class Released(NamedTuple):
    """A record that leaves without a partner."""

    side: int
    key: bytes
    time: int
    data: bytes


def unmatched_row(time: int, side: int, key: bytes) -> bytes:
    r"""The key of a list. By time, the right side first, then by key.

    >>> unmatched_row(1, RIGHT, b"k") < unmatched_row(1, LEFT, b"a") < unmatched_row(2, RIGHT, b"a")
    True
    """
    return _TIME_AND_SIDE.pack(time, 1 - side) + key


def _side(row: bytes) -> int:
    return 1 - row[_TIME.size]


def _time(row: bytes) -> int:
    time: int = _TIME.unpack_from(row)[0]
    return time


class _Order:
    """The rows of one side in memory, in order. Rows that are gone are passed over when they are met."""

    def __init__(self, lists: dict[bytes, list[bytes]]) -> None:
        self._lists = lists
        self._rows: list[bytes] = []
        self._head = 0
        self._placed: set[bytes] = set()

    def place(self, rows: list[bytes]) -> None:
        """Put rows where they belong; those that are there stay."""
        new = [row for row in rows if row not in self._placed]
        self._placed.update(new)
        if len(new) > _MANY:
            del self._rows[: self._head]
            self._head = 0
            self._rows += sorted(new)
            self._rows.sort()
            return
        for row in new:
            if not self._rows or row > self._rows[-1]:
                self._rows.append(row)
            else:
                insort(self._rows, row, lo=self._head)

    def take_until(self, limit: bytes) -> list[bytes]:
        """Take out all rows before a key."""
        end = bisect_left(self._rows, limit, lo=self._head)
        taken = self._rows[self._head : end]
        self._head = end
        if self._head > _MANY and 2 * self._head > len(self._rows):
            del self._rows[: self._head]
            self._head = 0
        self._placed.difference_update(taken)
        return [row for row in taken if row in self._lists]

    def first(self) -> bytes | None:
        """The first row."""
        while self._head < len(self._rows):
            row = self._rows[self._head]
            if row in self._lists:
                return row
            self._placed.discard(row)
            self._head += 1
        return None

    def last(self) -> bytes | None:
        """The last row."""
        while len(self._rows) > self._head:
            row = self._rows[-1]
            if row in self._lists:
                return row
            self._placed.discard(self._rows.pop())
        return None

    def after(self, row: bytes) -> bytes | None:
        """The first row behind a key."""
        for place in range(bisect_right(self._rows, row, lo=self._head), len(self._rows)):
            if self._rows[place] in self._lists:
                return self._rows[place]
        return None


class Unmatched:
    """What waits while a batch is at work: the store as it would be if each row had been written to it."""

    def __init__(
        self, store: ListValueStore[Any, Any], waits: tuple[int, int], outer: tuple[bool, bool], noted: int
    ) -> None:
        """`waits` are how long a record of each side is open; `noted` is the time that was noted before."""
        self._store = store
        self._waits = waits
        self._both = all(outer)
        self.noted = noted
        """The time of the record that is waited for; -1 if none is."""
        self._lists: dict[bytes, list[bytes]] = {}
        """What waits, as far as it is in memory."""
        self._orders = (_Order(self._lists), _Order(self._lists))
        self._looked_up: set[bytes] = set()
        self._stored: set[bytes] = set()
        """Rows in memory that are in the store."""
        self._changed: set[bytes] = set()
        self._rest: Iterator[tuple[bytes, list[bytes]]] | None = None
        self._next: tuple[bytes, list[bytes]] | None = None
        """The first row of the store that is not in memory, once somebody has looked."""
        self._last: bytes | None = None

    def load(self, rows: Iterable[bytes]) -> None:
        """Read those rows that the batch may change."""
        self._looked_up = set(rows)
        found = self._store.load_encoded(self._looked_up)
        self._stored.update(found)
        self._take_in(found)

    def add(self, side: int, key: bytes, time: int, data: bytes) -> None:
        """Let a record wait."""
        row = unmatched_row(time, side, key)
        waiting = self._lists.get(row)
        if waiting is None:
            self._lists[row] = [data]
            self._orders[side].place([row])
        else:
            waiting.append(data)
        self._changed.add(row)
        self.noted = time if self.noted == UNKNOWN_TIME else min(self.noted, time)

    def matched(self, side: int, key: bytes, times: Iterable[int]) -> None:
        """Records of a key have found a partner: they and their equals wait no more."""
        for time in times:
            row = unmatched_row(time, side, key)
            if self._lists.pop(row, None) is not None:
                self._changed.add(row)

    def is_due(self, side: int, now: int) -> bool:
        """Whether a record of a side makes the operator look for what has closed."""
        return self.noted != UNKNOWN_TIME and self.noted + self._waits[side] < now

    def release(self, now: int) -> list[Released]:
        """Take out what has closed, in order, and note what to wait for."""
        limits = [_TIME.pack(max(now - wait, 0)) for wait in self._waits]
        self._read_until(max(limits))
        closed = sorted(
            row for order, limit in zip(self._orders, limits, strict=True) for row in order.take_until(limit)
        )
        released = [
            Released(_side(row), row[_TIME_AND_SIDE.size :], _time(row), data)
            for row in closed
            for data in self._lists.pop(row)
        ]
        self._changed.update(closed)
        halt = self._halt()
        if halt is None and closed:
            halt = closed[-1]
        elif halt is not None and closed:
            halt = max(halt, closed[-1])
        self.noted = UNKNOWN_TIME if halt is None else _time(halt)
        return released

    def save(self) -> None:
        """Write what the batch has changed."""
        self._store.save_encoded(
            (row, self._lists.get(row, ()))
            for row in self._changed
            if row in self._lists or row in self._stored
        )

    def _halt(self) -> bytes | None:
        """The last of the open rows that the operator comes by; None if nothing is open."""
        if not self._both:
            candidates = [self._orders[LEFT].last(), self._orders[RIGHT].last(), self._last_in_store()]
            return max((row for row in candidates if row is not None), default=None)
        firsts = self._first_of_each()
        found = [row for row in firsts if row is not None]
        if len(found) < len(firsts):  # one side has none: it came to the end
            lasts = [order.last() for order in self._orders]
            return max((row for row in lasts if row is not None), default=None)
        second = max(found)
        if len(self._lists[second]) > 1:
            return second
        behind = [order.after(second) for order in self._orders]
        if self._next is not None:
            behind.append(self._next[0])
        return min((row for row in behind if row is not None), default=second)

    def _first_of_each(self) -> list[bytes | None]:
        """The first row of each side: what is not in memory yet is read until both are known."""
        while True:
            firsts = [order.first() for order in self._orders]
            if self._next is None or all(row is not None and row < self._next[0] for row in firsts):
                return firsts
            self._read_until(self._next[0] + b"\0")

    def _last_in_store(self) -> bytes | None:
        """The last row of the store that is not in memory."""
        if self._next is None:
            return None
        if self._last is None:
            rows = self._store.scan_encoded(backward=True)
            self._last = next(row for row, _ in rows if row not in self._looked_up)
        return self._last

    def _read_until(self, limit: bytes) -> None:
        """Read all rows before a key."""
        if self._rest is None:
            # The store stays as it is while the batch is at work.
            self._rest = (entry for entry in self._store.scan_encoded() if entry[0] not in self._looked_up)
            self._next = next(self._rest, None)
        read: dict[bytes, list[bytes]] = {}
        while self._next is not None and self._next[0] < limit:
            read[self._next[0]] = self._next[1]
            self._next = next(self._rest, None)
        self._stored.update(read)
        self._take_in(read)

    def _take_in(self, lists: dict[bytes, list[bytes]]) -> None:
        self._lists.update(lists)
        for side, order in enumerate(self._orders):
            rows = [row for row in lists if _side(row) == side]
            if rows:
                order.place(rows)
