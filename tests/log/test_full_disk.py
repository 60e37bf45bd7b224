"""A full disk and a failing one: nothing is acknowledged, nothing is half there, and then it goes on."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.simulation.faulty_files import FaultyFiles

from millstream.durable import Chunk, DiskFullError
from millstream.log import FileLog
from millstream.log.embedded.partition import Limits

if TYPE_CHECKING:
    from tests.log.conftest import Kit


@pytest.fixture
def files(kit: Kit) -> FaultyFiles:
    return FaultyFiles(kit.root.parent)


@pytest.fixture
def faulty(kit: Kit, files: FaultyFiles) -> FileLog:
    log = FileLog(kit.root, files=files, limits=Limits(segment_entries=2), now_ms=kit.clock)
    log.create_topic("orders")
    return log


def test_an_append_that_does_not_fit_leaves_nothing(kit: Kit, files: FaultyFiles, faulty: FileLog) -> None:
    expected: list[bytes] = []
    refused = 0
    for free_bytes in range(0, 1_200, 40):
        files.disk_full_after(free_bytes)
        try:
            faulty.append(kit.orders, kit.batch(f"tried {free_bytes}"))
        except DiskFullError:
            refused += 1
        else:
            expected.append(f"tried {free_bytes}".encode())
        files.disk_has_space()
        assert kit.values(kit.open()) == expected
        faulty.append(kit.orders, kit.batch(f"after {free_bytes}"))
        expected.append(f"after {free_bytes}".encode())
    assert kit.values(faulty) == expected
    assert 0 < refused < 30


def test_a_publication_that_does_not_fit_can_be_done_again(
    kit: Kit, files: FaultyFiles, faulty: FileLog
) -> None:
    sealed = kit.seal("a", epoch=1)
    files.disk_full_after(10)
    with pytest.raises(DiskFullError, match=r"Remedy: free space"):
        faulty.publish_sealed(kit.orders, sealed)
    files.disk_has_space()
    assert faulty.publish_sealed(kit.orders, sealed).published
    assert kit.values(kit.open()) == [b"a"]


def test_a_topic_that_does_not_fit_is_not_there(kit: Kit, files: FaultyFiles, faulty: FileLog) -> None:
    files.disk_full_after(100)
    with pytest.raises(DiskFullError):
        faulty.create_topic("more")
    files.disk_has_space()
    assert faulty.topics() == ["orders"]
    faulty.create_topic("more")
    assert faulty.topics() == ["more", "orders"]


def test_an_append_whose_sync_fails_is_taken_back(kit: Kit, files: FaultyFiles, faulty: FileLog) -> None:
    faulty.append(kit.orders, kit.batch("a"))
    files.fail_next_sync()
    with pytest.raises(OSError, match="Input/output error") as caught:
        faulty.append(kit.orders, kit.batch("b"))
    assert caught.value.errno == errno.EIO
    assert kit.values(kit.open()) == [b"a"]
    assert faulty.append(kit.orders, kit.batch("c")).base_offset == 1
    files.power_cut()
    assert kit.values(kit.open()) == [b"a", b"c"]


class CopyOnWrite(FaultyFiles):
    """A file system on which overwriting needs space, too."""

    marks: set[int]

    def open(self, path: Path, flags: int) -> int:
        fd = super().open(path, flags)
        self.marks = getattr(self, "marks", set()) - {fd} | ({fd} if path.name == "end" else set())
        return fd

    def pwrite(self, fd: int, data: Chunk, position: int) -> int:
        if fd in self.marks and self._budget == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().pwrite(fd, data, position)


def test_an_append_whose_watermark_does_not_fit_is_taken_back(kit: Kit) -> None:
    files = CopyOnWrite(kit.root.parent)
    log = FileLog(kit.root, files=files, now_ms=kit.clock)
    log.create_topic("orders")
    length = (kit.root / "topics" / "orders" / "0" / "00000000000000000000.segment").stat().st_size
    log.append(kit.orders, kit.batch("a"))
    grown = (kit.root / "topics" / "orders" / "0" / "00000000000000000000.segment").stat().st_size - length
    files.disk_full_after(grown)
    with pytest.raises(DiskFullError, match="Nothing of this write is visible"):
        log.append(kit.orders, kit.batch("b"))
    files.disk_has_space()
    assert kit.values(kit.open()) == [b"a"]
    assert log.append(kit.orders, kit.batch("b")).base_offset == 1


class LateErrors(FaultyFiles):
    """A file system that tells of an error only when a file is closed, as network file systems do."""

    is_late = False
    marks: frozenset[int] = frozenset()

    def open(self, path: Path, flags: int) -> int:
        fd = super().open(path, flags)
        is_mark = path.name == "end" and flags & (os.O_WRONLY | os.O_RDWR)
        self.marks = self.marks - {fd} | ({fd} if is_mark else set())
        return fd

    def close(self, fd: int) -> None:
        super().close(fd)
        if self.is_late and fd in self.marks:
            self.is_late = False
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_what_a_watermark_covers_stays_even_if_writing_it_reported_an_error(kit: Kit) -> None:
    files = LateErrors(kit.root.parent)
    log = FileLog(kit.root, files=files, now_ms=kit.clock)
    log.create_topic("orders")
    log.append(kit.orders, kit.batch("a"))
    files.is_late = True
    assert log.append(kit.orders, kit.batch("b")).base_offset == 1
    assert not files.is_late
    assert kit.values(kit.open()) == [b"a", b"b"]
    assert kit.open().append(kit.orders, kit.batch("c")).base_offset == 2
