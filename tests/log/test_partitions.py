"""Topics get more partitions, and whoever is at work sees them."""

from __future__ import annotations

import pytest
from tests.log.conftest import Kit
from tests.simulation.faulty_files import FaultyFiles

from millstream.durable import DiskFullError
from millstream.log import FileLog, Producer, TopicPartition
from millstream.log.embedded.partition import Limits
from millstream.log.errors import InvalidTopicError, UnknownTopicError
from millstream.types import Partition

LAST = TopicPartition("orders", Partition(2))


def test_a_topic_gets_more_partitions_and_keeps_what_it_has(kit: Kit, log: FileLog) -> None:
    log.append(kit.orders, kit.batch("a", "b"))
    log.add_partitions("orders", 3)
    log.append(LAST, kit.batch("c"))
    for reader in (log, kit.open()):
        assert reader.config("orders").partitions == 3
        assert (kit.values(reader), kit.values(reader, LAST)) == ([b"a", b"b"], [b"c"])


def test_whoever_knew_the_topic_before_sees_the_new_partitions(kit: Kit, log: FileLog) -> None:
    reader, writer = kit.open(), kit.open()
    writer.append(kit.orders, kit.batch("a"))
    assert kit.values(reader) == [b"a"]
    log.add_partitions("orders", 3)
    writer.append(LAST, kit.batch("c"))
    assert kit.values(reader, LAST) == [b"c"]


def test_a_producer_spreads_its_next_batch_over_the_new_partitions(kit: Kit, log: FileLog) -> None:
    with Producer(kit.open(), "orders", max_records=100) as producer:
        for number in range(100):
            producer.send(b"k%d" % number, None)
        log.add_partitions("orders", 3)
        for number in range(100):
            producer.send(b"k%d" % number, None)
    ends = [part.latest for part in log.describe("orders").partitions]
    assert ends[0] > 100
    assert min(ends) > 0
    assert sum(ends) == 200


def test_as_many_as_there_are_changes_nothing(kit: Kit, log: FileLog) -> None:
    config = (kit.root / "topics" / "orders" / "topic").read_bytes()
    log.add_partitions("orders", 1)
    assert (kit.root / "topics" / "orders" / "topic").read_bytes() == config


@pytest.mark.parametrize("partitions", [0, 2, 4097])
def test_fewer_or_too_many_are_refused(log: FileLog, partitions: int) -> None:
    log.add_partitions("orders", 3)
    with pytest.raises(InvalidTopicError, match=r"has 3 partitions.*Remedy: choose 3 to 4096"):
        log.add_partitions("orders", partitions)


def test_an_unknown_topic_is_refused(log: FileLog) -> None:
    with pytest.raises(UnknownTopicError, match="Topics: orders"):
        log.add_partitions("order", 3)


def test_a_disk_that_is_full_leaves_the_topic_as_it_was(kit: Kit, log: FileLog) -> None:
    files = FaultyFiles(kit.root)
    full = FileLog(kit.root, files=files, limits=Limits(), now_ms=kit.clock)
    files.disk_full_after(200)
    with pytest.raises(DiskFullError):
        full.add_partitions("orders", 50)
    assert kit.open().config("orders").partitions == 1
    files.disk_has_space()
    full.add_partitions("orders", 4)
    assert [part.latest for part in kit.open().describe("orders").partitions] == [0] * 4
