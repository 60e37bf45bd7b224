"""Whole epochs in this process, through the real commit: real files, real stores, real topics.

An engine differs from this executor in nothing but who calls `run_task` and where. So every crash site of
the commit is tested here, without a JVM.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.coordinator import (
    CommitCoordinator,
    CoordinatorSettings,
    EpochMismatchError,
    WrongInstanceError,
)
from millstream.commit.epoch_job import EpochJob, PlannedTask, TaskReport, WrongInstance
from millstream.commit.manifest import Manifest
from millstream.commit.targets import Targets
from millstream.commit.worker import Worker, apply_commit, run_task
from millstream.config import StreamsConfig
from millstream.durable import OS_FILES, FileLayer
from millstream.log.embedded.file_log import FileLog, Limits
from millstream.maintenance.maintenance import MaintenanceReport
from millstream.maintenance.snapshots import pinned_epochs, schedule_of, snapshot_task, storage_of, warn_of
from millstream.state.backends.api import BackendSupplier
from millstream.state.changelog.follow import NO_LISTENER, RestoreListener
from millstream.state.local.directory import open_state_directory
from millstream.state.local.log_note import note_log
from millstream.state.snapshots.taking import Outcome
from millstream.task.metrics import Metrics
from millstream.task.shuffle_block import ShuffleBlock
from millstream.topology.topology import Topology
from millstream.types import Attempt

__all__ = ["InProcessExecutor", "run_level"]

MAX_RUNS = 5


class InProcessExecutor:
    """Runs an application epoch by epoch. Opening it twice on the same folders is a restart."""

    def __init__(
        self,
        topology: Topology,
        *,
        application_id: str,
        log_root: Path,
        state_dir: Path,
        backend: str | BackendSupplier = "memory",
        config: StreamsConfig | None = None,
        settings: CoordinatorSettings | None = None,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        files: FileLayer = OS_FILES,
        limits: Limits | None = None,
        listener: RestoreListener = NO_LISTENER,
        apply_after_commit: bool = True,
    ) -> None:
        plan = topology.plan()
        config = config if config is not None else StreamsConfig()
        snapshots = storage_of(config, files)
        folder = ApplicationStorage(log_root, application_id, files)
        self.log = FileLog(log_root, files=files, limits=limits, now_ms=clock)
        self.metrics = Metrics()
        self.coordinator = CommitCoordinator(
            folder,
            self.log,
            plan,
            clock=clock,
            settings=settings,
            pinned=lambda: pinned_epochs(self.worker.snapshots, application_id),
        )
        self.worker = Worker(
            plan=plan,
            config=config,
            folder=folder,
            log=self.log,
            directory=note_log(open_state_directory(state_dir), application_id, log_root),
            backend=backend,
            metrics=self.metrics,
            listener=listener,
            snapshots=snapshots,
        )
        self.apply_after_commit = apply_after_commit
        self._attempts = count(1)
        self.coordinator.open()
        self.schedule = schedule_of(config, snapshots, self.coordinator.head)

    def run_epoch(self, *, tick: bool = False) -> Manifest | None:
        """Run one epoch through all ten steps; None if there was nothing to do."""
        job = self.coordinator.plan_epoch(tick=tick)
        if job is None:
            return None
        manifest = self._committed(job)
        self.coordinator.publish(manifest)
        self.coordinator.end(manifest)
        if self.apply_after_commit:
            self.apply(job, manifest)
            self.take_due_snapshots(job, manifest)
        return manifest

    def run_until_caught_up(self) -> int:
        """Run epochs until all input is committed. How many there were."""
        epochs = 0
        while (manifest := self.run_epoch()) is not None or self.coordinator.has_backlog:
            epochs += manifest is not None
        return epochs

    def apply(self, job: EpochJob, manifest: Manifest) -> None:
        """Step 10 for every task that sealed."""
        for planned in job.tasks:
            if planned.task_id in manifest.sealed:
                apply_commit(self.worker, planned, manifest.tasks[planned.task_id])

    def run_maintenance(self, *, min_entries: int = 1) -> MaintenanceReport:
        """Tidy up, as step 10 does now and then."""
        return self.coordinator.run_maintenance(min_entries=min_entries)

    def take_due_snapshots(self, job: EpochJob, manifest: Manifest) -> list[Outcome]:
        """Step 10, too: snapshots of the tasks that are due."""
        if self.schedule is None:
            return []
        self.schedule.note(manifest)
        due = self.schedule.due(manifest)
        planned = [task for task in job.tasks if task.task_id in due]
        outcomes = [
            outcome
            for task in planned
            for outcome in snapshot_task(self.worker, task, manifest.tasks[task.task_id])
        ]
        self.schedule.tried(due, manifest.epoch)
        warn_of(outcomes)
        return outcomes

    def run_tasks(self, job: EpochJob) -> list[TaskReport | WrongInstance]:
        """Steps 3 to 6 for all tasks, level by level."""
        reports: list[TaskReport | WrongInstance] = []
        blocks: list[ShuffleBlock] = []
        for level in range(1 + max((task.level for task in job.tasks), default=-1)):
            planned = [task for task in job.tasks if task.level == level]
            made, sent = run_level(self.worker, job, planned, blocks, self.next_attempt)
            reports += made
            blocks += sent
        return reports

    def next_attempt(self) -> Attempt:
        """A number that no other attempt of this term has."""
        return Attempt(next(self._attempts))

    def close(self) -> None:
        """Let the lease go."""
        self.coordinator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()

    def _committed(self, job: EpochJob) -> Manifest:
        for run in range(MAX_RUNS):
            try:
                return self.coordinator.commit(job, self.run_tasks(job))
            except Exception as error:
                # A coordinator that was overtaken says so, whatever else went wrong because of it.
                self.coordinator.lease.verify()
                if run == MAX_RUNS - 1 or not isinstance(error, EpochMismatchError | WrongInstanceError):
                    raise
        raise AssertionError  # the loop returns or raises


def run_level(
    worker: Worker,
    job: EpochJob,
    planned: Sequence[PlannedTask],
    blocks: Sequence[ShuffleBlock],
    next_attempt: Callable[[], Attempt],
) -> tuple[list[TaskReport | WrongInstance], list[ShuffleBlock]]:
    """Run the tasks of one level on what the levels before sent."""
    reports: list[TaskReport | WrongInstance] = []
    sent: list[ShuffleBlock] = []
    taken = Targets(worker.plan, planned).by_task(blocks)
    for task in planned:
        report, out = run_task(worker, job, task, taken.get(task.task_id, ()), next_attempt())
        reports.append(report)
        sent += out
    return reports, sent
