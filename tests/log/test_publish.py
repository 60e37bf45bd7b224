"""Publishing sealed rows: no copy, once per (publisher, task, epoch)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from millstream.log import FileLog, TopicConfig, TopicPartition
from millstream.log.api import Publication, PublishResult
from millstream.log.errors import DamagedLogError, InvalidPublicationError, OffsetOutOfRangeError
from millstream.types import Epoch, Offset, Partition

if TYPE_CHECKING:
    from tests.log.conftest import Kit


def test_published_rows_get_the_next_offsets_between_appended_ones(kit: Kit, log: FileLog) -> None:
    log.append(kit.orders, kit.batch("a"))
    assert log.publish_sealed(kit.orders, kit.seal("b", "c", epoch=1)) == PublishResult(True, Offset(1))
    log.append(kit.orders, kit.batch("d"))
    assert kit.values(kit.open()) == [b"a", b"b", b"c", b"d"]
    assert kit.values(log, start=2) == [b"c", b"d"]


def test_nothing_is_copied(kit: Kit, log: FileLog) -> None:
    sealed = kit.seal("x" * 100_000, epoch=1)
    log.publish_sealed(kit.orders, sealed)
    segment = kit.root / "topics" / "orders" / "0" / "00000000000000000000.segment"
    assert segment.stat().st_size < 1_000
    (kit.root / sealed.file).unlink()
    with pytest.raises(DamagedLogError, match=r"sealed/app/0_0-1-0 is missing, but orders-0 still needs it"):
        kit.values(log)


def test_publishing_an_epoch_again_changes_nothing(kit: Kit, log: FileLog) -> None:
    sealed = kit.seal("a", "b", epoch=1)
    log.publish_sealed(kit.orders, sealed)
    log.append(kit.orders, kit.batch("c"))
    for again in (log, kit.open()):
        assert again.publish_sealed(kit.orders, sealed) == PublishResult(False, Offset(0))
    retry = kit.seal("other", epoch=1, attempt=1)
    assert log.publish_sealed(kit.orders, retry) == PublishResult(False, Offset(0))
    assert kit.values(kit.open()) == [b"a", b"b", b"c"]


def test_a_coordinator_that_was_asleep_changes_nothing(kit: Kit, log: FileLog) -> None:
    zombie = kit.open()
    late = kit.seal("late", epoch=1, attempt=7)
    assert zombie.latest(kit.orders) == 0
    log.publish_sealed(kit.orders, kit.seal("a", epoch=1))
    log.publish_sealed(kit.orders, kit.seal("b", epoch=2))
    assert zombie.publish_sealed(kit.orders, late) == PublishResult(False, None)
    assert kit.values(kit.open()) == [b"a", b"b"]


def test_the_last_epoch_outlives_segments_and_retention(kit: Kit, log: FileLog) -> None:
    first = kit.seal("first", epoch=3, task="0_1")
    log.publish_sealed(kit.orders, first)
    for epoch in range(1, 20):
        log.publish_sealed(kit.orders, kit.seal(str(epoch), epoch=epoch))
    log.delete_before(kit.orders, log.latest(kit.orders))
    reopened = kit.open()
    assert reopened.publications(kit.orders) == {
        ("app", "0_1"): Publication(Epoch(3), Offset(0), 1),
        ("app", "0_0"): Publication(Epoch(19), Offset(19), 1),
    }
    assert reopened.publish_sealed(kit.orders, first) == PublishResult(False, Offset(0))
    assert kit.values(reopened) == []


def test_tasks_and_publishers_do_not_block_each_other(kit: Kit, log: FileLog) -> None:
    log.publish_sealed(kit.orders, kit.seal("a", epoch=9))
    for task, publisher in (("0_1", "app"), ("0_0", "other")):
        sealed = kit.seal("b", epoch=1, task=task, publisher=publisher)
        assert log.publish_sealed(kit.orders, sealed).published


def test_several_ranges_are_published_in_the_order_given_with_one_entry_each(kit: Kit, log: FileLog) -> None:
    log.create_topic("out", TopicConfig(2))
    out = [TopicPartition("out", Partition(number)) for number in range(2)]
    wanted = [
        (out[number], kit.seal(f"{task}>{number}", epoch=1, task=task, attempt=number))
        for task in ("0_0", "0_1", "0_2")
        for number in range(2)
    ]
    results = log.publish_all(wanted)
    assert [(result.published, result.base_offset) for result in results] == [
        (True, base) for base in (0, 1, 2) for _ in range(2)
    ]
    assert log.publish_all(wanted) == [replace(result, published=False) for result in results]
    for number in range(2):
        expected = [f"{task}>{number}".encode() for task in ("0_0", "0_1", "0_2")]
        assert kit.values(kit.open(), out[number]) == expected


def test_the_same_epoch_twice_in_one_call_is_published_once(kit: Kit, log: FileLog) -> None:
    sealed = kit.seal("a", epoch=1)
    results = log.publish_all([(kit.orders, sealed), (kit.orders, sealed)])
    assert [result.published for result in results] == [True, False]
    assert kit.values(log) == [b"a"]


def test_a_range_that_is_not_what_it_says_is_refused(kit: Kit, log: FileLog) -> None:
    good = kit.seal("a", "b", epoch=1)
    for wrong, match in (
        (replace(good, count=3), "3 records"),
        (replace(good, max_timestamp=99), "times 5 to 6"),
        (replace(good, length=good.length - 64), "end at byte"),
        (replace(good, length=good.length + 64), "the file has"),
        (replace(good, start=0), "begins with b'befo'"),
        (replace(good, file="sealed/app/none"), "there is no such file"),
        (replace(good, file="../outside"), "not the name of a file below"),
        (replace(good, file="/etc/passwd"), "not the name of a file below"),
    ):
        with pytest.raises(InvalidPublicationError, match=f"Task 0_0 of app.*{match}.*Nothing was published"):
            log.publish_all([(kit.orders, good), (kit.orders, wrong)])
    assert log.latest(kit.orders) == 0


def test_files_that_an_index_needs_are_named_until_retention_lets_go(kit: Kit, log: FileLog) -> None:
    log.create_topic("out")
    out = TopicPartition("out", Partition(0))
    sealed = [kit.seal("a", "b", epoch=epoch) for epoch in (1, 2, 3)]
    log.publish_all([(kit.orders, item) for item in sealed[:2]])
    log.publish_all([(out, item) for item in sealed[1:]])
    assert set(log.references()) == {item.file for item in sealed}
    assert set(log.references(["out"])) == {item.file for item in sealed[1:]}
    log.delete_before(kit.orders, Offset(3))
    assert set(log.references(["orders"])) == {sealed[1].file}
    log.delete_before(kit.orders, Offset(4))
    assert set(log.references(["orders"])) == set()
    assert set(log.references()) == {item.file for item in sealed[1:]}


def test_a_reader_that_was_overtaken_by_retention_is_told_so(kit: Kit, log: FileLog) -> None:
    for i in range(10):
        log.append(kit.orders, kit.batch(str(i)))
    batches = kit.open().read(kit.orders, Offset(0))
    log.delete_before(kit.orders, Offset(10))
    with pytest.raises(OffsetOutOfRangeError, match="are gone: it begins at 10"):
        list(batches)


def test_a_segment_that_was_deleted_by_hand_is_damage(kit: Kit, log: FileLog) -> None:
    for i in range(12):
        log.append(kit.orders, kit.batch(str(i)))
    for name in ("00000000000000000004", "00000000000000000000"):
        (kit.root / "topics" / "orders" / "0" / f"{name}.segment").unlink()
        with pytest.raises(DamagedLogError, match=r"orders-0|0.segment ends at offset 4, but the next .* 8"):
            kit.values(kit.open())
