"""Questions of time, answered from a position."""

from __future__ import annotations

import itertools
import tempfile
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.log import FileLog, TopicPartition, record_batch
from millstream.types import Offset, Partition

if TYPE_CHECKING:
    from tests.log.conftest import Kit

WHERE = TopicPartition("t", Partition(0))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=6), min_size=1, max_size=6))
def test_answers_are_those_of_a_plain_list(batches: list[list[int]]) -> None:
    times = list(itertools.chain(*batches))
    with tempfile.TemporaryDirectory() as folder:
        log = FileLog(folder)
        log.create_topic("t")
        for batch in batches:
            log.append(WHERE, record_batch([None] * len(batch), [None] * len(batch), batch))
        for start in range(len(times) + 1):
            for timestamp in (0, 7, 15, 30, 31):
                expected = next((i for i in range(start, len(times)) if times[i] >= timestamp), None)
                assert log.offset_for_time(WHERE, timestamp, Offset(start)) == expected
            for end in range(start, len(times) + 1):
                expected = max(times[start:end], default=None)
                assert log.max_timestamp(WHERE, Offset(start), Offset(end)) == expected


def test_a_consumed_outlier_does_not_hide_what_comes_after_it(kit: Kit, log: FileLog) -> None:
    for time in (10, 1_000_000, 20, 30):
        log.append(kit.orders, kit.batch("x", at=time))
    assert log.offset_for_time(kit.orders, 25) == 1
    assert log.offset_for_time(kit.orders, 25, Offset(2)) == 3


def test_time_is_found_in_sealed_ranges_of_several_segments(kit: Kit, log: FileLog) -> None:
    for epoch in range(1, 12):
        log.publish_sealed(kit.orders, kit.seal("a", "b", epoch=epoch, at=epoch * 100))
    assert kit.open().offset_for_time(kit.orders, 701) == 13
    assert kit.open().max_timestamp(kit.orders, Offset(3), Offset(14)) == 701 - 1 + 1


def test_the_index_knows_when_a_record_came(kit: Kit, log: FileLog) -> None:
    for number in range(6):
        kit.clock.now = 1_000 + number
        log.append(kit.orders, kit.batch("a", "b", at=5))
    kit.clock.now = 2_000
    log.publish_sealed(kit.orders, kit.seal("c", epoch=1))
    times = [kit.open().append_time(kit.orders, Offset(offset)) for offset in range(13)]
    assert times == [
        1_000,
        1_000,
        1_001,
        1_001,
        1_002,
        1_002,
        1_003,
        1_003,
        1_004,
        1_004,
        1_005,
        1_005,
        2_000,
    ]


def test_without_a_start_the_search_begins_at_the_earliest(kit: Kit, log: FileLog) -> None:
    for time in (10, 20, 30):
        log.append(kit.orders, kit.batch("x", at=time))
    log.delete_before(kit.orders, Offset(1))
    assert log.offset_for_time(kit.orders, 0) == 1
