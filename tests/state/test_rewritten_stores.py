"""A store that is mostly free is made small when it is opened; no crash makes it worse."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from tests.state.one_task import APPLICATION, OneTask, rows_of

from millstream import failpoints
from millstream.failpoints import InjectedCrash
from millstream.log import FileLog
from millstream.state.backends import folder
from millstream.state.backends.lmdb import LmdbSupplier
from millstream.state.local.directory import REWRITTEN_FOLDER, open_state_directory
from millstream.state.snapshots.storage import FolderStorage

LARGE: Final = 4 << 20
ROWS: Final = {b"%05d" % number: b"%05d" % number * 200 for number in range(6_000)}
LEFT: Final = 40
EMPTY: Final = 64 << 10
"""What RocksDB takes for no rows."""
POINTS: Final = ("state.rewrite_copied", "state.rewrite_removed", "state.rewrite_placed")

PIN = """
import sys
from pathlib import Path
from millstream.state.backends.lmdb import LmdbSupplier
store = LmdbSupplier().open(Path(sys.argv[1]))
with store.begin_snapshot(Path(sys.argv[2])) as finish:
    store.close()
    print("pinned", flush=True)
    sys.stdin.readline()
    finish()
"""

OPEN = """
import sys
from pathlib import Path
from millstream.state.backends.lmdb import LmdbSupplier
from millstream.state.local.directory import TaskDirectory
from millstream.state.local.store_on_disk import StoreOnDisk
task = TaskDirectory(Path(sys.argv[1]))
with task.lock(timeout_ms=0):
    StoreOnDisk(task, LmdbSupplier(), "rows").open().close()
