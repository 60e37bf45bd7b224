"""`EpochRunner`: a whole topology in this process, epoch by epoch, on any number of partitions.

Where `TopologyTestDriver` makes every record an epoch of its own, here the caller says which records an
epoch takes, as an engine does: cached tables flush where the epochs end, and what a repartition moves is
processed by the next level within the same epoch. It runs the production tasks over stores in memory.

It knows no log: what the topology writes is kept in `outputs`, and goes in again only if it is passed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from millstream.config import StreamsConfig, check_application_id
from millstream.errors import MillstreamError
from millstream.record import Headers
from millstream.state.backends.memory import MemoryBackend
from millstream.state.stores.factory import open_store
from millstream.state.stores.segments import apply_changes
from millstream.state.stores.store import StateStore, epoch_committed, forget_epoch
from millstream.task.metrics import Metrics
from millstream.task.records import OutputBatch, RawBatch, joined
from millstream.task.routing import by_partition
from millstream.task.serde_book import SerdeBook
from millstream.task.task import Sealed, Task, TaskEnvironment, TaskState
from millstream.topology.plan import SubTopology
from millstream.topology.topology import Topology
from millstream.types import Partition


@dataclass(frozen=True, slots=True)
class Produced:
    """A record that a task wrote."""

    task_id: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    partition: int | None
    """The partition that a partitioner of the user's own chose; None where the key decides."""


class EpochTask:
    """One task of an `EpochRunner`, and what outlives its epochs: stores, state, version."""

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
        self._environment = environment
        self._backends = backends
        self._state = TaskState()
        self._task = self._open()

    @property
    def stores(self) -> Mapping[str, StateStore[Any]]:
        """The task's stores."""
        return self._environment.stores

    def reads(self, raw: RawBatch) -> bool:
        """Whether some records are for this task. A global table reads all partitions."""
        mine = self.sub.is_global or raw.partition == self.partition
        return mine and self.sub.source_of(raw.topic) is not None

    def run(self, raws: Sequence[RawBatch], max_rows: int | None) -> Sealed:
        """An epoch: process, let the wall clock tick, seal. Nothing is committed."""
        self._task.process(raws, max_rows=max_rows)
        self._task.punctuate()
        return self._task.seal()

    def process(self, raws: Sequence[RawBatch], max_rows: int | None) -> Sealed:
        """An epoch in which the wall clock does not tick."""
        self._task.process(raws, max_rows=max_rows)
        return self._task.seal()

    def commit(self, sealed: Sealed) -> None:
        """Apply what an epoch made."""
        self.version += 1
        for name, entries in sealed.changelogs.items():
            segmented = self.sub.stores[name].is_segmented
            apply_changes(self._backends[name], entries, str(self.version).encode(), segmented=segmented)
            epoch_committed(self.stores[name])
        self._state = sealed.state

    def abandon(self) -> None:
        """Forget the epoch and go back to what was committed."""
        for store in self.stores.values():
            forget_epoch(store)
        self.reopen()

    def reopen(self) -> None:
        """A new task in place of this one, as after every epoch on a cluster."""
        self.close()
        self._task = self._open()

    def close(self) -> None:
        """Close the processors."""
        self._task.close()

    def _open(self) -> Task:
        return Task(self.sub, self.partition, self._environment, self._state)


