"""Snapshots as part of step 10: which tasks are due, and what a task does.

Nothing waits for a snapshot, and nothing depends on one: a failure is a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from millstream.commit.epoch_job import PlannedTask
from millstream.commit.manifest import Manifest, TaskEntry
from millstream.commit.worker import Worker, is_known, opened_stores
from millstream.config import StreamsConfig
from millstream.durable import OS_FILES, FileLayer
from millstream.errors import MillstreamError
from millstream.state.local.task_stores import NewerStores, maker_of
from millstream.state.snapshots import (
    SnapshotPlace,
    SnapshotStorage,
    absolute_location,
    newest_versions,
    open_storage,
    retained_versions,
)
from millstream.state.snapshots.taking import Outcome, Taker, problems, take_snapshots
from millstream.types import Epoch, Version

__all__ = [
    "PinnedEpochs",
    "SnapshotSchedule",
    "pinned_epochs",
    "schedule_of",
    "snapshot_task",
    "storage_of",
    "warn_of",
]

_LOGGER = logging.getLogger("millstream")
_LOCK_WAIT_MS: Final = 10_000
"""How long a snapshot waits for an epoch to let go of a task's stores: most epochs are shorter."""


def storage_of(config: StreamsConfig, files: FileLayer = OS_FILES) -> SnapshotStorage | None:
    """Where an application's snapshots go; None if it takes none."""
    uri = config.snapshot_uri
    return None if uri is None else open_storage(absolute_location(uri), files=files)


def snapshot_task(worker: Worker, planned: PlannedTask, entry: TaskEntry) -> list[Outcome]:
    """Take a snapshot of each store of a task, at the version of the entry or a later one.

    On another instance than the one that has the state nothing is taken: it would be restored first.
    """
    sub = worker.subtopology(planned.subtopology)
    is_here = planned.expected_instance in (None, worker.directory.instance_id)
    if worker.snapshots is None or not sub.stores or not is_here:
        return []
    application = worker.folder.application_id
    taker = Taker(
        storage=worker.snapshots,
        places={
            name: SnapshotPlace(application, planned.task_id, name, maker_of(spec, worker.backend).name)
            for name, spec in sub.stores.items()
        },
        retained=worker.config.snapshots_retained,
        is_known=partial(is_known, worker, planned.task_id),
    )
    patient = replace(worker, lock_timeout_ms=min(worker.lock_timeout_ms, _LOCK_WAIT_MS))
    return take_snapshots(
        worker.directory.task(application, planned.task_id),
        opened_stores(patient, sub, planned, entry, newer=NewerStores.TAKE),
        taker,
    )


def warn_of(outcomes: Sequence[Outcome]) -> None:
    """Tell what went wrong, once per store."""
    for problem in problems(outcomes):
        _LOGGER.warning("%s The application goes on without it.", problem)


def pinned_epochs(storage: SnapshotStorage | None, application_id: str) -> Collection[int]:
    """The epochs whose manifests tell that a snapshot is of this history.

    A storage that can't be asked is an error: then no manifest may be removed.
    """
    return () if storage is None else retained_versions(storage, application_id)


@dataclass(frozen=True, slots=True)
class PinnedEpochs:
    """The epochs of snapshots: of those that are there, and of those at work.

    These may be of any version from the one on with which they began.

    >>> pinned = PinnedEpochs({3, 7}, at_work_since=9)
    >>> 7 in pinned, 8 in pinned, 12 in pinned
    (True, False, True)
    """

    listed: Container[int]
    at_work_since: int | None = None

    def __contains__(self, epoch: object) -> bool:
        at_work = self.at_work_since is not None and isinstance(epoch, int) and epoch >= self.at_work_since
        return at_work or epoch in self.listed


class SnapshotSchedule:
    """When each task's stores are copied: every so many epochs, or bytes of changelog. Pure.

    A task that has not changed since is never due. One that failed is tried again an interval later.
    """

    def __init__(
        self, *, interval_epochs: int, interval_bytes: int | None, newest: Mapping[str, Version]
    ) -> None:
        self._interval_epochs = interval_epochs
        self._interval_bytes = interval_bytes
        self._since: dict[str, int] = dict(newest)
        self._bytes: dict[str, int] = {}

    def note(self, manifest: Manifest) -> None:
        """Count what an epoch wrote."""
        for task in manifest.sealed:
            written = sum(
                section.length
                for section in manifest.tasks[task].sections
                if section.topic.endswith("-changelog")
            )
            self._bytes[task] = self._bytes.get(task, 0) + written

    def due(self, manifest: Manifest) -> list[str]:
        """The tasks to take snapshots of after an epoch."""
        return [task for task, entry in sorted(manifest.tasks.items()) if self._is_due(task, entry)]

    def tried(self, tasks: Iterable[str], epoch: Epoch) -> None:
        """Note that snapshots of tasks were taken, or failed."""
        for task in tasks:
            self._since[task] = epoch
            self._bytes[task] = 0

    def _is_due(self, task: str, entry: TaskEntry) -> bool:
        epochs = entry.version - self._since.get(task, 0)
        if epochs <= 0:
            return False
        is_much = self._interval_bytes is not None and self._bytes.get(task, 0) >= self._interval_bytes
        return is_much or epochs >= self._interval_epochs


def schedule_of(
    config: StreamsConfig, storage: SnapshotStorage | None, head: Manifest
) -> SnapshotSchedule | None:
    """The schedule of an application, going on from the snapshots that there are; None if it takes none."""
    if storage is None:
        return None
    newest: Mapping[str, Version] = {}
    try:
        found = newest_versions(storage, head.application_id)
        # Those of a history that a backup undid don't count.
        newest = {task: version for task, version in found.items() if version <= head.epoch}
    except (MillstreamError, OSError) as error:
        _LOGGER.warning("Nobody knows which snapshots there are: %s", error)
    return SnapshotSchedule(
        interval_epochs=config.snapshot_interval_epochs,
        interval_bytes=config.snapshot_interval_bytes,
        newest=newest,
    )
