"""Appending and reading: offsets, ranges, segments, topics."""

from __future__ import annotations

import pickle
import shutil
import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from millstream.durable import UnsafeFolderError
from millstream.errors import InvalidTimestampError
from millstream.log import FileLog, TimestampType, TopicConfig, TopicPartition, record_batch
from millstream.log.api import Log, SealedLog
from millstream.log.errors import (
    DamagedLogError,
    InvalidTopicError,
    NoSuchLogError,
    OffsetOutOfRangeError,
    TopicExistsError,
    UnknownTopicError,
)
from millstream.types import Offset, Partition

if TYPE_CHECKING:
    from tests.log.conftest import Kit


def test_records_come_back_as_they_were_in_order_with_consecutive_offsets(kit: Kit, log: FileLog) -> None:
    batch = record_batch(
        [b"k", None, b""], [b"v", b"", None], [7, 3, 9], [(("a", b"1"), ("a", None)), (), (("b", b"\xff"),)]
    )
    assert log.append(kit.orders, batch).base_offset == 0
    result = log.append(kit.orders, batch)
    assert (result.base_offset, result.count, result.next_offset) == (3, 3, 6)
    assert kit.rows(kit.open()) == 2 * kit.rows_of(batch)


def test_a_range_gives_exactly_its_records(kit: Kit, log: FileLog) -> None:
    for first in range(0, 60, 3):
        log.append(kit.orders, kit.batch(*(str(first + i) for i in range(3))))
    for start in range(61):
        for end in range(start, 61, 7):
            batches = list(log.read(kit.orders, Offset(start), Offset(end)))
            values = [value for batch in batches for value in batch.values()]
            assert values == [str(i).encode() for i in range(start, end)]
            assert all(len(batch) for batch in batches)
            position = start
            for batch in batches:
                assert batch.base_offset == position
                position = batch.next_offset


def test_a_large_batch_is_cut_into_blocks_and_reads_as_one(kit: Kit, log: FileLog) -> None:
    values = [b"%d" % i for i in range(250_000)]
    log.append(kit.orders, record_batch([None] * len(values), values, range(len(values))))
    batches = list(log.read(kit.orders, Offset(99_990), Offset(200_010)))
    assert [len(batch) for batch in batches] == [10, 100_000, 10]
    assert [value for batch in batches for value in batch.values()] == values[99_990:200_010]


def test_small_batches_are_joined_when_read(kit: Kit, log: FileLog) -> None:
    for i in range(50):
        log.append(kit.orders, kit.batch(str(i)))
    (batch,) = log.read(kit.orders, Offset(0))
    assert batch.values() == [str(i).encode() for i in range(50)]
    assert batch.timestamps() == [5] * 50
    assert batch.headers() == [()] * 50


def test_a_range_that_is_not_there_yet_is_an_error(kit: Kit, log: FileLog) -> None:
    log.append(kit.orders, kit.batch("a", "b"))
    with pytest.raises(OffsetOutOfRangeError, match=r"offsets 0 to 3 of orders-0 .* it ends at 2"):
        log.read(kit.orders, Offset(0), Offset(3))
    with pytest.raises(OffsetOutOfRangeError, match="it ends at 2"):
        log.read(kit.orders, Offset(3), Offset(3))
    with pytest.raises(OffsetOutOfRangeError, match="from 2 to 1 of orders-0 is backwards"):
        log.read(kit.orders, Offset(2), Offset(1))
    assert list(log.read(kit.orders, Offset(2))) == []


