"""The naive oracle, part five: tables by key and window.

A row's key is text: key, start and end. Which rows there are is told from the store's time, the latest that
was written: rows whose window started a retention before are gone, for queries; for the operator, too, unless
its store is cached.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.properties.functions import Key, Value
from tests.properties.oracle_nodes import Cell, Rec, Rows
from tests.properties.oracle_tables import TableNode, check_can_be_written
from tests.properties.spec import Cut, WindowedAggregate, WindowedCogroup

if TYPE_CHECKING:
    from tests.properties.oracle import OracleTask

FOREVER = 2**63 - 1


class WindowRows(Rows):
    """Rows that expire."""

    def __init__(self, retention: int) -> None:
        super().__init__()
        self.retention = retention
        self.time = -1
        self.places: dict[str, tuple[str, int, int]] = {}
        """The key alone, the time and the start of each window. The time is its start, or a session's end."""

    def put_window(self, name: str, place: tuple[str, int, int], cell: Cell | None) -> None:
        self.time = max(self.time, place[1])
        self.places[name] = place
        if cell is None:
            self.now.pop(name, None)
        else:
            self.now[name] = deepcopy(cell)

    def all(self) -> list[tuple[str, Any]]:
        return [(name, cell) for name, cell in super().all() if self.places[name][1] > self.expired()]

    def expired(self) -> int:
        return self.time - self.retention


@dataclass
class Times:
    observed: int = -1
    emitted: int = -1


@dataclass(eq=False)
class WindowNode(TableNode):
    """What all windows of one size have in common."""

    cut: Cut = field(kw_only=True)
    start: Callable[[], Value] = lambda: None
    fold: Callable[[Key, Value, Value], Value] = lambda _key, value, _so_far: value
    on_close: bool = False
    skips_nulls: bool = False

    def open(self, task: OracleTask) -> None:
        task.programs[self.name] = Times()
        if not isinstance(task.stores[self.stores[0]], WindowRows):
            task.stores[self.stores[0]] = WindowRows(self.retention())

    def retention(self) -> int:
        return FOREVER if self.cut.kind == "unlimited" else self.cut.size + self.cut.grace

    def receive(self, task: OracleTask, rec: Rec) -> None:
        if rec.key is None or (rec.value is None and self.skips_nulls):
            return
        times: Times = task.programs[self.name]
        times.observed = max(times.observed, rec.timestamp)
        self.windows(task, rec, times.observed - self.cut.grace)
        if self.on_close:  # not if the record has failed
            self.close(task, rec, times)

    def windows(self, task: OracleTask, rec: Rec, close_time: int) -> None:
        raise NotImplementedError

    def closes_at(self, start: int) -> int:
        return start + self.cut.size + self.cut.grace

    def close(self, task: OracleTask, rec: Rec, times: Times) -> None:
        rows = self.rows(task)
        due = []
        for name in rows.now:
            key, time, start = rows.places[name]
            if times.emitted < self.closes_at(time) <= times.observed:
                due.append((time, start, key.encode(), name))
        for *_, name in sorted(due):
            cell = rows.get(name)
            task.forward(self, replace(rec, key=name, value=cell.value, timestamp=cell.timestamp))
        times.emitted = max(times.emitted, times.observed)

    def rows(self, task: OracleTask) -> WindowRows:
        rows = task.store(self.stores[0])
        assert isinstance(rows, WindowRows)
        return rows

    def name_at(self, key: Key, start: int) -> str:
        end = FOREVER if self.cut.kind == "unlimited" else start + self.cut.size
        return f"{key}@{start}-{end}"

    def seen(self, task: OracleTask, name: str) -> Cell | None:
        """A row, as far as the operator can see it."""
        rows = self.rows(task)
        cell: Cell | None = rows.get(name)
        hidden = cell is not None and not self.store.caching and rows.places[name][1] <= rows.expired()
        return None if hidden else cell

    def put(self, task: OracleTask, rec: Rec, start: int, new: Value, old: Value, timestamp: int) -> None:
        check_can_be_written(new)
        name = self.name_at(rec.key, start)
        cell = None if new is None else Cell(new, timestamp)
        self.rows(task).put_window(name, (str(rec.key), start, start), cell)
        self.send(task, rec, name, new, old, timestamp)

    def send(self, task: OracleTask, rec: Rec, name: str, new: Value, old: Value, timestamp: int) -> None:
        if self.on_close:
            return
        rows = self.rows(task)
        sent = replace(
            rec,
            key=name,
            value=deepcopy(new),
            old=old if self.sends_old else None,
            timestamp=timestamp,
        )
        if not self.store.caching:
            task.forward(self, sent)
            return
        rows.pending_updates.pop(name, None)
        flushed = sent if new is not None else replace(sent, timestamp=rec.timestamp)
        rows.pending_updates[name] = (self, flushed)

    def folded(self, rec: Rec, so_far: Value) -> Value:
        return self.fold(rec.key, rec.value, self.start() if so_far is None else deepcopy(so_far))


