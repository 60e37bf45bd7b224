"""The naive oracle, part six: what joins do with one record.

Of two streams: a record looks for partners among those that came before it on the other side, then it is kept
itself. Those of an outer side that find none wait, and leave when a record comes that makes the operator look
for them: it notes the time of the last one that it came by, and looks again when that one is over.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tests.properties.functions import Key, Value
from tests.properties.oracle_nodes import Cell, GlobalKeeper, Node, Rec
from tests.properties.oracle_tables import TableNode, check_can_be_written
from tests.properties.spec import Within

if TYPE_CHECKING:
    from tests.properties.oracle import OracleTask

LEFT, RIGHT = 0, 1
Joiner = Callable[[Key, Value, Value], Value]


@dataclass(eq=False)
class SideNode(Node):
    """Where one side of a join comes in."""

    join: StreamJoinNode | TableJoinNode = field(kw_only=True)
    side: int = LEFT

    def receive(self, task: OracleTask, rec: Rec) -> None:
        self.join.take(task, rec, self.side)


class JoinedStreams:
    """What a join of two streams remembers."""

    def __init__(self) -> None:
        self.now = -1
        self.kept: tuple[list[tuple[str, int, Value]], ...] = ([], [])
        self.time_of_store = [-1, -1]
        self.waiting: dict[tuple[int, bool, str], list[Value]] = {}
        """By time, whether it is a left one, and key."""
        self.noted: int | None = None

    def put(self, side: int, key: str, time: int, value: Value) -> None:
        self.kept[side].append((key, time, deepcopy(value)))
        self.time_of_store[side] = max(self.time_of_store[side], time)

    def fetch(self, side: int, key: str, first: int, last: int, retention: int) -> list[tuple[int, Value]]:
        first = max(first, self.time_of_store[side] - retention + 1)
        found = [
            (time, value) for own, time, value in self.kept[side] if own == key and first <= time <= last
        ]
        return deepcopy(sorted(found, key=lambda row: row[0]))


@dataclass(eq=False)
class StreamJoinNode(Node):
    """A join of two streams."""

    within: Within = field(kw_only=True)
    outer: tuple[bool, bool] = (False, False)
    joiner: Joiner = lambda _key, left, _right: left

    def open(self, task: OracleTask) -> None:
        task.programs[self.name] = JoinedStreams()

    def reach(self, side: int) -> tuple[int, int]:
        """How much earlier and later a partner may be."""
        bounds = (self.within.before, self.within.after)
        return bounds if side == LEFT else bounds[::-1]

    def take(self, task: OracleTask, rec: Rec, side: int) -> None:
        state: JoinedStreams = task.programs[self.name]
        whole = rec.key is not None and rec.value is not None
        if whole:
            check_can_be_written(rec.value)
        state.now = max(state.now, rec.timestamp)
        if rec.key is None and rec.value is not None and self.outer[side]:
            self.send_alone(task, rec, side)
        if rec.key is None or rec.value is None:
            return
        if rec.timestamp == state.now:
            self.release(task, rec, state, side)
        before, after = self.reach(side)
        first, last = max(0, rec.timestamp - before), max(0, rec.timestamp + after)
        retention = self.within.before + self.within.after + self.within.grace
        partners = state.fetch(1 - side, rec.key, first, last, retention)
        for time, value in partners:
            if state.waiting.pop((time, side == RIGHT, rec.key), None):
                task.happened("joined after waiting")
            pair = (rec.value, value) if side == LEFT else (value, rec.value)
            joined = rec.with_value(self.joiner(rec.key, *pair))
            task.forward(self, joined.with_timestamp(max(time, rec.timestamp)))
        if not partners and self.outer[side]:
            if last < state.now:
                task.happened("too late to wait")
                self.send_alone(task, rec, side)
            else:
                state.noted = rec.timestamp if state.noted is None else min(state.noted, rec.timestamp)
                waiting = state.waiting.setdefault((rec.timestamp, side == LEFT, rec.key), [])
                waiting.append(deepcopy(rec.value))
        state.put(side, rec.key, rec.timestamp, rec.value)

    def release(self, task: OracleTask, rec: Rec, state: JoinedStreams, side: int) -> None:
        """Let those leave whose windows are over."""
        if state.noted is None or state.noted + self.wait(side) >= state.now:
            return
        state.noted = None
        still_open: set[int] = set()
        for row in sorted(state.waiting):
            time, is_left, key = row
            its_side = LEFT if is_left else RIGHT
            for value in list(state.waiting[row]):
                state.noted = time
                if len(still_open) > 1:
                    return
                if time + self.wait(its_side) >= state.now:
                    still_open.add(its_side)
                    continue
                task.happened("left without a partner")
                state.waiting.pop(row, None)
                alone = replace(rec, key=key, value=value, timestamp=time)
                self.send_alone(task, alone, its_side)

    def wait(self, side: int) -> int:
        return self.reach(side)[1] + self.within.grace

    def send_alone(self, task: OracleTask, rec: Rec, side: int) -> None:
        pair = (rec.value, None) if side == LEFT else (None, rec.value)
        task.forward(self, rec.with_value(self.joiner(rec.key, *pair)))


@dataclass(eq=False)
class VersionedNode(Node):
    """A table that knows what its rows were at any time."""

    def open(self, task: OracleTask) -> None:
        task.programs[self.name] = {}

    def receive(self, task: OracleTask, rec: Rec) -> None:
        if rec.key is None:
            return
        check_can_be_written(rec.value)
        versions = task.programs[self.name].setdefault(rec.key, {})
        versions[rec.timestamp] = deepcopy(rec.value)
        latest = max(versions)
        value = versions[latest]
        task.store(self.stores[0]).put(rec.key, None if value is None else Cell(value, latest))
        task.forward(self, rec)

    def as_of(self, task: OracleTask, key: str, time: int) -> Value:
        versions = task.programs[self.name].get(key, {})
        known = [one for one in versions if one <= time]
        return deepcopy(versions[max(known)]) if known else None


@dataclass(eq=False)
class LookupNode(Node):
    """A join of a stream with a table."""

    table: TableNode | VersionedNode | GlobalKeeper = field(kw_only=True)
    left: bool = False
    joiner: Joiner = lambda _key, left, _right: left
    key_of: Callable[[Key, Value], Key] | None = None

    def receive(self, task: OracleTask, rec: Rec) -> None:
        if rec.value is None or (self.key_of is None and rec.key is None and not self.left):
            return
        self.join(task, rec)

    def join(self, task: OracleTask, rec: Rec) -> None:
        key = rec.key if self.key_of is None else self.key_of(rec.key, rec.value)
        other = None if key is None else self.found(task, key, rec.timestamp)
        if other is not None or self.left:
            task.happened("looked up" if other is not None else "found no row")
            task.forward(self, rec.with_value(self.joiner(rec.key, rec.value, other)))

    def found(self, task: OracleTask, key: str, time: int) -> Value:
        match self.table:
            case VersionedNode():
                return self.table.as_of(task, key, time)
            case GlobalKeeper():
                cell = task.store(self.table.stores[0]).get(key)
            case _:
                cell = self.table.current(task, key)
        return None if cell is None else cell.value


@dataclass
class Waiting:
    """What waits for late updates of a table."""

    observed: int = -1
    count: int = 0
    rows: dict[tuple[int, str, int], Rec] = field(default_factory=dict)


@dataclass(eq=False)
class WaitingLookupNode(LookupNode):
    """A join with a versioned table, a while later."""

    grace: int = 0

    def open(self, task: OracleTask) -> None:
        task.programs[self.name] = Waiting()

    def join(self, task: OracleTask, rec: Rec) -> None:
        state: Waiting = task.programs[self.name]
        if rec.key is not None:
            check_can_be_written(rec.value)
        state.observed = max(state.observed, rec.timestamp)
        over = state.observed - self.grace
        if rec.key is None or rec.timestamp < over:
            super().join(task, rec)
        else:
            state.count += 1
            state.rows[rec.timestamp, rec.key, state.count] = deepcopy(rec)
        for row in sorted(state.rows):
            if row[0] <= over:
                task.happened("joined after its grace")
                super().join(task, replace(state.rows.pop(row), metadata=rec.metadata))


@dataclass(eq=False)
class TableJoinNode(TableNode):
    """A join of two tables: a store only if it is named."""

    sides: tuple[TableNode, TableNode] = field(kw_only=True)
    outer: tuple[bool, bool] = (False, False)
    joiner: Joiner = lambda _key, left, _right: left

    def ask_for_old(self, *, must: bool) -> bool:
        del must
        if not self.stored:
            for side in self.sides:
                side.ask_for_old(must=True)
        self.sends_old = True
        return True

    def look_up(self) -> list[str]:
        return super().look_up() if self.stored else [name for side in self.sides for name in side.look_up()]

    def current(self, task: OracleTask, key: str) -> Cell | None:
        if self.stored:
            return super().current(task, key)
        cells = [side.current(task, key) for side in self.sides]
        times = [cell.timestamp for cell in cells if cell is not None]
        left, right = (None if cell is None else cell.value for cell in cells)
        value = self.joined(key, left, right)
        return None if value is None else Cell(value, max(times))

    def joined(self, key: Key, left: Value, right: Value) -> Value:
        if left is None and (right is None or not self.outer[RIGHT]):
            return None
        if right is None and not self.outer[LEFT]:
            return None
        return self.joiner(key, left, right)

    def take(self, task: OracleTask, rec: Rec, side: int) -> None:
        if rec.key is None:
            return
        other = self.sides[1 - side].current(task, rec.key)
        changes = rec.value is not None or rec.old is not None
        if other is None and not (self.outer[side] and changes):
            return
        task.happened("joined rows of tables" if other is not None else "found no row in the other table")
        value = None if other is None else other.value

        def joined(own: Value) -> Value:
            return self.joined(rec.key, *((own, value) if side == LEFT else (value, own)))

        timestamp = rec.timestamp if other is None else max(rec.timestamp, other.timestamp)
        new = joined(rec.value)
        if self.stored:
            before = self.current(task, rec.key)
            self.update(task, rec, new, None if before is None else before.value, timestamp)
        else:
            old = joined(rec.old) if self.sends_old else None
            task.forward(self, replace(rec, value=new, old=old, timestamp=timestamp))