def test_a_range_that_retention_removed_is_an_error_and_never_empty(kit: Kit, log: FileLog) -> None:
    for i in range(10):
        log.append(kit.orders, kit.batch(f"{i}a", f"{i}b"))
    log.delete_before(kit.orders, Offset(9))
    for reader in (log, kit.open()):
        assert (reader.earliest(kit.orders), reader.latest(kit.orders)) == (9, 20)
        assert kit.values(reader)[0] == b"4b"
        with pytest.raises(
            OffsetOutOfRangeError, match=r"offsets 8 to 9 of orders-0 are gone: it begins at 9.*Remedy"
        ):
            reader.read(kit.orders, Offset(8))
    # Segments hold four entries, so the first one is gone and the second still holds offset 8.
    folder = kit.root / "topics" / "orders" / "0"
    assert sorted(path.name.lstrip("0") for path in folder.glob("*.segment")) == ["16.segment", "8.segment"]


def test_everything_can_be_removed_and_offsets_go_on(kit: Kit, log: FileLog) -> None:
    for _ in range(3):
        log.append(kit.orders, kit.batch("a", "b"))
    log.delete_before(kit.orders, Offset(6))
    assert (log.earliest(kit.orders), kit.values(log)) == (6, [])
    assert log.append(kit.orders, kit.batch("c")).base_offset == 6
    assert kit.values(kit.open()) == [b"c"]
    with pytest.raises(OffsetOutOfRangeError, match="has the offsets 6 to 7; it can't be made to begin at 8"):
        log.delete_before(kit.orders, Offset(8))
    with pytest.raises(OffsetOutOfRangeError, match="can't be made to begin at 5"):
        log.delete_before(kit.orders, Offset(5))


