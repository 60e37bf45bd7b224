"""Joins with tables, one record at a time, as plainly as they can be written; and inputs for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from hypothesis import strategies as st
from tests.simulation.epochs import EpochRunner

from millstream import Topology
from millstream.task.records import RawBatch

__all__ = ["Epoch", "Event", "Row", "TableJoin", "Update", "epochs", "in_task_order", "joined", "played"]

Event = tuple[str, str | None, str | None, int]
"""Topic, key, value, timestamp."""
Epoch = list[Event]
Row = tuple[str | None, str | None, int]
"""Key, value, timestamp of what comes out."""

Update = tuple[str | None, str | None, int]
"""Key, new value, timestamp."""


def joined(left: object, right: object) -> str:
    """What the joiners of these tests make."""
    return f"{left}+{right}"


def epochs(*topics: str) -> st.SearchStrategy[list[Epoch]]:
    """Epochs of records for some topics: few keys, few times, not in order, some without key or value."""
    event = st.tuples(
        st.sampled_from(topics),
        st.sampled_from(["a", "b", "c", None]),
        st.sampled_from(["1", "2", "3", "4", None]),
        st.integers(0, 30),
    )
    return st.lists(st.lists(event, max_size=12), min_size=1, max_size=4)


def in_task_order(epoch: Epoch) -> Iterator[Event]:
    """The records of one epoch as a task takes them: by the largest time so far in their topic."""
    placed = []
    for topic in sorted({event[0] for event in epoch}):
        events = [event for event in epoch if event[0] == topic]
        times = accumulate((event[3] for event in events), max)
        placed += list(zip(times, events, strict=True))
    return (event for _, event in sorted(placed, key=lambda one: one[0]))


def played(
    topology: Topology, script: Sequence[Epoch], topics: Sequence[str], **options: Any
) -> list[tuple[str | None, str | None, int]]:
    """What a topology writes to the topic `out`."""
    offsets = dict.fromkeys(topics, 0)
    with EpochRunner(topology, partitions=dict.fromkeys(topics, 1), **options) as runner:
        for epoch in script:
            raws = []
            for topic in topics:
                events = [event for event in epoch if event[0] == topic]
                if events:
                    numbers = range(offsets[topic], offsets[topic] + len(events))
                    keys = [_encoded(event[1]) for event in events]
                    values = [_encoded(event[2]) for event in events]
                    raws.append(
                        RawBatch(topic, 0, list(numbers), keys, values, [event[3] for event in events])
                    )
                    offsets[topic] += len(events)
            runner.run_epoch(raws)
        return [
            (_decoded(row.key), _decoded(row.value), row.timestamp) for row in runner.outputs.get("out", ())
        ]


@dataclass
class TableJoin:
    """A join of two tables by key, told of one update at a time."""

    left_alone: bool = False
    right_alone: bool = False
    join: Callable[[Any, Any], str] = joined
    tables: tuple[dict[str, tuple[str, int]], dict[str, tuple[str, int]]] = field(
        default_factory=lambda: ({}, {})
    )

    def put(self, side: int, update: Update) -> str | None:
        """An update comes in. The value that it replaces."""
        key, value, timestamp = update
        assert key is not None
        old = self.tables[side].pop(key, None)
        if value is not None:
            self.tables[side][key] = (value, timestamp)
        return None if old is None else old[0]

    def result(self, side: int, update: Update, old: str | None) -> list[Row]:
        """What goes on for an update."""
        key, value, timestamp = update
        assert key is not None
        other = self.tables[1 - side].get(key)
        if other is None:
            alone = self.right_alone if side else self.left_alone
            if not alone or (value is None and old is None):
                return []
            return [(key, self._pair(side, value, None), timestamp)]
        return [(key, self._pair(side, value, other[0]), max(timestamp, other[1]))]

    def _pair(self, side: int, own: str | None, other: str | None) -> str | None:
        left, right = (other, own) if side else (own, other)
        if (left is None and (right is None or not self.right_alone)) or (
            right is None and (left is None or not self.left_alone)
        ):
            return None
        return self.join(left, right)


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _decoded(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
