"""Waiting for a partition that has nothing, while others have records that could meet its own.

As Kafka's `max.task.idle.ms`: without waiting, the records at hand are taken, and what comes to the empty
partition later may be too late for its windows. A partition is waited for from the moment when it first had
nothing while a partition that meets it had something. If nothing has come by then, the others go on without
it, and it is not waited for again before it has had a record.

In terms of epochs: a group of partitions that waits is left out of the cut. Nothing of this outlives the
coordinator, and nothing depends on it but when records are read: what an epoch reads is in its manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from millstream.commit.epoch_bounds import Ranges
from millstream.log.api import TopicPartition

__all__ = ["TaskIdling"]


class TaskIdling:
    """Says which groups of partitions wait. With 0 and -1 none does; with -1 those are not even counted."""

    def __init__(self, max_idle_ms: int) -> None:
        self._max_idle_ms = max_idle_ms
        self._deadlines: dict[TopicPartition, int] = {}

    def waiting(
        self, ranges: Ranges, groups: Iterable[Sequence[TopicPartition]], now_ms: int
    ) -> set[TopicPartition]:
        """The empty partitions that are waited for."""
        waited_for: set[TopicPartition] = set()
        for group in groups:
            empty = [place for place in group if _is_empty(ranges, place)]
            for place in group:
                if not _is_empty(ranges, place):
                    self._deadlines.pop(place, None)
            if self._max_idle_ms > 0 and 0 < len(empty) < len(group):
                waited_for.update(place for place in empty if now_ms < self._deadline(place, now_ms))
        return waited_for

    def enforced(
        self,
        ranges: Ranges,
        groups: Iterable[Sequence[TopicPartition]],
        left_out: AbstractSet[TopicPartition],
    ) -> int:
        """How many groups go on though a partition of theirs has nothing."""
        if self._max_idle_ms < 0:
            return 0
        sizes = [
            (len(group), sum(_is_empty(ranges, place) for place in group))
            for group in groups
            if left_out.isdisjoint(group)
        ]
        return sum(0 < empty < size for size, empty in sizes)

    def _deadline(self, place: TopicPartition, now_ms: int) -> int:
        return self._deadlines.setdefault(place, now_ms + self._max_idle_ms)


def _is_empty(ranges: Ranges, place: TopicPartition) -> bool:
    start, _, latest = ranges[place]
    return start == latest
