"""Epochs in the memory of this process: production tasks, and nothing durable. For tests of topologies.

Its epochs have the ten steps of all others (:mod:`millstream.commit.epoch`); coordinator and engine are its
own. An epoch takes what a queue has ready: one record in the test driver, whatever the caller says elsewhere.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple, Protocol, cast

from millstream.commit.epoch import CommittedEpoch, run_epoch
from millstream.commit.epoch_job import WrongInstance
from millstream.config import StreamsConfig, check_application_id
from millstream.engine.memory_task import MemoryTask, stores_in_memory
from millstream.errors import MillstreamError
from millstream.record import Headers
from millstream.state.stores.store import StateStore
from millstream.task.metrics import Metrics
from millstream.task.records import OutputBatch, RawBatch, joined
from millstream.task.routing import by_partition
from millstream.task.serde_book import SerdeBook
from millstream.task.task import TaskEnvironment, TaskResult
from millstream.topology.plan import Plan, SubTopology
from millstream.types import Partition

__all__ = ["MemoryApplication", "MemoryEngine", "MemoryRecord", "RecordQueue", "Shuffle"]


class MemoryRecord(NamedTuple):
    """A record of a topic in memory."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()
    task_id: str = ""
    """The task that wrote it, if it was one."""
    partition: int | None = None
    """The partition that a partitioner of the user's own chose; None where the key decides."""


class RecordQueue(Protocol):
    """What the next epochs read."""

    def take(self) -> Sequence[RawBatch]:
        """The records of the next epoch, one batch per partition at most."""

    def put(self, topic: str, rows: Sequence[MemoryRecord]) -> None:
        """Take in what the topology wrote, if it reads it again."""

    def clear(self) -> None:
        """Forget all."""


class MemoryJob(NamedTuple):
    """An epoch as it was planned."""

    raws: Sequence[RawBatch]
    tasks: Sequence[MemoryTask]
    tick: bool


class MemoryReport(NamedTuple):
    """What a task made."""

    task: MemoryTask
    result: TaskResult


MemoryEpoch = CommittedEpoch[MemoryJob, MemoryReport, Sequence[MemoryReport]]
RunTask = Callable[[MemoryTask, Sequence[RawBatch], bool], TaskResult]


class MemoryCoordinator:
    """Plans what is queued, commits into the tasks' own memory, and publishes to lists."""

    def __init__(self, tasks: Sequence[MemoryTask], queue: RecordQueue, shuffled: Collection[str]) -> None:
        self.outputs: defaultdict[str, deque[MemoryRecord]] = defaultdict(deque)
        """What was written to each topic: per epoch, task by task, in the order of each task."""
        self._tasks = tasks
        self._queue = queue
        self._shuffled = shuffled
        self._readers: dict[str, list[MemoryTask]] = {}

    def resume(self) -> None:
        """See `Coordinator.resume`."""

    def plan_epoch(self, *, tick: bool, instances: Mapping[str, str]) -> MemoryJob | None:
        """See `Coordinator.plan_epoch`. A tick is for all tasks, a single record for those that read it."""
        del instances
        raws = self._queue.take()
        if len(raws) == 1 and not tick and not self._shuffled:
            return MemoryJob(raws, self.readers_of(raws[0].topic), tick)
        return MemoryJob(raws, self._tasks, tick) if tick or raws else None

    def readers_of(self, topic: str) -> Sequence[MemoryTask]:
        """The tasks that read a topic."""
        readers = self._readers.get(topic)
        if readers is None:
            readers = self._readers[topic] = [task for task in self._tasks if task.reads_topic(topic)]
        return readers

    def commit(
        self, job: MemoryJob, reports: Sequence[MemoryReport | WrongInstance]
    ) -> Sequence[MemoryReport]:
        """See `Coordinator.commit`."""
        del job
        made = cast("Sequence[MemoryReport]", reports)  # nobody is at the wrong place
        for task, result in made:
            task.commit(result)
        return made

    def publish(self, manifest: Sequence[MemoryReport]) -> None:
        """See `Coordinator.publish`."""
        for task, result in manifest:
            for batch in result.outputs:
                if batch.topic not in self._shuffled:
                    rows = list(_records_of(task.task_id, batch))
                    self.outputs[batch.topic].extend(rows)
                    if self.readers_of(batch.topic):
                        self._queue.put(batch.topic, rows)

    def verify(self) -> None:
        """See `Coordinator.verify`."""

    def plan_again(self, job: MemoryJob, error: Exception, tries: int) -> MemoryJob:
        """See `Coordinator.plan_again`."""
        del error, tries
        return job