def test_other_objects_and_threads_see_what_was_appended(kit: Kit, log: FileLog) -> None:
    other = kit.open()
    assert other.latest(kit.orders) == 0
    threads = [
        threading.Thread(target=lambda: [log.append(kit.orders, kit.batch("x")) for _ in range(20)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert other.latest(kit.orders) == log.latest(kit.orders) == 80
    assert kit.values(other) == [b"x"] * 80


def test_a_log_can_travel_to_another_process(kit: Kit, log: FileLog) -> None:
    log.append(kit.orders, kit.batch("a"))
    plain = FileLog(kit.root)
    assert kit.values(pickle.loads(pickle.dumps(plain))) == [b"a"]  # noqa: S301


def test_appending_nothing_changes_nothing(kit: Kit, log: FileLog) -> None:
    log.append(kit.orders, kit.batch("a"))
    assert log.append(kit.orders, kit.batch()).next_offset == 1
    assert kit.values(log) == [b"a"]


def test_append_time_is_the_log_s_clock_and_never_goes_back(kit: Kit, log: FileLog) -> None:
    log.create_topic("events", TopicConfig(1, TimestampType.LOG_APPEND_TIME))
    events = TopicPartition("events", Partition(0))
    for now in (1_000, 2_000, 1_500, 3_000):
        kit.clock.now = now
        log.append(events, kit.batch("a", "b", at=77))
    reader = kit.open()
    times = [time for batch in reader.read(events, Offset(0)) for time in batch.timestamps()]
    assert times == [1_000, 1_000, 2_000, 2_000, 2_000, 2_000, 3_000, 3_000]
    assert reader.offset_for_time(events, 1_001) == 2
    assert reader.offset_for_time(events, 2_000, Offset(3)) == 3
    assert reader.offset_for_time(events, 3_001) is None
    assert reader.max_timestamp(events, Offset(1), Offset(3)) == 2_000


def test_topics_are_listed_and_described(kit: Kit, log: FileLog) -> None:
    log.create_topic("a.b_c-D", TopicConfig(3, TimestampType.LOG_APPEND_TIME))
    log.append(TopicPartition("a.b_c-D", Partition(2)), kit.batch("x", "y"))
    assert log.topics() == ["a.b_c-D", "orders"]
    found = log.describe("a.b_c-D")
    assert found.config == TopicConfig(3, TimestampType.LOG_APPEND_TIME)
    assert [(p.partition, p.earliest, p.latest) for p in found.partitions] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 2),
    ]


def test_a_topic_that_is_there_is_not_created_again(log: FileLog) -> None:
    with pytest.raises(TopicExistsError, match=r"Topic 'orders' is there already.*Remedy"):
        log.create_topic("orders", TopicConfig(5))
    assert log.config("orders") == TopicConfig(1)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", ".hidden", "a b", "é", "x" * 250])
def test_names_that_no_topic_can_have_are_refused(log: FileLog, name: str) -> None:
    with pytest.raises(InvalidTopicError, match="A topic can't be called"):
        log.create_topic(name)
    with pytest.raises(InvalidTopicError, match="A topic can't be called"):
        log.describe(name)


@pytest.mark.parametrize("partitions", [0, -1, 4097])
def test_numbers_of_partitions_that_can_t_be_are_refused(log: FileLog, partitions: int) -> None:
    with pytest.raises(InvalidTopicError, match=f"can't have {partitions} partitions"):
        log.create_topic("new", TopicConfig(partitions))
    assert log.topics() == ["orders"]


def test_an_unknown_topic_or_partition_names_what_exists(kit: Kit, log: FileLog) -> None:
    with pytest.raises(UnknownTopicError, match=r"no topic 'order' .*Topics: orders.*topics create order"):
        log.describe("order")
    with pytest.raises(UnknownTopicError, match=r"'orders' has no partition 1. Remedy: choose 0 to 0"):
        log.append(TopicPartition("orders", Partition(1)), kit.batch("a"))


def test_a_folder_without_a_log_is_told_apart_from_an_empty_log(kit: Kit) -> None:
    with pytest.raises(NoSuchLogError, match=r"There is no log in .*data.*Remedy: create one"):
        kit.open().topics()


def test_a_log_in_a_folder_that_others_may_write_into_is_refused(kit: Kit, log: FileLog) -> None:
    kit.root.chmod(0o777)
    with pytest.raises(UnsafeFolderError, match="has mode 0777"):
        kit.open().topics()
    with pytest.raises(UnsafeFolderError, match="has mode 0777"):
        kit.open().create_topic("more")


def test_records_of_any_size_are_joined_within_bounds(kit: Kit, log: FileLog) -> None:
    for i in range(30):
        log.append(kit.orders, kit.batch(bytes(300_000 if i % 3 else 10), f"{i}"))
    batches = list(log.read(kit.orders, Offset(0)))
    assert max(batch.records.nbytes for batch in batches) < 1_000_000
    assert [value for batch in batches for value in batch.values()][1::2] == [b"%d" % i for i in range(30)]


def test_a_partition_that_was_deleted_by_hand_is_damage(kit: Kit, log: FileLog) -> None:
    shutil.rmtree(kit.root / "topics" / "orders" / "0")
    with pytest.raises(DamagedLogError, match=r"orders/0 is missing, but topic 'orders' exists"):
        kit.open().latest(kit.orders)
    with pytest.raises(DamagedLogError, match=r"orders/0 is missing, but topic 'orders' exists"):
        kit.open().append(kit.orders, kit.batch("a"))


def test_the_embedded_log_is_a_log_for_sealed_rows(kit: Kit, log: FileLog) -> None:
    sealed_log: SealedLog = log
    plain_log: Log = sealed_log
    assert plain_log.topics() == ["orders"]


def test_a_record_without_a_timestamp_is_refused(kit: Kit, log: FileLog) -> None:
    rows = record_batch([None, None], [b"a", b"b"], pa.array([5, None], pa.int64()))
    with pytest.raises(InvalidTimestampError, match="has no timestamp"):
        log.append(kit.orders, rows)
    assert kit.values(log) == []


def test_a_batch_with_other_columns_or_a_negative_time_is_refused(kit: Kit, log: FileLog) -> None:
    with pytest.raises(TypeError, match="record_batch"):
        log.append(kit.orders, pa.record_batch({"value": [b"x"]}))
    with pytest.raises(InvalidTimestampError, match="timestamp is -1"):
        log.append(kit.orders, record_batch([None], [b"x"], [-1]))
    assert log.latest(kit.orders) == 0
