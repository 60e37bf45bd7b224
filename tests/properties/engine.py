"""Runs a spec on the engine, and the oracle, with results as plain data that can be compared."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any
from unittest.mock import patch

from tests.properties.build import DEAD_LETTERS, Built, as_text, build, config_of
from tests.properties.inputs import Epoch, Input
from tests.properties.oracle import Oracle
from tests.properties.spec import Look, Spec
from tests.simulation.epochs import EpochRunner, MemoryTask

from millstream import SessionStore, ValueAndTimestamp, serdes
from millstream.log.blocks import record_batch
from millstream.processors.columns import column
from millstream.record import MAX_TIME
from millstream.task.records import OutputBatch, RawBatch
from millstream.task.task import TaskResult
from millstream.topology.topology import Topology

Row = tuple[Any, Any, int, Any]
_INTERNAL = re.compile("-join-store|-Buffer")


@dataclass
class Results:
    """What a run leads to."""

    outputs: dict[tuple[str, str], list[Row]] = field(default_factory=dict)
    """Key, value, timestamp and headers, by topic and task."""
    stores: dict[tuple[str, str], dict[Any, Any]] = field(default_factory=dict)
    """By name of the operator or store, and task."""
    seen: dict[str, list[Any]] = field(default_factory=dict)
    """What `peek`, `foreach` and `print` saw, by operator."""
    failures: dict[str, list[tuple[Any, int]]] = field(default_factory=dict)
    """Key and timestamp of dead letters by task."""
    internals: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """What joins keep for themselves, by store and task. The oracle has stores of its own for that."""

    def visible(self) -> Results:
        """The same without what no user can see."""
        return replace(self, internals={})


class CutRunner(EpochRunner):
    """Commits after every few rows of each task, in the order in which the task takes them."""

    def __init__(self, topology: Topology, *, rows_per_commit: int, **settings: Any) -> None:
        super().__init__(topology, **settings)
        self.rows_per_commit = rows_per_commit

    def run_task(self, task: MemoryTask, raws: Sequence[RawBatch]) -> TaskResult:
        outputs: list[OutputBatch] = []
        *cuts, last = _cuts(raws, self.rows_per_commit)
        for cut in cuts:
            sealed = task.run(cut, tick=False, max_rows=self.max_rows)
            task.commit(sealed)
            outputs += sealed.outputs
            if self.fresh_tasks:
                task.reopen()
        sealed = task.run(last, tick=True, max_rows=self.max_rows)
        return replace(sealed, outputs=[*outputs, *sealed.outputs])


def run_engine(
    spec: Spec,
    epochs: Sequence[Epoch],
    *,
    rows_per_commit: int | None = None,
    max_rows: int | None = None,
    fresh_tasks: bool = False,
    built: Built | None = None,
    as_if_many: bool = False,
) -> Results:
    """The results of the engine, on the topology that `build` makes or on another of the same spec.

    `as_if_many`: the input stands in Arrow, and no batch is too small for columns.
    """
    built = built if built is not None else build(spec)
    settings: dict[str, Any] = {
        "partitions": dict.fromkeys(spec.input_topics, spec.partitions),
        "config": config_of(spec),
        "max_rows": max_rows,
        "fresh_tasks": fresh_tasks,
    }
    if rows_per_commit is None:
        runner = EpochRunner(built.topology, **settings)
    else:
        runner = CutRunner(built.topology, rows_per_commit=rows_per_commit, **settings)
    value: Any = serdes.json if spec.serdes == "explicit" else serdes.int64
    with runner, columns_for_any_number() if as_if_many else nullcontext():
        for epoch in epochs:
            raws = raws_of(epoch.records, value.serialize)
            runner.run_epoch(list(map(in_arrow, raws)) if as_if_many else raws, now_ms=epoch.now_ms)
        return _engine_results(runner, built, value.deserialize)


@contextmanager
def columns_for_any_number() -> Iterator[None]:
    """No batch is too small for columns."""
    with patch.multiple(column, MANY_ROWS=0, FEW_ROWS=-1):
        yield


def in_arrow(raw: RawBatch) -> RawBatch:
    """The same records as a log has them."""
    rows = record_batch(raw.keys, raw.values, raw.timestamps, raw.headers)
    return replace(RawBatch.of(raw.topic, raw.partition, 0, rows), offsets=raw.offsets)


def run_oracle(spec: Spec, epochs: Sequence[Epoch]) -> Results:
    """The results of the naive interpreter."""
    oracle = Oracle(spec)
    for epoch in epochs:
        oracle.run_epoch(epoch)
    results = Results()
    for place, recs in oracle.outputs.items():
        results.outputs[place] = [(rec.key, rec.value, rec.timestamp, rec.headers) for rec in recs]
    for task in oracle.tasks:
        for name, rows in task.stores.items():
            results.stores[name, task.task_id] = {key: _plain(cell) for key, cell in rows.all()}
    prints = {op.name for op in spec.ops if isinstance(op, Look) and op.how == "print"}
    for name, pairs in oracle.seen.items():
        results.seen[name] = [f"[{name}]: {k}, {v}" for k, v in pairs] if name in prints else list(pairs)
    if spec.on_poison == "dead letter":
        results.failures = {task: sorted(rows, key=str) for task, rows in oracle.failures.items()}
    return results


def _engine_results(runner: EpochRunner, built: Built, decode: Callable[[bytes], Any]) -> Results:
    results = Results()
    for topic, rows in runner.outputs.items():
        for row in rows:
            key = None if row.key is None else row.key.decode()
            if topic == DEAD_LETTERS:
                results.failures.setdefault(row.task_id, []).append((key, row.timestamp))
            else:
                value = None if row.value is None else decode(row.value)
                made = (key, value, row.timestamp, row.headers)
                results.outputs.setdefault((topic, row.task_id), []).append(made)
    for letters in results.failures.values():
        letters.sort(key=str)
    for task in runner.tasks:
        stores: Mapping[str, Any] = task.stores
        for name, store in stores.items():
            if _INTERNAL.search(name):
                results.internals[name, task.task_id] = [repr(row) for row in store.all()]
                continue
            label = _label(task, name)
            results.stores[label, task.task_id] = {as_text(key): _plain(cell) for key, cell in _rows(store)}
    results.seen = {name: list(pairs) for name, pairs in built.seen.items() if pairs}
    for name, file in built.printed.items():
        if file.getvalue():
            results.seen[name] = file.getvalue().splitlines()
    return results


def _label(task: MemoryTask, store: str) -> str:
    """The name of a store, or one made of the operator that it belongs to."""
    if "STATE-STORE" not in store:
        return store
    node = next(node for node, stores in task.sub.connections.items() if store in stores)
    return re.sub(r"op([0-9]+).*", r"store\1", node)


def _rows(store: Any) -> Any:
    if isinstance(store, SessionStore):  # a session's time is its end
        return [
            (row, ValueAndTimestamp(value, row.window.end)) for row, value in store.find_ended(0, MAX_TIME)
        ]
    return store.all()


def _plain(cell: Any) -> Any:
    return (cell.value, cell.timestamp) if hasattr(cell, "timestamp") else cell


def raws_of(records: Sequence[Input], encode: Callable[[Any], bytes]) -> list[RawBatch]:
    """The records as a task gets them."""
    parts: dict[tuple[str, int], list[Input]] = {}
    for row in records:
        parts.setdefault((row.topic, row.partition), []).append(row)
    return [
        RawBatch(
            topic,
            partition,
            [row.offset for row in rows],
            [None if row.key is None else row.key.encode() for row in rows],
            [None if row.value is None else encode(row.value) for row in rows],
            [row.timestamp for row in rows],
            [row.headers for row in rows],
        )
        for (topic, partition), rows in parts.items()
    ]


def _cuts(raws: Sequence[RawBatch], rows_per_commit: int) -> list[list[RawBatch]]:
    """The rows of all partitions in the task's order, a few at a time; at least one cut."""
    order = sorted(
        (time, part, row)
        for part, raw in enumerate(raws)
        for row, time in enumerate(accumulate(raw.timestamps, max))
    )
    cuts = [order[start : start + rows_per_commit] for start in range(0, len(order), rows_per_commit)]
    return [
        [
            _taken(raw, [row for _, at, row in cut if at == part])
            for part, raw in enumerate(raws)
            if any(at == part for _, at, _ in cut)
        ]
        for cut in cuts or [[]]
    ]


def _taken(raw: RawBatch, rows: Sequence[int]) -> RawBatch:
    return RawBatch(
        raw.topic,
        raw.partition,
        [raw.offsets[row] for row in rows],
        [raw.keys[row] for row in rows],
        [raw.values[row] for row in rows],
        [raw.timestamps[row] for row in rows],
        [raw.headers_of(row) for row in rows],
    )
