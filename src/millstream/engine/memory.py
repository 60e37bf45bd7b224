"""Epochs in the memory of this process: production tasks, and nothing durable. For tests of topologies.

Its epochs have the ten steps of all others (:mod:`millstream.commit.epoch`); coordinator and engine are its
own. An epoch takes what a queue has ready. All topics have one partition, and repartitions are topics like
others.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, NamedTuple, Protocol, cast

from millstream.commit.epoch import CommittedEpoch, Coordinator, TaskRunner, run_epoch
from millstream.commit.epoch_job import WrongInstance
from millstream.config import StreamsConfig, check_application_id
from millstream.engine.memory_task import MemoryTask, stores_in_memory
from millstream.record import Headers
from millstream.state.stores.store import StateStore
from millstream.task.metrics import Metrics
from millstream.task.records import OutputBatch, RawBatch
from millstream.task.serde_book import SerdeBook
from millstream.task.task import TaskEnvironment, TaskResult
from millstream.topology.plan import Plan, SubTopology


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


class MemoryCoordinator(Coordinator[MemoryJob, MemoryReport, Sequence[MemoryReport]]):
    """Plans what is queued, commits into the tasks' own memory, and publishes to lists."""

    def __init__(self, tasks: Sequence[MemoryTask], queue: RecordQueue) -> None:
        self.outputs: defaultdict[str, deque[MemoryRecord]] = defaultdict(deque)
        """What was written to each topic: per epoch, task by task, in the order of each task."""
        self._tasks = tasks
        self._queue = queue
        self._readers: dict[str, list[MemoryTask]] = {}

    def resume(self) -> None: ...
    def verify(self) -> None: ...

    def plan_epoch(self, *, tick: bool, instances: Mapping[str, str]) -> MemoryJob | None:
        """A tick is for all tasks, a single record for those that read it."""
        del instances
        raws = self._queue.take()
        if len(raws) == 1 and not tick:
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
        del job
        made = cast("Sequence[MemoryReport]", reports)  # nobody is at the wrong place
        for task, result in made:
            task.commit(result)
        return made

    def publish(self, manifest: Sequence[MemoryReport]) -> None:
        for task, result in manifest:
            for batch in result.outputs:
                rows = list(_records_of(task.task_id, batch))
                self.outputs[batch.topic].extend(rows)
                if self.readers_of(batch.topic):
                    self._queue.put(batch.topic, rows)

    def plan_again(self, job: MemoryJob, error: Exception, tries: int) -> MemoryJob:
        del error, tries
        return job


class MemoryEngine(TaskRunner[MemoryJob, MemoryReport, Sequence[MemoryReport]]):
    """Runs tasks that stay open, one after the other."""

    instances: Mapping[str, str] = {}

    def __init__(self, *, fresh_tasks: bool) -> None:
        self._fresh_tasks = fresh_tasks

    def run_tasks(self, job: MemoryJob) -> Sequence[MemoryReport | WrongInstance]:
        raws, tick = job.raws, job.tick
        return [
            MemoryReport(task, task.run([raw for raw in raws if task.reads(raw)], tick=tick))
            for task in job.tasks
        ]

    def failed(self, job: MemoryJob, error: Exception, tries: int) -> None:
        """What fails here is the user's program."""
        del job, tries
        raise error

    def apply(self, epoch: MemoryEpoch) -> None:
        """The commit has applied all. Fresh tasks take the place of those that ran."""
        if self._fresh_tasks:
            for task in epoch.job.tasks:
                task.reopen()


class MemoryApplication:
    """An application in memory. Close it at the end.

    fresh_tasks
        True: every commit is followed by new tasks, as on a cluster.
    """

    def __init__(
        self,
        plan: Plan,
        queue: RecordQueue,
        *,
        clock: Callable[[], int],
        config: StreamsConfig | None = None,
        application_id: str = "test",
        fresh_tasks: bool = False,
    ) -> None:
        self.metrics = Metrics()
        self._queue = queue
        global_stores: dict[str, StateStore[Any]] = {}
        self._environment = TaskEnvironment(
            application_id=check_application_id(application_id),
            config=config if config is not None else StreamsConfig(),
            book=SerdeBook(),
            metrics=self.metrics,
            stores={},
            global_stores=global_stores,
            clock=clock,
            partitions_of=lambda _topic: 1,
            is_internal=plan.repartition_topics.__contains__,
            combines=False,
        )
        self._globals = [self._start(sub, 0) for sub in plan.global_subtopologies]
        for task in self._globals:
            global_stores.update(task.stores)
        self._tasks = self._start_all(plan)
        self._coordinator = MemoryCoordinator(self.tasks, queue)
        self._engine = MemoryEngine(fresh_tasks=fresh_tasks)

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

    def _start_all(self, plan: Plan) -> list[MemoryTask]:
        return [self._start(sub, 0) for sub in plan.subtopologies]

    def _start(self, sub: SubTopology, partition: int) -> MemoryTask:
        stores, backends = stores_in_memory(sub, self._environment.book)
        return MemoryTask(sub, partition, replace(self._environment, stores=stores), backends)


def _records_of(task_id: str, batch: OutputBatch) -> Iterable[MemoryRecord]:
    headers = repeat(()) if batch.headers is None else batch.headers
    chosen = repeat(None) if batch.partitions is None else batch.partitions
    return map(MemoryRecord, batch.keys, batch.values, batch.timestamps, headers, repeat(task_id), chosen)