@dataclass(eq=False)
class TimeWindowNode(WindowNode):
    """Tumbling, hopping and unlimited windows."""

    def windows(self, task: OracleTask, rec: Rec, close_time: int) -> None:
        for start in self.starts(rec.timestamp):
            end = FOREVER if self.cut.kind == "unlimited" else start + self.cut.size
            if end <= close_time:
                task.late(self.name)
                continue
            before = self.seen(task, self.name_at(rec.key, start))
            new = self.folded(rec, None if before is None else before.value)
            timestamp = rec.timestamp if before is None else max(rec.timestamp, before.timestamp)
            self.put(task, rec, start, new, None if before is None else before.value, timestamp)

    def starts(self, timestamp: int) -> list[int]:
        if self.cut.kind == "unlimited":
            return [self.cut.start] if timestamp >= self.cut.start else []
        every = range(0, timestamp + 1, self.cut.advance)
        return [start for start in every if start + self.cut.size > timestamp]


@dataclass(eq=False)
class SlidingWindowNode(WindowNode):
    """Sliding windows, both ends inclusive."""

    def retention(self) -> int:
        return 2 * self.cut.size + self.cut.grace

    def closes_at(self, start: int) -> int:
        return start + self.cut.size + self.cut.grace + 1

    def windows(self, task: OracleTask, rec: Rec, close_time: int) -> None:
        t, d = rec.timestamp, self.cut.size
        if t + d < close_time:
            task.late(self.name)
            return
        there = {
            start: cell
            for start in range(max(0, t - 2 * d), t + 2)
            if (cell := self.seen(task, self.name_at(rec.key, start))) is not None
        }
        if t < d:
            self.early(task, rec, there, close_time)
        else:
            self.usual(task, rec, there, close_time)

    def usual(self, task: OracleTask, rec: Rec, there: dict[int, Cell], close_time: int) -> None:
        t, d = rec.timestamp, self.cut.size
        containing = [start for start in there if start <= t <= start + d]
        before = [start for start in there if start + d < t]
        for start in sorted(containing, reverse=True):
            self.into(task, rec, start, there[start], close_time)
        own = there.get(t - d)
        if own is not None and own.timestamp >= t:
            return
        latest = there[max(before)] if before else None
        if own is not None:
            previous = own.timestamp if latest is None else latest.timestamp
        else:
            previous = -1 if latest is None else latest.timestamp
        if previous >= 0 and previous + 1 + d >= t and not self.was_seen(previous + 1, there, before):
            self.into(task, rec, previous + 1, None, close_time)
        if own is None:
            seed = latest.value if latest is not None and previous >= t - d else None
            self.made_of(task, rec, t - d, seed, close_time)
        behind = [start for start in containing if start + d > t]
        self.behind(task, rec, there, there[max(behind)] if behind else None)

    def was_seen(self, start: int, there: dict[int, Cell], before: list[int]) -> bool:
        return start in there and (not before or start >= max(before))

    def early(self, task: OracleTask, rec: Rec, there: dict[int, Cell], close_time: int) -> None:
        t = rec.timestamp
        first = there.get(0)
        later = [start for start in sorted(there) if 0 < start <= t]
        for start in later:
            self.into(task, rec, start, there[start], close_time)
        self.behind(task, rec, there, there[later[-1]] if later else first)
        if first is not None and first.timestamp < t and first.timestamp + 1 not in there:
            self.into(task, rec, first.timestamp + 1, None, close_time)
        self.into(task, rec, 0, first, close_time)

    def behind(self, task: OracleTask, rec: Rec, there: dict[int, Cell], cell: Cell | None) -> None:
        """The window that begins right behind the record, made of what is there already."""
        if rec.timestamp + 1 not in there and cell is not None and cell.timestamp > rec.timestamp:
            self.put(task, rec, rec.timestamp + 1, cell.value, None, cell.timestamp)

    def into(self, task: OracleTask, rec: Rec, start: int, before: Cell | None, close_time: int) -> None:
        if start + self.cut.size < close_time:
            task.late(self.name)
            return
        new = self.folded(rec, None if before is None else before.value)
        timestamp = rec.timestamp if before is None else max(rec.timestamp, before.timestamp)
        self.put(task, rec, start, new, None if before is None else before.value, timestamp)

    def made_of(self, task: OracleTask, rec: Rec, start: int, seed: Value, close_time: int) -> None:
        if start + self.cut.size < close_time:
            task.late(self.name)
            return
        self.put(task, rec, start, self.folded(rec, seed), None, rec.timestamp)


