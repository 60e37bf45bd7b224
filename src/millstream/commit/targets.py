"""Which task takes a block: one look-up, however many tasks an epoch has.

A repartition has one reader, so a topic and a partition name one task at most.
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.commit.epoch_job import PlannedTask
from millstream.task.shuffle_block import ShuffleBlock
from millstream.topology.plan import Plan
from millstream.types import Partition


class Targets:
    """The tasks of an epoch by what they take from repartitions."""

    def __init__(self, plan: Plan, tasks: Iterable[PlannedTask]) -> None:
        self._readers = plan.repartition_readers
        self._tasks = {(task.subtopology, task.partition): task for task in tasks}

    def of(self, block: ShuffleBlock) -> PlannedTask | None:
        """The task that takes a block; None if no task of these does."""
        return self.at(block.topic, block.partition)

    def task_id(self, block: ShuffleBlock) -> str | None:
        """The task that takes a block, whether it is one of these or not; None if nobody reads it."""
        reader = self._readers.get(block.topic)
        return None if reader is None else f"{reader}_{block.partition}"

    def at(self, topic: str, partition: Partition) -> PlannedTask | None:
        """The task that reads a partition of a repartition; None if no task of these does."""
        reader = self._readers.get(topic)
        return None if reader is None else self._tasks.get((reader, partition))

    def by_task(self, blocks: Iterable[ShuffleBlock]) -> dict[str, list[ShuffleBlock]]:
        """The blocks of each task that takes any, in the order in which they came."""
        taken: dict[str, list[ShuffleBlock]] = {}
        for block in blocks:
            target = self.of(block)
            if target is not None:
                taken.setdefault(target.task_id, []).append(block)
        return taken
