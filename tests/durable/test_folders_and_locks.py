"""Folders that only we may write into; storage that can do what we need; locks of the living."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.simulation.faulty_files import FaultyFiles

from millstream.durable import (
    LockTimeoutError,
    UnsafeFolderError,
    UnsuitableStorageError,
    check_private_folder,
    check_storage,
    ensure_private_folder,
    held_lock,
)
from millstream.durable.layer import OsFileLayer


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


SOURCE = Path(__file__).parents[2] / "src"


def test_a_folder_is_made_with_its_parents_for_its_owner_only(tmp_path: Path) -> None:
    ensure_private_folder(tmp_path / "a" / "b")
    for folder in (tmp_path / "a", tmp_path / "a" / "b"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    ensure_private_folder(tmp_path / "a" / "b")


def test_a_new_folder_survives_a_power_cut(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    ensure_private_folder(tmp_path / "a" / "b", files=files)
    files.power_cut()
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_may_write_into_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(UnsafeFolderError, match=rf"shared has mode {mode:04o}: .*Remedy: .*chmod 700"):
        ensure_private_folder(folder)


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(
        UnsafeFolderError, match=rf"belongs to user {owner}, but .* as user {owner + 1}\..*Remedy: .*chown"
    ):
        check_private_folder(tmp_path)


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnsafeFolderError, match="is not a folder"):
        check_private_folder(tmp_path / "file")


def test_ordinary_storage_is_suitable_and_is_left_clean(tmp_path: Path) -> None:
    check_storage(tmp_path)
    assert names(tmp_path) == []


class WithoutLinks(OsFileLayer):
    def link(self, source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))


class OverwritingLinks(OsFileLayer):
    def link(self, source: Path, target: Path) -> None:
        target.unlink(missing_ok=True)
        super().link(source, target)


class WithoutExclusiveCreation(OsFileLayer):
    def open(self, path: Path, flags: int) -> int:
        return super().open(path, flags & ~os.O_EXCL)


@pytest.mark.parametrize(
    ("layer", "lacks"),
    [
        (WithoutLinks(), "make hard links"),
        (OverwritingLinks(), "refuse a hard link to a name that is taken"),
        (WithoutExclusiveCreation(), "create files exclusively"),
    ],
)
def test_storage_that_lacks_an_ability_is_refused(tmp_path: Path, layer: OsFileLayer, lacks: str) -> None:
    with pytest.raises(UnsuitableStorageError, match=f"cannot {lacks}.*Likely cause: .*Remedy: "):
        check_storage(tmp_path, files=layer)
    assert names(tmp_path) == []


def test_a_lock_excludes_other_threads_until_it_is_released(tmp_path: Path) -> None:
    order: list[str] = []
    held = threading.Event()

    def hold() -> None:
        with held_lock(tmp_path / "lock", timeout_ms=10_000):
            held.set()
            order.append("first")

    thread = threading.Thread(target=hold)
    with held_lock(tmp_path / "lock", timeout_ms=10_000):
        thread.start()
        assert not held.wait(0.05)
        order.append("mine")
    thread.join(10)
    assert order == ["mine", "first"]


def test_a_lock_that_is_not_released_in_time_names_its_owner(tmp_path: Path) -> None:
    with (
        held_lock(tmp_path / "lock", timeout_ms=0),
        pytest.raises(LockTimeoutError, match=rf"locked by process {os.getpid()} and .* within 5 ms"),
        held_lock(tmp_path / "lock", timeout_ms=5),
    ):
        pass


def test_a_lock_that_is_taken_again_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with held_lock(path, timeout_ms=0):
        pass
    os.utime(path, ns=(5, 5))
    with held_lock(path, timeout_ms=0):
        assert path.stat().st_mtime_ns == 5
    path.write_bytes(b"1".ljust(32))  # another process had it meanwhile
    with (
        held_lock(path, timeout_ms=0),
        pytest.raises(LockTimeoutError, match=rf"locked by process {os.getpid()} "),
        held_lock(path, timeout_ms=0),
    ):
        pass


HOLD = """
import sys
from pathlib import Path
from millstream.durable import held_lock
with held_lock(Path("lock"), timeout_ms=0):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_dead_owner_s_lock_is_free(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", HOLD]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with (
            pytest.raises(LockTimeoutError, match=f"locked by process {child.pid}"),
            held_lock(tmp_path / "lock", timeout_ms=0),
        ):
            pass
        child.send_signal(signal.SIGKILL)
        child.wait(10)
    with held_lock(tmp_path / "lock", timeout_ms=0):
        pass


def test_storage_that_cannot_lock_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with (
        pytest.raises(UnsuitableStorageError, match=r"cannot lock files .*Remedy"),
        held_lock(tmp_path / "l", timeout_ms=0),
    ):
        pass