@dataclass(eq=False)
class SessionNode(WindowNode):
    """Sessions, both ends inclusive. Their updates carry no headers, unless they were cached."""

    merge: Callable[[Value, Value], Value] = lambda _one, other: other

    def retention(self) -> int:
        # A session that is emitted on close must still be there when it closes.
        return self.cut.size + self.cut.grace + self.on_close

    def closes_at(self, end: int) -> int:
        return end + self.cut.size + self.cut.grace + 1

    def windows(self, task: OracleTask, rec: Rec, close_time: int) -> None:
        t, gap, rows = rec.timestamp, self.cut.size, self.rows(task)
        found = []
        for name, cell in rows.now.items():
            key, end, start = rows.places[name]
            if key == rec.key and end >= t - gap and start <= t + gap and end > rows.expired():
                found.append((end, start, name, cell))
        found.sort()
        first = min([t, *(start for _, start, _, _ in found)])
        last = max([t, *(end for end, _, _, _ in found)])
        if last < close_time - gap:
            task.late(self.name)
            return
        so_far = self.start() if found else None
        begins = so_far is not None
        for *_, cell in found:
            value = deepcopy(cell.value)
            so_far = self.merge(so_far, value) if begins or so_far is not None else value
        # What a merger made goes on, even if it is None: nothing begins anew.
        new = self.fold(rec.key, rec.value, so_far) if begins else self.folded(rec, so_far)
        check_can_be_written(new)
        quiet = rec if self.store.caching else replace(rec, headers=())
        old = found[0][-1].value if found and (first, last) == (t, t) else None  # overwritten in its place
        if old is None:
            for end, start, name, cell in found:
                rows.put_window(name, (str(rec.key), end, start), None)
                self.send(task, replace(quiet, timestamp=end), name, None, cell.value, end)
        name = f"{rec.key}@{first}-{last}"
        rows.put_window(name, (str(rec.key), last, first), None if new is None else Cell(new, last))
        self.send(task, replace(quiet, timestamp=last), name, new, old, last)


def windowed(
    op: WindowedAggregate | WindowedCogroup,
    name: str,
    start: Callable[[], Value],
    fold: Callable[[Key, Value, Value], Value],
    *,
    merge: Callable[[Value, Value], Value],
    on_close: bool = False,
    skips_nulls: bool = False,
) -> WindowNode:
    """The node of a windowed aggregation."""
    settings: dict[str, Any] = {
        "store": replace(op.store, caching=op.store.caching and not on_close),
        "stores": [op.store_name],
        "cut": op.cut,
        "start": start,
        "fold": fold,
        "on_close": on_close,
        "skips_nulls": skips_nulls or op.cut.kind == "sliding",
    }
    if op.cut.kind == "session":
        return SessionNode(name, merge=merge, **settings)
    return (SlidingWindowNode if op.cut.kind == "sliding" else TimeWindowNode)(name, **settings)
