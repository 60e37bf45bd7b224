"""What runs in Spark's Python workers: the tasks of one slot at one level of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark import TaskContext

from millstream.commit.epoch_job import EpochJob, PlannedTask, TaskReport, WrongInstance
from millstream.commit.targets import Targets
from millstream.commit.worker import Worker, run_task
from millstream.errors import MillstreamError
from millstream.maintenance.state_cleaner import clean_now_and_then
from millstream.task.shuffle_block import ShuffleBlock
from millstream.types import Attempt


@dataclass(frozen=True, slots=True)
class Passed:
    """A report on its way to the driver, through the levels that are left."""

    report: TaskReport | WrongInstance


@dataclass(frozen=True, slots=True)
class Failed:
    """An error of the user's program: running it again would fail again, so it is not raised but told."""

    task_id: str
    """Empty if there was no worker to run tasks."""
    error: MillstreamError


Sent = ShuffleBlock | Passed | Failed
MakeWorker = Callable[[], Worker]


@dataclass(frozen=True, slots=True)
class PlacedEpoch:
    """An epoch, and who takes part."""

    job: EpochJob
    slots: Mapping[str, int]
    """The slot of each task."""
    stale: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The tasks whose state is on each instance, though neither they nor copies of them are."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The tasks of one level. Spark calls it once per slot."""

    placed: PlacedEpoch
    level: int
    slot_count: int
    make_worker: MakeWorker

    def __call__(self, rows: Iterator[tuple[int, Sent | None]]) -> Iterator[tuple[int, Sent]]:
        """Run the slot's tasks on what was sent to it; send on what they made."""
        slot = -1
        blocks: list[ShuffleBlock] = []
        for number, sent in rows:
            slot = number
            if isinstance(sent, ShuffleBlock):
                blocks.append(sent)
            elif sent is not None:
                yield number, sent
        try:
            worker = self.make_worker()
        except MillstreamError as error:
            yield slot, Failed("", error)
            return
        job, slots = self.placed.job, self.placed.slots
        targets = Targets(worker.plan, job.tasks)
        taken = targets.by_task(blocks)
        for task in job.tasks:
            if task.level != self.level or slots[task.task_id] != slot:
                continue
            if task.has_input or task.task_id in taken:
                yield from self._run(worker, task, slot, taken.get(task.task_id, []), targets)
        # A block for a later level is passed on.
        for block in blocks:
            target = targets.of(block)
            if target is not None and target.level > self.level:
                yield slot, block

    def _run(
        self, worker: Worker, task: PlannedTask, slot: int, mine: list[ShuffleBlock], targets: Targets
    ) -> Iterator[tuple[int, Sent]]:
        attempt = Attempt(_attempt())
        try:
            report, out = run_task(worker, self.placed.job, task, mine, attempt)
        except MillstreamError as error:
            yield slot, Failed(task.task_id, error)
            return
        directory, delay_ms = worker.directory, worker.config.state_cleanup_delay_ms
        stale = self.placed.stale.get(directory.instance_id, frozenset())
        clean_now_and_then(directory, delay_ms, self.placed.job, stale.__contains__)
        yield slot, Passed(report)
        for block in out:
            target = targets.of(block)
            if target is not None:
                yield self._checked(target), block

    def _checked(self, target: PlannedTask) -> int:
        slot = self.placed.slots[target.task_id]
        if not 0 <= slot < self.slot_count:
            raise MillstreamError(
                f"task {target.task_id} is assigned to slot {slot}, but there are {self.slot_count} slots"
            )
        return slot


def _attempt() -> int:
    context: Any = TaskContext.get()
    return int(context.taskAttemptId()) if context is not None else 0
