"""`max_task_idle_ms`: whether records wait for a partition that has none, how long, and what is counted."""

from __future__ import annotations

from millstream.commit.epoch_bounds import Ranges
from millstream.commit.task_idling import TaskIdling
from millstream.log.api import TopicPartition
from millstream.types import Offset, Partition

A, B, C = (TopicPartition(name, Partition(0)) for name in "abc")
GROUPS = [[A, B], [C]]


def ranges(a: int, b: int, c: int = 0) -> Ranges:
    """How many records each partition has."""
    return {place: (Offset(5), Offset(5 + n), Offset(5 + n)) for place, n in ((A, a), (B, b), (C, c))}


def test_records_wait_for_the_other_partition_and_then_go_on_without_it() -> None:
    idling = TaskIdling(100)
    assert idling.waiting(ranges(3, 0), GROUPS, 1_000) == {B}
    assert idling.waiting(ranges(9, 0), GROUPS, 1_099) == {B}
    assert idling.waiting(ranges(9, 0), GROUPS, 1_100) == set()


def test_nobody_waits_if_all_have_records_or_none_has() -> None:
    idling = TaskIdling(100)
    assert idling.waiting(ranges(3, 1), GROUPS, 1_000) == set()
    assert idling.waiting(ranges(0, 0), GROUPS, 1_000) == set()


def test_the_wait_begins_when_there_is_something_that_waits() -> None:
    idling = TaskIdling(100)
    assert idling.waiting(ranges(0, 0), GROUPS, 0) == set()
    assert idling.waiting(ranges(1, 0), GROUPS, 5_000) == {B}


def test_a_partition_is_waited_for_again_only_after_it_had_a_record() -> None:
    idling = TaskIdling(100)
    idling.waiting(ranges(1, 0), GROUPS, 0)
    assert idling.waiting(ranges(1, 0), GROUPS, 100) == set()
    assert idling.waiting(ranges(0, 0), GROUPS, 200) == set()
    assert idling.waiting(ranges(1, 0), GROUPS, 300) == set()
    assert idling.waiting(ranges(1, 1), GROUPS, 400) == set()
    assert idling.waiting(ranges(1, 0), GROUPS, 500) == {B}


def test_a_partition_that_meets_no_other_never_waits() -> None:
    assert TaskIdling(100).waiting(ranges(0, 0, 7), GROUPS, 0) == set()


def test_without_a_time_nobody_waits_and_only_0_counts() -> None:
    for max_idle_ms, enforced in ((0, 1), (-1, 0)):
        idling = TaskIdling(max_idle_ms)
        assert idling.waiting(ranges(1, 0), GROUPS, 0) == set()
        assert idling.enforced(ranges(1, 0), GROUPS, set()) == enforced


def test_what_goes_on_without_a_partition_is_counted_and_what_waits_is_not() -> None:
    idling = TaskIdling(100)
    assert idling.enforced(ranges(1, 0, 1), GROUPS, {B}) == 0
    assert idling.enforced(ranges(1, 0, 1), GROUPS, set()) == 1
    assert idling.enforced(ranges(1, 1, 0), GROUPS, set()) == 0
    assert idling.enforced(ranges(0, 0, 1), GROUPS, set()) == 0
