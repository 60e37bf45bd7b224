"""Cuts that are prefixes of the task's order, however much each partition has waiting.

Cutting each partition by record count alone would let one partition run a day of event time ahead of
another, and the other's records would be late. So the partitions whose records can meet are cut together:
the bound is the smallest, over the partitions that have more than their quota, of (running maximum of the
timestamp, partition, offset) of the last record that the quota allows; every record at or below the bound
is admitted. The running maximum counts from the partition's own position, so that one old outlier does
not hold a partition back. No partition gets more than its quota (in records and in bytes), and the one that
set the bound gets all of it: a cut is never stuck.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from millstream.log.api import Log, TopicPartition
from millstream.topology.grouping import UnionFind
from millstream.topology.plan import Plan
from millstream.types import Offset, Partition

__all__ = ["Ranges", "align", "meeting_partitions", "quota", "without"]

Ranges = dict[TopicPartition, tuple[Offset, Offset, Offset]]
"""Per partition: where the epoch begins, where its quota ends, where the partition ends."""


def quota(
    log: Log, place: TopicPartition, start: Offset, latest: Offset, max_records: int, max_bytes: int
) -> Offset:
    """Up to where an epoch may read a partition: so many records and bytes, but at least one record."""
    end = Offset(min(latest, start + max_records))
    return end if start == end else log.end_within(place, start, end, max_bytes)


def align(
    log: Log, ranges: Ranges, groups: Iterable[Sequence[TopicPartition]]
) -> dict[TopicPartition, Offset]:
    """Where the epoch ends in each partition."""
    ends = {place: quota for place, (_, quota, _) in ranges.items()}
    for group in groups:
        ends.update(_align_group(log, ranges, sorted(group)))
    return ends


def _align_group(log: Log, ranges: Ranges, group: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
    limits: list[tuple[int, int, int]] = []
    for number, place in enumerate(group):
        start, quota, latest = ranges[place]
        if quota < latest:
            highest = log.max_timestamp(place, start, quota)
            limits.append((-1 if highest is None else highest, number, quota - 1))
    if not limits:
        return {}
    time, holder, last = min(limits)
    return {
        place: _admitted(log, place, ranges[place], time, number, holder, last)
        for number, place in enumerate(group)
    }


def _admitted(
    log: Log,
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
    found = log.offset_for_time(place, above, start)
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
    """Source partitions whose records can meet in one task: of one task, or of tasks that feed one."""
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
    groups: dict[tuple[int, int], list[TopicPartition]] = {}
    for topic in topics:
        for sub in plan.subtopologies:
            if sub.source_of(topic) is not None:
                for number in range(counts[topic]):
                    root = tasks.find((sub.number, number))
                    groups.setdefault(root, []).append(TopicPartition(topic, Partition(number)))
    return list(groups.values())
