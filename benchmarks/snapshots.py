"""How long a snapshot and a restore from it take: against copying the files, and against the changelog.

One store of 100-byte values in its changelog. "Copying the files" reads every file of the snapshot and writes
it durably, as a restore does, but checks nothing and makes no store of it. The second snapshot follows a
change of one key in a hundred.
"""

from __future__ import annotations

import os
import random
import shutil
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.applications import workplace
from benchmarks.figures import Figure, Scale, at_most, measured, ratio
from benchmarks.timing import alternately, seconds
from millstream.log import FileLog, TopicPartition
from millstream.state.backends import Backend
from millstream.state.changelog import changelog_topic, segment
from millstream.state.directory import TaskDirectory, open_state_directory
from millstream.state.snapshots import SnapshotPlace, SnapshotStorage, open_storage
from millstream.state.snapshots.taking import Outcome, Taker, take_snapshots
from millstream.state.specs import StoreKind, key_value
from millstream.state.task_stores import TaskVersion, open_task_stores
from millstream.types import Partition, Version

__all__ = ["snapshots"]

APPLICATION = "bench"
STORE = "counts"
TASK = "0_0"
ROWS_PER_APPEND = 50_000
COPY_TWICE = 2.5
"""A restore may take so many times the copying: LMDB's file is fetched, and then copied into its place."""


def snapshots(scale: Scale) -> list[Figure]:
    """Each backend on disk, with a million keys."""
    number = scale.of(1_000_000, 50_000)
    return [
        figure for backend in ("lmdb", "rocksdb") for figure in _of(backend, number, rounds=scale.of(5, 3))
    ]


def _of(backend: str, number: int, rounds: int) -> list[Figure]:
    with workplace() as folder:
        task = _Task(folder, backend)
        keys = task.fill(number)
        task.restore(None)
        first_s = seconds(task.take)
        task.write(keys[::100])
        changed = task.take()
        taken = alternately(
            {
                "snapshot": lambda: task.restore(task.storage),
                "changelog": lambda: task.restore(None),
                "copy": task.copy_files,
            },
            rounds,
        )
    name = f"{backend}, {number:,} keys"
    group = "restore"
    restored = measured(f"{name}: restore from a snapshot", taken["snapshot"], group=group)
    followed = measured(f"{name}: restore from the changelog", taken["changelog"], group=group)
    copied = measured(f"{name}: copy the files", taken["copy"], group=group)
    return [
        restored,
        followed,
        copied,
        at_most(ratio(f"{name}: snapshot against copying", restored, copied), COPY_TWICE),
        ratio(f"{name}: changelog against snapshot", followed, restored),
        Figure(f"{name}: first snapshot", first_s, "s"),
        Figure(f"{name}: stored after a change of 1 %", changed.stored_bytes / changed.total_bytes, "x"),
    ]


@dataclass(slots=True)
class _Task:
    folder: Path
    backend: str
    version: int = 0

    @property
    def log(self) -> FileLog:
        return FileLog(self.folder / "log")

    @property
    def changelog(self) -> TopicPartition:
        return TopicPartition(changelog_topic(APPLICATION, STORE), Partition(0))

    @property
    def directory(self) -> TaskDirectory:
        return open_state_directory(self.folder / "state").task(APPLICATION, TASK)

    @property
    def storage(self) -> SnapshotStorage:
        return open_storage(str(self.folder / "snapshots"))

    def fill(self, number: int) -> list[bytes]:
        """Write so many random keys."""
        self.log.create_topic(self.changelog.topic)
        chance = random.Random(1)
        keys = [chance.randbytes(16) for _ in range(number)]
        for at in range(0, number, ROWS_PER_APPEND):
            self.write(keys[at : at + ROWS_PER_APPEND])
        return keys

    def write(self, keys: list[bytes]) -> None:
        """Commit a new value for each key."""
        chance = random.Random(self.version)
        rows = sorted((key, chance.randbytes(50) + bytes(50)) for key in keys)
        self.log.append(self.changelog, segment(rows, StoreKind.KEY_VALUE, 0))
        self.version += 1

    def opened(self, storage: SnapshotStorage | None) -> AbstractContextManager[dict[str, Backend]]:
        wanted = TaskVersion(
            APPLICATION, Partition(0), Version(self.version), {STORE: self.log.latest(self.changelog)}
        )
        return open_task_stores(
            self.directory,
            {STORE: key_value(STORE)},
            wanted,
            self.log,
            default_backend=self.backend,
            local_segments=lambda _store, _after, _to: None,
            snapshots=storage,
        )

    def take(self) -> Outcome:
        place = SnapshotPlace(APPLICATION, TASK, STORE, self.backend)
        taker = Taker(self.storage, {STORE: place}, 1, lambda _version, _sealed: True)
        (outcome,) = take_snapshots(self.directory, self.opened(None), taker)
        if outcome.problem is not None:
            raise RuntimeError(outcome.problem)
        return outcome

    def restore(self, storage: SnapshotStorage | None) -> None:
        """Lose the local state, and open the store again."""
        shutil.rmtree(self.directory.path)
        with self.opened(storage):
            pass

    def copy_files(self) -> None:
        """Copy the snapshot's content to the disk of the state."""
        target = self.folder / "state" / "copied"
        shutil.copytree(self.folder / "snapshots", target)
        for path in target.rglob("*"):
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        shutil.rmtree(target)
