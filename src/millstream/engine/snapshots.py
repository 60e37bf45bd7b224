"""Snapshots beside the epochs: those that are due, one task at a time, where the state is.

An epoch waits for one at most while a task's stores are copied locally. What went wrong comes back as a value
and becomes a warning of the coordinator's process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from millstream.commit.epoch_job import PlannedTask
from millstream.engine.api import DurableEpoch, Engine, homes_after
from millstream.maintenance.background import BackgroundScheduler
from millstream.maintenance.snapshot_schedule import SnapshotSchedule
from millstream.maintenance.snapshots import snapshot_task, warn_of

_PATIENCE_S: Final = 10.0
"""How long the end of an application waits for the snapshots at work, before it gives them up."""


class Snapshots:
    """Takes the snapshots of one application. A listener of the end of epochs."""

    def __init__(
        self, engine: Engine, schedule: SnapshotSchedule, find_task: Callable[[str], PlannedTask | None]
    ) -> None:
        self._engine = engine
        self._find_task = find_task
        self._schedule = schedule
        self._is_given_up = threading.Event()
        self._last: DurableEpoch | None = None
        self._due: tuple[DurableEpoch, Sequence[PlannedTask]] | None = None
        """What the work takes up: the next epoch may end before its thread has begun."""
        self._oldest = 0
        self._background = BackgroundScheduler(
            "taking of snapshots", self._take, interval=1, has_work=self._is_due, cancel=self._give_up
        )

    @property
    def at_work_since(self) -> int | None:
        """The oldest version that a snapshot at work may be of; None if none is at work."""
        return self._oldest if self._background.is_at_work else None

    def epoch_ended(self, epoch: DurableEpoch) -> None:
        """Begin the snapshots that are due, unless the last ones are still at work."""
        self._schedule.note(epoch.manifest)
        self._last = epoch
        self._background.epoch_ended()

    def finish(self) -> None:
        """End in order: wait a while for the snapshots at work; what takes longer is given up."""
        self._background.wait(_PATIENCE_S)

    def _is_due(self) -> bool:
        """Asked when none is at work."""
        assert self._last is not None  # an epoch has ended
        manifest = self._last.manifest
        due = self._schedule.due(manifest)
        self._schedule.tried(due, manifest.epoch)
        homes = {**self._engine.instances, **homes_after(self._last.reports)}
        tasks = [
            replace(task, expected_instance=homes.get(task.task_id))
            for task in map(self._find_task, due)
            if task is not None
        ]
        self._due = (self._last, tasks)
        self._oldest = min((manifest.tasks[task].version for task in due), default=0)
        return bool(due)

    def _take(self) -> None:
        assert self._due is not None  # that was asked first
        epoch, tasks = self._due
        for task in tasks:
            if not self._is_given_up.is_set():
                entry = epoch.manifest.tasks[task.task_id]
                warn_of(self._engine.run_background(snapshot_task, epoch.job, task, entry))

    def _give_up(self) -> None:
        self._is_given_up.set()
        self._engine.cancel_background()
