"""Which tasks take a block: one look-up, however many tasks an epoch has.

A repartition has one reader, so a topic and a partition name one task at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from millstream.commit.epoch_job import PlannedTask
from millstream.task.shuffle_block import Route, ShuffleBlock
from millstream.topology.plan import Plan
from millstream.types import Partition


class Targets:
    """The tasks of an epoch by what they take from repartitions."""

    def __init__(self, plan: Plan, tasks: Iterable[PlannedTask]) -> None:
        self._readers = plan.repartition_readers
        self._tasks = {(task.subtopology, task.partition): task for task in tasks}

    def at(self, topic: str, partition: Partition) -> PlannedTask | None:
        """The task that reads a partition of a repartition; None if no task of these does."""
        reader = self._readers.get(topic)
        return None if reader is None else self._tasks.get((reader, partition))

    def by_task(self, blocks: Iterable[ShuffleBlock]) -> dict[str, list[ShuffleBlock]]:
        """The blocks with rows for each task that takes any, in the order in which they came."""
        taken: dict[str, list[ShuffleBlock]] = {}
        for block in blocks:
            for partition, _ in block.counts:
                target = self.at(block.topic, partition)
                if target is not None:
                    taken.setdefault(target.task_id, []).append(block)
        return taken

    def level(self, block: ShuffleBlock) -> int | None:
        """The level of the tasks that take a block; None if no task of these does."""
        places = (self.at(block.topic, partition) for partition, _ in block.counts)
        return next((target.level for target in places if target is not None), None)

    def route(self, slots: Mapping[str, int]) -> Route:
        """The slots that read repartitions, given that of each task."""

        @cache
        def routed(topic: str, partitions: int) -> Sequence[int]:
            reader = self._readers[topic]
            return [slots[f"{reader}_{partition}"] for partition in range(partitions)]

        return routed
