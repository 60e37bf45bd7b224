"""What strikes a world: processes die, stall and wake up late, attempts are lost, disks and power fail."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.simulation.fault_executor import LostAttempt, StartedTask
from tests.simulation.fault_judged import JudgedWorld
from tests.simulation.fault_life import APPLICATION_ID, LEASE_TTL_MS, RECORDS_OF_AN_EPOCH, NoFaultError
from tests.simulation.fault_points import LMDB_POINTS
from tests.simulation.faulty_files import FaultyFiles
from tests.simulation.stalls import Site, Stalled

from millstream import failpoints
from millstream.commit.lease import LeaseHeldError, LeaseLostError
from millstream.commit.store_opening import apply_commit
from millstream.commit.task_attempt import run_task
from millstream.state.errors import ChangelogCompactedError, StoreAheadError, ZombieTaskError
from millstream.state.local.directory import open_state_directory
from millstream.types import Attempt

__all__ = ["OVERTAKEN", "TOO_LATE", "StruckWorld"]

TOO_LATE: Final = (StoreAheadError, ChangelogCompactedError, ZombieTaskError)
"""How a task is refused that asks for a version of the past."""
_TRIES: Final = 20
OVERTAKEN: Final = (LeaseLostError, LeaseHeldError, *TOO_LATE)
"""How a coordinator may end that finds another one in its place."""


@dataclass
class StruckWorld(JudgedWorld):
    """An application to whose processes, disks and machine anything may happen."""

    # Processes ----------------------------------------------------------------------------------------

    def die(self) -> None:
        """The coordinator's process is gone, without a word."""
        self.app = None
        self._at_head = set()

    def crash(self, point: str, action: Any = "raise", *, skip: int = 0) -> None:
        """Run epochs, or first a coordinator's start, until a failpoint ends the process."""
        epochs = skip + 2  # a point is passed at least once in an epoch, and what is torn comes after it
        if point in LMDB_POINTS:
            epochs += 2  # not every epoch has several rows for one store
        self.append((epochs + 1) * RECORDS_OF_AN_EPOCH)
        with failpoints.armed(point, action, skip=skip):
            try:
                for _ in range(epochs):
                    self.epoch()
            except failpoints.InjectedCrash:
                self.die()
        if self.app is not None:
            raise NoFaultError(f"{point} ended nothing in {epochs} epochs")
        self.count("crash")

    def crash_at(self, site: Site, *, opening: bool = False) -> None:
        """End the coordinator at a site in the middle of an epoch, or of its start."""
        self.stall(site, opening=opening)
        self.stalled.pop().kill()
        self.count("crash")

    def lose_attempt(self, lost: LostAttempt) -> None:
        """Run an epoch in which a task runs twice; one of the two is never named."""
        app = self.app or self.open()
        before = len(app.started)
        app.twice = lost
        try:
            for _ in range(_TRIES):  # tasks without records are not planned
                self.append(2 * RECORDS_OF_AN_EPOCH)
                self.epoch()
                if any(task.planned.task_id == lost.task_id for task in app.started[before:]):
                    break
            else:
                raise NoFaultError(f"there is no task {lost.task_id}")
        finally:
            app.twice = None
        self.count("lost attempt")

    def zombie(self, task: StartedTask, *, elsewhere: bool) -> None:
        """Let a task of the past run now, here or on another instance. It may be refused."""
        worker = self._worker()
        if elsewhere:
            worker = replace(worker, directory=open_state_directory(self.standby))
        anywhere = replace(task.planned, expected_instance=None)
        with suppress(*TOO_LATE):
            run_task(worker, task.job, anywhere, task.blocks, Attempt(next(self._zombies)))
        self.count("zombie")

    def late_apply(self, task: StartedTask) -> None:
        """Let a task of the past apply what was the head when it was started. It may be refused."""
        with suppress(*TOO_LATE):
            apply_commit(self._worker(), task.planned, task.job.entries[task.planned.task_id])
        self.count("zombie")

    def stall(self, site: Site, *, opening: bool = False) -> None:
        """Stop the coordinator in the middle of an epoch, or of its start. The next one takes over."""
        self.append(2 * RECORDS_OF_AN_EPOCH)
        if opening:
            self.die()
            self.now += LEASE_TTL_MS
        app = None if opening else self.app or self.open()

        def work() -> None:
            coordinator = app if app is not None else self.new_executor()
            self._run_epoch(coordinator, apply=True)

        self.stalled.append(Stalled(site, work))
        self.count("stalled coordinator")
        self.die()

    def stall_in_maintenance(self, site: Site) -> None:
        """Stop the coordinator while it tidies up. The next one takes over."""
        self.append((self.retained_manifests + 4) * RECORDS_OF_AN_EPOCH)
        for _ in range(self.retained_manifests + 2):  # so that there is something to remove
            self.epoch()
        app = self.app
        assert app is not None
        self.note()
        self.stalled.append(Stalled(site, lambda: app.run_maintenance(min_entries=2)))
        self._tending.append(self.stalled[-1])
        self.count("stalled coordinator")
        self.die()

    def wake(self) -> BaseException | None:
        """Let the coordinator that stalled first go on; how it ended."""
        stalled = self.stalled.pop(0)
        if not self.backlog():  # others have read all that there was
            self.append(2 * RECORDS_OF_AN_EPOCH)
        if stalled in self._tending:
            self.note()  # it may go on to apply retention to what was written since
        error = stalled.wake()
        self._at_head = set()  # it may have committed
        if error is not None and not isinstance(error, OVERTAKEN):
            raise error
        self.count("woken coordinator")
        return error

    # Disks and power ----------------------------------------------------------------------------------

    def lose_local_state(self, task_id: str | None = None) -> None:
        """Delete the local stores of a task, or of all."""
        folder = self.state / APPLICATION_ID
        for path in [folder / task_id] if task_id else list(folder.glob("*_*")):
            shutil.rmtree(path, ignore_errors=True)
        self.forget_local_state()
        self.count("lost local state")

    def forget_local_state(self) -> None:
        """Local stores may be gone: what has no changelog may have forgotten, and nobody is at the head."""
        self._is_forgetful = True
        self._at_head = set()

    def power_cut(self) -> None:
        """All processes end, and what was not synced is lost, wholly or in part."""
        self._end_stalled()
        self.die()
        assert isinstance(self.files, FaultyFiles)
        self.files.power_cut(self.rng)
        self.chronicle.power_cut(self._manifests())
        self.boot += 1
        for store in sorted(self.state.glob(f"{APPLICATION_ID}/*_*/*/*/")):
            self._scramble(store)
        self._is_forgetful = True
        self.count("power cut")

    def harm_file(self, file: Path, fate: str) -> None:
        """Cut, zero or delete a file, behind everybody's back."""
        size = file.stat().st_size
        if fate == "lost":
            file.unlink()
        elif fate == "cut":
            with file.open("r+b") as opened:
                opened.truncate(self.rng.randint(0, max(0, size - 1)))
        elif fate == "zeroed":
            file.write_bytes(bytes(size))

    def _scramble(self, store: Path) -> None:
        """What a power cut may do to files that were never synced."""
        for file in sorted(path for path in store.rglob("*") if path.is_file() and path.name != "FORMAT"):
            self.harm_file(file, self.rng.choice(("kept", "cut", "lost", "zeroed")))