class EpochRunner:
    """Runs the epochs of a topology.

    partitions
        How many partitions each topic of the log has.
    max_rows
        How many rows a task sends through its operators at once. It changes no result.
    fresh_tasks
        True: every commit is followed by new tasks, as on a cluster.

    >>> from millstream import StreamsBuilder, serdes
    >>> from millstream.task.records import RawBatch
    >>> builder = StreamsBuilder()
    >>> counts = builder.stream("words", key=serdes.string).group_by_key().count(store="counts")
    >>> counts.to_stream().to("counts-of-words")
    >>> with EpochRunner(builder.build(), partitions={"words": 1}) as runner:
    ...     runner.run_epoch([RawBatch("words", 0, (0, 1), (b"to", b"to"), (b"", b""), (5, 6))])
    ...     [(row.key, row.value[-1], row.timestamp) for row in runner.outputs["counts-of-words"]]
    [(b'to', 2, 6)]
    """

    def __init__(
        self,
        topology: Topology,
        *,
        partitions: Mapping[str, int],
        config: StreamsConfig | None = None,
        application_id: str = "test",
        start_ms: int = 0,
        max_rows: int | None = None,
        fresh_tasks: bool = False,
    ) -> None:
        self.plan = topology.plan()
        self.partitions = self.plan.partitions(partitions)
        """Partition counts of all topics, repartitions included."""
        self.now_ms = start_ms
        self.metrics = Metrics()
        self.outputs: dict[str, list[Produced]] = {}
        """What was written to each topic of the log: per epoch, task by task, in the order of each task."""
        self._config = config if config is not None else StreamsConfig()
        self._application_id = check_application_id(application_id)
        self.max_rows = max_rows
        self.fresh_tasks = fresh_tasks
        self._book = SerdeBook()
        self._offsets: dict[tuple[str, int], int] = {}
        self._global_stores: dict[str, StateStore[Any]] = {}
        self._globals = [self._start(sub, 0) for sub in self.plan.global_subtopologies]
        for task in self._globals:
            self._global_stores.update(task.stores)
        self._levels = [
            [
                self._start(sub, partition)
                for sub in level
                for partition in range(self.plan.task_count(sub, self.partitions))
            ]
            for level in self.plan.steps
        ]

    def run_epoch(self, raws: Iterable[RawBatch] = (), *, now_ms: int | None = None) -> None:
        """One epoch over records of the log, one batch per partition at most; the clock is at `now_ms`.

        1. Global tables take their records in, before everybody else.
        2. Level by level, each task processes its partition of the topics and repartitions it reads, lets
           the clock tick, and seals.
        3. All tasks commit, and what they wrote is in `outputs`. If anything fails before, nothing is.
        """
        if now_ms is not None:
            self.now_ms = now_ms
        log = sorted(raws, key=lambda raw: (raw.topic, raw.partition))
        shuffle = Shuffle(self.partitions, self._offsets)
        sealed: dict[str, Sealed] = {}
        try:
            for level in (self._globals, *self._levels):
                for task in level:
                    mine = [*(raw for raw in log if task.reads(raw)), *shuffle.take(task)]
                    made = sealed[task.task_id] = self.run_task(task, mine)
                    shuffle.add(task, (batch for batch in made.outputs if self._is_internal(batch.topic)))
            shuffle.check_all_taken()
        except BaseException:
            for task in self.tasks:
                task.abandon()
            raise
        self._commit(sealed, shuffle)

    def run_task(self, task: EpochTask, raws: Sequence[RawBatch]) -> Sealed:
        """One task's part of the epoch."""
        return task.run(raws, self.max_rows)

    @property
    def tasks(self) -> list[EpochTask]:
        """All tasks, those of global tables first, then level by level."""
        return [*self._globals, *(task for level in self._levels for task in level)]

    def stores(self, name: str) -> list[Any]:
        """The store of that name, of whatever kind, in each of its tasks, by partition."""
        return [task.stores[name] for task in self.tasks if name in task.stores]

    def close(self) -> None:
        """Close all processors."""
        for task in self.tasks:
            task.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _commit(self, sealed: Mapping[str, Sealed], shuffle: Shuffle) -> None:
        self._offsets = shuffle.offsets
        for task in self.tasks:
            made = sealed[task.task_id]
            task.commit(made)
            for batch in made.outputs:
                if not self._is_internal(batch.topic):
                    self.outputs.setdefault(batch.topic, []).extend(_produced(task.task_id, batch))
        if self.fresh_tasks:
            for task in self.tasks:
                task.reopen()

    def _is_internal(self, topic: str) -> bool:
        return topic in self.plan.repartition_topics

    def _start(self, sub: SubTopology, partition: int) -> EpochTask:
        backends = {name: MemoryBackend() for name in sub.stores}
        stores = {
            name: open_store(
                spec,
                backends[name],
                self._book.bound(name, "key", spec.key),
                self._book.bound(name, "value", spec.value),
            )
            for name, spec in sub.stores.items()
        }
        environment = TaskEnvironment(
            application_id=self._application_id,
            config=self._config,
            book=self._book,
            metrics=self.metrics,
            stores=stores,
            global_stores=self._global_stores,
            clock=lambda: self.now_ms,
            partitions_of=lambda topic: self.partitions.get(topic, 1),
            is_internal=self._is_internal,
        )
        return EpochTask(sub, partition, environment, backends)


class Shuffle:
    """What repartitions move within one epoch: a batch per partition and sender."""

    def __init__(self, partitions: Mapping[str, int], offsets: Mapping[tuple[str, int], int]) -> None:
        self.offsets = dict(offsets)
        """The next offset of each partition."""
        self._partitions = partitions
        self._sent: list[RawBatch] = []

    def add(self, task: EpochTask, outputs: Iterable[OutputBatch]) -> None:
        """What a task sends, in the order in which it wrote it."""
        rows: dict[tuple[str, Partition], list[RawBatch]] = {}
        for batch in outputs:
            for partition, part in by_partition(batch, self._partitions[batch.topic], task.partition):
                rows.setdefault((batch.topic, partition), []).append(part)
        for (topic, partition), parts in rows.items():
            sent = joined(topic, partition, parts, self.offsets.get((topic, partition), 0))
            self.offsets[topic, partition] = sent.offsets[-1] + 1
            self._sent.append(sent)

    def take(self, task: EpochTask) -> list[RawBatch]:
        """What has come for a task, by topic and sender."""
        mine = [raw for raw in self._sent if task.reads(raw)]
        self._sent = [raw for raw in self._sent if not task.reads(raw)]
        return sorted(mine, key=lambda raw: raw.topic)

    def check_all_taken(self) -> None:
        """Refuse to lose rows."""
        if self._sent:
            topic = self._sent[0].topic
            message = (
                f"rows of the repartition {topic!r} are left over: the task that reads it ran before the "
                "task that writes it. A stream that is merged with its own repartition is not run yet."
            )
            raise MillstreamError(message)


def _produced(task_id: str, batch: OutputBatch) -> list[Produced]:
    return [
        Produced(
            task_id,
            batch.keys[row],
            batch.values[row],
            batch.timestamps[row],
            batch.headers_of(row),
            None if batch.partitions is None else batch.partitions[row],
        )
        for row in range(len(batch))
    ]
