"""When the stores of each task are copied to the storage of snapshots."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from millstream.commit.manifest import Manifest, TaskEntry
from millstream.config import StreamsConfig
from millstream.errors import MillstreamError
from millstream.state.snapshots.listing import newest_versions
from millstream.state.snapshots.storage import SnapshotStorage
from millstream.types import Epoch, Version

_LOGGER = logging.getLogger("millstream")


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
        return sorted(task for task, entry in manifest.tasks.items() if self._is_due(task, entry))

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
