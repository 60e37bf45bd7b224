"""One sync for many files: only where it promises as much, and only if it costs less."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from millstream.durable import MANY_FILES, SyncGroup
from millstream.durable import file_system_sync as module
from millstream.durable.layer import OsFileLayer

CLEAN = "MemTotal: 100 kB\nDirty: 1 kB\nWriteback: 0 kB\n"


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    """What is known of kernel and devices is forgotten, before and after."""
    for known in (module._syncfs, module._is_known):
        known.cache_clear()
    yield
    for known in (module._syncfs, module._is_known):
        known.cache_clear()


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    fd = os.open(folder / "file", os.O_RDWR | os.O_CREAT)
    try:
        yield fd
    finally:
        os.close(fd)


def asked(
    tmp_path: Path,
    patch: pytest.MonkeyPatch,
    *,
    kind: str = "ext4",
    memory: str = CLEAN,
    release: str = "6.1.0-9-generic",
    files: int = 100,
) -> bool | None:
    """What is answered on some system; None if it is to be done file by file."""
    with opened(tmp_path) as fd:
        device = os.fstat(fd).st_dev
        mount = f"36 35 {os.major(device)}:{os.minor(device)} / /mnt rw,noatime master:1 - {kind} /dev/x rw\n"
        (tmp_path / "mounts").write_text(f"1 1 0:999 / /proc rw - proc proc rw\n{mount}")
        (tmp_path / "memory").write_text(memory)
        patch.setattr(module, "_MOUNTS", tmp_path / "mounts")
        patch.setattr(module, "_MEMORY", tmp_path / "memory")
        patch.setattr("sys.platform", "linux")
        patch.setattr("platform.release", lambda: release)
        patch.setattr("ctypes.CDLL", lambda *_, **__: _Library())
        found = module.whole_sync([fd] * files)
        return None if found is None else found()


class _Library:
    """A C library."""

    def syncfs(self, fd: int) -> int:
        return 0 if os.fstat(fd) else -1


def test_a_known_file_system_is_synced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(tmp_path, monkeypatch) is True


def test_a_failed_sync_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Library, "syncfs", lambda _self, _fd: -1)
    assert asked(tmp_path, monkeypatch) is False


@pytest.mark.parametrize("kind", ["fuse.sshfs", "nfs4", "overlay", "tmpfs"])
def test_other_file_systems_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    assert asked(tmp_path, monkeypatch, kind=kind) is None


def test_a_kernel_that_does_not_tell_of_errors_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked(tmp_path, monkeypatch, release="5.4.0-150-generic") is None
    module._syncfs.cache_clear()
    assert asked(tmp_path, monkeypatch, release="5.16.20") is None
    module._syncfs.cache_clear()
    assert asked(tmp_path, monkeypatch, release="5.17.0") is True


def test_what_others_have_written_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dirty = "Dirty: 1000 kB\nWriteback: 600 kB\nWritebackTmp: 9999999 kB\n"
    assert asked(tmp_path, monkeypatch, memory=dirty, files=13) is True
    assert asked(tmp_path, monkeypatch, memory=dirty, files=12) is None


def test_a_system_that_says_nothing_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_syncfs", lambda: None)
    with opened(tmp_path) as fd:
        assert module.whole_sync([fd] * 100) is None


def test_files_of_several_file_systems_are_synced_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked(tmp_path, monkeypatch) is True
    with opened(tmp_path) as fd:
        elsewhere = os.open("/proc/self/stat", os.O_RDONLY)
        try:
            assert module.whole_sync([fd] * 100) is not None
            assert module.whole_sync([*[fd] * 100, elsewhere]) is None
        finally:
            os.close(elsewhere)


class Files(OsFileLayer):
    """Notes what is synced, and how."""

    def __init__(self, *, succeeds: bool) -> None:
        self.succeeds = succeeds
        self.synced: list[str] = []

    def fsync(self, fd: int) -> None:
        self.synced.append("each")
        super().fsync(fd)

    def sync_folder(self, path: Path) -> None:
        self.synced.append("folder")

    def whole_sync(self, fds: Sequence[int]) -> Callable[[], bool]:
        def sync() -> bool:
            for fd in fds:
                os.fstat(fd)  # it is open
            self.synced.append(f"{len(fds)} files")
            return self.succeeds

        return sync


@pytest.mark.parametrize(
    ("succeeds", "count", "expected"),
    [
        (True, MANY_FILES, [f"{MANY_FILES} files", "folder"]),
        (False, MANY_FILES, [f"{MANY_FILES} files", *["each"] * MANY_FILES, "folder"]),
        (True, MANY_FILES - 1, [*["each"] * (MANY_FILES - 1), "folder"]),
    ],
)
def test_a_group_of_many_files_is_synced_at_once_or_each(
    tmp_path: Path, succeeds: bool, count: int, expected: list[str]
) -> None:
    files = Files(succeeds=succeeds)
    with SyncGroup(files) as group:
        for number in range(count):
            group.create(tmp_path / str(number), [b"x"])
        assert files.synced == []
    assert files.synced == expected
