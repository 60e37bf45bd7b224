"""Which tasks an epoch needs: those that get records, those behind them, and those that wait for the clock.

A task that reads topics is planned if the cut has records of its partition. Where a repartition leads to
nobody knows before its senders have run, so all tasks behind a planned one are planned, too; one that is sent
nothing has nothing to do, and need not report. All others stay as they are: an epoch costs what it reads,
however many tasks there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from millstream.commit.epoch_job import Cut, PlannedTask
from millstream.topology.plan import Plan, SubTopology
from millstream.types import Partition

__all__ = ["SubTopologyTasks", "all_tasks", "needed_tasks", "planned_task"]


@dataclass(frozen=True, slots=True)
class SubTopologyTasks:
    """The tasks of one sub-topology."""

    sub: SubTopology
    first: int
    """The number of its first task among all tasks of the application."""
    count: int

    def task(
        self, partition: int, *, home: str | None = None, caught_up: bool = True, has_input: bool = True
    ) -> PlannedTask:
        """The task of a partition."""
        sub = self.sub
        return PlannedTask(
            sub.task_id(partition),
            sub.number,
            Partition(partition),
            sub.level,
            expected_instance=home,
            caught_up=caught_up,
            number=self.first + partition,
            has_input=has_input,
        )


def all_tasks(plan: Plan, counts: Mapping[str, int]) -> list[SubTopologyTasks]:
    """All tasks of an application, level by level."""
    tasks: list[SubTopologyTasks] = []
    first = 0
    for level in plan.levels:
        for sub in level:
            tasks.append(SubTopologyTasks(sub, first, plan.task_count(sub, counts)))
            first += tasks[-1].count
    return tasks


def needed_tasks(
    plan: Plan, tasks: Sequence[SubTopologyTasks], cut: Cut, *, tick: bool
) -> Iterator[tuple[SubTopologyTasks, Collection[int], Collection[int]]]:
    """Of each sub-topology, the partitions whose tasks an epoch plans, and those with input of their own.

    A tick is input to all tasks in which somebody may wait for it.
    """
    fed: set[int] = set()
    for some in tasks:
        sub, every = some.sub, range(some.count)
        with_input = every if tick and sub.may_schedule else _with_records(sub, cut)
        planned = every if sub.number in fed else with_input
        if planned:
            written = {sink.topic for sink in sub.sinks}.union(*sub.copied.values())
            fed.update(reader for topic, reader in plan.repartition_readers.items() if topic in written)
            yield some, planned, with_input


def planned_task(tasks: Sequence[SubTopologyTasks], task_id: str) -> PlannedTask | None:
    """A task by its id; None if the application has no such task any more."""
    number, partition = (int(part) for part in task_id.split("_"))
    found = (some.task(partition) for some in tasks if some.sub.number == number and partition < some.count)
    return next(found, None)


def _with_records(sub: SubTopology, cut: Cut) -> Collection[int]:
    found = {
        partition
        for topic, parts in cut.items()
        if sub.source_of(topic) is not None
        for partition, (start, end) in parts.items()
        if start < end
    }
    if sub.is_global:
        return range(min(1, len(found)))
    return dict.fromkeys(sorted(found))  # in order, and quick to ask
