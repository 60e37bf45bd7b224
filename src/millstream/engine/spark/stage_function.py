"""What runs in Spark's Python workers: the tasks of one slot at one level of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark import TaskContext

from millstream.commit.epoch_job import EpochJob, PlannedTask, TaskReport, WrongInstance
from millstream.commit.targets import Targets
from millstream.commit.task_attempt import run_task
from millstream.commit.worker import Worker, for_tasks_of_an_epoch
from millstream.errors import MillstreamError
from millstream.maintenance.state_cleaner import clean_now_and_then
from millstream.task.shuffle_block import Route, ShuffleBlock
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
    """An epoch, and where it runs."""

    job: EpochJob
    partitions: Mapping[str, int]
    """The partition of the slots' rows where each task runs."""
    kept: Mapping[str, frozenset[str]] | None = None
    """The tasks that each instance runs, or keeps copies of: told now and then, so that others go."""

    def is_elsewhere(self, task_id: str, instance: str) -> bool:
        """Whether a task, and each copy of it, is on other instances, as far as it was told."""
        kept = self.kept or {}
        return task_id not in kept.get(instance, ()) and any(task_id in tasks for tasks in kept.values())


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
        job, partitions = self.placed.job, self.placed.partitions
        targets = Targets(worker.plan, job.tasks)
        taken = targets.by_task(blocks)
        mine = [
            task
            for task in job.tasks
            if task.level == self.level
            and partitions[task.task_id] == slot
            and (task.has_input or task.task_id in taken)
        ]
        yield from self._run_all(worker, mine, slot, taken, targets)
        # A block for a later level is passed on.
        for block in blocks:
            level = targets.level(block)
            if level is not None and level > self.level:
                yield slot, block

    def _run_all(
        self,
        worker: Worker,
        tasks: Sequence[PlannedTask],
        slot: int,
        taken: Mapping[str, list[ShuffleBlock]],
        targets: Targets,
    ) -> Iterator[tuple[int, Sent]]:
        """Run tasks; send what they made at once, and their reports when what they sealed is durable."""
        reports: list[Passed | Failed] = []
        route = targets.route(self.placed.partitions)
        try:
            with for_tasks_of_an_epoch(worker) as sealing:
                for task in tasks:
                    report, out = self._run(sealing, task, taken.get(task.task_id, []), route)
                    reports.append(report)
                    for block in out:
                        yield self._checked(block), block
        except MillstreamError as error:
            reports = [Failed(task.task_id, error) for task in tasks]
        for report in reports:
            yield slot, report

    def _run(
        self, worker: Worker, task: PlannedTask, mine: list[ShuffleBlock], route: Route
    ) -> tuple[Passed | Failed, list[ShuffleBlock]]:
        attempt = Attempt(_attempt())
        try:
            report, out = run_task(worker, self.placed.job, task, mine, attempt, route)
        except MillstreamError as error:
            return Failed(task.task_id, error), []
        if self.placed.kept is not None and isinstance(report, TaskReport):
            report = replace(report, deleted=self._cleaned(worker))
        return Passed(report), out

    def _cleaned(self, worker: Worker) -> tuple[str, ...]:
        """Delete local state of tasks that are elsewhere, if it is time for that; of which ones it was."""
        directory, delay_ms = worker.directory, worker.config.state_cleanup_delay_ms
        is_elsewhere = partial(self.placed.is_elsewhere, instance=directory.instance_id)
        return tuple(clean_now_and_then(directory, delay_ms, self.placed.job, is_elsewhere))

    def _checked(self, block: ShuffleBlock) -> int:
        if not 0 <= block.slot < self.slot_count:
            raise MillstreamError(
                f"tasks behind {block.topic!r} are assigned to slot {block.slot}, but there are "
                f"{self.slot_count} slots"
            )
        return block.slot


def _attempt() -> int:
    context: Any = TaskContext.get()
    return int(context.taskAttemptId()) if context is not None else 0
