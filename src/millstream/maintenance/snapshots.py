"""Snapshots: what is done for a task that is due, and which manifests they pin.

Nothing waits for a snapshot, and nothing depends on one: a failure is a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from millstream.commit.epoch_job import PlannedTask
from millstream.commit.manifest import TaskEntry
from millstream.commit.sealed_history import is_known
from millstream.commit.store_opening import opened_stores
from millstream.commit.worker import Worker
from millstream.config import StreamsConfig
from millstream.durable import OS_FILES, FileLayer
from millstream.state.local.task_stores import NewerStores, supplier_of
from millstream.state.snapshots.listing import retained_versions
from millstream.state.snapshots.manifest import SnapshotPlace
from millstream.state.snapshots.storage import SnapshotStorage, absolute_location, open_storage
from millstream.state.snapshots.taking import Outcome, SnapshotSettings, problems, take_snapshots

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
    application = worker.storage.application_id
    settings = SnapshotSettings(
        storage=worker.snapshots,
        places={
            name: SnapshotPlace(application, planned.task_id, name, supplier_of(spec, worker.backend).name)
            for name, spec in sub.stores.items()
        },
        retained=worker.config.snapshots_retained,
        is_known=partial(is_known, worker.storage, planned.task_id),
        copies_under_lock=worker.shares_process,
    )
    patient = replace(worker, lock_timeout_ms=min(worker.lock_timeout_ms, _LOCK_WAIT_MS))
    return take_snapshots(
        worker.directory.task(application, planned.task_id),
        opened_stores(patient, sub, planned, entry, newer=NewerStores.TAKE),
        settings,
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
