"""A disk that is full when a task seals: the epoch fails and says so, is tried again, and nothing is lost."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from tests.spark.lab import Lab
from tests.spark.programs import check_exact, two_levels, words
from tests.spark.test_workers import counting

from millstream import State, failpoints
from millstream.durable import DiskFullError
from millstream.durable.layer import Chunk, OsFileLayer
from millstream.engine.api import EpochFailedError
from millstream.engine.epoch_result import EpochResult
from millstream.log import FileLog, TopicPartition
from millstream.log.api import PublishResult, SealedRange

pytestmark = pytest.mark.xdist_group("spark")

EVERYTHING = 300


class FullDisk:
    """In the workers, no file grows as long as there is a marker. Every write that failed leaves a note."""

    def __init__(self, folder: Path, frees_itself_after: int | None = None) -> None:
        self.marker = folder / "full"
        self.notes = folder / "notes"
        self.notes.mkdir()
        self._enough = frees_itself_after

    def install(self, key: str, value: str) -> None:
        """Called for each record: see to it that this worker's tasks meet the full disk when they seal."""
        if self.marker.exists():
            failpoints._armed["commit.processed"] = failpoints.Armed("commit.processed", self._fill)

    def _fill(self) -> None:
        """The task has processed its records and is about to seal."""
        del failpoints._armed["commit.processed"]
        OsFileLayer.pwrite = self._pwrite(OsFileLayer.pwrite)  # type: ignore[method-assign, assignment]

    def _pwrite(
        self, real: Callable[[OsFileLayer, int, Chunk, int], int]
    ) -> Callable[[OsFileLayer, int, Chunk, int], int]:
        def pwrite(layer: OsFileLayer, fd: int, data: Chunk, position: int) -> int:
            OsFileLayer.pwrite = real  # type: ignore[method-assign, assignment]
            if not self.marker.exists():
                return real(layer, fd, data, position)
            self._note(str(Path(f"/proc/self/fd/{fd}").readlink()))
            real(layer, fd, memoryview(data)[: memoryview(data).nbytes // 2], position)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        return pwrite

    def _note(self, file: str) -> None:
        (self.notes / f"{len(self.failures())}-{os.getpid()}").write_text(file, encoding="utf-8")
        if self._enough is not None and len(self.failures()) >= self._enough:
            self.marker.unlink(missing_ok=True)

    def failures(self) -> list[str]:
        """The files that could not be written."""
        return [note.read_text(encoding="utf-8") for note in self.notes.iterdir()]


def filled_after_the_first_epoch(disk: FullDisk) -> Callable[[EpochResult], None]:
    return lambda result: disk.marker.touch() if result.manifest.epoch == 2 else None


def test_an_epoch_that_finds_the_disk_full_fails_clearly_and_goes_on_when_there_is_space(lab: Lab) -> None:
    lab.topic("in", parts := words(EVERYTHING, seed=30))
    disk = FullDisk(lab.folder)
    app = lab.app(counting(disk.install), max_records_per_epoch=50, max_epoch_retries=2, max_restarts=1)
    app.on_epoch(filled_after_the_first_epoch(disk))
    with pytest.raises(EpochFailedError) as failure:
        app.run(until="caught-up")
    assert app.state is State.ERROR
    assert "failed 3 times; nothing of it is visible. The last failure: The disk is full: " in str(
        failure.value
    )
    assert "Remedy: free space or move the folder to a larger volume" in str(failure.value)
    committed, seen = lab.committed(), lab.everything()
    assert 0 < committed < EVERYTHING
    assert len(disk.failures()) >= 2 * 3, "one start and one restart, three tries each"
    assert all("/sealed/" in file for file in disk.failures())

    disk.marker.unlink()
    lab.run(counting(disk.install), max_records_per_epoch=50)

    after = lab.everything()
    assert all(set(rows) <= set(after[topic]) for topic, rows in seen.items()), "what was seen has stayed"
    check_exact(lab, "two_levels", parts)


def test_space_that_comes_back_while_the_epoch_is_tried_again_is_enough(lab: Lab) -> None:
    lab.topic("in", parts := words(EVERYTHING, seed=31))
    disk = FullDisk(lab.folder, frees_itself_after=5)
    with lab.app(
        counting(disk.install), max_records_per_epoch=50, max_epoch_retries=1, max_restarts=9
    ) as app:
        app.on_epoch(filled_after_the_first_epoch(disk))
        app.on_uncaught(lambda error: pytest.fail(f"asked about {error}"))
        app.run(until="caught-up")
    assert len(disk.failures()) >= 5
    check_exact(lab, "two_levels", parts)


def test_a_commit_that_could_not_be_shown_for_want_of_space_is_shown_later(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest is written, the topics are full: the driver starts again and shows it, once."""
    lab.topic("in", parts := words(EVERYTHING, seed=32))
    publish_all, failures = FileLog.publish_all, iter(range(2))

    def full(log: FileLog, ranges: Iterable[tuple[TopicPartition, SealedRange]]) -> list[PublishResult]:
        if lab.committed() >= 100 and next(failures, None) is not None:
            raise DiskFullError("The disk is full")
        return publish_all(log, ranges)

    with lab.app(two_levels(), max_records_per_epoch=50) as app, monkeypatch.context() as patch:
        states: list[State] = []
        app.on_state(lambda _, after: states.append(after))
        app.on_uncaught(lambda error: pytest.fail(f"asked about {error}"))
        patch.setattr(FileLog, "publish_all", full)
        app.run(until="caught-up")
    assert next(failures, None) is None, "the disk was never full"
    assert states.count(State.REBALANCING) == 2, "at the start, and once more"
    check_exact(lab, "two_levels", parts)
