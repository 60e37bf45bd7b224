"""Snapshots on Spark: in jobs of their own, beside the epochs, one task at a time.

A job has a single task, which runs where the state is; so snapshots never take more than one core from the
epochs, and an epoch waits for one at most while a task's stores are copied locally. What went wrong comes
back as a value and becomes a warning of the driver.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from millstream.commit.epoch_job import EpochJob, PlannedTask, TaskReport
from millstream.commit.manifest import Manifest, TaskEntry
from millstream.engine.spark.slots import Slots
from millstream.engine.spark.stage_function import MakeWorker, assign
from millstream.maintenance.snapshots import SnapshotSchedule, snapshot_task, warn_of
from millstream.state.snapshots.taking import Outcome

__all__ = ["SnapshotJobs"]

_LOGGER = logging.getLogger("millstream")
_POOL: Final = "millstream-snapshots"
_PATIENCE_S: Final = 10.0
"""How long the end of an application waits for the snapshots at work, before it gives them up."""


class SnapshotJobs:
    """Takes the snapshots of one application that are due, in the background."""

    def __init__(
        self, context: SparkContext, slots: Slots, make_worker: MakeWorker, schedule: SnapshotSchedule
    ) -> None:
        self._context = context
        self._slots = slots
        self._make_worker = make_worker
        self._schedule = schedule
        self._thread: threading.Thread | None = None
        self._group = ""
        self._over = threading.Event()
        self._oldest = 0

    @property
    def at_work_since(self) -> int | None:
        """The oldest version that a snapshot at work may be of; None if none is at work."""
        return self._oldest if self._thread is not None and self._thread.is_alive() else None

    def after(self, job: EpochJob, manifest: Manifest, reports: Sequence[TaskReport]) -> None:
        """An epoch is over: begin the snapshots that are due, unless the last ones are still at work."""
        self._schedule.note(manifest)
        if self._thread is not None and self._thread.is_alive():
            return
        due = self._schedule.due(manifest)
        if not due:
            return
        self._schedule.tried(due, manifest.epoch)
        homes = {report.task_id: report.instance for report in reports}
        slots = assign(job.tasks, self._slots.count)
        takes = [
            _Take(
                replace(task, expected_instance=homes.get(task.task_id)),
                manifest.tasks[task.task_id],
                slots[task.task_id],
                self._make_worker,
            )
            for task in job.tasks
            if task.task_id in due
        ]
        self._group = f"millstream-{job.application_id}-snapshots"
        self._oldest = min(take.entry.version for take in takes)
        self._thread = threading.Thread(target=self._run, args=(takes,), name=self._group, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """End in order: wait a while for the snapshots at work; what takes longer is given up."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.join(_PATIENCE_S)
        self._over.set()
        if thread.is_alive():
            with suppress(Py4JError, OSError):  # Spark may be gone
                self._context.cancelJobGroup(self._group)
            thread.join(_PATIENCE_S)

    def _run(self, takes: Sequence[_Take]) -> None:
        try:
            self._context.setLocalProperty("spark.scheduler.pool", _POOL)
            for take in takes:
                if self._over.is_set():
                    return
                self._context.setJobGroup(self._group, f"snapshot of task {take.planned.task_id}")
                outcomes = self._context.runJob(self._slots.rows, take, [take.slot])
                warn_of([outcome for part in outcomes for outcome in part])
        except (Py4JError, PySparkException, OSError) as error:
            if not self._over.is_set():
                _LOGGER.warning(
                    "Spark could not take snapshots: %s The application goes on without them.", error
                )


@dataclass(frozen=True, slots=True)
class _Take:
    """What a worker does: all stores of one task."""

    planned: PlannedTask
    entry: TaskEntry
    slot: int
    make_worker: MakeWorker

    def __call__(self, rows: Any) -> list[list[Outcome]]:
        for _ in rows:
            pass
        return [snapshot_task(self.make_worker(), self.planned, self.entry)]
