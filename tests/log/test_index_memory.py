"""What indexes hold in memory is bounded over all partitions, and nothing is lost by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.log.embedded.index_memory import IndexMemory
from millstream.log.embedded.partition import Limits
from millstream.types import Offset, Partition

PARTITIONS = 6
ROUNDS = 10


class Holder:
    """Holds entries; forgets them unless it is busy."""

    def __init__(self, *, is_busy: bool = False) -> None:
        self.is_busy = is_busy
        self.forgotten = 0

    def forget_entries(self) -> bool:
        self.forgotten += not self.is_busy
        return not self.is_busy


def test_those_forget_that_were_used_longest_ago() -> None:
    memory = IndexMemory(10)
    first, second, third = (Holder() for _ in range(3))
    memory.used(first, 4)
    memory.used(second, 4)
    memory.used(first, 4)
    memory.used(third, 5)
    assert ([one.forgotten for one in (first, second, third)], memory.entries) == ([0, 1, 0], 9)


def test_who_is_at_its_entries_keeps_them() -> None:
    memory = IndexMemory(10)
    busy, other, new = Holder(is_busy=True), Holder(), Holder()
    memory.used(busy, 6)
    memory.used(other, 4)
    memory.used(new, 20)
    assert ([one.forgotten for one in (busy, other, new)], memory.entries) == ([0, 1, 0], 26)
    busy.is_busy = False
    memory.used(new, 3)
    assert (busy.forgotten, memory.entries) == (0, 9)


def test_what_is_deleted_counts_no_more() -> None:
    memory = IndexMemory(10)
    holder = Holder()
    memory.used(holder, 7)
    memory.released(holder)
    assert memory.entries == 0


@pytest.mark.parametrize("max_entries", [0, 7, 1_000])
def test_partitions_answer_alike_however_little_is_held(tmp_path: Path, max_entries: int) -> None:
    log = FileLog(tmp_path / "log", limits=Limits(segment_entries=4))
    log._memory = IndexMemory(max_entries)
    log.create_topic("lines", TopicConfig(PARTITIONS))
    places = [TopicPartition("lines", Partition(number)) for number in range(PARTITIONS)]
    for step in range(ROUNDS):
        for place in places:
            value = b"%d-%d" % (place.partition, step)
            log.append(place, record_batch([None], [value], [step]))
    # The one that is asked may hold its own.
    assert log._memory.entries <= max(max_entries, ROUNDS)
    for place in places:
        expected = [b"%d-%d" % (place.partition, step) for step in range(ROUNDS)]
        assert [value for batch in log.read(place, Offset(0)) for value in batch.values()] == expected
        assert [value for batch in log.read(place, Offset(8)) for value in batch.values()] == expected[8:]
        assert log.offset_for_time(place, 4) == 4
        assert log.max_timestamp(place, Offset(0), Offset(3)) == 2
        assert log.raw_size(place) == sum(entry.raw_bytes for entry in log._reader(place).all_entries())
    assert log.rewrite(places[0], min_entries=1)
    assert sum(len(batch.values()) for batch in log.read(places[0], Offset(0))) == ROUNDS
