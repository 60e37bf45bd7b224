"""Durable actions: what they leave, also when the power goes or the disk is full."""

from __future__ import annotations

import os
import pickle
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.simulation.faulty_files import FaultyFiles

from millstream import failpoints
from millstream.durable import (
    DamagedFileError,
    DiskFullError,
    FileLayer,
    create_exclusive,
    is_temporary,
    publish_exclusive,
    read_bounded,
    replace_durably,
    synced_meanwhile,
)
from millstream.durable.actions import SYNC_STEP_BYTES
from millstream.durable.layer import OS_FILES, OsFileLayer

Action = Callable[..., int]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


ACTIONS: list[Action] = [create_exclusive, publish_exclusive, replace_durably]


@pytest.mark.parametrize("action", ACTIONS)
def test_a_file_has_its_content_and_is_for_its_owner_only(tmp_path: Path, action: Action) -> None:
    assert action(tmp_path / "file", [b"ab", b"", memoryview(b"cd")]) == 4
    assert (tmp_path / "file").read_bytes() == b"abcd"
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("action", [create_exclusive, publish_exclusive])
def test_a_name_that_is_taken_is_refused_and_left_alone(tmp_path: Path, action: Action) -> None:
    create_exclusive(tmp_path / "file", [b"old"])
    with pytest.raises(FileExistsError):
        action(tmp_path / "file", [b"new"])
    assert (tmp_path / "file").read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_replacing_puts_new_content_under_an_old_name(tmp_path: Path) -> None:
    replace_durably(tmp_path / "file", [b"old"])
    replace_durably(tmp_path / "file", [b"new"])
    assert (tmp_path / "file").read_bytes() == b"new"


@pytest.mark.parametrize("action", ACTIONS)
def test_what_has_returned_survives_a_power_cut(tmp_path: Path, action: Action) -> None:
    files = FaultyFiles(tmp_path)
    action(tmp_path / "file", [b"content"], files=files)
    files.power_cut()
    assert (tmp_path / "file").read_bytes() == b"content"


@pytest.mark.parametrize("ignored", ["fsync", "sync_folder"])
@pytest.mark.parametrize("action", ACTIONS)
def test_a_dropped_sync_loses_the_file(tmp_path: Path, action: Action, ignored: str) -> None:
    files = FaultyFiles(tmp_path, ignored=frozenset({ignored}))
    action(tmp_path / "file", [b"content"], files=files)
    files.power_cut()
    path = tmp_path / "file"
    assert not path.exists() or path.read_bytes() != b"content"


@pytest.mark.parametrize(
    ("action", "point"),
    [
        (publish_exclusive, "durable.file_written"),
        (publish_exclusive, "durable.file_synced"),
        (publish_exclusive, "durable.linked"),
        (replace_durably, "durable.file_written"),
        (replace_durably, "durable.file_synced"),
        (replace_durably, "durable.replaced"),
    ],
)
@pytest.mark.parametrize("power_cut", [False, True])
def test_a_crash_leaves_the_old_or_the_new_content_never_a_part(
    tmp_path: Path, action: Action, point: str, power_cut: bool
) -> None:
    files = FaultyFiles(tmp_path)
    old = None
    if action is replace_durably:
        replace_durably(tmp_path / "file", [b"old"], files=files)
        old = b"old"
    with failpoints.armed(point), pytest.raises(failpoints.InjectedCrash):
        action(tmp_path / "file", [b"new"], files=files)
    if power_cut:
        files.power_cut()
    path = tmp_path / "file"
    assert (path.read_bytes() if path.exists() else None) in (old, b"new")


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("free_bytes", range(7))
def test_a_full_disk_leaves_nothing_and_says_what_to_do(
    tmp_path: Path, action: Action, free_bytes: int
) -> None:
    files = FaultyFiles(tmp_path)
    files.disk_full_after(free_bytes)
    with pytest.raises(
        DiskFullError, match=r"The disk is full: .*file.*could not be written.*Remedy: free space"
    ):
        action(tmp_path / "file", [b"con", b"tent"], files=files)
    assert names(tmp_path) == []
    files.disk_has_space()
    action(tmp_path / "file", [b"con", b"tent"], files=files)
    assert (tmp_path / "file").read_bytes() == b"content"


def test_other_errors_of_the_system_pass(tmp_path: Path) -> None:
    files: FileLayer = FaultyFiles(tmp_path)
    files.fail_next_sync()  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="Input/output error"):
        create_exclusive(tmp_path / "file", [b"content"], files=files)


def test_a_file_that_is_larger_than_it_can_be_is_not_read(tmp_path: Path) -> None:
    create_exclusive(tmp_path / "file", [b"0123456789"])
    assert read_bounded(tmp_path / "file", 10) == b"0123456789"
    with pytest.raises(DamagedFileError, match="has 10 bytes, but such a file never has more than 9"):
        read_bounded(tmp_path / "file", 9)


def test_a_crash_before_the_link_leaves_a_name_that_is_known_as_temporary(tmp_path: Path) -> None:
    with failpoints.armed("durable.file_synced"), pytest.raises(failpoints.InjectedCrash):
        publish_exclusive(tmp_path / "file", [b"new"])
    assert [is_temporary(name) for name in names(tmp_path)] == [True]


class CountedSyncs(OsFileLayer):
    """Notes how long the file is at each sync."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def fsync(self, fd: int) -> None:
        self.lengths.append(os.fstat(fd).st_size)
        super().fsync(fd)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_large_file_is_synced_in_steps(tmp_path: Path, action: Action) -> None:
    files = CountedSyncs()
    chunk = bytes(SYNC_STEP_BYTES // 2)
    assert action(tmp_path / "file", [chunk] * 5, files=files) == 5 * len(chunk)
    written = [length for length in files.lengths if length >= len(chunk)]
    assert written == [2 * len(chunk), 4 * len(chunk), 5 * len(chunk)]


def test_a_file_that_somebody_else_writes_is_synced_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = threading.Event()
    monkeypatch.setattr(os, "fsync", lambda _fd: synced.set())
    with synced_meanwhile(tmp_path / "file"):  # it may not be there yet
        (tmp_path / "file").write_bytes(b"some")
        assert synced.wait(60)
    assert not [thread for thread in threading.enumerate() if thread.name == "millstream-sync"]


def test_the_layer_of_the_operating_system_is_the_same_in_other_processes() -> None:
    assert pickle.loads(pickle.dumps(OS_FILES)) is OS_FILES  # noqa: S301 - our own
