"""The naive oracle's programs: each application for fault tests as a fold over its input, in plain bytes.

Like the oracle they share no code with the engine: hashing, encodings and windows are written down again.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias

__all__ = [
    "NOTE",
    "PROGRAMS",
    "Footfall",
    "Inventory",
    "Ledger",
    "Partitions",
    "Program",
    "Row",
    "Stock",
    "WordCount",
    "first_live_segment",
    "is_expired",
    "murmur2",
    "table_row",
]

Row: TypeAlias = tuple[bytes | None, bytes | None, int]
"""Key, value and timestamp of a record, as bytes in a log."""
Keyed: TypeAlias = tuple[bytes, bytes, int]
"""The same of a record that has a key and a value."""
Partitions: TypeAlias = Sequence[Sequence[Row]]
"""The records of a topic: by partition, by offset."""

NOTE: Final = b""
"""The key of the row in which a store by segments keeps how far time has come."""

_INT64: Final = struct.Struct(">q")
_SEGMENT: Final = struct.Struct(">Q")
_NOTE: Final = struct.Struct(">BqqqI")


class Program(ABC):
    """A topology as a fold: an epoch's records in, outputs out, state in dictionaries of bytes."""

    logged: ClassVar[tuple[str, ...]]
    """Stores with a changelog."""
    followed: ClassVar[Mapping[str, str]] = {}
    """Stores that have an input topic for a changelog: what its records write is a table."""
    unlogged: ClassVar[tuple[str, ...]] = ()
    segmented: ClassVar[tuple[str, ...]] = ()
    """Stores whose rows expire by segments of time."""
    outputs: ClassVar[tuple[str, ...]]

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        stores = (*self.logged, *self.followed, *self.unlogged)
        self.state: dict[str, dict[bytes, bytes]] = {store: {} for store in stores}
        """By store, the rows of all tasks, without notes."""
        self.notes: dict[tuple[str, int], bytes] = {}
        """By store and partition, the row with the empty key."""

    @abstractmethod
    def epoch(self, cut: Mapping[str, Partitions]) -> dict[str, list[Row]]:
        """Take an epoch's records in; what it writes to each topic, in order for each key."""

    def shuffled(self, sent: Sequence[Sequence[Keyed]]) -> Iterator[Keyed]:
        """Rows of several senders in the order in which the tasks that they are sent to take them."""
        for task in range(self.partitions):
            yield from _by_time([[row for row in rows if self.task_of(row[0]) == task] for rows in sent])

    def task_of(self, key: bytes) -> int:
        """The task that a row is sent to."""
        return (murmur2(key) & 0x7FFFFFFF) % self.partitions


class WordCount(Program):
    """Words of lines, counted; one update per word and epoch."""

    logged = ("counts",)
    outputs = ("word-counts",)

    def epoch(self, cut: Mapping[str, Partitions]) -> dict[str, list[Row]]:
        """See :meth:`Program.epoch`."""
        counts = self.state["counts"]
        sent = [
            [(word, b"", time) for _, line, time in rows for word in line.split()]
            for rows in _of(cut, "lines")
        ]
        changed: dict[bytes, Row] = {}
        for word, _, time in self.shuffled(sent):
            count, before = _counted(counts.get(word))
            counts[word] = _INT64.pack(max(time, before)) + _INT64.pack(count + 1)
            changed[word] = (word, _INT64.pack(count + 1), max(time, before))
        return {"word-counts": list(changed.values())}