class MemoryEngine:
    """Runs tasks that stay open, one after the other."""

    def __init__(
        self,
        partitions: Mapping[str, int],
        shuffled: Collection[str],
        run_task: RunTask | None,
        *,
        fresh_tasks: bool,
    ) -> None:
        self.instances: Mapping[str, str] = {}
        self._partitions = partitions
        self._shuffled = shuffled
        self._run_task = run_task
        self._fresh_tasks = fresh_tasks
        self._offsets: dict[tuple[str, int], int] = {}
        self._offsets_after: dict[tuple[str, int], int] = {}
        """Of the repartitions: as they are committed, and after the epoch at work."""

    def run_tasks(self, job: MemoryJob) -> list[MemoryReport | WrongInstance]:
        """See `TaskRunner.run_tasks`."""
        shuffle = Shuffle(self._partitions, self._offsets) if self._shuffled else None
        run_task = self._run_task
        reports: list[MemoryReport | WrongInstance] = []
        for task in job.tasks:
            raws = [raw for raw in job.raws if task.reads(raw)]
            if shuffle is not None:
                raws += shuffle.take(task)
            result = task.run(raws, tick=job.tick) if run_task is None else run_task(task, raws, job.tick)
            if shuffle is not None:
                shuffle.add(task, (batch for batch in result.outputs if batch.topic in self._shuffled))
            reports.append(MemoryReport(task, result))
        if shuffle is not None:
            shuffle.check_all_taken()
            self._offsets_after = shuffle.offsets
        return reports

    def failed(self, job: MemoryJob, error: Exception, tries: int) -> None:
        """See `TaskRunner.failed`. What fails here is the user's program."""
        del job, tries
        raise error

    def apply(self, epoch: MemoryEpoch) -> None:
        """The commit has applied all. Fresh tasks take the place of those that ran."""
        self._offsets = self._offsets_after
        if self._fresh_tasks:
            for task in epoch.job.tasks:
                task.reopen()


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
            topic = self._sent[0].topic
            message = (
                f"rows of the repartition {topic!r} are left over: the task that reads it ran before the "
                "task that writes it. A stream that is merged with its own repartition is not run yet."
            )
            raise MillstreamError(message)


class MemoryApplication:
    """An application in memory. Close it at the end.

    partitions
        How many partitions each topic of the log has; what repartitions move is processed in the same epoch.
        None: all topics have one partition, and repartitions are topics like others.
    fresh_tasks
        True: every commit is followed by new tasks, as on a cluster.
    run_task
        How a task takes its part in an epoch.
    """

    def __init__(
        self,
        plan: Plan,
        queue: RecordQueue,
        *,
        clock: Callable[[], int],
        partitions: Mapping[str, int] | None = None,
        config: StreamsConfig | None = None,
        application_id: str = "test",
        fresh_tasks: bool = False,
        run_task: RunTask | None = None,
    ) -> None:
        self.metrics = Metrics()
        self._plan = plan
        self._queue = queue
        self._clock = clock
        self._has_shuffles = partitions is not None
        self._partitions = {} if partitions is None else plan.partitions(partitions)
        self._config = config if config is not None else StreamsConfig()
        self._application_id = check_application_id(application_id)
        self._book = SerdeBook()
        self._global_stores: dict[str, StateStore[Any]] = {}
        self._globals = [self._start(sub, 0) for sub in plan.global_subtopologies]
        for task in self._globals:
            self._global_stores.update(task.stores)
        levels = plan.levels if self._has_shuffles else (plan.subtopologies,)
        self._tasks = [
            self._start(sub, partition)
            for sub in chain.from_iterable(levels)
            for partition in range(plan.task_count(sub, self._partitions) if self._has_shuffles else 1)
        ]
        shuffled = plan.repartition_topics if self._has_shuffles else {}
        self._coordinator = MemoryCoordinator(self.tasks, queue, shuffled)
        self._engine = MemoryEngine(self._partitions, shuffled, run_task, fresh_tasks=fresh_tasks)

    @property
    def tasks(self) -> list[MemoryTask]:
        """All tasks, those of global tables first, then level by level."""
        return [*self._globals, *self._tasks]

    @property
    def outputs(self) -> Mapping[str, deque[MemoryRecord]]:
        """What was written to each topic: per epoch, task by task, in the order of each task."""
        return self._coordinator.outputs

    def is_read(self, topic: str) -> bool:
        """Whether any task reads a topic."""
        return bool(self._coordinator.readers_of(topic))

    def run_epoch(self, *, tick: bool = False) -> bool:
        """Run one epoch; False if there was nothing to do. If it fails, nothing of it is left, nor queued."""
        try:
            return run_epoch(self._coordinator, self._engine, tick=tick) is not None
        except BaseException:
            self._queue.clear()
            for task in self.tasks:
                task.abandon()
            raise

    def close(self) -> None:
        """Close all processors."""
        for task in (*self._tasks, *self._globals):
            task.close()

    def _start(self, sub: SubTopology, partition: int) -> MemoryTask:
        stores, backends = stores_in_memory(sub, self._book)
        environment = TaskEnvironment(
            application_id=self._application_id,
            config=self._config,
            book=self._book,
            metrics=self.metrics,
            stores=stores,
            global_stores=self._global_stores,
            clock=self._clock,
            partitions_of=lambda topic: self._partitions.get(topic, 1),
            is_internal=self._plan.repartition_topics.__contains__,
            combines=self._has_shuffles,
        )
        return MemoryTask(sub, partition, environment, backends)


def _records_of(task_id: str, batch: OutputBatch) -> Iterable[MemoryRecord]:
    headers = repeat(()) if batch.headers is None else batch.headers
    chosen = repeat(None) if batch.partitions is None else batch.partitions
    return map(MemoryRecord, batch.keys, batch.values, batch.timestamps, headers, repeat(task_id), chosen)
