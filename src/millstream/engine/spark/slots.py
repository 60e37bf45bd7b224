"""Slots: where tasks run, pinned to the hosts that hold their state.

A slot is a partition of a small cached RDD. Rows that are shuffled to a slot are zipped, by a union of
equal partitioners, with the slot's cached block, and Spark runs the result where that block is. So a task
that is assigned to a slot finds its state where it left it, with nothing but public API.
"""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext, StorageLevel

from millstream.errors import MillstreamError


def own_slot(slot: int) -> int:
    """The partitioner: a slot's number is its partition. One function object, for it is its identity."""
    return slot


class Slots:
    """The slots of one application. The first job on their rows, that of the warm-up, puts them in place."""

    def __init__(self, context: SparkContext, count: int) -> None:
        self.count = count
        self._rows = (
            context.parallelize([(slot, None) for slot in range(count)], count)
            .partitionBy(count, own_slot)
            .persist(StorageLevel.MEMORY_ONLY)
        )

    @property
    def rows(self) -> Any:
        """One row per slot, each in the slot's own partition."""
        return self._rows

    def joined_with(self, sent: Any) -> Any:
        """What was sent to each slot, in the slot's own partition, with the slot's own row."""
        joined = sent.partitionBy(self.count, own_slot).union(self._rows)
        if joined.getNumPartitions() != self.count:
            raise MillstreamError(
                f"Spark made {joined.getNumPartitions()} partitions of {self.count} slots, so tasks would "
                "not run where their state is. Likely cause: a Spark version in which a union of equal "
                "partitioners is not partitioner-aware. Remedy: use Spark 4.x."
            )
        return joined

    def release(self) -> None:
        """Let go of the cached blocks."""
        self._rows.unpersist()