class Ledger(Program):
    """Orders of customers, audited in the first level, added up by shop in the second, update by update."""

    logged = ("latest", "large", "totals")
    unlogged = ("visits",)
    outputs = ("audited", "totals-out")

    LARGE: ClassVar[int] = 100

    def epoch(self, cut: Mapping[str, Partitions]) -> dict[str, list[Row]]:
        """See :meth:`Program.epoch`."""
        sent: list[list[Keyed]] = []
        audited: list[Row] = []
        for rows in _of(cut, "orders"):
            sent.append([])
            for customer, order, time in rows:
                self._audit(customer, order)
                audited.append((customer, order, time))
                sent[-1].append((order.split(b":")[0], order, time))
        totals = self.state["totals"]
        updates: list[Row] = []
        for shop, order, time in self.shuffled(sent):
            total, before = _counted(totals.get(shop))
            total += int(order.split(b":")[1])
            totals[shop] = _INT64.pack(max(time, before)) + _INT64.pack(total)
            updates.append((shop, _INT64.pack(total), max(time, before)))
        return {"audited": audited, "totals-out": updates}

    def _audit(self, customer: bytes, order: bytes) -> None:
        latest, large, visits = (self.state[store] for store in ("latest", "large", "visits"))
        latest[customer] = order
        visits[customer] = _INT64.pack(_plain(visits.get(customer)) + 1)
        if int(order.split(b":")[1]) >= self.LARGE:
            large[customer] = _INT64.pack(_plain(large.get(customer)) + 1)


class Stock(Program):
    """A table of items, grouped by the shop that has them: one update per item, and per shop, and epoch."""

    logged: ClassVar[tuple[str, ...]] = ("items", "by-shop")
    outputs = ("by-shop-out",)

    def epoch(self, cut: Mapping[str, Partitions]) -> dict[str, list[Row]]:
        """See :meth:`Program.epoch`."""
        items, shops = self.state["items"], self.state["by-shop"]
        moves: list[tuple[bytes, int, int]] = []
        for rows in _of(cut, "stock"):
            before = dict(items)
            last: dict[bytes, int] = {}
            for item, place, time in rows:
                last[item] = time
                if place is None:
                    items.pop(item, None)
                else:
                    items[item] = _INT64.pack(time) + place
            for item, time in last.items():
                moves += [(shop, -amount, time) for shop, amount in _placed(before.get(item))]
                moves += [(shop, amount, time) for shop, amount in _placed(items.get(item))]
        changed: dict[bytes, Row] = {}
        for shop, amount, time in moves:
            total, earlier = _counted(shops.get(shop))
            shops[shop] = _INT64.pack(max(time, earlier)) + _INT64.pack(total + amount)
            changed[shop] = (shop, _INT64.pack(total + amount), max(time, earlier))
        return {"by-shop-out": list(changed.values())}


class Inventory(Stock):
    """The same, without a changelog of the items."""

    logged = ("by-shop",)
    followed: ClassVar[Mapping[str, str]] = {"items": "stock"}


