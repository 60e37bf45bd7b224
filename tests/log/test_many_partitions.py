"""Writing into many partitions: in steps, each synced beside the writing of the next."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.log.sealing import sealed_range

from millstream.durable.layer import OsFileLayer
from millstream.failpoints import InjectedCrash, armed
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.log.api import PublishResult, SealedRange
from millstream.log.embedded import together
from millstream.log.errors import InvalidPublicationError
from millstream.types import Offset, Partition

COUNT = 40
PLACES = [TopicPartition("many", Partition(number)) for number in range(COUNT)]


class Files(OsFileLayer):
    """Syncs all files at once by calling `whole`, if there is one; notes how many."""

    def __init__(self, whole: Callable[[], bool] | None) -> None:
        self.whole = whole
        self.each = 0
        self.steps: list[int] = []
        """How many files were synced at once."""
        self.broken = ""
        """A part of the path of a file that can't be synced."""
        self._broken_fd = -1

    def open(self, path: Path, flags: int) -> int:
        fd = super().open(path, flags)
        if self.broken and self.broken in str(path):
            self._broken_fd = fd
        return fd

    def fsync(self, fd: int) -> None:
        self.each += 1
        if self.broken and fd == self._broken_fd:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def sync_folder(self, path: Path) -> None:
        del path

    def whole_sync(self, fds: Sequence[int]) -> Callable[[], bool] | None:
        if self.whole is None:
            return None
        whole = self.whole

        def sync() -> bool:
            for fd in fds:
                os.fstat(fd)  # it is open
            self.steps.append(len(fds))
            return whole()

        return sync


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "log"
    FileLog(folder, files=Files(None)).create_topic("many", TopicConfig(COUNT))
    return folder


def sealed(root: Path, epoch: int = 1) -> list[tuple[TopicPartition, SealedRange]]:
    return [
        (
            place,
            sealed_range(
                root, record_batch([None], [b"%d" % epoch], [1]), epoch=epoch, task=f"0_{place.partition}"
            ),
        )
        for place in PLACES
    ]


def values(root: Path) -> list[list[bytes | None]]:
    log = FileLog(root)
    return [[value for batch in log.read(place, Offset(0)) for value in batch.values()] for place in PLACES]


def in_steps_of(patch: pytest.MonkeyPatch, count: int) -> None:
    patch.setattr(together, "partitions_at_once", lambda: count)


@pytest.mark.parametrize("at_once", [1, 7, 20, 100])
def test_all_partitions_are_published_whatever_the_steps(
    root: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    in_steps_of(monkeypatch, at_once)
    log = FileLog(root)
    assert log.publish_all(sealed(root)) == [PublishResult(True, Offset(0))] * COUNT
    assert log.publish_all(sealed(root)) == [PublishResult(False, Offset(0))] * COUNT
    assert values(root) == [[b"1"]] * COUNT


def test_nothing_is_shown_before_it_is_synced(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_steps_of(monkeypatch, 20)
    synced: list[int] = []
    shown: list[int] = []
    reader = FileLog(root)
    assert [reader.latest(place) for place in PLACES] == [0] * COUNT  # a first look would wait for the locks

    def whole() -> bool:
        ends = [reader.latest(place) for place in PLACES]
        shown.append(sum(ends[len(synced) * 20 :]))
        synced.append(1)
        return True

    files = Files(whole)
    FileLog(root, files=files).publish_all(sealed(root))
    assert (files.steps, shown, files.each) == ([20, 20], [0, 0], 0)
    assert values(root) == [[b"1"]] * COUNT


def test_records_are_appended_to_many_partitions_with_one_sync(root: Path) -> None:
    files = Files(lambda: True)
    rows = record_batch([None], [b"a"], [1])
    FileLog(root, files=files).append_all(dict.fromkeys(PLACES, rows))
    assert (files.steps, files.each) == ([COUNT], 0)
    assert values(root) == [[b"a"]] * COUNT


def test_after_a_sync_that_failed_each_file_tells_for_itself(root: Path) -> None:
    files = Files(lambda: False)
    files.broken = "/many/3/00000000000000000000.segment"
    with pytest.raises(OSError, match="Input/output error"):
        FileLog(root, files=files).publish_all(sealed(root))
    assert values(root) == [[] if place.partition == 3 else [b"1"] for place in PLACES]
    files.broken = ""
    results = FileLog(root, files=files).publish_all(sealed(root))
    assert [place.partition for place, result in zip(PLACES, results, strict=True) if result.published] == [3]
    assert values(root) == [[b"1"]] * COUNT


@pytest.mark.parametrize(
    "name", ["log.locked", "log.frame_written", "log.frame_synced", "log.watermark_written"]
)
@pytest.mark.parametrize("skip", [0, 25])
@pytest.mark.parametrize("as_a_whole", [True, False])
def test_a_crash_in_any_step_leaves_what_can_be_completed(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str, skip: int, as_a_whole: bool
) -> None:
    in_steps_of(monkeypatch, 16)
    if as_a_whole and name == "log.frame_synced":
        skip //= 16  # once for all of a step
    files = Files((lambda: True) if as_a_whole else None)
    with armed(name, "raise", skip=skip), pytest.raises(InjectedCrash):
        FileLog(root, files=files).publish_all(sealed(root))
    FileLog(root, files=files).publish_all(sealed(root))
    FileLog(root).publish_all(sealed(root, epoch=2))
    assert values(root) == [[b"1", b"2"]] * COUNT


def test_what_is_refused_in_a_later_step_lets_the_locks_go(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_steps_of(monkeypatch, 16)
    log = FileLog(root)
    (root / "topics" / "many" / "30").rename(root / "aside")
    with pytest.raises(Exception, match="many/30 is missing"):
        log.publish_all(sealed(root))
    (root / "aside").rename(root / "topics" / "many" / "30")
    results = log.publish_all(sealed(root))
    assert [result.base_offset for result in results] == [Offset(0)] * COUNT
    assert values(root) == [[b"1"]] * COUNT


def test_a_range_that_is_not_there_publishes_nothing(root: Path) -> None:
    ranges = sealed(root)
    (root / ranges[-1][1].file).unlink()
    with pytest.raises(InvalidPublicationError):
        FileLog(root).publish_all(ranges)
    assert values(root) == [[]] * COUNT
