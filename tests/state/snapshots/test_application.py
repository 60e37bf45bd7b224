"""An application takes snapshots as it goes, never stops for them, and finds them again anywhere."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.state.one_task import Listener
from tests.state.retained_snapshots import changelog_positions, retained_snapshots
from tests.state.small_app import APPLICATION, SmallApp

from millstream import StreamsConfig
from millstream.commit.manifest import Manifest, Section, TaskEntry
from millstream.log import FileLog, TopicPartition
from millstream.log.api import Compacted
from millstream.maintenance.snapshot_schedule import SnapshotSchedule
from millstream.state.errors import SnapshotStorageError
from millstream.state.snapshots.storage import FolderStorage
from millstream.types import Epoch, Partition, Term, Version

COUNTS = TopicPartition("app-counts-changelog", Partition(0))


@pytest.fixture
def app(tmp_path: Path, backend: str) -> SmallApp:
    """An application that takes a snapshot every third epoch."""
    config = StreamsConfig(snapshot_uri=tmp_path / "snapshots", snapshot_interval_epochs=3)
    app = SmallApp(tmp_path / "app", backend, config=config, listener=Listener())
    app.create()
    return app


def storage_of(app: SmallApp) -> FolderStorage:
    assert app.config is not None
    return FolderStorage(Path(str(app.config.snapshot_uri)))


def versions(app: SmallApp) -> list[int]:
    found = retained_snapshots(storage_of(app), APPLICATION)
    return sorted(snapshot.position.version for snapshot in found if snapshot.place.store == "counts")


def epochs(app: SmallApp, *words: str) -> None:
    """An epoch of its own for each word, in one process."""
    with app.start() as executor:
        for word in words:
            app.append(word)
            assert executor.run_epoch() is not None


def restored_from(app: SmallApp) -> set[int | None]:
    listener = app.listener
    assert isinstance(listener, Listener)
    return {progress.snapshot for _, progress in listener.told if progress.store == "counts"}


def test_a_snapshot_is_taken_every_so_many_epochs_over_restarts(app: SmallApp) -> None:
    epochs(app, "a", "b")  # epoch 1 is the start of the coordinator itself
    assert versions(app) == [3]
    epochs(app, "c")  # epoch 4 is a start, too
    assert versions(app) == [3]
    epochs(app, "d")
    assert versions(app) == [3, 7]
    epochs(app, "e", "f", "g", "h")
    assert versions(app) == [7, 10]
    assert app.run() == app.expected()


def test_a_lost_disk_is_restored_from_the_snapshot(app: SmallApp) -> None:
    epochs(app, *"abcabcabc")
    (newest,) = versions(app)[-1:]
    shutil.rmtree(app.state)
    app.append("a")
    assert app.run() == app.expected()
    assert newest in restored_from(app)


IN_ANOTHER_PROCESS = """
import json, sys
from pathlib import Path
from tests.state.one_task import Listener
from tests.state.small_app import SmallApp
from millstream import StreamsConfig

root, backend, state, snapshots, hours = sys.argv[1:]
listener = Listener()
app = SmallApp(Path(root), backend, hours=int(hours), config=StreamsConfig(snapshot_uri=snapshots),
               listener=listener)
