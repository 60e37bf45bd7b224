"""A standby task: the stores of a task on an instance that does not run it.

They follow its changelogs from commit to commit, by the same code as a restore and as a store that is opened
for an epoch; so they hold the same bytes at each version, and whoever takes the task over reads what is
missing and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from millstream.commit.epoch_job import PlannedTask
from millstream.commit.manifest import TaskEntry
from millstream.commit.store_opening import StoreOpening
from millstream.commit.worker import Worker
from millstream.state.changelog.follow import Progress, position_of
from millstream.state.local.task_stores import TaskStores
from millstream.types import Offset, Version

__all__ = ["STANDBY_LOCK_TIMEOUT_MS", "STEP_BYTES", "StandbyPosition", "StandbyTask"]

STEP_BYTES: Final = 1 << 20
"""So much is applied at once on the way to the first version: tasks of the same process go on in between."""
_COMMITS_BYTES: Final = 4 << 20
"""And so much of later ones: of several epochs that have written a key the last row alone is applied."""
STANDBY_LOCK_TIMEOUT_MS: Final = 100
"""Somebody who has to let go of a task must not wait for one who waits."""


@dataclass(frozen=True, slots=True)
class StandbyPosition:
    """How far a copy of a task's state is."""

    version: Version
    """0: it is on its way."""
    offsets: dict[str, Offset]
    """Per logged store, the next offset of its changelog."""

    def on_the_way(self, entry: TaskEntry, progress: Progress) -> StandbyPosition:
        """Where the copy is after a step of a long way to a commit."""
        target = entry.changelogs.get(progress.store, Offset(0))
        left = progress.total_records - progress.records
        return StandbyPosition(self.version, {**self.offsets, progress.store: Offset(max(0, target - left))})


class StandbyTask:
    """One task's stores, open, and the lock of its directory held. Used by one thread.

    `in_slices`: it will be interrupted often, and is to go on each time where it was. So a long way is not
    made by the order of keys, which is faster and begins anew.
    """

    def __init__(
        self, worker: Worker, planned: PlannedTask, step_bytes: int = STEP_BYTES, *, in_slices: bool = False
    ) -> None:
        self._step_bytes = step_bytes
        self._in_slices = in_slices
        self.planned = planned
        self._worker = worker
        self._sub = worker.subtopology(planned.subtopology)
        self._held: TaskStores | None = None

    @property
    def is_open(self) -> bool:
        """Whether its stores are open."""
        return self._held is not None

    def is_at(self, entry: TaskEntry) -> bool:
        """Whether the stores hold what a commit says."""
        return self._is_version(Version(entry.version), entry.digest)

    def follow(self, entry: TaskEntry) -> None:
        """Bring the stores to a commit. What fails leaves them closed, where they have come to."""
        opening = StoreOpening(self._worker, self._sub, self.planned, entry)
        try:
            if self._held is None:
                self._held = opening.hold(batch_bytes=self._step_bytes, in_slices=self._in_slices)
            else:
                self._held.follow(
                    opening.wanted,
                    local_changes=opening.local_changes,
                    is_known=partial(self._is_known, opening),
                    batch_bytes=_COMMITS_BYTES,
                )
        except BaseException:
            self.close()
            raise

    def _is_known(self, opening: StoreOpening, version: Version, digest: str) -> bool:
        """What it was brought to itself needs no look at the manifest of that time."""
        return self._is_version(version, digest) or opening.is_ours(version, digest)

    def _is_version(self, version: Version, digest: str) -> bool:
        here = None if self._held is None else self._held.version
        return here is not None and (here.version, here.sealed_digest) == (version, digest)

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
