"""A production task over stores in memory, and what outlives its epochs: stores, state, version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from millstream.state.backends.memory import MemoryBackend
from millstream.state.stores.factory import open_store
from millstream.state.stores.segments import apply_changes
from millstream.state.stores.store import StateStore, epoch_committed, forget_epoch
from millstream.task.records import RawBatch
from millstream.task.serde_book import SerdeBook
from millstream.task.task import Task, TaskEnvironment, TaskResult, TaskState
from millstream.topology.plan import SubTopology


def stores_in_memory(
    sub: SubTopology, book: SerdeBook
) -> tuple[dict[str, StateStore[Any]], dict[str, MemoryBackend]]:
    """New stores of a sub-topology, and their backends."""
    backends = {name: MemoryBackend() for name in sub.stores}
    stores = {
        name: open_store(
            spec,
            backends[name],
            book.bound(spec.serdes_of, "key", spec.key),
            book.bound(spec.serdes_of, "value", spec.value),
        )
        for name, spec in sub.stores.items()
    }
    return stores, backends


class MemoryTask:
    """One task. It stays open from epoch to epoch, unless it is reopened."""

    def __init__(
        self,
        sub: SubTopology,
        partition: int,
        environment: TaskEnvironment,
        backends: Mapping[str, MemoryBackend],
    ) -> None:
        self.sub = sub
        self.partition = partition
        self.task_id = sub.task_id(partition)
        self.version = 0
        self.state = TaskState()
        self._environment = environment
        self._committed = [
            (name, environment.stores[name], backend, sub.stores[name].is_segmented)
            for name, backend in backends.items()
        ]
        self._topics: dict[str, bool] = {}
        self._task = self._open()

    @property
    def stores(self) -> Mapping[str, StateStore[Any]]:
        """The task's stores."""
        return self._environment.stores

    def reads(self, raw: RawBatch) -> bool:
        """Whether some records are for this task. A global table reads all partitions."""
        mine = self.sub.is_global or raw.partition == self.partition
        return mine and self.reads_topic(raw.topic)

    def reads_topic(self, topic: str) -> bool:
        """Whether the task reads a topic at all."""
        reads = self._topics.get(topic)
        if reads is None:
            reads = self._topics[topic] = self.sub.source_of(topic) is not None
        return reads

    def run(self, raws: Sequence[RawBatch], *, tick: bool, max_rows: int | None = None) -> TaskResult:
        """An epoch: process, let the wall clock tick, seal. Nothing is committed."""
        if raws:
            self._task.process(raws, max_rows=max_rows)
        if tick:
            self._task.punctuate()
        return self._task.seal()

    def commit(self, result: TaskResult) -> None:
        """Apply what an epoch made."""
        self.version += 1
        for name, store, backend, segmented in self._committed:
            marker = str(self.version).encode()
            apply_changes(backend, result.changelogs[name], marker, segmented=segmented)
            epoch_committed(store)
        self.state = result.state

    def abandon(self) -> None:
        """Forget the epoch and go back to what was committed."""
        for store in self.stores.values():
            forget_epoch(store)
        with suppress(Exception):  # the error that brought us here is the one to show
            self._task.close()
        self._task = self._open()

    def reopen(self) -> None:
        """A new task in place of this one, as after every epoch on a cluster."""
        self._task.close()
        self._task = self._open()

    def close(self) -> None:
        """Close the processors."""
        self._task.close()

    def _open(self) -> Task:
        return Task(self.sub, self.partition, self._environment, self.state)
