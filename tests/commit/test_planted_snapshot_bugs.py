"""The tester's own test, for snapshots: bugs planted in them, each of which must turn something red.

A scenario passes as the engine is, and fails with the bug.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.fault_world import World
from tests.simulation.faulty_files import FaultyFiles

from millstream.durable import Chunk, FileLayer, replace_durably
from millstream.state.snapshots import restoring, taking
from millstream.state.snapshots.manifest import ManifestName, Snapshot, StoredFile
from millstream.state.snapshots.restoring import Restorer
from millstream.state.snapshots.taking import SnapshotSettings


class Without:
    """A file layer that leaves one operation out."""

    def __init__(self, files: FileLayer, operation: str) -> None:
        self._files = files
        self._operation = operation

    def __getattr__(self, name: str) -> Any:
        return (lambda _: None) if name == self._operation else getattr(self._files, name)


def drops(patch: pytest.MonkeyPatch, operation: str) -> None:
    def without(path: Path, chunks: Iterable[Chunk], *, files: FileLayer) -> int:
        return replace_durably(path, chunks, files=Without(files, operation))

    patch.setattr("millstream.state.snapshots.storage.replace_durably", without)


def drops_fsync_of_files(patch: pytest.MonkeyPatch) -> None:
    drops(patch, "fsync")


def drops_sync_of_folders(patch: pytest.MonkeyPatch) -> None:
    """Of files only: a manifest that is lost with the power is no harm."""

    def without(path: Path, chunks: Iterable[Chunk], *, files: FileLayer) -> int:
        if path.parent.name == "files":
            return replace_durably(path, chunks, files=Without(files, "sync_folder"))
        return replace_durably(path, chunks, files=files)

    patch.setattr("millstream.state.snapshots.storage.replace_durably", without)


def the_power_fails_after_a_snapshot(folder: Path) -> None:
    with World(folder, "ledger", "memory", snapshot_interval=1).create_topics() as world:
        world.append(24)
        world.epoch()
        assert isinstance(world.files, FaultyFiles)
        world.files.power_cut()
        world.die()
        world.open()
        assert world.check_snapshots() > 0


def deletes_files_that_another_snapshot_names(patch: pytest.MonkeyPatch) -> None:
    def only_the_new(
        new: Snapshot, now: Any, settings: SnapshotSettings
    ) -> tuple[dict[ManifestName, Snapshot] | None, str | None]:
        kept, problem = real(new, now, settings)
        assert kept is not None
        return dict.fromkeys(kept, new), problem

    real = taking._kept
    patch.setattr(taking, "_kept", only_the_new)


def two_snapshots_are_retained(folder: Path) -> None:
    with World(folder, "ledger", "lmdb", snapshot_interval=1, snapshots_retained=2).create_topics() as world:
        world.append(48)
        for _ in range(3):
            world.epoch()
        assert world.check_snapshots() > 8


def does_not_check_what_it_fetched(patch: pytest.MonkeyPatch) -> None:
    def fetch(self: Restorer, file: StoredFile, target: Path) -> None:
        content = b"".join(self.storage.read(f"{self.place.folder}/{file.stored_as}"))
        descriptor = os.open(target, restoring._FLAGS, 0o600)
        os.write(descriptor, content)
        os.close(descriptor)

    patch.setattr(Restorer, "_fetch", fetch)


def a_value_in_a_snapshot_was_changed(folder: Path) -> None:
    """LMDB has no checksums of its own."""
    with World(folder, "ledger", "lmdb", snapshot_interval=1).create_topics() as world:
        world.append(24)
        world.epoch()
        changed = 0
        for path in world.snapshots.rglob("files/*"):
            content = path.read_bytes()
            if b"shop" in content:
                path.write_bytes(content.replace(b"shop", b"shot"))
                changed += 1
        assert changed
        world.lose_local_state()
        world.epoch()
        world.check()


@dataclass(frozen=True)
class Bug:
    """What is planted, and what fails because of it."""

    plant: Callable[[pytest.MonkeyPatch], None]
    scenario: Callable[[Path], None]


BUGS = [
    Bug(drops_fsync_of_files, the_power_fails_after_a_snapshot),
    Bug(drops_sync_of_folders, the_power_fails_after_a_snapshot),
    Bug(deletes_files_that_another_snapshot_names, two_snapshots_are_retained),
    Bug(does_not_check_what_it_fetched, a_value_in_a_snapshot_was_changed),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_a_planted_bug_is_caught(bug: Bug, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.scenario(tmp_path / "right")
    bug.plant(monkeypatch)
    with pytest.raises((AssertionError, FileNotFoundError, ValueError)):
        bug.scenario(tmp_path / "wrong")
