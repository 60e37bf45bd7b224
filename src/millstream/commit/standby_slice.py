"""Copies that are followed for a moment, and then closed: for a process that has to end its work soon.

They stand where they have come to, and the next slice goes on from there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from millstream.commit.epoch_job import PlannedTask
from millstream.commit.manifest import TaskEntry
from millstream.commit.standby import STANDBY_LOCK_TIMEOUT_MS, STEP_BYTES, StandbyPosition, StandbyTask
from millstream.commit.worker import Worker
from millstream.errors import MillstreamError
from millstream.state.changelog.follow import Progress, RestoreListener, ToldRestores
from millstream.state.errors import ChangelogGapError
from millstream.state.local.task_stores import standing_on_disk
from millstream.types import Version

__all__ = ["follow_for"]

_LOGGER = logging.getLogger("millstream")


class _TimeIsUpError(MillstreamError):
    """The slice is over."""


def follow_for(
    worker: Worker,
    tasks: Sequence[tuple[PlannedTask, TaskEntry]],
    seconds: float,
    step_bytes: int = STEP_BYTES,
) -> dict[str, StandbyPosition]:
    """Follow tasks to their commits, one after the other, for about so long; how far those are that moved.

    A task that could not be followed is left out, and the others go on. A changelog that no longer goes back
    to where a copy is needs a snapshot: to copy that may take longer.
    """
    listener = _Slice(worker.listener, time.monotonic() + seconds)
    here = replace(worker, listener=listener, open_stores=None, lock_timeout_ms=STANDBY_LOCK_TIMEOUT_MS)
    found: dict[str, StandbyPosition] = {}
    for planned, entry in tasks:
        try:
            try:
                position = _followed(replace(here, snapshots=None), planned, entry, step_bytes)
            except ChangelogGapError:
                position = _followed(here, planned, entry, step_bytes)
        except _TimeIsUpError:
            position = _standing(here, planned)
        except Exception:
            _LOGGER.debug("Standby task %s could not follow", planned.task_id, exc_info=True)
            continue
        found[planned.task_id] = position
        if listener.is_over():
            break
    return found


def _followed(worker: Worker, planned: PlannedTask, entry: TaskEntry, step_bytes: int) -> StandbyPosition:
    copy = StandbyTask(worker, planned, step_bytes, in_slices=True)
    try:
        copy.follow(entry)
        position = copy.position()
    finally:
        copy.close()
    assert position is not None  # it is open
    return position


def _standing(worker: Worker, planned: PlannedTask) -> StandbyPosition:
    """Where a copy is that was interrupted: with all its stores, those included that had no turn yet."""
    logged = {
        name: spec for name, spec in worker.subtopology(planned.subtopology).stores.items() if spec.logging
    }
    found = standing_on_disk(
        worker.directory.task(worker.storage.application_id, planned.task_id),
        logged,
        worker.backend,
        rocksdb_config_setter=worker.config.rocksdb_config_setter,
    )
    return StandbyPosition(Version(0), {name: here.offset for name, here in found.items()})


class _Slice(ToldRestores):
    """Ends the work between two steps when its time is up."""

    def __init__(self, other: RestoreListener, until: float) -> None:
        super().__init__(other)
        self._until = until

    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self._until

    def on_batch(self, progress: Progress) -> None:
        super().on_batch(progress)
        if progress.snapshot is not None:
            return  # half a snapshot is nothing
        if progress.records < progress.total_records and self.is_over():
            raise _TimeIsUpError("the slice is over")