"""


@pytest.fixture
def task(tmp_path: Path) -> OneTask:
    """A task without stores, on LMDB."""
    tmp_path.chmod(0o700)
    directory = open_state_directory(tmp_path / "state").task(APPLICATION, "0_0")
    return OneTask(FileLog(tmp_path / "log"), directory, "lmdb")


def shrunk(task: OneTask, *, logging: bool = True) -> OneTask:
    """Give a task a store that was large and has few rows left; its file is still large."""
    task.add_store("rows", logging=logging)
    task.commit(rows=ROWS)
    with task.opened():
        pass
    task.commit(rows=dict.fromkeys(list(ROWS)[LEFT:]))
    with task.opened():
        pass
    assert file_bytes(task) > LARGE
    return task


def file_bytes(task: OneTask) -> int:
    return (task.path("rows") / "data.mdb").stat().st_size


def check_small_and_right(task: OneTask) -> None:
    """Open the store once more: it has its rows and its marker, on little disk, and nothing lies about."""
    with task.opened() as stores:
        assert task.expected() == rows_of(stores)
        assert file_bytes(task) < LARGE // 16
    task.commit(rows={b"one": b"more"})
    with task.opened() as stores:
        assert task.expected() == rows_of(stores)
    assert not [path for path in task.directory.path.rglob("*.mdb") if path.parent != task.path("rows")]
    assert not list(task.path("rows").parent.glob(".removed*"))


@pytest.mark.parametrize("logging", [True, False])
def test_a_store_with_few_rows_left_gets_a_small_file(task: OneTask, *, logging: bool) -> None:
    shrunk(task, logging=logging)
    task.sealed.clear()  # nothing but the store itself has its rows, if it is not logged
    with LmdbSupplier().open(task.path("rows")) as store:
        before = store.marker(), list(store.scan())
    with task.opened():
        pass
    with LmdbSupplier().open(task.path("rows")) as store:
        assert (store.marker(), list(store.scan())) == before
    check_small_and_right(task)


def test_a_store_on_rocksdb_with_few_rows_left_is_compacted_when_it_is_opened(task: OneTask) -> None:
    task.backend = "rocksdb"
    task.add_store("rows")
    choice = random.Random(7)
    task.commit(rows={key: choice.randbytes(1000) for key in ROWS})
    with task.opened() as stores:
        assert stores["rows"].size().bytes > LARGE
    task.commit(rows=dict.fromkeys(list(ROWS)[LEFT:]))
    with task.opened() as stores:
        assert stores["rows"].size().bytes > LARGE
    with task.opened() as stores:
        assert stores["rows"].size().bytes < 2 * LEFT * 1000 + EMPTY
        assert task.expected() == rows_of(stores)


def test_a_store_is_rewritten_once_and_not_while_most_of_it_is_in_use(task: OneTask) -> None:
    task.add_store("rows")
    task.commit(rows=ROWS)
    with failpoints.armed("state.rewrite_copied") as point:
        for _ in range(3):
            with task.opened():
                pass
        assert file_bytes(task) > LARGE
        task.commit(rows=dict.fromkeys(list(ROWS)[: len(ROWS) // 3]))
        for _ in range(2):
            with task.opened():
                pass
    assert point.hits == 0
    task.commit(rows=dict.fromkeys(list(ROWS)[LEFT:]))
    with task.opened():
        pass
    with failpoints.armed("state.rewrite_copied", lambda: None) as point:
        for _ in range(3):
            with task.opened():
                pass
    assert point.hits == 1


def test_a_store_that_is_small_is_left_alone(task: OneTask) -> None:
    task.add_store("rows")
    task.commit(rows=dict(list(ROWS.items())[:2000]))
    with task.opened():
        pass
    task.commit(rows=dict.fromkeys(list(ROWS)[LEFT:2000]))
    with failpoints.armed("state.rewrite_copied") as point:
        for _ in range(3):
            with task.opened():
                pass
    assert point.hits == 0


def test_large_rows_that_all_change_in_every_epoch_are_not_rewritten_besides(task: OneTask) -> None:
    task.add_store("rows")
    with failpoints.armed("state.rewrite_copied") as point:
        for epoch in range(8):
            task.commit(rows={b"%03d" % number: b"%d" % epoch * 100_000 for number in range(30)})
            with task.opened():
                pass
    assert file_bytes(task) > LARGE
    assert point.hits == 0


@pytest.mark.parametrize("logging", [True, False])
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_in_a_rewrite_loses_nothing(task: OneTask, point: str, *, logging: bool) -> None:
    shrunk(task, logging=logging)
    task.sealed.clear()
    with failpoints.armed(point) as armed, pytest.raises(InjectedCrash), task.opened():
        pass
    assert armed.fired
    with task.opened() as stores:
        assert task.expected() == rows_of(stores)
    assert file_bytes(task) < LARGE // 16
    assert not list((task.directory.path / REWRITTEN_FOLDER).rglob("*.mdb"))


@pytest.mark.parametrize(
    "site", [*POINTS, *(f"durable.{step}@{hit}" for step in ("file_written", "replaced") for hit in (0, 1))]
)
def test_a_process_killed_in_a_rewrite_leaves_a_store_or_a_copy(task: OneTask, site: str) -> None:
    point, _, skip = site.partition("@")
    shrunk(task, logging=False)
    task.sealed.clear()
    environment = {**os.environ, failpoints.ENVIRONMENT_VARIABLE: f"{point}=kill@{skip or 0}"}
    command = [sys.executable, "-c", OPEN, str(task.directory.path)]
    assert subprocess.run(command, env=environment, check=False).returncode == -9
    with task.opened() as stores:
        assert task.expected() == rows_of(stores)
    assert file_bytes(task) < LARGE // 16


def test_a_copy_that_was_left_beside_its_store_is_not_used(task: OneTask) -> None:
    shrunk(task)
    with failpoints.armed("state.rewrite_copied"), pytest.raises(InjectedCrash), task.opened():
        pass
    copy = task.directory.path / REWRITTEN_FOLDER / "lmdb" / "rows"
    kept = copy.with_name("kept")
    shutil.copytree(copy, kept)
    task.commit(rows={b"new": b"row"})
    with task.opened():
        pass
    kept.rename(copy)
    with task.opened() as stores:
        assert task.expected() == rows_of(stores)
    assert not copy.exists()


def test_a_copy_of_another_history_is_not_taken(task: OneTask, tmp_path: Path) -> None:
    task.history = "a"
    task.snapshots = FolderStorage(tmp_path / "snapshots")
    shrunk(task)
    with failpoints.armed("state.rewrite_removed"), pytest.raises(InjectedCrash), task.opened():
        pass
    task.digests = {version: f"b{version}" for version in task.digests}
    with task.opened() as stores:
        assert task.expected() == rows_of(stores)
    assert not list((task.directory.path / REWRITTEN_FOLDER).rglob("*.mdb"))


def test_a_copy_comes_before_a_snapshot_that_is_older(task: OneTask, tmp_path: Path) -> None:
    task.history = "a"
    task.snapshots = FolderStorage(tmp_path / "snapshots")
    task.add_store("rows", logging=False)
    task.commit(rows=ROWS)
    task.take()
    task.commit(rows=dict.fromkeys(list(ROWS)[LEFT:]))
    with task.opened():
        pass
    task.sealed.clear()
    with failpoints.armed("state.rewrite_removed"), pytest.raises(InjectedCrash), task.opened():
        pass
    with task.opened() as stores:
        assert task.expected() == rows_of(stores)


def test_a_snapshot_that_another_process_takes_meanwhile_is_right(task: OneTask, tmp_path: Path) -> None:
    shrunk(task)
    pinned = task.expected()["rows"]
    command = [sys.executable, "-c", PIN, str(task.path("rows")), str(tmp_path / "snapshot")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "pinned\n"
        with task.opened():
            assert file_bytes(task) < LARGE // 16
        for number in range(5):
            task.commit(rows=dict.fromkeys(list(ROWS)[:1000], b"%d" % number))
            with task.opened() as stores:
                assert task.expected() == rows_of(stores)
        child.stdin.write("\n")
        child.stdin.close()
        assert child.wait(60) == 0
    with LmdbSupplier().restore(tmp_path / "snapshot", tmp_path / "restored") as restored:
        assert list(restored.scan()) == pinned


def test_a_file_that_grew_during_a_long_snapshot_gets_small_again(task: OneTask, tmp_path: Path) -> None:
    task.add_store("rows")
    some = dict(list(ROWS.items())[:500])
    task.commit(rows=some)
    with task.opened():
        pass
    command = [sys.executable, "-c", PIN, str(task.path("rows")), str(tmp_path / "snapshot")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "pinned\n"
        largest = 0
        for number in range(12):
            task.commit(rows=dict.fromkeys(some, b"%d" % number * 1000))
            with task.opened():
                largest = max(largest, file_bytes(task))
        child.stdin.close()
        assert child.wait(60) == 0
    assert largest > LARGE
    with task.opened() as stores:
        assert task.expected() == rows_of(stores)
        assert file_bytes(task) < LARGE


def test_where_there_is_no_room_for_a_copy_the_store_stays_as_it_is(
    task: OneTask, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    shrunk(task)
    with monkeypatch.context() as patched:
        patched.setattr(folder, "_sync_file", full)
        with task.opened() as stores:
            assert task.expected() == rows_of(stores)
    assert "can't be made smaller" in caplog.text
    assert file_bytes(task) > LARGE
    check_small_and_right(task)
