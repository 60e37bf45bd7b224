"""The naive oracle, part two: what tables do with one update."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tests.properties.functions import Key, PoisonError, Value, can_be_written
from tests.properties.oracle_nodes import Cell, Context, Node, Rec, Rows
from tests.properties.spec import TableStore, TransformValues
from tests.properties.user_code import transform

if TYPE_CHECKING:
    from tests.properties.oracle import OracleTask


@dataclass(eq=False)
class TableNode(Node):
    """A table. Whether it has a store and sends old values is settled when all operators are known."""

    store: TableStore = field(kw_only=True)
    stored: bool = True
    sends_old: bool = False

    def ask_for_old(self, *, must: bool) -> bool:
        """Somebody wants old values. True if they will be sent; if they `must`, they will."""
        del must
        self.sends_old = True
        return True

    def look_up(self) -> list[str]:
        """Somebody looks rows up: the stores that it takes."""
        return [self.stores[0]]

    def current(self, task: OracleTask, key: str) -> Cell | None:
        cell: Cell | None = task.store(self.stores[0]).get(key)
        return cell

    def update(self, task: OracleTask, rec: Rec, new: Value, old: Value, timestamp: int) -> None:
        """The row of the record's key becomes `new`: write it and send it, at once or when the epoch ends."""
        check_can_be_written(new)
        rows = task.store(self.stores[0])
        rows.put(str(rec.key), None if new is None else Cell(new, timestamp))
        sent = replace(rec, value=deepcopy(new), old=old if self.sends_old else None, timestamp=timestamp)
        if not self.store.caching:
            task.forward(self, sent)
            return
        rows.pending_updates.pop(str(rec.key), None)
        # A cached delete goes out with the time of the record that caused it.
        rows.pending_updates[str(rec.key)] = (
            self,
            replace(sent, timestamp=timestamp if new is not None else rec.timestamp),
        )


def check_can_be_written(*values: Value) -> None:
    """A value that no serde takes is poison where it is to be written."""
    for value in values:
        if not can_be_written(value):
            raise PoisonError(f"{value} can't be written")


def flush(task: OracleTask, rows: Rows) -> Iterator[str]:
    """The epoch ends: one update per key, in the order of the last updates. Tells what it did."""
    pending_updates, rows.pending_updates = rows.pending_updates, {}
    for key, (node, rec) in pending_updates.items():
        before = rows.committed.get(key)
        if rec.value is None and before is None:
            yield "came and went"
            continue
        sends_old = isinstance(node, TableNode) and node.sends_old
        task.forward(node, replace(rec, old=before.value if sends_old and before is not None else None))
        yield "flushed"


@dataclass(eq=False)
class TableSourceNode(TableNode):
    """`table` and `to_table`: a store only if it is named or needed."""

    stored: bool = False

    def ask_for_old(self, *, must: bool) -> bool:
        self.stored = self.stored or must
        self.sends_old = self.sends_old or self.stored
        return self.sends_old

    def look_up(self) -> list[str]:
        self.stored = True
        return super().look_up()

    def receive(self, task: OracleTask, rec: Rec) -> None:
        if rec.key is None:
            return
        if not self.stored:
            task.forward(self, rec)
            return
        before = self.current(task, rec.key)
        self.update(task, rec, rec.value, before.value if before else None, rec.timestamp)


@dataclass(eq=False)
class DerivedTableNode(TableNode):
    """`filter`, `map_values`, `transform_values`: a store only if it is named."""

    parent_table: TableNode = field(kw_only=True)
    compute: Callable[[OracleTask, Rec, Value], Value] = lambda _task, _rec, value: value
    is_filter: bool = False

    def ask_for_old(self, *, must: bool) -> bool:
        if self.stored or self.parent_table.ask_for_old(must=must):
            self.sends_old = True
        return self.sends_old

    def look_up(self) -> list[str]:
        return super().look_up() if self.stored else self.parent_table.look_up()

    def current(self, task: OracleTask, key: str) -> Cell | None:
        if self.stored:
            return super().current(task, key)
        of_parent = self.parent_table.current(task, key)
        if of_parent is None:
            return None
        value = self.compute(task, Rec(key, None, 0), of_parent.value)
        return None if value is None else Cell(value, of_parent.timestamp)

    def receive(self, task: OracleTask, rec: Rec) -> None:
        new = self.compute(task, rec, rec.value)
        old = None
        if self.sends_old and self.stored:
            before = self.current(task, str(rec.key))
            old = before.value if before else None
        elif self.sends_old:
            old = self.compute(task, rec, rec.old)
        if self.is_filter and self.sends_old and new is None and old is None:
            return
        if self.stored:
            self.update(task, rec, new, old, rec.timestamp)
        else:
            task.forward(self, replace(rec, value=new, old=old))


