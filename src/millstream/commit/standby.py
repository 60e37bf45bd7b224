"""A standby task: the stores of a task on an instance that does not run it.

They follow its changelogs from commit to commit, by the same code as a restore and as a store that is opened
for an epoch; so they hold the same bytes at each version, and whoever takes the task over reads what is
missing and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millstream.commit.epoch_job import PlannedTask
from millstream.commit.manifest import TaskEntry
from millstream.commit.worker import StoreOpening, Worker
from millstream.state.changelog.follow import position_of
from millstream.state.local.task_stores import TaskStores, hold_task_stores
from millstream.types import Offset, Version

__all__ = ["StandbyPosition", "StandbyTask"]

BATCH_ROWS: Final = 5_000
"""So many rows are applied at once: tasks of the same process go on in between."""


@dataclass(frozen=True, slots=True)
class StandbyPosition:
    """How far a copy of a task's state is."""

    version: Version
    """0: it is on its way to its first one."""
    offsets: dict[str, Offset]
    """Per logged store, the next offset of its changelog."""


class StandbyTask:
    """One task's stores, open, and the lock of its directory held. Used by one thread."""

    def __init__(self, worker: Worker, planned: PlannedTask, batch_rows: int = BATCH_ROWS) -> None:
        self.planned = planned
        self._worker = worker
        self._sub = worker.subtopology(planned.subtopology)
        self._batch_rows = batch_rows
        self._held: TaskStores | None = None

    def is_at(self, entry: TaskEntry) -> bool:
        """Whether the stores hold what a commit says."""
        if self._held is None:
            return False
        here = self._held.version
        return (here.version, here.sealed_digest) == (Version(entry.version), entry.digest)

    def follow(self, entry: TaskEntry) -> None:
        """Bring the stores to a commit. What fails leaves them closed, where they have come to."""
        opening = StoreOpening(self._worker, self._sub, self.planned, entry)
        try:
            if self._held is None:
                self._held = opening(hold_task_stores, batch_rows=self._batch_rows)
            else:
                self._held.follow(
                    opening.wanted, local_changes=opening.local_changes, is_known=opening.is_ours
                )
        except BaseException:
            self.close()
            raise

    def position(self) -> StandbyPosition | None:
        """Where the stores are; None if they are closed."""
        if self._held is None:
            return None
        offsets = {
            name: position_of(backend, name).offset
            for name, backend in self._held.backends.items()
            if self._sub.stores[name].logging
        }
        return StandbyPosition(self._held.version.version, offsets)

    def close(self) -> None:
        """Close the stores, and let the lock go."""
        held, self._held = self._held, None
        if held is not None:
            held.close()
