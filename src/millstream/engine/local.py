"""The local engine: all tasks one after the other, in this process. Real files, real stores, no JVM."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import count
from typing import Final, TypeVar

from millstream.commit.epoch_job import EpochJob, PlannedTask, TaskReport, WrongInstance
from millstream.commit.manifest import TaskEntry
from millstream.commit.reports import EpochMismatchError, WrongInstanceError
from millstream.commit.source_times import TimesRequest, read_times
from millstream.commit.store_opening import apply_commit
from millstream.commit.targets import Targets
from millstream.commit.task_attempt import run_task
from millstream.commit.worker import Worker, for_tasks_of_an_epoch
from millstream.engine.api import DurableEpoch, Engine, TaskWork, homes_after
from millstream.maintenance.state_cleaner import clean_now_and_then
from millstream.task.shuffle_block import ShuffleBlock
from millstream.types import Attempt

T = TypeVar("T")

MAX_RUNS: Final = 5
"""How often an epoch is run whose attempts disagree."""
_LOCK_TIMEOUT_MS: Final = 600_000
"""How long a task waits for its stores: a snapshot holds them while it copies them, also very large ones."""


class LocalEngine(Engine):
    """Runs tasks here. There is nothing to open, to cancel or to close."""

    def __init__(self, make_worker: Callable[[], Worker], check: Callable[[], None] = lambda: None) -> None:
        self._make_worker = make_worker
        self.check = check  # type: ignore[method-assign]
        self.apply_after_commit = True
        """False: stores follow a commit when they are opened next, and not at once."""
        self._instances: dict[str, str] = {}
        self._attempts = count(1)

    @cached_property
    def worker(self) -> Worker:
        """The one worker: made when it is first needed, for it claims the state directory."""
        return replace(self._make_worker(), shares_process=True, lock_timeout_ms=_LOCK_TIMEOUT_MS)

    @property
    def instances(self) -> Mapping[str, str]:
        return self._instances

    def open(self) -> None: ...
    def cancel_background(self) -> None: ...
    def close(self) -> None: ...

    def run_tasks(self, job: EpochJob) -> list[TaskReport | WrongInstance]:
        reports: list[TaskReport | WrongInstance] = []
        blocks: list[ShuffleBlock] = []
        with for_tasks_of_an_epoch(self.worker) as worker:
            for level in range(1 + max((task.level for task in job.tasks), default=-1)):
                planned = [task for task in job.tasks if task.level == level]
                made, sent = run_level(worker, job, planned, blocks, self.next_attempt)
                reports += made
                blocks += sent
        return reports

    def read_times(self, requests: Sequence[TimesRequest]) -> list[array[int]]:
        return [read_times(self.worker, request) for request in requests]

    def next_attempt(self) -> Attempt:
        """A number that no other attempt of this term has."""
        return Attempt(next(self._attempts))

    def failed(self, job: EpochJob, error: Exception, tries: int) -> None:
        del job
        if tries >= MAX_RUNS or not isinstance(error, EpochMismatchError | WrongInstanceError):
            raise error

    def apply(self, epoch: DurableEpoch) -> None:
        self._instances.update(homes_after(epoch.reports))
        if not self.apply_after_commit:
            return
        for planned in epoch.job.tasks:
            if planned.task_id in epoch.manifest.sealed:
                apply_commit(self.worker, planned, epoch.manifest.tasks[planned.task_id])

    def run_background(self, work: TaskWork[T], job: EpochJob, planned: PlannedTask, entry: TaskEntry) -> T:
        del job
        return work(self.worker, planned, entry)


def run_level(
    worker: Worker,
    job: EpochJob,
    planned: Sequence[PlannedTask],
    blocks: Sequence[ShuffleBlock],
    next_attempt: Callable[[], Attempt],
) -> tuple[list[TaskReport | WrongInstance], list[ShuffleBlock]]:
    """Run the tasks of one level on what the levels before sent, if anything, and on their own input."""
    reports: list[TaskReport | WrongInstance] = []
    sent: list[ShuffleBlock] = []
    taken = Targets(worker.plan, planned).by_task(blocks)
    for task in planned:
        if not task.has_input and task.task_id not in taken:
            continue
        report, out = run_task(worker, job, task, taken.get(task.task_id, ()), next_attempt())
        clean_now_and_then(worker.directory, worker.config.state_cleanup_delay_ms, job)
        reports.append(report)
        sent += out
    return reports, sent
