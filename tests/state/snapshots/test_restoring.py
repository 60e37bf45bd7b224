"""A lost store comes from its newest good snapshot and the changelog behind it, or says why not."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.state.one_task import APPLICATION, Listener, OneTask, rows_of

from millstream import failpoints
from millstream.failpoints import InjectedCrash
from millstream.log import FileLog
from millstream.state.changelog.follow import position_of
from millstream.state.errors import ChangelogGapError, DamagedStoreError, SnapshotStorageError
from millstream.state.local.directory import open_state_directory
from millstream.state.local.task_stores import TaskVersion
from millstream.state.snapshots.listing import listing
from millstream.state.snapshots.manifest import KIND, ManifestName, read_snapshot
from millstream.state.snapshots.storage import FolderStorage
from millstream.state.specs import window
from millstream.state.stores.segments import NOTE_KEY, Note, segment_prefix
from millstream.types import Offset, Partition, Version


@pytest.fixture
def two(kept: OneTask) -> OneTask:
    """A task with snapshots of versions 1 and 2, at version 3."""
    kept.take()
    kept.commit(counts={b"001": b"second", b"002": None})
    kept.take()
    kept.commit(counts={b"003": b"third", b"004": None})
    return kept


def start_offset(listener: Listener) -> list[tuple[str, int | None, int, int]]:
    return [
        (event, progress.snapshot, progress.records, progress.total_records)
        for event, progress in listener.told
        if event != "batch"
    ]


def check_restored(task: OneTask) -> None:
    with task.opened() as stores:
        assert task.expected() == rows_of(stores)


def files_of(task: OneTask, storage: FolderStorage, version: int) -> list[Path]:
    """The content that only the snapshot of this version has, or all of it if there is no such."""
    place = task.place("counts")
    content: dict[int, list[Path]] = {}
    for name in listing(storage, place).manifests:
        snapshot = read_snapshot(storage, place, name)
        content[name.version] = [storage.root / place.folder / file.stored_as for file in snapshot.files]
    others = {path for number, paths in content.items() if number != version for path in paths}
    return [path for path in content[version] if path not in others]


def test_a_lost_store_is_restored_from_the_newest_snapshot_and_the_tail(
    two: OneTask, listener: Listener
) -> None:
    two.lose()
    with two.opened(listener=listener) as stores:
        assert two.expected() == rows_of(stores)
    assert start_offset(listener) == [
        ("start", 2, 0, 202),
        ("end", 2, 202, 202),
        ("start", None, 0, 2),
        ("end", None, 2, 2),
    ]


def test_an_empty_tail_is_no_second_restore(kept: OneTask, listener: Listener) -> None:
    kept.take()
    kept.lose()
    with kept.opened(listener=listener) as stores:
        assert kept.expected() == rows_of(stores)
    assert start_offset(listener) == [("start", 1, 0, 200), ("end", 1, 200, 200)]


def test_a_store_that_is_there_needs_no_snapshot(two: OneTask, listener: Listener) -> None:
    with two.opened(listener=listener):
        pass
    assert start_offset(listener) == [("start", None, 0, 2), ("end", None, 2, 2)]


def test_a_snapshot_that_is_too_new_is_passed_over(two: OneTask, listener: Listener) -> None:
    wanted = TaskVersion(APPLICATION, Partition(0), Version(1), {"counts": Offset(200)}, "a1")
    two.lose()
    with two.opened(wanted, listener=listener) as stores:
        assert position_of(stores["counts"], "counts").version == 1
        assert len(list(stores["counts"].scan())) == 200
    assert start_offset(listener)[0] == ("start", 1, 0, 200)


def test_a_snapshot_of_another_history_is_passed_over(two: OneTask, listener: Listener) -> None:
    two.digests[2] = "b2"
    two.lose()
    with two.opened(listener=listener) as stores:
        assert two.expected() == rows_of(stores)
    assert start_offset(listener)[0] == ("start", 1, 0, 200)


def test_a_snapshot_of_the_same_version_of_another_history_is_passed_over(
    kept: OneTask, listener: Listener
) -> None:
    kept.take()
    kept.digests[1] = "b1"
    kept.lose()
    with kept.opened(listener=listener) as stores:
        assert kept.expected() == rows_of(stores)
    assert start_offset(listener)[0] == ("start", None, 0, 200)


def test_a_snapshot_on_another_host_path_and_log_object_makes_the_same_store(
    two: OneTask, tmp_path: Path
) -> None:
    directory = open_state_directory(tmp_path / "elsewhere" / "state").task(APPLICATION, "0_0")
    moved = tmp_path / "mounted" / "snapshots"
    moved.parent.mkdir(0o700)
    shutil.copytree(tmp_path / "snapshots", moved)
    there = OneTask(
        FileLog(tmp_path / "log"),
        directory,
        two.backend,
        two.stores,
        two.version,
        two.model,
        snapshots=FolderStorage(moved),
        history="a",
        digests=two.digests,
    )
    shutil.rmtree(tmp_path / "snapshots")
    check_restored(there)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def extend(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (Path.unlink, "is missing"),
        (cut, "does not have its"),
        (extend, "does not have its"),
        (flip, "is damaged: its checksum does not match"),
    ],
    ids=["missing", "cut", "extended", "flipped"],
)
def test_a_bad_file_is_named_and_an_older_snapshot_takes_its_place(
    two: OneTask,
    storage: FolderStorage,
    listener: Listener,
    caplog: pytest.LogCaptureFixture,
    harm: Callable[[Path], object],
    said: str,
) -> None:
    path = max(files_of(two, storage, 2), key=lambda file: file.stat().st_size)
    harm(path)
    two.lose()
    with caplog.at_level(logging.WARNING, "millstream"), two.opened(listener=listener) as stores:
        assert two.expected() == rows_of(stores)
    (warning,) = caplog.messages
    assert warning.startswith(
        f"Store 'counts' of task 0_0 can't be restored from a snapshot: The snapshot file {path} {said}"
    )
    assert warning.endswith("It goes on with an older one, or with the changelog.")
    assert ("end", 1, 200, 200) in start_offset(listener)


def test_without_any_good_snapshot_the_whole_changelog_is_followed(
    two: OneTask, storage: FolderStorage, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    for path in storage.root.glob("app/0_0/counts/*/files/*"):
        if path.stat().st_size:
            flip(path)
    two.lose()
    with caplog.at_level(logging.WARNING, "millstream"), two.opened(listener=listener) as stores:
        assert two.expected() == rows_of(stores)
    assert len(caplog.messages) == 2
    assert start_offset(listener)[-1] == ("end", None, 204, 204)


def test_a_manifest_cut_at_any_byte_or_flipped_is_named_and_not_used(
    two: OneTask, storage: FolderStorage, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    place = two.place("counts")
    path = storage.root / place.folder / str(listing(storage, place).manifests[0])
    whole = path.read_bytes()
    for length in range(0, len(whole), len(whole) // 5):
        path.write_bytes(whole[:length])
        two.lose()
        caplog.clear()
        with caplog.at_level(logging.WARNING, "millstream"), two.opened() as stores:
            assert two.expected() == rows_of(stores)
        assert str(path) in caplog.text


def test_what_is_not_the_snapshot_that_its_name_says_is_not_used(
    two: OneTask, storage: FolderStorage, caplog: pytest.LogCaptureFixture
) -> None:
    place = two.place("counts")
    newest, older = (storage.root / place.folder / str(name) for name in listing(storage, place).manifests)
    newest.write_bytes(older.read_bytes())
    two.lose()
    with caplog.at_level(logging.WARNING, "millstream"):
        check_restored(two)
    assert f"{newest} holds version 1 of store 'counts' of task 0_0" in caplog.text


def test_a_manifest_whose_marker_is_not_the_stores_is_not_used(
    kept: OneTask, storage: FolderStorage, caplog: pytest.LogCaptureFixture
) -> None:
    kept.take()
    place = kept.place("counts")
    (name,) = listing(storage, place).manifests
    snapshot = read_snapshot(storage, place, name)
    kept.commit(counts={b"new": b"1"})
    kept.commit(counts={b"new": b"2"})
    content = {field: getattr(snapshot, field) for field in snapshot.__struct_fields__}
    content["position"] = type(snapshot.position)(Version(2), Offset(201), "a2")
    storage.delete(f"{place.folder}/{name}")
    storage.put(f"{place.folder}/{ManifestName(Version(2), 'a2')}", [KIND.encode(type(snapshot)(**content))])
    kept.lose()
    with caplog.at_level(logging.WARNING, "millstream"):
        check_restored(kept)
    assert "holds another version than its manifest says" in caplog.text


def test_a_snapshot_reaches_where_the_changelog_no_longer_does(two: OneTask) -> None:
    two.log.delete_before(two.changelog("counts"), Offset(202))
    two.lose()
    check_restored(two)


def test_a_store_that_the_changelog_left_behind_is_replaced_by_a_snapshot(kept: OneTask) -> None:
    """It was on a host that slept: its rows are older than the changelog."""
    sleeping = kept.directory.path.with_name("0_9")
    shutil.copytree(kept.directory.path, sleeping)
    kept.commit(counts={b"001": b"second", b"002": None})
    kept.take()
    kept.commit(counts={b"003": b"third"})
    kept.log.delete_before(kept.changelog("counts"), Offset(202))
    shutil.rmtree(kept.directory.path)
    sleeping.rename(kept.directory.path)
    check_restored(kept)


def test_neither_snapshot_nor_changelog_is_an_error_that_names_both(
    two: OneTask, storage: FolderStorage
) -> None:
    two.log.delete_before(two.changelog("counts"), Offset(202))
    (path, *_) = files_of(two, storage, 2)
    path.unlink()
    two.lose()
    with pytest.raises(ChangelogGapError) as caught, two.opened():
        pass
    message = str(caught.value)
    assert message.startswith("The changelog app-counts-changelog-0 has no records from offset")
    assert re.search(rf"No snapshot could take its place: The snapshot file {path} is missing", message)


def test_a_gap_without_a_snapshot_leaves_the_store_alone(kept: OneTask) -> None:
    kept.commit(counts={b"new": b"1"})
    kept.commit(counts={b"new": b"2"})
    kept.log.delete_before(kept.changelog("counts"), Offset(201))
    with pytest.raises(ChangelogGapError, match=r"a backup that holds them\.$"), kept.opened():
        pass
    if kept.backend != "memory":
        kept.snapshots, kept.version = None, 1
        wanted = TaskVersion(APPLICATION, Partition(0), Version(1), {"counts": Offset(200)}, "a1")
        with kept.opened(wanted) as stores:
            assert len(list(stores["counts"].scan())) == 200


def test_a_damaged_store_is_restored_from_a_snapshot(
    two: OneTask, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def damaged_once(backend: object, store: str) -> object:
        calls.append(store)
        if len(calls) == 1:
            raise DamagedStoreError("a block's checksum does not match")
        return position_of(backend, store)  # type: ignore[arg-type]

    monkeypatch.setattr("millstream.state.changelog.follow.position_of", damaged_once)
    with two.opened(listener=listener) as stores:
        assert two.expected() == rows_of(stores)
    assert start_offset(listener)[0] == ("start", 2, 0, 202)


def test_damage_that_was_copied_into_the_snapshot_ends_with_the_changelog(
    two: OneTask, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def damaged_twice(backend: object, store: str) -> object:
        calls.append(store)
        if len(calls) <= 2:
            raise DamagedStoreError("a block's checksum does not match")
        return position_of(backend, store)  # type: ignore[arg-type]

    monkeypatch.setattr("millstream.state.changelog.follow.position_of", damaged_twice)
    with two.opened(listener=listener) as stores:
        assert two.expected() == rows_of(stores)
    assert start_offset(listener)[-1] == ("end", None, 204, 204)


def test_after_a_power_cut_stores_come_from_snapshots(two: OneTask, listener: Listener) -> None:
    (two.directory.path / ".unsynced").write_text("another boot")
    with two.opened(listener=listener) as stores:
        assert two.expected() == rows_of(stores)
    assert start_offset(listener)[0] == ("start", 2, 0, 202)


def test_an_unlogged_store_has_its_snapshot_and_the_sealed_files_behind_it(kept: OneTask) -> None:
    kept.add_store("seen", logging=False)
    kept.sealed[1] = {}
    kept.commit(seen={b"a": b"1", b"b": b"1"})
    kept.take()
    kept.commit(seen={b"a": b"2"})
    del kept.sealed[1], kept.sealed[2]
    kept.lose()
    with kept.opened() as stores:
        assert dict(stores["seen"].scan()) == {b"a": b"2", b"b": b"1"}


def test_a_store_by_segments_goes_on_to_expire_behind_its_snapshot(task: OneTask) -> None:
    task.snapshots = FolderStorage(task.log.root.parent / "snapshots")
    task.stores["visits"] = window("visits", window_size_ms=10, retention_ms=100)
    task.model["visits"] = {}
    task.log.create_topic(task.changelog("visits").topic)
    rows = {segment_prefix(number) + b"key": b"%d" % number for number in range(5)}
    task.commit(visits={NOTE_KEY: Note(interval_ms=60, observed=299).encoded(), **rows})
    task.take()
    moved = Note(interval_ms=60, observed=400, first_live=3).encoded()
    task.commit(visits={NOTE_KEY: moved, segment_prefix(6) + b"key": b"6"})
    expected = {key: value for key, value in rows.items() if key >= segment_prefix(3)}
    expected |= {NOTE_KEY: moved, segment_prefix(6) + b"key": b"6"}
    task.log.delete_before(task.changelog("visits"), Offset(6))
    task.lose()
    with task.opened() as stores:
        assert dict(stores["visits"].scan()) == expected


@pytest.mark.parametrize("point", ["snapshot.fetched", "snapshot.restored"])
def test_a_crash_while_a_snapshot_is_restored_is_recovered_from(two: OneTask, point: str) -> None:
    two.lose()
    with failpoints.armed(point) as armed, pytest.raises(InjectedCrash), two.opened():
        pass
    assert armed.fired
    check_restored(two)
    assert not (two.directory.path / ".restoring").exists()


def test_an_unreachable_storage_is_told_and_the_changelog_followed(
    two: OneTask, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(self: object, folder: str) -> dict[str, int]:
        raise SnapshotStorageError("no route to host.")

    monkeypatch.setattr(FolderStorage, "sizes", unreachable)
    two.lose()
    with caplog.at_level(logging.WARNING, "millstream"):
        check_restored(two)
    assert "can't be restored from a snapshot: no route to host. It goes on" in caplog.text
