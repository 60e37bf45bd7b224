"""Deleting a topic: gone at once and for good, and a crash leaves no half of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream import failpoints
from millstream.log import FileLog, TopicPartition, record_batch
from millstream.log.errors import UnknownTopicError
from millstream.types import Offset, Partition

LINES = TopicPartition("lines", Partition(0))


@pytest.fixture
def log(tmp_path: Path) -> FileLog:
    tmp_path.chmod(0o700)
    log = FileLog(tmp_path / "log")
    for topic in ("lines", "others"):
        log.create_topic(topic)
    log.append(LINES, record_batch([b"k"], [b"v"], [5]))
    return log


def test_a_deleted_topic_is_gone_and_others_stay(log: FileLog) -> None:
    log.delete_topic("lines")
    assert log.topics() == ["others"]
    with pytest.raises(UnknownTopicError, match="There is no topic 'lines'"):
        log.append(LINES, record_batch([b"k"], [b"v"], [5]))
    assert [path.name for path in (log.root / "topics").iterdir() if path.is_dir()] == ["others"]


def test_a_topic_of_the_same_name_begins_empty(log: FileLog) -> None:
    log.delete_topic("lines")
    log.create_topic("lines")
    assert log.latest(LINES) == 0
    assert log.append(LINES, record_batch([b"k"], [b"new"], [5])).base_offset == 0
    values = [value for batch in log.read(LINES, Offset(0)) for value in batch.values()]
    assert values == [b"new"]


def test_what_is_not_there_cannot_be_deleted(log: FileLog) -> None:
    with pytest.raises(UnknownTopicError, match="There is no topic 'nothing'"):
        log.delete_topic("nothing")


def test_a_crash_in_the_middle_leaves_garbage_that_the_next_creation_takes(log: FileLog) -> None:
    with failpoints.armed("log.topic_unnamed"), pytest.raises(failpoints.InjectedCrash):
        log.delete_topic("lines")
    again = FileLog(log.root)
    assert again.topics() == ["others"]
    again.create_topic("more")
    folders = sorted(path.name for path in (log.root / "topics").iterdir() if path.is_dir())
    assert folders == ["more", "others"]
