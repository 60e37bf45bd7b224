"""One application on one machine, and everything that can happen to it.

A :class:`World` writes input, runs epochs through the real commit, lets processes die, coordinators stall,
disks and power fail, and compares what is left with the oracle. Its rooms, each built on the one before:

================= =================================================================================
`fault_life`      ordinary life: input, coordinators, epochs, snapshots, maintenance
`fault_judged`    what is there, compared with the oracle
`fault_strikes`   what strikes processes, disks and the machine
here              what strikes the work beside the epochs: snapshots, restores from them, maintenance
================= =================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.simulation.fault_executor import LostAttempt
from tests.simulation.fault_life import APPLICATION_ID, LEASE_TTL_MS, RECORDS_OF_AN_EPOCH, NoFaultError
from tests.simulation.fault_strikes import StruckWorld

from millstream import failpoints
from millstream.state.snapshots.storage import FolderStorage

__all__ = ["APPLICATION_ID", "LEASE_TTL_MS", "RECORDS_OF_AN_EPOCH", "LostAttempt", "NoFaultError", "World"]


@dataclass
class World(StruckWorld):
    """An application under faults. Use it in a ``with`` block."""

    def crash_in_snapshot(self, point: str, action: Any = "raise", *, skip: int = 0) -> None:
        """Run epochs, each with a snapshot and a restore from it, until a failpoint ends the process."""

        def work() -> None:
            self.epoch()
            self.take_snapshots()
            self.lose_local_state()
            self.epoch()

        # Only one that is not retained is replaced, and what is torn comes later.
        self._crash_beside(work, skip + 2 + self.snapshots_retained, point, action, skip)

    def crash_in_maintenance(self, point: str, action: Any = "raise", *, skip: int = 0) -> None:
        """Run epochs, and tidy up after each two, until a failpoint ends the process."""

        def work() -> None:
            self.epoch()
            self.epoch()
            self.run_maintenance()

        self._crash_beside(work, skip + 4, point, action, skip)

    def restore_from_snapshots(self) -> None:
        """Lose the local disk after a snapshot, and go on from it."""
        self.append(5 * RECORDS_OF_AN_EPOCH)
        self.epoch_with_snapshots()
        self.lose_local_state()
        self.epochs_until_restored()

    def epoch_with_snapshots(self) -> None:
        """Run an epoch and take snapshots; more than one, if there is no state yet: lines without words."""
        self.epoch()
        self.take_snapshots()
        while not self._snapshot_files():
            self.append(RECORDS_OF_AN_EPOCH)
            self.epoch()
            self.take_snapshots()

    def epochs_until_restored(self) -> None:
        """Run epochs until one needs a store that comes from a snapshot: an epoch may have no use for any."""
        before = self.happened["restored from a snapshot"]
        while self.happened["restored from a snapshot"] == before:
            if self.epoch() is None:
                raise NoFaultError("nothing was restored from a snapshot")

    def restore_from_harmed_snapshots(self) -> None:
        """Lose the local disk and a part of every snapshot."""
        self.append(3 * RECORDS_OF_AN_EPOCH)
        self.epoch_with_snapshots()
        self.harm_snapshots()
        self.lose_local_state()
        self.epoch()
        storage = FolderStorage(self.snapshots, self.files)
        for name in storage.sizes(APPLICATION_ID):
            storage.delete(f"{APPLICATION_ID}/{name}")

    def harm_snapshots(self) -> None:
        """Something happens to one file of the snapshots of each store, if there is any."""
        harmed = 0
        storage = FolderStorage(self.snapshots, self.files)
        for content in self._snapshot_files():
            file, fate = self.rng.choice(content), self.rng.choice(("cut", "lost", "zeroed"))
            if fate == "lost":
                storage.delete(file.relative_to(self.snapshots).as_posix())
            else:
                self.harm_file(file, fate)
            harmed += 1
        if not harmed:
            raise NoFaultError("there were no snapshots to harm")
        self.count("harmed snapshot")

    def _snapshot_files(self) -> list[list[Path]]:
        """The files of the snapshots of each store that have something in them."""
        stores = sorted(self.snapshots.glob(f"{APPLICATION_ID}/*_*/*/*"))
        files = [sorted(path for path in store.glob("*/*") if path.stat().st_size) for store in stores]
        return [content for content in files if content]

    def _crash_beside(
        self, work: Callable[[], None], rounds: int, point: str, action: Any, skip: int
    ) -> None:
        """Do work of two epochs and what goes on beside them, until a failpoint ends the process."""
        self.append((2 * rounds + 1) * RECORDS_OF_AN_EPOCH)
        with failpoints.armed(point, action, skip=skip):
            try:
                for _ in range(rounds):
                    work()
            except failpoints.InjectedCrash:
                self.die()
        if self.app is not None:
            raise NoFaultError(f"{point} ended nothing in {rounds} rounds")
        self.count("crash")
