"""The stores of a task are opened together, at one committed version, whatever is on the disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.state.one_task import Listener, OneTask, rows_of

from millstream import failpoints
from millstream.failpoints import InjectedCrash
from millstream.state.backends import Backend, lmdb_tables, memory, rocksdb, supplier
from millstream.state.backends.folder import FORMAT_FILE
from millstream.state.changelog.follow import EMPTY, StorePosition, position_of
from millstream.state.errors import DamagedStoreError, StoreAheadError, TaskLockedError
from millstream.state.local import directory
from millstream.state.local.directory import Checkpoint
from millstream.state.local.task_stores import TaskVersion, positions_on_disk
from millstream.types import Offset, Partition, Version

PERSISTENT = pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])


@pytest.fixture
def two(task: OneTask) -> OneTask:
    """A task with two logged stores, both at version 1."""
    task.add_store("counts")
    task.add_store("names")
    task.commit(counts={b"a": b"1", b"b": b"1"}, names={b"a": b"Ada"})
    with task.opened():
        pass
    return task


def change_behind_our_back(task: OneTask, store: str, entries: list[tuple[bytes, bytes | None]]) -> None:
    """Write into a local store and leave its marker as it is: only a restore can find that out."""
    with supplier(task.backend).open(task.path(store)) as opened:
        opened.write(entries, marker=opened.marker() or b"")


def positions_of(stores: dict[str, Backend]) -> dict[str, StorePosition]:
    return {name: position_of(store, name) for name, store in stores.items()}


def test_every_apply_advances_the_marker_of_every_store(two: OneTask) -> None:
    two.commit(counts={b"a": b"2"})
    with two.opened() as stores:
        assert positions_of(stores) == {
            "counts": StorePosition(Version(2), Offset(3)),
            "names": StorePosition(Version(2), Offset(1)),
        }
    two.commit()
    with two.opened() as stores:
        assert {position.version for position in positions_of(stores).values()} == {3}
        assert two.expected() == rows_of(stores)


def test_a_crash_between_the_applies_of_two_stores_leaves_both_recoverable(two: OneTask) -> None:
    two.commit(counts={b"a": b"2"}, names={b"b": b"Bob"})
    with failpoints.armed("commit.store_applied"), pytest.raises(InjectedCrash), two.opened():
        pass
    if two.backend != "memory":
        found = positions_on_disk(two.directory, two.stores, two.backend)
        assert {name: position.version for name, position in found.items()} == {"counts": 2, "names": 1}
    with two.opened() as stores:
        assert two.expected() == rows_of(stores)
        assert {position.version for position in positions_of(stores).values()} == {2}


INSIDE_A_WRITE = {
    "memory": (memory._Part, "apply"),
    "lmdb": (lmdb_tables.Part, "apply"),
    "rocksdb": (rocksdb, "encode_entries"),
}
"""What each backend does with the rows of a write, before or after it is whole."""


def test_a_process_that_lives_on_after_an_interrupted_write_finds_no_row_of_it(
    two: OneTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, before = two.head(), two.expected()
    two.commit(counts={b"a": None, b"c": b"2"})
    place, name = INSIDE_A_WRITE[two.backend]
    real = getattr(place, name)

    def interrupted(*args: object) -> None:
        real(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(place, name, interrupted)
        with pytest.raises(KeyboardInterrupt), two.opened():
            pass
    with two.opened(first) as stores:
        assert before == rows_of(stores)
    with two.opened() as stores:
        assert two.expected() == rows_of(stores)


def test_a_checkpoint_says_what_the_stores_hold(two: OneTask) -> None:
    file = two.directory.path / ".checkpoint"
    assert json.loads(file.read_text()) == {"version": 1, "positions": {"counts": 2, "names": 1}}
    two.commit(names={b"a": None})
    with two.opened():
        assert two.directory.read_checkpoint() == Checkpoint(
            Version(2), {"counts": Offset(2), "names": Offset(2)}
        )


@pytest.mark.parametrize(
    "harm",
    [
        Path.unlink,
        lambda file: file.write_bytes(file.read_bytes()[:7]),
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(b"\xff\x00{"),
        lambda file: file.write_text('{"version": 99, "positions": {"counts": 12345}}'),
        lambda file: file.write_text('{"version": 0, "positions": {}}'),
    ],
    ids=["missing", "torn", "empty", "no JSON", "too new", "too old"],
)
def test_nobody_decides_by_a_checkpoint(two: OneTask, harm: Callable[[Path], object]) -> None:
    harm(two.directory.path / ".checkpoint")
    two.commit(counts={b"c": b"1"})
    with two.opened() as stores:
        assert two.expected() == rows_of(stores)
    assert two.directory.read_checkpoint() == Checkpoint(
        Version(2), {"counts": Offset(3), "names": Offset(1)}
    )


def cut_in_half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def damage_files(store: Path) -> None:
    for file in (store / "data.mdb", *store.glob("MANIFEST-*")):
        with suppress(FileNotFoundError):
            file.write_bytes(b"something else" * 1000)


def damage_format(store: Path) -> None:
    cut_in_half(store / FORMAT_FILE)


@PERSISTENT
@pytest.mark.parametrize("damage", [damage_files, damage_format])
def test_a_damaged_store_is_removed_and_restored(
    two: OneTask, listener: Listener, damage: Callable[[Path], None]
) -> None:
    damage(two.path("counts"))
    with pytest.raises(DamagedStoreError):
        supplier(two.backend).open(two.path("counts"))
    with two.opened(listener=listener) as stores:
        assert two.expected() == rows_of(stores)
    assert listener.records() == [
        ("start", "counts", 0, 2),
        ("batch", "counts", 2, 2),
        ("end", "counts", 2, 2),
    ]


def test_damage_that_is_found_only_while_following_is_restored_too(
    two: OneTask, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_behind_our_back(two, "counts", [(b"wrong", b"1")])
    two.commit(counts={b"c": b"1"})
    maker = supplier(two.backend)
    with maker.open(two.path("counts")) as opened:
        kind = type(opened)
    write, calls = kind.write, []

    def damaged_once(self: Backend, *args: object, **kwargs: object) -> None:
        calls.append(args)
        if len(calls) == 1:
            raise DamagedStoreError("a block's checksum does not match")
        write(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(kind, "write", damaged_once)
    with two.opened(listener=listener) as stores:
        assert two.expected() == rows_of(stores)
    assert [event for event, store, *_ in listener.records() if store == "counts"] == [
        *("start", "suspended"),
        *("start", "batch", "end"),
    ]


@pytest.mark.parametrize(
    "marker", [b"", b"17", b"\xff\xfe", b'{"version": "new"}', b'{"position": 3}', b'{"versio\xee": 3}']
)
def test_a_store_with_an_unknown_marker_is_removed_and_restored(two: OneTask, marker: bytes) -> None:
    with supplier(two.backend).open(two.path("counts")) as store:
        store.write([(b"wrong", b"1")], marker=marker)
    with two.opened() as stores:
        assert two.expected() == rows_of(stores)


def test_a_store_that_is_not_there_is_restored(two: OneTask, listener: Listener) -> None:
    with two.directory.lock(timeout_ms=0):
        two.directory.remove_store(two.backend, "names")
    with two.opened(listener=listener) as stores:
        assert two.expected() == rows_of(stores)
    assert listener.records()[0] == ("start", "names", 0, 1)


def test_after_a_power_cut_stores_are_restored_and_not_believed(two: OneTask, listener: Listener) -> None:
    change_behind_our_back(two, "counts", [(b"a", b"torn")])
    (two.directory.path / ".unsynced").write_text("another boot")
    if two.backend != "memory":
        assert positions_on_disk(two.directory, two.stores, two.backend) == {"counts": EMPTY, "names": EMPTY}
    with two.opened(listener=listener) as stores:
        assert two.expected() == rows_of(stores)
    assert [told[:3] for told in listener.records() if told[0] == "start"] == [
        ("start", "counts", 0),
        ("start", "names", 0),
    ]
    assert (two.directory.path / ".unsynced").read_text() == directory.boot_id()


def test_a_crash_while_stores_are_forgotten_after_a_power_cut_changes_nothing(
    two: OneTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_behind_our_back(two, "names", [(b"a", b"torn")])
    (two.directory.path / ".unsynced").write_text("another boot")

    def crash(self: directory.TaskDirectory) -> None:
        raise InjectedCrash

    with monkeypatch.context() as patch:
        patch.setattr(directory.TaskDirectory, "note_synced", crash)
        with pytest.raises(InjectedCrash), two.opened():
            pass
    with two.opened() as stores:
        assert two.expected() == rows_of(stores)


def test_another_thread_or_process_has_to_wait_until_the_stores_are_closed(two: OneTask) -> None:
    with two.opened(), pytest.raises(TaskLockedError), two.opened():
        pass
    with two.opened():
        pass


@pytest.fixture
def unlogged(task: OneTask) -> OneTask:
    """A task with a store without a changelog, at version 2, beside a logged one."""
    task.add_store("counts")
    task.add_store("seen", logging=False)
    task.commit(counts={b"a": b"1"}, seen={b"a": b"1", b"b": b"1"})
    task.commit(seen={b"a": b"2"})
    with task.opened():
        pass
    return task


def test_an_unlogged_store_applies_what_the_sealed_files_hold(unlogged: OneTask) -> None:
    unlogged.commit(seen={b"a": b"3", b"c": b"1"})
    unlogged.commit(seen={b"a": None})
    with unlogged.opened() as stores:
        assert unlogged.expected() == rows_of(stores)
        assert position_of(stores["seen"], "seen").version == 4
    assert unlogged.directory.read_checkpoint() == Checkpoint(Version(4), {"counts": Offset(1)})


def test_an_unlogged_store_advances_with_epochs_that_did_not_write_to_it(unlogged: OneTask) -> None:
    unlogged.commit(counts={b"b": b"1"})
    unlogged.sealed[3] = {}
    with unlogged.opened() as stores:
        assert unlogged.expected() == rows_of(stores)
        assert position_of(stores["seen"], "seen").version == 3


def test_an_unlogged_store_begins_anew_when_a_sealed_file_is_gone(unlogged: OneTask) -> None:
    unlogged.commit(seen={b"c": b"1"})
    del unlogged.sealed[3]
    with unlogged.opened() as stores:
        assert rows_of(stores) == {"counts": [(b"a", b"1")], "seen": []}
        assert position_of(stores["seen"], "seen").version == 3
    unlogged.commit(seen={b"d": b"1"})
    with unlogged.opened() as stores:
        assert rows_of(stores)["seen"] == [(b"d", b"1")]


def test_an_unlogged_store_whose_disk_was_lost_is_built_again_from_sealed_files(unlogged: OneTask) -> None:
    with unlogged.directory.lock(timeout_ms=0):
        unlogged.directory.remove_store(unlogged.backend, "seen")
    with unlogged.opened() as stores:
        assert unlogged.expected() == rows_of(stores)


def test_an_unlogged_store_ahead_of_the_commit_is_refused_naming_both_versions(unlogged: OneTask) -> None:
    older = TaskVersion("app", Partition(0), Version(1), {"counts": Offset(1)})
    unlogged.stores.pop("counts")
    with pytest.raises(StoreAheadError) as caught, unlogged.opened(older):
        pass
    assert "Store 'seen' of partition 0 is at version 2" in str(caught.value)
    assert "the last commit is version 1 " in str(caught.value)


def test_stores_of_one_task_may_be_on_different_backends(task: OneTask) -> None:
    for name in ("memory", "lmdb", "rocksdb"):
        task.add_store(f"in-{name}", backend=name)
    task.commit(**{f"in-{name}": {b"k": name.encode()} for name in ("memory", "lmdb", "rocksdb")})
    with task.opened() as stores:
        assert task.expected() == rows_of(stores)
    assert task.path("in-lmdb").relative_to(task.directory.path) == Path("lmdb/in-lmdb")
    assert task.path("in-lmdb").is_dir()


def test_a_store_on_another_backend_begins_empty_and_follows_the_changelog(
    two: OneTask, listener: Listener
) -> None:
    two.backend = "lmdb" if two.backend == "rocksdb" else "rocksdb"
    with two.opened(listener=listener) as stores:
        assert two.expected() == rows_of(stores)
    assert [told for told in listener.records() if told[0] == "end"] == [
        ("end", "counts", 2, 2),
        ("end", "names", 1, 1),
    ]
