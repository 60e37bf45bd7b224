"""Cuts that are prefixes of the task's order, however much each partition has waiting.

Cutting each partition by record count alone would let one partition run a day of event time ahead of
another, and the other's records would be late. So the partitions whose records can meet are cut together:
the bound is the smallest, over the partitions that have more than their quota, of (running maximum of the
timestamp, partition, offset) of the last record that the quota allows; every record at or below the bound
is admitted. The running maximum counts from the partition's own position, so that one old outlier does
not hold a partition back. No partition gets more than its quota (in records and in bytes), and the one that
set the bound gets all of it: a cut is never stuck.

Timestamps are those that an extractor gives, and records that it leaves out count for nothing. Where they are
the log's own, its index answers; else see :mod:`millstream.commit.source_times`. Records that get the time of
the epoch that reads them are never late, so such partitions do not hold each other up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from millstream.log.api import Log, TopicPartition
from millstream.topology.grouping import UnionFind
from millstream.topology.plan import Plan
from millstream.types import Offset, Partition

__all__ = [
    "PartitionTimes",
    "Ranges",
    "align",
    "behind",
    "meeting_partitions",
    "meeting_tasks",
    "quota",
    "without",
]

Ranges = dict[TopicPartition, tuple[Offset, Offset, Offset]]
"""Per partition: where the epoch begins, where its quota ends, where the partition ends."""


class PartitionTimes(Protocol):
    """What a cut asks about the timestamps of records. A log knows its own."""

    def max_timestamp(self, place: TopicPartition, start: Offset, end: Offset, /) -> int | None:
        """The largest timestamp in a range; None if there is none."""

    def offset_for_time(self, place: TopicPartition, timestamp: int, start: Offset, /) -> Offset | None:
        """The first offset from `start` on whose timestamp is not below."""


def quota(
    log: Log, place: TopicPartition, start: Offset, latest: Offset, max_records: int, max_bytes: int
) -> Offset:
    """Up to where an epoch may read a partition: so many records and bytes, but at least one record."""
    end = Offset(min(latest, start + max_records))
    return end if start == end else log.end_within(place, start, end, max_bytes)


def behind(ranges: Ranges, group: Iterable[TopicPartition]) -> bool:
    """Whether some partition of a group has more than its quota, so that the others have to be cut, too."""
    return any(ranges[place][1] < ranges[place][2] for place in group)


def align(
    times: PartitionTimes,
    ranges: Ranges,
    groups: Iterable[Sequence[TopicPartition]],
    read_at: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, Offset]:
    """Where the epoch ends in each partition.

    `read_at` has the partitions whose records get the time of reading, and that time.
    """
    ends = {place: quota for place, (_, quota, _) in ranges.items()}
    for group in groups:
        if behind(ranges, group):
            ends.update(_align_group(times, ranges, group, read_at or {}))
    return ends


def _align_group(
    times: PartitionTimes,
    ranges: Ranges,
    group: Sequence[TopicPartition],
    read_at: Mapping[TopicPartition, int],
) -> dict[TopicPartition, Offset]:
    limits: list[tuple[int, int, int]] = []
    for number, place in enumerate(group):
        start, quota, latest = ranges[place]
        if quota < latest:
            highest = read_at[place] if place in read_at else times.max_timestamp(place, start, quota)
            limits.append((-1 if highest is None else highest, number, quota - 1))
    time, holder, last = min(limits)
    ends: dict[TopicPartition, Offset] = {}
    for number, place in enumerate(group):
        if place in read_at:
            ends[place] = ranges[place][1 if read_at[place] <= time else 0]
        else:
            ends[place] = _admitted(times, place, ranges[place], time, number, holder, last)
    return ends


def _admitted(
    times: PartitionTimes,
    place: TopicPartition,
    limits: tuple[Offset, Offset, Offset],
    time: int,
    number: int,
    holder: int,
    last: int,
) -> Offset:
    """The first offset whose (running maximum, partition, offset) is above the bound."""
    start, quota, _ = limits
    if start == quota:
        return quota
    if number == holder:
        return Offset(last + 1)
    # Records with the bound's own time are admitted from the partitions before the holder's only.
    above = time + 1 if number < holder else time
    found = times.offset_for_time(place, above, start)
    return quota if found is None else min(quota, found)


def without(
    left_out: Collection[TopicPartition],
    ends: Mapping[TopicPartition, Offset],
    ranges: Ranges,
    groups: Iterable[Sequence[TopicPartition]],
) -> dict[TopicPartition, Offset]:
    """The same ends, but nothing of some partitions, nor of those that meet them: they would run ahead."""
    fewer = dict(ends)
    for group in groups:
        if any(place in left_out for place in group):
            fewer.update((place, ranges[place][0]) for place in group)
    return fewer


def meeting_partitions(
    plan: Plan, counts: Mapping[str, int], topics: Iterable[str]
) -> list[list[TopicPartition]]:
    """Source partitions whose records can meet in one task: of one task, or of tasks that feed one.

    In the order in which records of the same time come: by task, as behind a repartition, then by topic.
    Those of global stores meet nobody, and wait for nobody.
    """
    tasks = meeting_tasks(plan, counts)
    read = sorted(
        (sub.number, number, topic)
        for topic in topics
        for sub in plan.all_subtopologies
        if sub.source_of(topic) is not None
        for number in range(counts[topic])
    )
    groups: dict[tuple[int, int], list[TopicPartition]] = {}
    for sub_number, number, topic in read:
        place = TopicPartition(topic, Partition(number))
        groups.setdefault(tasks.find((sub_number, number)), []).append(place)
    return list(groups.values())


def meeting_tasks(plan: Plan, counts: Mapping[str, int]) -> UnionFind[tuple[int, int]]:
    """Tasks, by sub-topology and number, whose records can meet: united are those that feed one."""
    tasks: UnionFind[tuple[int, int]] = UnionFind()
    readers = {topic: sub for sub in plan.subtopologies for source in sub.sources for topic in source.topics}
    for sub in plan.subtopologies:
        own = [(sub.number, number) for number in range(plan.task_count(sub, counts))]
        for sink in sub.sinks:
            if sink.topic is not None and sink.topic in plan.repartition_topics:
                reader = readers[sink.topic]
                tasks.unite(
                    [*own, *((reader.number, number) for number in range(plan.task_count(reader, counts)))]
                )
    return tasks
