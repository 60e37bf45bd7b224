"""The naive oracle, last part: tasks and epochs.

Record by record: within a partition by offset, across partitions always the one whose next record is the
oldest. After each record the stream-time punctuators that are due; at the end of an epoch those of the
wall clock, then the cached tables in topological order. What goes through a repartition is processed by
the next level in the same epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from tests.properties.functions import PoisonError
from tests.properties.inputs import Epoch, Input
from tests.properties.oracle_attach import compile_spec
from tests.properties.oracle_graph import Graph
from tests.properties.oracle_nodes import Metadata, Node, Rec, Rows, SinkNode
from tests.properties.oracle_plan import SubTopology, flush_order, levels, partition_counts, task_count
from tests.properties.oracle_queue import Heap
from tests.properties.oracle_tables import check_can_be_written, flush
from tests.properties.spec import Punctuator, Spec

Part = tuple[str, str, int, int]
"""Records that are in order: those of a partition of the log, or what one task sent through a repartition.

"log" or "moved", topic, partition, sender; parts whose next records are equally old take turns in this order.
"""


@dataclass
class Scheduled:
    """A punctuator of a task."""

    one: Punctuator
    call: Callable[[int], None]
    due: int
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class OracleTask:
    """One sub-topology at one partition."""

    def __init__(
        self, oracle: Oracle, sub: SubTopology, partition: int, global_stores: dict[str, Rows]
    ) -> None:
        self.sub = sub
        self.partition = partition
        self.task_id = f"{sub.number}_{partition}"
        self.stores = {name: Rows() for node in sub.nodes for name in node.stores}
        self.stream_time = -1
        self.programs: dict[str, Any] = {}
        self.written: list[tuple[SinkNode, str, Rec]] = []
        self.failures: list[tuple[str | None, int]] = []
        self._oracle = oracle
        self._global_stores = global_stores
        self._scheduled = {"stream": Heap(), "wall": Heap()}
        self._inputs: dict[Metadata, Rec] = {}
        self._flush_order = flush_order(sub)
        for node in sub.nodes:
            node.open(self)

    # What nodes ask.

    def forward(self, node: Node, rec: Rec, child: str | None = None) -> None:
        for one in node.children:
            if child is None or one.name == child:
                self.deliver(one, rec)

    def deliver(self, node: Node, rec: Rec) -> None:
        self._oracle.visited.add(node.name)
        try:
            node.receive(self, rec)
        except PoisonError:
            self._oracle.events["poisoned"] += 1
            source = self._inputs[rec.metadata] if rec.metadata is not None else Rec(None, None, 0)
            self.failures.append((source.key, source.timestamp))

    def write(self, node: SinkNode, topic: str, rec: Rec) -> None:
        check_can_be_written(rec.value, rec.old)
        self.written.append((node, topic, rec))

    def saw(self, name: str, rec: Rec) -> None:
        self._oracle.seen.setdefault(name, []).append((rec.key, rec.value))

    def happened(self, what: str) -> None:
        self._oracle.events[what] += 1

    def late(self, name: str) -> None:
        self._oracle.events["late"] += 1
        self._oracle.visited.add(name)

    def store(self, name: str) -> Rows:
        return self.stores[name] if name in self.stores else self._global_stores[name]

    def clock(self) -> int:
        return self._oracle.now_ms

    def schedule(self, one: Punctuator, call: Callable[[int], None]) -> Scheduled:
        due = 0 if one.clock == "stream" else self.clock() + one.interval_ms
        scheduled = Scheduled(one, call, due)
        self._scheduled[one.clock].add(scheduled)
        return scheduled

    # An epoch.

    def process(self, rows: Iterable[tuple[Part, Rec]]) -> None:
        for (_, topic, _, _), rec in rows:
            source = self.sub.source_of(topic)
            assert source is not None
            assert rec.metadata is not None
            self._inputs[rec.metadata] = rec
            self.stream_time = max(self.stream_time, rec.timestamp)
            self.forward(source, rec)
            self.punctuate("stream", self.stream_time)

    def punctuate(self, clock: str, now: int) -> None:
        queue = self._scheduled[clock]
        while queue.is_due(now):
            first = queue.take()
            if not first.cancelled:
                self._oracle.events[f"{clock} punctuator"] += 1
                first.call(now)
            if not first.cancelled:
                while first.due <= now:
                    first.due += first.one.interval_ms
                queue.add(first)

    def flush(self) -> None:
        for node in self._flush_order:
            for name in node.stores:
                self._oracle.events.update(flush(self, self.stores.get(name, Rows())))

    def commit(self) -> None:
        for rows in self.stores.values():
            rows.commit()
        self.written = []
        self.failures = []
        self._inputs = {}


class Oracle:
    """A whole topology."""

    def __init__(self, spec: Spec) -> None:
        graph: Graph = compile_spec(spec)
        by_level = levels(graph)
        assert by_level is not None
        self.now_ms = 0
        self.outputs: dict[tuple[str, str], list[Rec]] = {}
        """By topic and task."""
        self.seen: dict[str, list[tuple[Any, Any]]] = {}
        self.failures: dict[str, list[tuple[str | None, int]]] = {}
        self.visited: set[str] = set()
        """Nodes that have got a record."""
        self.events: Counter[str] = Counter()
        """What happened, for whoever wants to know whether the tests try enough."""
        self._counts = partition_counts(spec, graph, by_level)
        self._offsets: dict[tuple[str, int], int] = {}
        self._globals: list[OracleTask] = []
        global_stores: dict[str, Rows] = {}
        for sub in by_level[0] if by_level else ():
            if sub.is_global:
                task = OracleTask(self, sub, 0, global_stores)
                self._globals.append(task)
                global_stores.update(task.stores)
        self._levels = [
            [
                OracleTask(self, sub, partition, global_stores)
                for sub in level
                if not sub.is_global
                for partition in range(task_count(sub, self._counts))
            ]
            for level in by_level
        ]
        self.tasks = [*self._globals, *(task for level in self._levels for task in level)]

    def run_epoch(self, epoch: Epoch) -> None:
        self.now_ms = epoch.now_ms
        waiting: dict[Part, list[Rec]] = {}
        for row in epoch.records:
            waiting.setdefault(("log", row.topic, row.partition, 0), []).append(_rec(row))
        for task in self._globals:
            task.process(
                _in_order({part: rows for part, rows in waiting.items() if task.sub.source_of(part[1])})
            )
        for level in self._levels:
            for task in level:
                self._run(task, waiting)
        for task in self.tasks:
            self._publish(task)
            task.commit()

    def _run(self, task: OracleTask, waiting: dict[Part, list[Rec]]) -> None:
        mine = {
            part: rows
            for part, rows in waiting.items()
            if part[2] == task.partition and task.sub.source_of(part[1])
        }
        task.process(_in_order(mine))
        task.punctuate("wall", self.now_ms)
        task.flush()
        for sink, topic, rec in task.written:
            if sink.internal:
                self._move(task, sink, topic, rec, waiting)

    def _move(
        self, task: OracleTask, sink: SinkNode, topic: str, rec: Rec, waiting: dict[Part, list[Rec]]
    ) -> None:
        """Carry what was sent into a repartition to the partition that it belongs to."""
        count = self._counts[topic]
        if sink.partition_of is not None:
            partition = sink.partition_of(rec, count)
        else:
            partition = task.partition % count if rec.key is None else partition_of(rec.key, count)
        offset = self._offsets.get((topic, partition), 0)
        self._offsets[topic, partition] = offset + 1
        moved = replace(rec, metadata=Metadata(topic, partition, offset))
        waiting.setdefault(("moved", topic, partition, task.partition), []).append(moved)

    def _publish(self, task: OracleTask) -> None:
        for sink, topic, rec in task.written:
            if not sink.internal:
                self.outputs.setdefault((topic, task.task_id), []).append(rec)
        if task.failures:
            self.failures.setdefault(task.task_id, []).extend(task.failures)


def _rec(row: Input) -> Rec:
    return Rec(row.key, row.value, row.timestamp, row.headers, Metadata(row.topic, row.partition, row.offset))


def _in_order(parts: dict[Part, list[Rec]]) -> Iterable[tuple[Part, Rec]]:
    """Always from the part whose next record is the oldest; of two such the first."""
    left = {part: list(parts[part]) for part in sorted(parts)}
    while any(left.values()):
        part = min((part for part in left if left[part]), key=lambda part: left[part][0].timestamp)
        yield part, left[part].pop(0)


def partition_of(key: str, count: int) -> int:
    """Kafka's default: murmur2 of the key's bytes, made positive, modulo the number of partitions."""
    data = key.encode()
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    for start in range(0, len(data) - len(data) % 4, 4):
        k = int.from_bytes(data[start : start + 4], "little") * m & mask
        k ^= k >> 24
        h = (h * m & mask) ^ (k * m & mask)
    rest = data[len(data) - len(data) % 4 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    h ^= h >> 15
    return (h & 0x7FFFFFFF) % count
