"""The producer sends keys to their partitions; a follower sees what comes."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.durable.layer import OsFileLayer
from millstream.errors import ConfigError, InvalidTimestampError, MillstreamError
from millstream.failpoints import armed
from millstream.log import FileLog, Producer, TopicConfig, TopicPartition, open_log
from millstream.log.api import AppendResult
from millstream.log.errors import RecordTooLargeError
from millstream.log.partitioner import partition_for_key
from millstream.types import Offset, Partition

if TYPE_CHECKING:
    from tests.log.conftest import Kit


@pytest.fixture
def events(log: FileLog) -> list[TopicPartition]:
    log.create_topic("events", TopicConfig(3))
    return [TopicPartition("events", Partition(number)) for number in range(3)]


def test_each_key_goes_to_its_partition_in_the_order_sent(
    kit: Kit, log: FileLog, events: list[TopicPartition]
) -> None:
    keys = [b"k%d" % (i % 10) for i in range(100)]
    with Producer(log, "events") as producer:
        for i, key in enumerate(keys):
            producer.send(key, b"%d" % i, timestamp=i, headers=(("n", b"%d" % i),))
    for where in events:
        expected = [i for i, key in enumerate(keys) if partition_for_key(key, 3) == where.partition]
        assert kit.rows(log, where) == [(keys[i], b"%d" % i, i, (("n", b"%d" % i),)) for i in expected]


def test_a_flush_is_shown_in_no_partition_before_it_is_durable_in_all(
    log: FileLog, events: list[TopicPartition]
) -> None:
    producer = Producer(log, "events")
    seen: list[list[int]] = []

    def look() -> None:
        seen.append([log.latest(where) for where in events])

    with armed("log.frame_synced", look):
        for where in events:
            producer.send(b"key", b"value", partition=where.partition)
        producer.flush()
    assert seen == [[0, 0, 0]] * 3
    assert [log.latest(where) for where in events] == [1, 1, 1]


def test_of_several_appends_those_that_can_be_made_are_made(
    kit: Kit, log: FileLog, events: list[TopicPartition]
) -> None:
    log.append_all({where: kit.batch("a") for where in events})
    (segment,) = (kit.root / "topics" / "events" / "1").glob("*.segment")
    full = _FullDisk(segment)
    with pytest.raises(MillstreamError, match="No space left"):
        FileLog(kit.root, files=full).append_all({where: kit.batch("b", "c") for where in events})
    assert [kit.values(log, where) for where in events] == [[b"a", b"b", b"c"], [b"a"], [b"a", b"b", b"c"]]
    assert log.append_all({events[1]: kit.batch("b"), events[2]: kit.batch()}) == {
        events[1]: AppendResult(Offset(1), 1),
        events[2]: AppendResult(Offset(3), 0),
    }


def test_a_batch_that_cannot_be_written_keeps_no_other_from_it_and_leaves_nothing_behind(
    kit: Kit, log: FileLog, events: list[TopicPartition], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.log.embedded.partition.MAX_ENTRY_DATA_BYTES", 10_000)
    batches = {where: kit.batch("a") for where in events}
    batches[events[1]] = kit.batch("x" * 20_000)
    with pytest.raises(RecordTooLargeError):
        log.append_all(batches)
    for seen in (log, kit.open()):
        assert [seen.latest(where) for where in events] == [1, 0, 1]


class _FullDisk(OsFileLayer):
    """Has no room for one of the files."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptors: set[int] = set()

    def open(self, path: Path, flags: int) -> int:
        fd = super().open(path, flags)
        (self._descriptors.add if path == self._path else self._descriptors.discard)(fd)
        return fd

    def fsync(self, fd: int) -> None:
        if fd in self._descriptors:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().fsync(fd)


