"""Where local state is, who may touch it, and what outlived the last boot."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from millstream.durable import LockTimeoutError, UnsafeFolderError
from millstream.errors import StoreError
from millstream.state.backends import supplier
from millstream.state.errors import StateDirectoryError, TaskLockedError
from millstream.state.local import directory
from millstream.state.local.directory import Checkpoint, TaskDirectory, boot_id, open_state_directory
from millstream.types import Offset, Version

HOLD = """
import pathlib, sys
from millstream.state.local.directory import TaskDirectory
with TaskDirectory(pathlib.Path(sys.argv[1])).lock(timeout_ms=0):
    print("held", flush=True)
    sys.stdin.read()
"""
FORK = """
import os, pathlib, signal, sys
from millstream.state.local.directory import TaskDirectory
task = TaskDirectory(pathlib.Path(sys.argv[1]))
with task.lock(timeout_ms=0):
    child = os.fork()
    if child == 0:
        signal.pause()
try:
    with task.lock(timeout_ms=0):
        print("released and taken again")
finally:
    os.kill(child, signal.SIGKILL)
"""
CLAIM = """
import pathlib, sys
from millstream.state.local.directory import open_state_directory
print(open_state_directory(pathlib.Path(sys.argv[1])).instance_id)
"""


@pytest.fixture
def task(tmp_path: Path) -> TaskDirectory:
    return open_state_directory(tmp_path / "state").task("wordcount", "1_3")


def test_a_state_directory_that_cannot_be_made_is_an_error_that_names_it() -> None:
    with pytest.raises(
        StateDirectoryError, match=r"/proc/state cannot become a state directory: .* Remedy: "
    ):
        open_state_directory(Path("/proc/state"))


def test_paths_are_those_of_kafka_streams(tmp_path: Path, task: TaskDirectory) -> None:
    assert task.path == tmp_path / "state" / "wordcount" / "1_3"
    assert task.store_path("rocksdb", "counts") == task.path / "rocksdb" / "counts"


def test_folders_and_files_are_private(tmp_path: Path, task: TaskDirectory) -> None:
    task.write_checkpoint(Checkpoint(Version(1), {}))
    task.note_unsynced_writes()
    with task.lock(timeout_ms=0):
        pass
    for path in [tmp_path / "state", *(tmp_path / "state").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_state_directory_keeps_its_instance_id(tmp_path: Path) -> None:
    first = open_state_directory(tmp_path / "state")
    assert open_state_directory(tmp_path / "state").instance_id == first.instance_id
    assert open_state_directory(tmp_path / "other").instance_id != first.instance_id


def test_processes_that_claim_a_directory_at_once_agree_on_its_instance_id(tmp_path: Path) -> None:
    started = [_start(CLAIM, tmp_path / "state") for _ in range(4)]
    ids = {process.communicate()[0] for process in started}
    assert ids == {open_state_directory(tmp_path / "state").instance_id + "\n"}


def test_an_empty_volume_with_lost_and_found_can_be_claimed(tmp_path: Path) -> None:
    (tmp_path / "volume" / "lost+found").mkdir(parents=True)
    (tmp_path / "volume").chmod(0o700)
    assert open_state_directory(tmp_path / "volume").instance_id


def test_a_folder_that_holds_other_things_is_not_claimed(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    with pytest.raises(
        StateDirectoryError, match=r"holds other things \(thesis.tex\) .* Remedy: name an empty folder"
    ):
        open_state_directory(tmp_path / "home")
    assert [file.name for file in (tmp_path / "home").iterdir()] == ["thesis.tex"]


def test_a_world_writable_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o777)
    with pytest.raises(UnsafeFolderError, match=r"has mode 0777: other users may write into it.* chmod 700"):
        open_state_directory(tmp_path / "state")


def test_a_group_writable_task_folder_is_refused(tmp_path: Path, task: TaskDirectory) -> None:
    state = open_state_directory(tmp_path / "state")
    for folder in (task.path, task.path.parent):
        folder.chmod(0o770)
        with pytest.raises(UnsafeFolderError, match="has mode 0770"):
            state.task("wordcount", "1_3")
        folder.chmod(0o700)


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(UnsafeFolderError, match=r"belongs to user \d+, but this process runs as user 12345"):
        open_state_directory(tmp_path / "state")


def test_a_torn_instance_file_is_refused(tmp_path: Path) -> None:
    open_state_directory(tmp_path / "state")
    (tmp_path / "state" / ".instance").write_bytes(b'{"format":1,"inst')
    with pytest.raises(
        StateDirectoryError, match=r"does not say which instance this is .* Remedy: delete the state"
    ):
        open_state_directory(tmp_path / "state")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", ".hidden", "a b", "a\0", "x" * 250])
def test_names_that_are_not_safe_on_disk_are_refused(tmp_path: Path, task: TaskDirectory, name: str) -> None:
    state = open_state_directory(tmp_path / "state")
    with pytest.raises(StateDirectoryError, match="application id"):
        state.task(name, "0_0")
    with pytest.raises(StateDirectoryError, match=r"task .* use a number, '_' and a number\."):
        state.task("app", name)
    with pytest.raises(StateDirectoryError, match=r"store .* letters, digits"):
        task.store_path("lmdb", name)


def test_tasks_are_listed_in_order(tmp_path: Path) -> None:
    state = open_state_directory(tmp_path / "state")
    assert state.tasks("app") == []
    for name in ("1_0", "0_10", "0_2"):
        state.task("app", name)
    (tmp_path / "state" / "app" / "notes").mkdir()
    assert state.tasks("app") == ["0_2", "0_10", "1_0"]


def test_a_second_process_is_told_who_holds_the_lock(task: TaskDirectory) -> None:
    holder = _holding(task)
    try:
        with pytest.raises(TaskLockedError) as refused, task.lock(timeout_ms=50):
            pass
    finally:
        holder.kill()
        holder.communicate()
    text = str(refused.value)
    assert f"The task directory {task.path} is locked by process {holder.pid} on " in text
    assert "was not released within 50 ms" in text
    assert "Remedy: wait for it or end it" in text
    assert isinstance(refused.value, LockTimeoutError)


def test_a_dead_owners_lock_is_taken_over_at_once_and_the_owner_is_named(task: TaskDirectory) -> None:
    holder = _holding(task)
    holder.kill()
    holder.communicate()
    with task.lock(timeout_ms=0) as died:
        assert died is not None
        assert died.pid == holder.pid
    with task.lock(timeout_ms=0) as died:
        assert died is None


def test_a_lock_that_is_released_while_we_wait_is_ours(task: TaskDirectory) -> None:
    holder = _holding(task)
    release = threading.Timer(0.05, holder.communicate)
    release.start()
    with task.lock(timeout_ms=30_000) as died:
        assert died is None
    release.join()


def test_two_threads_exclude_each_other(task: TaskDirectory) -> None:
    refused: list[str] = []

    def second() -> None:
        try:
            with task.lock(timeout_ms=0):
                pass
        except TaskLockedError as error:
            refused.append(str(error))

    with task.lock(timeout_ms=0):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert len(refused) == 1
    assert f"locked by process {os.getpid()} on" in refused[0]


def test_a_lock_of_a_directory_that_was_cleaned_up_meanwhile_is_not_taken(task: TaskDirectory) -> None:
    with task.lock(timeout_ms=0):
        (task.path / ".lock").unlink()
        (task.path).rmdir()
        with (  # another directory of the same name
            task.lock(timeout_ms=0),
            pytest.raises(TaskLockedError),
            task.lock(timeout_ms=0),
        ):
            pass


def test_a_lock_file_that_was_deleted_just_before_we_got_it_is_not_taken(
    task: TaskDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock
    calls: list[int] = []

    def cleaned_up_before_the_first(descriptor: int, operation: int) -> None:
        if not calls:
            (task.path / ".lock").unlink()
        calls.append(operation)
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", cleaned_up_before_the_first)
    with (
        task.lock(timeout_ms=10_000),
        pytest.raises(TaskLockedError),
        task.lock(timeout_ms=0),
    ):
        pass


def test_a_lock_is_released_although_a_forked_child_still_has_its_descriptor(task: TaskDirectory) -> None:
    holder = _start(FORK, task.path)
    out, _ = holder.communicate("")
    assert out == "released and taken again\n"


def test_an_exception_releases_the_lock(task: TaskDirectory) -> None:
    with pytest.raises(ZeroDivisionError), task.lock(timeout_ms=0):
        _ = 1 // 0
    with task.lock(timeout_ms=0) as died:
        assert died is None


def test_a_checkpoint_is_readable_and_comes_back(task: TaskDirectory) -> None:
    checkpoint = Checkpoint(Version(812), {"totals": Offset(881), "counts": Offset(19233)})
    assert task.read_checkpoint() is None
    task.write_checkpoint(checkpoint)
    assert task.read_checkpoint() == checkpoint
    written = json.loads((task.path / ".checkpoint").read_text())
    assert written == {"version": 812, "positions": {"counts": 19233, "totals": 881}}


def test_a_checkpoint_cut_anywhere_is_no_checkpoint_and_is_written_again(task: TaskDirectory) -> None:
    checkpoint = Checkpoint(Version(7), {"counts": Offset(1)})
    task.write_checkpoint(checkpoint)
    file = task.path / ".checkpoint"
    whole = file.read_bytes()
    for length in range(len(whole) - 2):  # without its newline it is still whole
        file.write_bytes(whole[:length])
        assert task.read_checkpoint() is None
    file.write_bytes(b" " * (2 << 20))
    assert task.read_checkpoint() is None
    task.write_checkpoint(checkpoint)
    assert task.read_checkpoint() == checkpoint
    assert [path.name for path in task.path.iterdir()] == [".checkpoint"]


def test_stores_written_without_sync_are_lost_with_their_boot(
    task: TaskDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not task.lost_in_a_power_cut()
    task.note_unsynced_writes()
    task.note_unsynced_writes()
    assert not task.lost_in_a_power_cut()
    monkeypatch.setattr(directory, "boot_id", lambda: "another boot")
    assert task.lost_in_a_power_cut()
    with pytest.raises(StoreError, match=r"earlier boot and may be torn. Remedy: remove them"):
        task.note_unsynced_writes()
    task.note_synced()
    assert not task.lost_in_a_power_cut()
    task.note_unsynced_writes()
    assert not task.lost_in_a_power_cut()


def test_stores_that_were_synced_survive_a_boot(task: TaskDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    task.note_unsynced_writes()
    task.note_synced()
    task.note_synced()
    monkeypatch.setattr(directory, "boot_id", lambda: "another boot")
    assert not task.lost_in_a_power_cut()


def test_a_torn_note_counts_as_lost(task: TaskDirectory) -> None:
    task.note_unsynced_writes()
    (task.path / ".unsynced").write_bytes(b"")
    assert task.lost_in_a_power_cut()


def test_where_boots_have_no_name_writes_must_be_synced(
    task: TaskDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "boot_id", lambda: None)
    with pytest.raises(StoreError, match=r"which boot it is in.* Remedy: sync the stores after each write"):
        task.note_unsynced_writes()
    assert not task.lost_in_a_power_cut()


@pytest.mark.skipif(sys.platform not in {"linux", "darwin"}, reason="elsewhere a boot may have no name")
def test_a_boot_has_a_name() -> None:
    assert boot_id()
    assert boot_id() == boot_id()


def test_a_removed_store_is_gone_with_what_an_interrupted_removal_left(task: TaskDirectory) -> None:
    task.remove_store("lmdb", "counts")
    for name in ("counts", "totals"):
        with supplier("lmdb").open(task.store_path("lmdb", name)) as store:
            store.write([(b"a", b"1")], marker=b"v1")
    (task.path / "lmdb" / ".removed-0a1b").mkdir()
    task.remove_store("lmdb", "counts")
    assert [path.name for path in (task.path / "lmdb").iterdir()] == ["totals"]
    with supplier("lmdb").open(task.store_path("lmdb", "counts")) as store:
        assert store.marker() is None


def _holding(task: TaskDirectory) -> subprocess.Popen[str]:
    holder = _start(HOLD, task.path)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def _start(program: str, path: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
