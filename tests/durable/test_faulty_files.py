"""The layer that forgets must itself be right: it is what other tests believe."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest
from tests.simulation.faulty_files import FaultyFiles

from millstream.durable import opened, write_all
from millstream.failpoints import InjectedCrash


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


NEW = os.O_RDWR | os.O_CREAT


@pytest.fixture
def files(tmp_path: Path) -> FaultyFiles:
    return FaultyFiles(tmp_path)


def test_bytes_survive_with_their_file_s_sync_and_names_with_their_folder_s(
    tmp_path: Path, files: FaultyFiles
) -> None:
    for name in ("neither", "bytes", "name", "both"):
        with opened(tmp_path / name, NEW, files=files) as fd:
            write_all(fd, [b"content"], 0, files=files)
            if name in ("bytes", "both"):
                files.fsync(fd)
        if name == "name":
            files.sync_folder(tmp_path)
    files.power_cut()
    assert names(tmp_path) == ["bytes", "name", "neither"]
    assert (tmp_path / "bytes").read_bytes() == b"content"
    assert (tmp_path / "name").read_bytes() == b""


def test_what_was_there_before_is_durable(tmp_path: Path, files: FaultyFiles) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "old").write_bytes(b"old")
    with opened(tmp_path / "folder" / "old", NEW, files=files) as fd:
        write_all(fd, [b"NEW"], 0, files=files)
        files.truncate(fd, 1)
    (tmp_path / "stranger").write_bytes(b"behind our back")
    files.power_cut()
    assert (tmp_path / "folder" / "old").read_bytes() == b"old"
    assert (tmp_path / "stranger").read_bytes() == b"behind our back"


def test_an_unsynced_rename_or_unlink_is_undone(tmp_path: Path, files: FaultyFiles) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(name.encode())
    files.rename(tmp_path / "a", tmp_path / "b")
    files.unlink(tmp_path / "c")
    files.power_cut()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"a", "b": b"b", "c": b"c"}


def test_a_renamed_folder_keeps_what_is_in_it(tmp_path: Path, files: FaultyFiles) -> None:
    files.mkdir(tmp_path / "new")
    with opened(tmp_path / "new" / "file", NEW, files=files) as fd:
        write_all(fd, [b"content"], 0, files=files)
        files.fsync(fd)
    files.sync_folder(tmp_path / "new")
    files.rename(tmp_path / "new", tmp_path / "named")
    files.sync_folder(tmp_path)
    files.power_cut()
    assert (tmp_path / "named" / "file").read_bytes() == b"content"
    assert names(tmp_path) == ["named"]


def test_two_names_of_one_file_stay_one_file(tmp_path: Path, files: FaultyFiles) -> None:
    (tmp_path / "a").write_bytes(b"content")
    files.link(tmp_path / "a", tmp_path / "b")
    files.sync_folder(tmp_path)
    files.power_cut()
    assert (tmp_path / "a").stat().st_ino == (tmp_path / "b").stat().st_ino


def test_after_a_cut_the_books_go_on(tmp_path: Path, files: FaultyFiles) -> None:
    for content in (b"one", b"two"):
        with opened(tmp_path / "file", NEW, files=files) as fd:
            write_all(fd, [content], 0, files=files)
            files.fsync(fd)
        files.sync_folder(tmp_path)
        files.power_cut()
        assert (tmp_path / "file").read_bytes() == content


def test_a_random_cut_keeps_any_part_of_what_was_not_synced(tmp_path: Path) -> None:
    seen: set[bytes | None] = set()
    for seed in range(200):
        root = tmp_path / str(seed)
        root.mkdir()
        files = FaultyFiles(root)
        with opened(root / "file", NEW, files=files) as fd:
            write_all(fd, [b"ab", b"cd"], 0, files=files)
        files.power_cut(random.Random(seed))
        path = root / "file"
        seen.add(path.read_bytes() if path.exists() else None)
    assert {None, b"", b"a", b"ab", b"abc", b"abcd", b"\0\0cd"} <= seen


def test_a_full_disk_takes_what_fits_and_refuses_the_rest(tmp_path: Path, files: FaultyFiles) -> None:
    files.disk_full_after(5)
    with opened(tmp_path / "file", NEW, files=files) as fd:
        assert files.pwrite(fd, b"0123", 0) == 4
        assert files.pwrite(fd, b"4567", 4) == 1
        with pytest.raises(OSError, match="No space left") as caught:
            files.pwrite(fd, b"567", 5)
    assert caught.value.errno == errno.ENOSPC


def test_a_write_is_torn_at_the_byte_asked_for(tmp_path: Path, files: FaultyFiles) -> None:
    files.tear_after(5)
    with opened(tmp_path / "file", NEW, files=files) as fd, pytest.raises(InjectedCrash):
        write_all(fd, [b"0123", b"4567"], 0, files=files)
    assert (tmp_path / "file").read_bytes() == b"01234"


def test_operations_are_recorded_in_order(tmp_path: Path, files: FaultyFiles) -> None:
    files.mkdir(tmp_path / "a")
    files.sync_folder(tmp_path)
    assert files.operations == [("mkdir", "a"), ("sync_folder", ".")]