class Footfall(Program):
    """Visits counted by visitor and window, and by place; windows expire."""

    logged = ("windows", "by-place")
    segmented = ("windows",)
    outputs = ("windows-out", "by-place-out")

    WINDOW_MS: ClassVar[int] = 10
    RETENTION_MS: ClassVar[int] = 40
    SEGMENT_MS: ClassVar[int] = 20

    def __init__(self, partitions: int) -> None:
        super().__init__(partitions)
        self._observed = dict.fromkeys(range(partitions), -1)
        self._first_live = dict.fromkeys(range(partitions), 0)

    def epoch(self, cut: Mapping[str, Partitions]) -> dict[str, list[Row]]:
        """See :meth:`Program.epoch`."""
        sent: list[list[Keyed]] = []
        counted: list[Row] = []
        for task, rows in enumerate(_of(cut, "visits")):
            sent.append([])
            for visitor, place, time in rows:
                counted.append((visitor, _INT64.pack(self._counted(task, visitor, time)), time))
                sent[-1].append((place, place, time))
            if rows:
                self._expire(task)
        places = self.state["by-place"]
        updates: list[Row] = []
        for place, _, time in self.shuffled(sent):
            count, before = _counted(places.get(place))
            places[place] = _INT64.pack(max(time, before)) + _INT64.pack(count + 1)
            updates.append((place, _INT64.pack(count + 1), max(time, before)))
        return {"windows-out": counted, "by-place-out": updates}

    def _counted(self, task: int, visitor: bytes, time: int) -> int:
        """Count a visit. One that comes too late finds nothing, and leaves nothing."""
        start = time - time % self.WINDOW_MS
        windows = self.state["windows"]
        key = _SEGMENT.pack(start // self.SEGMENT_MS) + visitor + _INT64.pack(start) + bytes(4)
        is_late = start <= self._observed[task] - self.RETENTION_MS
        count = 1 if is_late else _plain(windows.get(key)) + 1
        self._observed[task] = max(self._observed[task], start)
        if not is_late:
            windows[key] = _INT64.pack(count)
        return count

    def _expire(self, task: int) -> None:
        """Drop the task's segments that are past the retention as a whole. A visitor is in one task only."""
        observed = self._observed[task]
        first = max(self._first_live[task], (observed - self.RETENTION_MS) // self.SEGMENT_MS)
        self._first_live[task] = first
        self.notes["windows", task] = _NOTE.pack(1, self.SEGMENT_MS, observed, first, 0)
        windows = self.state["windows"]
        for key in [key for key in windows if key[8:].startswith(b"visitor%d" % task)]:
            if is_expired(key, first):
                del windows[key]


PROGRAMS: Final[Mapping[str, type[Program]]] = {
    "word count": WordCount,
    "ledger": Ledger,
    "stock": Stock,
    "inventory": Inventory,
    "footfall": Footfall,
}


def table_row(record: Row) -> Row:
    """What a record of a table's source topic writes to the store: its time stands before its value.

    >>> table_row((b"item1", None, 3))
    (b'item1', None, 3)
    """
    key, value, time = record
    return key, None if value is None else _INT64.pack(time) + value, time


def first_live_segment(note: bytes | None) -> int:
    """What a note says has not been dropped; everything, if there is none.

    >>> first_live_segment(None)
    0
    """
    return 0 if note is None else int(_NOTE.unpack(note)[3])


def is_expired(key: bytes, first_live: int) -> bool:
    """Whether a row of a store by segments lies in one that was dropped."""
    return key != NOTE and _SEGMENT.unpack_from(key)[0] < first_live


def _of(cut: Mapping[str, Partitions], topic: str) -> Sequence[Sequence[tuple[Any, Any, int]]]:
    return cut.get(topic, ())


def _counted(cell: bytes | None) -> tuple[int, int]:
    """A number and the time it was set."""
    if cell is None:
        return 0, 0
    (time,), (number,) = _INT64.unpack_from(cell), _INT64.unpack_from(cell, _INT64.size)
    return number, time


def _plain(cell: bytes | None) -> int:
    return 0 if cell is None else int.from_bytes(cell, "big", signed=True)


def _placed(cell: bytes | None) -> list[tuple[bytes, int]]:
    if cell is None:
        return []
    shop, amount = cell[_INT64.size :].split(b":")
    return [(shop, int(amount))]


def _by_time(queues: Sequence[Sequence[Keyed]]) -> Iterator[Keyed]:
    """Always the queue whose next row is the oldest; of equal ones the first."""
    waiting = [list(queue) for queue in queues]
    while any(waiting):
        oldest = min((queue[0][2], number) for number, queue in enumerate(waiting) if queue)
        yield waiting[oldest[1]].pop(0)


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key, written down from its definition.

    >>> murmur2(b"21") - 2**32
    -973932308
    """
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    value = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * multiplier & mask
        part = (part ^ (part >> 24)) * multiplier & mask
        value = (value * multiplier & mask) ^ part
    if len(data) > whole:
        value = (value ^ int.from_bytes(data[whole:], "little")) * multiplier & mask
    value = (value ^ (value >> 13)) * multiplier & mask
    return value ^ (value >> 15)
