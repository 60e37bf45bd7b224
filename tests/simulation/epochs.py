"""`EpochRunner`: a whole topology in this process, epoch by epoch, on any number of partitions.

Where `TopologyTestDriver` makes every record an epoch of its own, here the caller says which records an
epoch takes, as an engine does: cached tables flush where the epochs end, and what a repartition moves is
processed by the next level within the same epoch. It runs the production tasks over stores in memory.

It knows no log: what the topology writes is kept in `outputs`, and goes in again only if it is passed in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Self

from millstream.commit.epoch_job import WrongInstance
from millstream.config import StreamsConfig
from millstream.engine.memory import (
    MemoryApplication,
    MemoryCoordinator,
    MemoryEngine,
    MemoryEpoch,
    MemoryJob,
    MemoryRecord,
    MemoryReport,
    RecordQueue,
)
from millstream.engine.memory_task import MemoryTask, stores_in_memory
from millstream.errors import MillstreamError
from millstream.task.metrics import Metrics
from millstream.task.records import OutputBatch, RawBatch, joined
from millstream.task.routing import by_partition
from millstream.task.task import TaskResult
from millstream.topology.plan import Plan, SubTopology
from millstream.topology.topology import Topology
from millstream.types import Partition

__all__ = ["EpochRunner", "MemoryTask", "Shuffle"]

RunTask = Callable[[MemoryTask, Sequence[RawBatch]], TaskResult]


class _AllAtOnce(RecordQueue):
    """What the caller gives is one epoch. Nothing that is written goes in again."""

    def __init__(self) -> None:
        self.raws: list[RawBatch] = []

    def take(self) -> Sequence[RawBatch]:
        raws, self.raws = self.raws, []
        return raws

    def put(self, topic: str, rows: Sequence[MemoryRecord]) -> None: ...

    def clear(self) -> None:
        self.raws = []


class Shuffle:
    """What repartitions move within one epoch: a batch per partition and sender."""

    def __init__(self, partitions: Mapping[str, int], offsets: Mapping[tuple[str, int], int]) -> None:
        self.offsets = dict(offsets)
        """The next offset of each partition."""
        self._partitions = partitions
        self._sent: list[RawBatch] = []

    def add(self, task: MemoryTask, outputs: Iterable[OutputBatch]) -> None:
        """What a task sends, in the order in which it wrote it."""
        rows: dict[tuple[str, Partition], list[RawBatch]] = {}
        for batch in outputs:
            for partition, part in by_partition(batch, self._partitions[batch.topic], task.partition):
                rows.setdefault((batch.topic, partition), []).append(part)
        for (topic, partition), parts in rows.items():
            sent = joined(topic, partition, parts, self.offsets.get((topic, partition), 0))
            self.offsets[topic, partition] = sent.offsets[-1] + 1
            self._sent.append(sent)

    def take(self, task: MemoryTask) -> list[RawBatch]:
        """What has come for a task, by topic and sender."""
        mine = [raw for raw in self._sent if task.reads(raw)]
        self._sent = [raw for raw in self._sent if not task.reads(raw)]
        return sorted(mine, key=lambda raw: raw.topic)

    def check_all_taken(self) -> None:
        """Refuse to lose rows."""
        if self._sent:
            raise MillstreamError(
                f"rows of the repartition {self._sent[0].topic!r} are left over: the task that reads it ran "
                "before the task that writes it"
            )


class _Coordinator(MemoryCoordinator):
    """All tasks run, and what is shuffled is not published."""

    def __init__(self, tasks: Sequence[MemoryTask], queue: RecordQueue, shuffled: Iterable[str]) -> None:
        super().__init__(tasks, queue)
        self._shuffled = set(shuffled)

    def plan_epoch(self, *, tick: bool, instances: Mapping[str, str]) -> MemoryJob | None:
        return MemoryJob(self._queue.take(), self._tasks, tick)

    def publish(self, manifest: Sequence[MemoryReport]) -> None:
        for task, result in manifest:
            outputs = [batch for batch in result.outputs if batch.topic not in self._shuffled]
            super().publish([MemoryReport(task, replace(result, outputs=outputs))])


class _Engine(MemoryEngine):
    """What repartitions move is processed in the same epoch."""

    def __init__(
        self, partitions: Mapping[str, int], shuffled: Iterable[str], run_task: RunTask, *, fresh_tasks: bool
    ) -> None:
        super().__init__(fresh_tasks=fresh_tasks)
        self._partitions = partitions
        self._shuffled = set(shuffled)
        self._run_task = run_task
        self._offsets: dict[tuple[str, int], int] = {}
        self._offsets_after: dict[tuple[str, int], int] = {}
        """Of the repartitions: as they are committed, and after the epoch at work."""

    def run_tasks(self, job: MemoryJob) -> Sequence[MemoryReport | WrongInstance]:
        shuffle = Shuffle(self._partitions, self._offsets)
        reports: list[MemoryReport] = []
        for task in job.tasks:
            raws = [raw for raw in job.raws if task.reads(raw)]
            result = self._run_task(task, [*raws, *shuffle.take(task)])
            shuffle.add(task, (batch for batch in result.outputs if batch.topic in self._shuffled))
            reports.append(MemoryReport(task, result))
        shuffle.check_all_taken()
        self._offsets_after = shuffle.offsets
        return reports

    def apply(self, epoch: MemoryEpoch) -> None:
        self._offsets = self._offsets_after
        super().apply(epoch)


class _Application(MemoryApplication):
    """An application in memory whose topics have any number of partitions."""

    def __init__(
        self,
        plan: Plan,
        queue: RecordQueue,
        partitions: Mapping[str, int],
        run_task: RunTask,
        *,
        fresh_tasks: bool,
        **settings: Any,
    ) -> None:
        self._partitions = plan.partitions(partitions)
        super().__init__(plan, queue, **settings)
        shuffled = plan.repartition_topics
        self._coordinator = _Coordinator(self.tasks, queue, shuffled)
        self._engine = _Engine(self._partitions, shuffled, run_task, fresh_tasks=fresh_tasks)

    def _start_all(self, plan: Plan) -> list[MemoryTask]:
        return [
            self._start(sub, partition)
            for sub in chain.from_iterable(plan.levels)
            for partition in range(plan.task_count(sub, self._partitions))
        ]

    def _start(self, sub: SubTopology, partition: int) -> MemoryTask:
        stores, backends = stores_in_memory(sub, self._environment.book)
        environment = replace(
            self._environment,
            stores=stores,
            partitions_of=lambda topic: self._partitions.get(topic, 1),
            combines=True,
        )
        return MemoryTask(sub, partition, environment, backends)


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
        self.now_ms = start_ms
        self.max_rows = max_rows
        self.fresh_tasks = fresh_tasks
        self._queue = _AllAtOnce()
        self._application = _Application(
            topology.plan(),
            self._queue,
            partitions,
            self.run_task,
            fresh_tasks=fresh_tasks,
            clock=lambda: self.now_ms,
            config=config,
            application_id=application_id,
        )

    def run_epoch(self, raws: Iterable[RawBatch] = (), *, now_ms: int | None = None) -> None:
        """One epoch over records of the log, one batch per partition at most; the clock is at `now_ms`.

        1. Global tables take their records in, before everybody else.
        2. Level by level, each task processes its partition of the topics and repartitions it reads, lets
           the clock tick, and seals.
        3. All tasks commit, and what they wrote is in `outputs`. If anything fails before, nothing is.
        """
        if now_ms is not None:
            self.now_ms = now_ms
        self._queue.raws = sorted(raws, key=lambda raw: (raw.topic, raw.partition))
        self._application.run_epoch(tick=True)

    def run_task(self, task: MemoryTask, raws: Sequence[RawBatch]) -> TaskResult:
        """One task's part of the epoch."""
        return task.run(raws, tick=True, max_rows=self.max_rows)

    @property
    def tasks(self) -> list[MemoryTask]:
        """All tasks, those of global tables first, then level by level."""
        return self._application.tasks

    @property
    def outputs(self) -> Mapping[str, deque[MemoryRecord]]:
        """What was written to each topic of the log: per epoch, task by task, in the order of each task."""
        return self._application.outputs

    @property
    def metrics(self) -> Metrics:
        """Records in, out and dropped per node."""
        return self._application.metrics

    def stores(self, name: str) -> list[Any]:
        """The store of that name, of whatever kind, in each of its tasks, by partition."""
        return [task.stores[name] for task in self.tasks if name in task.stores]

    def close(self) -> None:
        """Close all processors."""
        self._application.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
