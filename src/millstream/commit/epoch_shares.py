"""The job of an epoch, divided among slots: each is told what its tasks need, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from millstream.commit.epoch_job import EpochJob, PlannedTask
from millstream.types import Offset, Partition

_Range = tuple[Offset, Offset]
_Cut = dict[str, dict[Partition, _Range]]


def shares_of(job: EpochJob, slots: Mapping[str, int]) -> dict[int, EpochJob]:
    """What each slot needs to run its tasks: these, their entries, and their ranges with records.

    `slots` has the slot of each planned task. All shares together cost what the job has, and not that for
    each slot; but entries and ranges of global stores are in each.
    """
    tasks: dict[int, list[PlannedTask]] = {}
    for task in job.tasks:
        tasks.setdefault(slots[task.task_id], []).append(task)
    global_entries = {task_id: job.entries[task_id] for task_id in job.global_tasks & job.entries.keys()}
    global_ranges, ranges = _ranges_with_records(job)
    shares: dict[int, EpochJob] = {}
    for slot, mine in tasks.items():
        known = job.entries.keys() & {task.task_id for task in mine}
        entries = global_entries | {task_id: job.entries[task_id] for task_id in known}
        cut = global_ranges | _cut_of({task.partition for task in mine}, ranges)
        shares[slot] = replace(job, cut=cut, tasks=tuple(mine), entries=entries)
    return shares


def _ranges_with_records(
    job: EpochJob,
) -> tuple[_Cut, dict[Partition, dict[str, _Range]]]:
    """Those of global topics, by topic, and all others, by partition: as tasks ask for them."""
    of_all: _Cut = {}
    by_partition: dict[Partition, dict[str, _Range]] = {}
    for topic, parts in job.cut.items():
        for partition, (start, end) in parts.items():
            if start < end and topic in job.global_topics:
                of_all.setdefault(topic, {})[partition] = (start, end)
            elif start < end:
                by_partition.setdefault(partition, {})[topic] = (start, end)
    return of_all, by_partition


def _cut_of(partitions: set[Partition], ranges: Mapping[Partition, Mapping[str, _Range]]) -> _Cut:
    """What tasks of these partitions read."""
    cut: _Cut = {}
    for partition in partitions:
        for topic, bounds in ranges.get(partition, {}).items():
            cut.setdefault(topic, {})[partition] = bounds
    return cut
