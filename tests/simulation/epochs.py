"""`EpochRunner`: a whole topology in this process, epoch by epoch, on any number of partitions.

Where `TopologyTestDriver` makes every record an epoch of its own, here the caller says which records an
epoch takes, as an engine does: cached tables flush where the epochs end, and what a repartition moves is
processed by the next level within the same epoch. It runs the production tasks over stores in memory.

It knows no log: what the topology writes is kept in `outputs`, and goes in again only if it is passed in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from millstream.config import StreamsConfig
from millstream.engine.memory import MemoryApplication, MemoryRecord, Shuffle
from millstream.engine.memory_task import MemoryTask
from millstream.task.metrics import Metrics
from millstream.task.records import RawBatch
from millstream.task.task import TaskResult
from millstream.topology.topology import Topology

__all__ = ["EpochRunner", "MemoryTask", "Shuffle"]


class _AllAtOnce:
    """What the caller gives is one epoch. Nothing that is written goes in again."""

    def __init__(self) -> None:
        self.raws: list[RawBatch] = []

    def take(self) -> Sequence[RawBatch]:
        raws, self.raws = self.raws, []
        return raws

    def put(self, topic: str, rows: Sequence[MemoryRecord]) -> None: ...

    def clear(self) -> None:
        self.raws = []


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
        self._application = MemoryApplication(
            topology.plan(),
            self._queue,
            clock=lambda: self.now_ms,
            partitions=partitions,
            config=config,
            application_id=application_id,
            fresh_tasks=fresh_tasks,
            run_task=lambda task, raws, _tick: self.run_task(task, raws),
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