def test_records_without_a_key_stick_to_a_partition_per_flush(
    kit: Kit, log: FileLog, events: list[TopicPartition]
) -> None:
    producer = Producer(log, "events", now_ms=lambda: 42)
    for flush in range(6):
        for _ in range(5):
            producer.send(None, b"%d" % flush)
        assert producer.flush() == 5
    assert [kit.values(log, where) for where in events] == [
        [b"0"] * 5 + [b"3"] * 5,
        [b"1"] * 5 + [b"4"] * 5,
        [b"2"] * 5 + [b"5"] * 5,
    ]
    assert {row[2] for where in events for row in kit.rows(log, where)} == {42}


def test_a_chosen_partition_wins(kit: Kit, log: FileLog, events: list[TopicPartition]) -> None:
    with Producer(log, "events") as producer:
        for i in range(30):
            producer.send(b"%d" % i, b"x", partition=2)
    assert [log.latest(where) for where in events] == [0, 0, 30]


@pytest.mark.parametrize("timestamp", [-1, 2**63])
def test_a_record_with_an_impossible_timestamp_is_not_taken(
    log: FileLog, events: list[TopicPartition], timestamp: int
) -> None:
    with Producer(log, "events") as producer:
        with pytest.raises(InvalidTimestampError, match=f"for topic 'events' has the timestamp {timestamp},"):
            producer.send(b"k", b"x", timestamp=timestamp, partition=0)
        producer.send(b"k", b"x", timestamp=5, partition=0)
    assert [log.latest(where) for where in events] == [1, 0, 0]


def test_a_full_buffer_is_flushed_by_itself_and_an_error_flushes_nothing(kit: Kit, log: FileLog) -> None:
    producer = Producer(log, "orders", max_records=10, max_bytes=1_000)
    for _ in range(25):
        producer.send(None, b"x")
    assert (log.latest(kit.orders), len(producer)) == (20, 5)
    producer.send(None, bytes(1_000))
    assert (log.latest(kit.orders), len(producer)) == (26, 0)
    producer.send(None, b"lost")
    with pytest.raises(ZeroDivisionError), producer:
        raise ZeroDivisionError
    assert log.latest(kit.orders) == 26


def test_waiting_ends_with_a_record_or_with_the_time(kit: Kit, log: FileLog) -> None:
    assert not log.wait({kit.orders: Offset(0)}, 0)
    assert not log.wait({kit.orders: Offset(0)}, 5)
    log.append(kit.orders, kit.batch("a"))
    assert log.wait({kit.orders: Offset(0)}, 0)
    assert not log.wait({kit.orders: Offset(1)}, 0)


def test_a_follower_sees_what_others_append(kit: Kit, log: FileLog) -> None:
    log.append(kit.orders, kit.batch("0", "1"))
    writer = kit.open()
    more = threading.Event()

    def write() -> None:
        for i in range(2, 12):
            writer.append(kit.orders, kit.batch(str(i)))
            more.wait(0.002)

    thread = threading.Thread(target=write)
    seen: list[bytes | None] = []
    for batch in log.follow(kit.orders, Offset(1), idle_timeout_ms=30_000):
        if not seen:
            thread.start()
        seen += batch.values()
        if len(seen) == 11:
            break
    thread.join(10)
    assert seen == [b"%d" % i for i in range(1, 12)]


def test_a_follower_gives_up_after_its_idle_time(kit: Kit, log: FileLog) -> None:
    log.append(kit.orders, kit.batch("a"))
    assert [batch.values() for batch in log.follow(kit.orders, Offset(0), idle_timeout_ms=1)] == [[b"a"]]


def test_an_address_names_a_folder() -> None:
    assert str(open_log("file:./some/folder").root) == "some/folder"
    assert str(open_log("file:/some/folder").root) == "/some/folder"
    assert str(open_log("file:///some/folder").root) == "/some/folder"
    for wrong in ("", "./folder", "file:", "https://host"):
        with pytest.raises(ConfigError, match="is not the address of a log"):
            open_log(wrong)