type(app).state = property(lambda self: Path(state))
result = app.run()
used = sorted({progress.snapshot or 0 for _, progress in listener.told if progress.store == "counts"})
print(json.dumps([result.counts, used]))
"""


def test_a_snapshot_is_restored_by_another_process_on_another_path(app: SmallApp, tmp_path: Path) -> None:
    epochs(app, *"abcabcab")
    (newest,) = versions(app)[-1:]
    moved = tmp_path / "mounted elsewhere"
    (tmp_path / "snapshots").rename(moved)
    places = [app.root, app.backend, tmp_path / "other host", moved, app.hours]
    done = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS, *map(str, places)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    counts, used = json.loads(done.stdout)
    assert counts == app.expected().counts
    assert newest in used


def test_a_snapshot_of_a_branch_that_a_backup_undid_is_not_used(app: SmallApp) -> None:
    epochs(app, "a", "b")
    shutil.copytree(app.log_root, app.root / "backup")
    words = list(app.words)
    epochs(app, *"xyzxyz")
    assert versions(app)[-1] > 5
    shutil.rmtree(app.log_root)
    shutil.rmtree(app.state)
    (app.root / "backup").rename(app.log_root)
    app.words = words
    epochs(app, *"cdcdcd")
    shutil.rmtree(app.state)
    app.append("a")
    assert app.run() == app.expected()
    # Those of this history took the places of the other's.
    assert len(versions(app)) == 2


def test_maintenance_keeps_the_manifests_that_tell_whose_a_snapshot_is(app: SmallApp) -> None:
    app.retained_manifests = 1
    app.config = StreamsConfig(snapshot_uri=storage_of(app).root, snapshot_interval_epochs=8)
    epochs(app, *"abcabcabc")
    (newest,) = versions(app)
    with app.start() as executor:
        for word in "cab":
            app.append(word)
            executor.run_epoch()
            executor.run_maintenance(min_entries=1)
        assert executor.coordinator.head.oldest > newest
        kept = {int(path.name) for path in (app.application_folder / "manifests").iterdir()}
        assert newest in kept
        assert len(kept) <= 3
    assert newest in versions(app)
    shutil.rmtree(app.state)
    app.append("a")
    found, expected = app.run(), app.expected()
    assert (found.counts, found.updates) == (expected.counts, expected.updates)
    assert newest in restored_from(app)


def test_maintenance_removes_no_manifest_while_nobody_can_tell_which_snapshots_there_are(
    app: SmallApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.retained_manifests = 1
    epochs(app, *"abcabc")
    before = sorted((app.application_folder / "manifests").iterdir())

    def unreachable(self: object, folder: str) -> dict[str, int]:
        raise SnapshotStorageError("no route to host")

    with app.start() as executor:
        monkeypatch.setattr(FolderStorage, "sizes", unreachable)
        assert executor.run_maintenance(min_entries=1).manifests_removed == 0
    assert set(before) <= set((app.application_folder / "manifests").iterdir())


def test_a_snapshot_whose_deletions_the_changelog_has_dropped_is_not_used(
    app: SmallApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs(app, *"abcabc")
    compacted = FileLog.compacted

    def all_gone(self: FileLog, place: TopicPartition) -> Compacted:
        return replace(compacted(self, place), deletes_gone_to=self.latest(place))

    monkeypatch.setattr(FileLog, "compacted", all_gone)
    shutil.rmtree(app.state)
    app.append("a")
    assert app.run().counts == app.expected().counts
    assert restored_from(app) == {None}


def test_the_changelog_positions_of_snapshots_are_known(app: SmallApp) -> None:
    epochs(app, *"abcabc")
    ends = changelog_positions(storage_of(app), APPLICATION)[COUNTS]
    assert len(ends) == 2
    assert ends[-1] <= app.log().latest(COUNTS)


def test_an_epoch_goes_on_without_its_snapshot_and_a_warning_says_so(
    app: SmallApp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(self: object, name: str, chunks: object) -> None:
        raise SnapshotStorageError("The storage of snapshots failed at s3://bucket (access denied).")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "millstream"):
        patch.setattr(FolderStorage, "put", refused)
        epochs(app, *"abc")
    assert versions(app) == []
    assert app.result() == app.expected()
    assert caplog.messages[0] == (
        "There is no new snapshot of store 'counts' of task 0_0: The storage of snapshots failed at "
        "s3://bucket (access denied). The application goes on without it."
    )
    epochs(app, *"abc")
    assert len(versions(app)) > 0


def test_a_full_disk_during_a_snapshot_is_a_warning(
    app: SmallApp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*args: object) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "millstream"):
        patch.setattr("millstream.state.backends.base.whole_folder", full)
        epochs(app, *"abc")
    assert app.result() == app.expected()
    assert caplog.messages[0].startswith(
        f"There is no new snapshot of store 'counts' of task 0_0: The disk is full: {app.task_folder}"
    )
    assert caplog.messages[0].endswith("The application goes on without it.")


def test_a_storage_that_is_not_there_at_the_start_is_a_warning(
    app: SmallApp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unreachable(self: object, folder: str) -> dict[str, int]:
        raise SnapshotStorageError("no route to host")

    monkeypatch.setattr(FolderStorage, "sizes", unreachable)
    with caplog.at_level(logging.WARNING, "millstream"):
        epochs(app, "a")
    assert caplog.messages[0] == "Nobody knows which snapshots there are: no route to host"
    assert app.result() == app.expected()


def test_without_a_place_for_them_no_snapshots_are_taken(tmp_path: Path) -> None:
    app = SmallApp(tmp_path / "app", "memory", config=StreamsConfig(snapshot_interval_epochs=1))
    app.create()
    epochs(app, *"abc")
    assert not list(tmp_path.rglob(".snapshots"))


# The schedule by itself ---------------------------------------------------------------------------------


def manifest(epoch: int, tasks: dict[str, tuple[int, int]]) -> Manifest:
    """An epoch; per task its version, and how many bytes it wrote to changelogs in this epoch."""
    entries = {
        name: TaskEntry(
            version=Epoch(version),
            file="",
            digest="",
            sections=(
                Section("app-counts-changelog", Partition(0), 0, written, 1, 0, 0),
                Section("output", Partition(0), 0, 1_000_000, 1, 0, 0),
            ),
            changelogs={},
            stream_time=0,
            partition_times=(),
            punctuations=(),
        )
        for name, (version, written) in tasks.items()
    }
    sealed = tuple(name for name, (version, _) in tasks.items() if version == epoch)
    return Manifest("app", Epoch(epoch), Term(1), "", "", 0, (), entries, sealed, ())


def test_tasks_are_due_after_their_interval_if_they_changed() -> None:
    schedule = SnapshotSchedule(interval_epochs=10, interval_bytes=None, newest={"0_0": Version(5)})
    assert schedule.due(manifest(14, {"0_0": (14, 1), "0_1": (9, 1)})) == []
    assert schedule.due(manifest(15, {"0_0": (15, 1), "0_1": (10, 1)})) == ["0_0", "0_1"]
    schedule.tried(["0_0", "0_1"], Epoch(15))
    assert schedule.due(manifest(99, {"0_0": (24, 1), "0_1": (10, 1)})) == []
    assert schedule.due(manifest(99, {"0_0": (25, 1), "0_1": (10, 1)})) == ["0_0"]


def test_tasks_that_wrote_much_are_due_sooner() -> None:
    schedule = SnapshotSchedule(interval_epochs=1000, interval_bytes=100, newest={})
    for epoch, expected in ((1, []), (2, ["0_0"]), (3, ["0_0"])):
        after = manifest(epoch, {"0_0": (epoch, 60), "0_1": (1, 10)})
        schedule.note(after)
        assert schedule.due(after) == expected
    schedule.tried(["0_0"], Epoch(3))
    after = manifest(4, {"0_0": (4, 60), "0_1": (1, 10)})
    schedule.note(after)
    assert schedule.due(after) == []