@dataclass(eq=False)
class AggregateNode(TableNode):
    """Aggregations of a grouped stream, and each input of a cogroup."""

    start: Callable[[], Value] = lambda: None
    fold: Callable[[Key, Value, Value], Value] = lambda _key, value, _so_far: value

    def receive(self, task: OracleTask, rec: Rec) -> None:
        if rec.key is None or rec.value is None:
            return
        before = self.current(task, rec.key)
        timestamp = rec.timestamp if before is None else max(rec.timestamp, before.timestamp)
        so_far = self.start() if before is None else before.value
        old = (
            None if before is None else deepcopy(so_far)
        )  # Kafka: at first what it started with, if uncached
        self.update(task, rec, self.fold(rec.key, rec.value, so_far), old, timestamp)


@dataclass(eq=False)
class CogroupNode(TableNode):
    """Behind the inputs of a cogroup, which write the store and send the old values."""

    inputs: Sequence[TableNode] = ()

    def ask_for_old(self, *, must: bool) -> bool:
        for one in self.inputs:
            one.ask_for_old(must=must)
        return True

    def look_up(self) -> list[str]:
        return self.inputs[0].look_up()

    def current(self, task: OracleTask, key: str) -> Cell | None:
        return self.inputs[0].current(task, key)

    def receive(self, task: OracleTask, rec: Rec) -> None:
        task.forward(self, rec)


@dataclass(eq=False)
class ReduceNode(TableNode):
    combine: Callable[[Value, Value], Value] = lambda _so_far, value: value

    def receive(self, task: OracleTask, rec: Rec) -> None:
        if rec.key is None or rec.value is None:
            return
        before = self.current(task, rec.key)
        if before is None:
            self.update(task, rec, rec.value, None, rec.timestamp)
            return
        new = self.combine(before.value, rec.value)
        self.update(task, rec, new, before.value, max(rec.timestamp, before.timestamp))


@dataclass(eq=False)
class RegroupNode(Node):
    """`group_by` of a table: from an update to what leaves one group and what joins another."""

    mapper: Callable[[Key, Value], tuple[Key, Value]] = lambda key, value: (key, value)

    def receive(self, task: OracleTask, rec: Rec) -> None:
        new_group, new = (None, None) if rec.value is None else self.mapper(rec.key, rec.value)
        old_group, old = (None, None) if rec.old is None else self.mapper(rec.key, rec.old)
        joins = new_group is not None and new is not None
        leaves = old_group is not None and old is not None
        if joins and leaves and new_group == old_group:
            task.forward(self, replace(rec, key=new_group, value=new, old=old))
            return
        if leaves:
            task.forward(self, replace(rec, key=old_group, value=None, old=old))
        if joins:
            task.forward(self, replace(rec, key=new_group, value=new, old=None))


@dataclass(eq=False)
class TableAggregateNode(TableNode):
    """Aggregations of a grouped table: take the old value out, then put the new one in."""

    add: Callable[[Key, Value, Value], Value] = lambda _key, value, _so_far: value
    subtract: Callable[[Key, Value, Value], Value] = lambda _key, _value, so_far: so_far

    def receive(self, task: OracleTask, rec: Rec) -> None:
        before = self.current(task, str(rec.key))
        so_far = before.value if before else None
        timestamp = rec.timestamp
        if before is not None and (rec.old is not None or rec.value is not None):
            timestamp = max(timestamp, before.timestamp)
        old = deepcopy(so_far)
        if rec.old is not None and so_far is not None:
            so_far = self.subtract(rec.key, rec.old, so_far)
        if rec.value is not None:
            so_far = self.add(rec.key, rec.value, so_far)
        self.update(task, rec, so_far, old, timestamp)


def transformer(op: TransformValues) -> Callable[[OracleTask, Rec, Value], Value]:
    """What `transform_values` computes."""

    def compute(task: OracleTask, rec: Rec, value: Value) -> Value:
        return transform(op, Context(Node(op.name), task, rec), rec.key, value)

    return compute
