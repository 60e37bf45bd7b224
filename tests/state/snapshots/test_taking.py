"""A snapshot is taken whole or not at all, shares what it can, and replaces those before it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from tests.simulation.faulty_files import FaultyFiles
from tests.state.one_task import OneTask
from tests.state.retained_snapshots import changelog_positions, retained_snapshots

from millstream import failpoints
from millstream.durable.layer import Chunk
from millstream.failpoints import InjectedCrash
from millstream.log import TopicPartition
from millstream.state.backends.folder import whole_folder
from millstream.state.changelog.follow import StorePosition
from millstream.state.errors import SnapshotStorageError
from millstream.state.snapshots import digests
from millstream.state.snapshots.listing import listing, newest_versions
from millstream.state.snapshots.manifest import KIND, ManifestName, StoredFile, read_snapshot
from millstream.state.snapshots.storage import FolderStorage
from millstream.state.snapshots.taking import problems
from millstream.types import Offset, Partition, Version


def versions(task: OneTask, store: str = "counts") -> list[int]:
    assert task.snapshots is not None
    return [name.version for name in listing(task.snapshots, task.place(store)).manifests]


def stored_files(storage: FolderStorage) -> set[str]:
    return {name for name in storage.sizes("app") if "/files/" in name}


def named_files(task: OneTask) -> set[str]:
    storage = task.snapshots
    assert storage is not None
    place = task.place("counts")
    snapshots = [read_snapshot(storage, place, name) for name in listing(storage, place).manifests]
    return {
        f"0_0/counts/{place.backend}/{file.stored_as}" for snapshot in snapshots for file in snapshot.files
    }


def test_a_manifest_says_whose_snapshot_it_is_and_where_it_stands(
    kept: OneTask, storage: FolderStorage
) -> None:
    (outcome,) = kept.take()
    assert (outcome.store, outcome.version, outcome.problem) == ("counts", 1, None)
    snapshot = read_snapshot(storage, kept.place("counts"), ManifestName(Version(1), "a1"))
    assert (snapshot.application_id, snapshot.task, snapshot.store) == ("app", "0_0", "counts")
    assert (snapshot.backend, snapshot.format) == (kept.backend, 1)
    assert snapshot.position == StorePosition(Version(1), Offset(200), "a1")
    assert outcome.stored_bytes == outcome.total_bytes == snapshot.bytes > 0


def test_a_store_that_has_not_changed_gets_no_second_snapshot(kept: OneTask) -> None:
    kept.take()
    assert kept.take() == []


def test_a_snapshot_is_taken_at_the_commit_also_if_nobody_applied_it_yet(kept: OneTask) -> None:
    kept.commit(counts={b"new": b"1"})
    assert [outcome.version for outcome in kept.take()] == [2]


def test_a_store_that_commits_went_on_with_is_taken_as_it_is(kept: OneTask) -> None:
    before = kept.head()
    kept.commit(counts={b"new": b"1"})
    with kept.opened():
        pass
    assert [outcome.version for outcome in kept.take(wanted=before)] == [2]
    checkpoint = kept.directory.read_checkpoint()
    assert checkpoint is not None
    assert (checkpoint.version, checkpoint.positions) == (2, {"counts": 201})


def test_a_store_of_another_history_that_is_newer_is_not_taken(kept: OneTask) -> None:
    before = kept.head()
    kept.commit(counts={b"new": b"1"})
    with kept.opened():
        pass
    kept.digests[2] = "b2"
    (outcome,) = kept.take(wanted=before)
    assert outcome.problem is not None
    assert "is at version 2" in outcome.problem
    assert versions(kept) == []


def test_the_newest_are_retained_and_files_of_nobody_are_deleted(
    kept: OneTask, storage: FolderStorage
) -> None:
    for number in range(5):
        kept.commit(counts={b"%03d" % number: b"again"})
        kept.take(retained=2)
        assert stored_files(storage) == named_files(kept)
    assert versions(kept) == [6, 5]


@pytest.mark.parametrize("backend", ["rocksdb"])
def test_rocksdb_stores_only_what_changed(kept: OneTask) -> None:
    big = {b"%06d" % number: os.urandom(100) for number in range(20_000)}
    kept.commit(counts=big)
    (whole,) = kept.take()
    kept.commit(counts={b"one more": b"1"})
    (small,) = kept.take()
    assert whole.stored_bytes > 2_000_000
    assert small.total_bytes > 2_000_000
    assert small.stored_bytes < 50_000


@pytest.mark.parametrize("backend", ["rocksdb"])
def test_files_that_were_read_once_are_not_read_again(kept: OneTask, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    digest = digests._digest

    def counted(file: Path) -> str:
        read.append(file.stat().st_size)
        return digest(file)

    monkeypatch.setattr(digests, "_digest", counted)
    kept.commit(counts={b"%06d" % number: os.urandom(50) for number in range(10_000)})
    kept.take()
    assert sum(read) > 500_000
    rounds: list[int] = []
    for number in range(3):  # RocksDB may write all rows anew in one of them, when it compacts
        read.clear()
        kept.commit(counts={b"%d more" % number: b"1"})
        kept.take()
        rounds.append(sum(read))
    assert 0 < min(rounds) < 50_000


@pytest.mark.parametrize("backend", ["rocksdb"])
def test_a_store_made_anew_shares_no_digest_with_the_one_before(kept: OneTask) -> None:
    """RocksDB counts its files from the beginning again: equal names, other content."""
    kept.take()
    with kept.opened() as stores:
        assert kept.expected()["counts"] == list(stores["counts"].scan())
    book = kept.directory.path / ".snapshots" / "rocksdb-counts.digests"
    known = book.read_bytes()
    kept.directory.remove_store("rocksdb", "counts")
    kept.snapshots, storage = None, kept.snapshots
    kept.commit(counts={b"%03d" % number: b"other" for number in range(200)})
    with kept.opened():
        pass
    kept.snapshots = storage
    assert book.read_bytes() == known
    kept.take()
    kept.lose()
    with kept.opened() as stores:
        assert kept.expected()["counts"] == list(stores["counts"].scan())


def test_stores_of_a_task_have_snapshots_of_their_own(kept: OneTask, storage: FolderStorage) -> None:
    kept.add_store("names")
    kept.add_store("seen", logging=False)
    kept.commit(names={b"a": b"Ada"}, seen={b"x": b"1"})
    assert {outcome.store: outcome.version for outcome in kept.take()} == {
        "counts": 2,
        "names": 2,
        "seen": 2,
    }
    assert {snapshot.place.store for snapshot in retained_snapshots(storage, "app")} == set(kept.stores)


def test_it_is_known_at_which_changelog_positions_snapshots_stand(
    kept: OneTask, storage: FolderStorage
) -> None:
    assert changelog_positions(storage, "app") == {}
    kept.take()
    kept.commit(counts={b"more": b"1"})
    kept.take()
    place = TopicPartition("app-counts-changelog", Partition(0))
    assert changelog_positions(storage, "app") == {place: (200, 201)}
    assert changelog_positions(
        storage, "app", is_known=lambda task, version, sealed: (task, version, sealed) == ("0_0", 2, "a2")
    ) == {place: (201,)}
    assert newest_versions(storage, "app") == {"0_0": 2}


def test_snapshots_of_another_history_are_not_counted_and_deleted_when_it_is_passed_by(
    kept: OneTask, storage: FolderStorage
) -> None:
    for number in range(3):
        kept.commit(counts={b"new": b"%d" % number})
        kept.take(retained=2)
    assert versions(kept) == [4, 3]
    # The log is put back to version 1 and goes on otherwise.
    kept.version, kept.history = 1, "b"
    kept.digests = {1: "a1"}
    kept.snapshots = None
    kept.log.create_topic("app-other-changelog")
    kept.directory.remove_store(kept.backend, "counts")
    kept.snapshots = storage
    for expected in ([4, 3, 2], [4, 3, 2], [4, 3], [5, 4]):
        kept.commit(counts={b"new": b"other"})
        kept.take(retained=2)
        assert versions(kept) == expected


class FailingStorage(FolderStorage):
    """Fails to store, or to delete, at the nth call."""

    calls = 0
    fails_at = 0
    what = "put"
    error: Exception = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def put(self, name: str, chunks: Iterable[Chunk]) -> None:
        self._count("put")
        super().put(name, chunks)

    def delete(self, name: str) -> None:
        self._count("delete")
        super().delete(name)

    def _count(self, what: str) -> None:
        kind = type(self)
        if what == kind.what:
            kind.calls += 1
            if kind.calls == kind.fails_at:
                raise kind.error


@pytest.mark.parametrize("fails_at", range(1, 9))
def test_whatever_file_can_not_be_stored_the_snapshot_before_stays(
    kept: OneTask, storage: FolderStorage, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    kept.take()
    kept.commit(counts={b"new": b"1"})
    failing = FailingStorage(storage.root)
    monkeypatch.setattr(FailingStorage, "calls", 0)
    monkeypatch.setattr(FailingStorage, "fails_at", fails_at)
    monkeypatch.setattr(FailingStorage, "error", SnapshotStorageError("the bucket is closed"))
    kept.snapshots = failing
    (outcome,) = kept.take()
    is_over = FailingStorage.calls < fails_at
    if is_over:
        assert outcome.problem is None
        return
    assert outcome.problem == "the bucket is closed"
    assert problems([outcome]) == [
        "There is no new snapshot of store 'counts' of task 0_0: the bucket is closed"
    ]
    assert versions(kept) == [1]
    kept.snapshots = storage
    assert [outcome.version for outcome in kept.take()] == [2]
    assert versions(kept) == [2, 1]
    assert stored_files(storage) == named_files(kept)


def test_old_snapshots_that_can_not_be_deleted_are_a_problem_of_a_snapshot_that_stands(
    kept: OneTask, storage: FolderStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.take(retained=1)
    kept.commit(counts={b"new": b"1"})
    monkeypatch.setattr(FailingStorage, "calls", 0)
    monkeypatch.setattr(FailingStorage, "fails_at", 1)
    monkeypatch.setattr(FailingStorage, "what", "delete")
    monkeypatch.setattr(FailingStorage, "error", SnapshotStorageError("no right to delete"))
    kept.snapshots = FailingStorage(storage.root)
    (outcome,) = kept.take(retained=1)
    assert outcome.version == 2
    assert outcome.problem == (
        "The snapshot was taken, but old ones could not be deleted: no right to delete"
    )
    kept.snapshots = storage
    kept.commit(counts={b"new": b"2"})
    kept.take(retained=1)
    assert versions(kept) == [3]
    assert stored_files(storage) == named_files(kept)


def test_a_full_disk_of_the_storage_is_named(kept: OneTask, tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    kept.snapshots = FolderStorage(tmp_path / "snapshots", files)
    files.disk_full_after(10)
    (outcome,) = kept.take()
    assert outcome.problem is not None
    assert outcome.problem.startswith(f"The disk is full: {tmp_path}/snapshots/app/0_0/counts/")
    files.disk_has_space()
    assert [outcome.version for outcome in kept.take()] == [1]


@pytest.mark.parametrize("step", ["Backend.begin_snapshot", "whole_folder"])
def test_a_full_local_disk_is_told_and_leaves_nothing_behind(
    kept: OneTask, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(f"millstream.state.backends.base.{step}", full)
        (outcome,) = kept.take()
    assert outcome.problem is not None
    assert outcome.problem.startswith(f"The disk is full: {kept.directory.path}/.snapshots/counts")
    assert [path.name for path in (kept.directory.path / ".snapshots").iterdir() if path.is_dir()] == []
    assert [outcome.version for outcome in kept.take()] == [1]


def test_a_storage_that_can_not_be_asked_is_a_problem_of_the_task(
    kept: OneTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(self: object, folder: str) -> dict[str, int]:
        raise SnapshotStorageError("no route to host")

    monkeypatch.setattr(FolderStorage, "sizes", unreachable)
    (outcome,) = kept.take()
    assert problems([outcome]) == ["There is no new snapshot of task 0_0: no route to host"]


def test_two_that_take_snapshots_of_one_task_do_not_meet(kept: OneTask) -> None:
    problems_met: list[str | None] = []

    def second() -> None:
        problems_met.extend(outcome.problem for outcome in kept.take())

    with failpoints.armed("snapshot.copied", second):
        kept.take()
    (problem,) = problems_met
    assert problem is not None
    assert "is locked by process" in problem
    assert versions(kept) == [1]


def test_the_lock_of_the_task_is_free_while_a_store_is_copied(
    kept: OneTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[bool] = []

    @contextmanager
    def watched(path: Path) -> Iterator[Path]:
        with kept.directory.lock(timeout_ms=0), whole_folder(path) as partial:
            yield partial
            copied.append(True)

    monkeypatch.setattr("millstream.state.backends.base.whole_folder", watched)
    assert [outcome.problem for outcome in kept.take()] == [None]
    assert copied


def test_the_lock_of_the_task_is_free_while_files_are_stored(kept: OneTask) -> None:
    opened: list[bool] = []

    def an_epoch() -> None:
        with kept.opened(lock_timeout_ms=0):
            opened.append(True)

    with failpoints.armed("snapshot.file_stored", an_epoch):
        kept.take()
    assert opened
    assert versions(kept) == [1]


def test_a_snapshot_whose_files_were_collected_meanwhile_is_taken_back(
    kept: OneTask, storage: FolderStorage
) -> None:
    def collect() -> None:
        for name in storage.sizes("app/0_0/counts"):
            if "/files/" in name:
                storage.delete(f"app/0_0/counts/{name}")
                return

    with failpoints.armed("snapshot.written", collect):
        (outcome,) = kept.take()
    assert outcome.problem is not None
    assert "is gone, though it was stored for version 1. The snapshot is taken back." in outcome.problem
    assert versions(kept) == []


def test_what_was_stored_in_part_is_stored_again(kept: OneTask, storage: FolderStorage) -> None:
    with failpoints.armed("snapshot.file_stored"), pytest.raises(InjectedCrash):
        kept.take()
    (name,) = [name for name in storage.sizes("app") if "/files/" in name]
    path = storage.root / "app" / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    kept.take()
    assert path.read_bytes() == whole


def test_a_manifest_cut_at_any_byte_is_no_snapshot_and_deleted_by_the_next(
    kept: OneTask, storage: FolderStorage
) -> None:
    kept.take()
    place = kept.place("counts")
    (name,) = listing(storage, place).manifests
    path = storage.root / place.folder / str(name)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert retained_snapshots(storage, "app") == []
    kept.commit(counts={b"new": b"1"})
    (outcome,) = kept.take()
    assert outcome.version == 2
    assert outcome.problem is not None
    assert outcome.problem.startswith(f"A snapshot could not be read and is deleted: {path} ends after")
    assert versions(kept) == [2]
    assert stored_files(storage) == named_files(kept)


def test_a_manifest_of_another_release_keeps_all_files(kept: OneTask, storage: FolderStorage) -> None:
    kept.take()
    place = kept.place("counts")
    (name,) = listing(storage, place).manifests
    snapshot = read_snapshot(storage, place, name)
    newer = type(KIND)(KIND.magic, KIND.version + 1, KIND.max_bytes).encode(snapshot)
    (storage.root / place.folder / str(name)).write_bytes(newer)
    before = stored_files(storage)
    kept.commit(counts={b"new": b"1"})
    (outcome,) = kept.take(retained=2)
    assert outcome.problem is not None
    assert "has format version 2, but this Millstream reads version 1" in outcome.problem
    assert before <= stored_files(storage)
    assert versions(kept) == [2, 1]


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", ".hidden", ""])
def test_a_manifest_that_names_an_odd_file_is_refused(
    kept: OneTask, storage: FolderStorage, name: str
) -> None:
    kept.take()
    place = kept.place("counts")
    (manifest,) = listing(storage, place).manifests
    snapshot = read_snapshot(storage, place, manifest)
    odd = msgspec.structs.replace(snapshot, files=(StoredFile(name, "00", 0),))
    storage.put(f"{place.folder}/{manifest}", [KIND.encode(odd)])
    assert retained_snapshots(storage, "app") == []
