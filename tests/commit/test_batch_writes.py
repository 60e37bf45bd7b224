"""Batches from outside are in their topics exactly once, wherever tasks and drivers die."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream import Consumer, failpoints, serdes
from millstream.commit.batch_writes import BatchWriter, SealedPart, check_writable
from millstream.errors import ConfigError
from millstream.log import FileLog, TopicConfig, record_batch
from millstream.log.errors import InvalidPublicationError, InvalidTopicError
from millstream.types import Partition

POINTS = [name for name in failpoints.REGISTRY if name.startswith("writer.")]


@pytest.fixture
def log(tmp_path: Path) -> FileLog:
    log = FileLog(tmp_path)
    log.create_topic("numbers", TopicConfig(partitions=2))
    return log


def seal(writer: BatchWriter, batch: str, task: int, numbers: list[int]) -> SealedPart:
    rows = {}
    for partition in (0, 1):
        mine = [str(number).encode() for number in numbers if number % 2 == partition]
        if mine:
            rows["numbers", Partition(partition)] = record_batch([None] * len(mine), mine, [5] * len(mine))
    return writer.seal(batch, str(task), rows)


def write(log: FileLog, number: int | None, *tasks: list[int], writer: str = "query") -> bool:
    """A batch, as a driver makes it that knows nothing of any before."""
    batches = BatchWriter(log, writer)
    batch = batches.begin()
    return batches.commit(number, [seal(batches, batch, n, rows) for n, rows in enumerate(tasks)])


def numbers(log: FileLog) -> list[int]:
    return [int(one.value or "") for one in Consumer(log, "numbers", value=serdes.string)]


def test_all_of_a_batch_is_there_in_the_order_of_its_tasks(log: FileLog) -> None:
    assert write(log, 0, [1, 2], [3, 4], []) is True
    assert numbers(log) == [2, 4, 1, 3]


def test_a_batch_that_was_committed_is_not_taken_again_whatever_is_in_it(log: FileLog) -> None:
    answers = [write(log, 0, [1]), write(log, 0, [1]), write(log, 1, [2]), write(log, 0, [9]), write(log, 1)]
    assert (answers, numbers(log)) == ([True, False, True, False, False], [2, 1])


def test_writers_do_not_know_each_other(log: FileLog) -> None:
    write(log, 7, [1], writer="a")
    write(log, 7, [3], writer="b")
    assert numbers(log) == [1, 3]


def test_batches_without_a_number_are_all_taken(log: FileLog) -> None:
    for _ in range(3):
        write(log, None, [1])
    assert numbers(log) == [1, 1, 1]


@pytest.mark.parametrize("point", POINTS)
def test_a_batch_is_there_once_after_a_crash_at_any_step(log: FileLog, point: str) -> None:
    write(log, 0, [0])
    with failpoints.armed(point, "raise") as armed, pytest.raises(failpoints.InjectedCrash):
        write(log, 1, [1, 2], [3])
    assert armed.fired
    write(log, 1, [2, 3], [1])  # the same rows, in other tasks
    write(log, 2, [4])
    assert sorted(numbers(log)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("point", ["log.watermark_written", "log.frame_written"])
def test_a_batch_that_is_published_in_part_is_completed_as_it_was_committed(log: FileLog, point: str) -> None:
    one_by_one = FileLog(log.root, files=type(log._files)())  # not in several threads
    with failpoints.armed(point, "raise"), pytest.raises(failpoints.InjectedCrash):
        write(one_by_one, 0, [0, 1])
    write(log, 0, [8, 9])  # a source that does not replay what it gave
    assert numbers(log) == [0, 1]


def test_a_batch_without_a_number_is_completed_by_the_next_one(log: FileLog) -> None:
    with failpoints.armed("writer.committed", "raise"), pytest.raises(failpoints.InjectedCrash):
        write(log, None, [1])
    assert numbers(log) == []
    write(log, None, [3])
    assert numbers(log) == [1, 3]


def test_complete_publishes_what_was_committed_and_nothing_else(log: FileLog) -> None:
    BatchWriter(log, "query").complete()  # of a writer that has never written
    for point in ("writer.sealed", "writer.committed"):
        with failpoints.armed(point, "raise"), pytest.raises(failpoints.InjectedCrash):
            write(log, None, [1])
    BatchWriter(log, "query").complete()
    assert numbers(log) == [1]


def test_files_that_nobody_needs_are_collected(log: FileLog) -> None:
    for number in range(49):
        write(log, number, [number])
    with failpoints.armed("writer.sealed", "raise"), pytest.raises(failpoints.InjectedCrash):
        write(log, 49, [99])
    sealed = log.root / "writers" / "query" / "sealed"
    for path in sealed.rglob("*"):
        os.utime(path, (0, 0))
    for partition in (0, 1):
        log.rewrite(list(Consumer(log, "numbers")._positions)[partition], min_entries=1)
    write(log, 49, [49])
    left = list(sealed.iterdir())
    batches = list((log.root / "writers" / "query" / "batches").iterdir())
    assert (len(left), len(batches)) == (1, 1)
    assert sorted(numbers(log)) == list(range(50))
    write(log, 50, [50])
    assert sorted(numbers(log)) == list(range(51))


def test_names_that_can_be_no_folder_and_topics_of_applications_are_refused(log: FileLog) -> None:
    with pytest.raises(ConfigError):
        BatchWriter(log, "../a")
    with pytest.raises(InvalidTopicError, match="a topic of an application's own"):
        check_writable(log, "app-counts-changelog")
    assert check_writable(log, "numbers") == 2


def test_a_batch_whose_files_are_gone_is_not_committed(log: FileLog) -> None:
    batches = BatchWriter(log, "query")
    batch = batches.begin()
    part = seal(batches, batch, 0, [1])
    batches.discard([part])
    with pytest.raises(InvalidPublicationError, match="is gone"):
        batches.commit(0, [part])
    write(log, 0, [2])
    assert numbers(log) == [2]
