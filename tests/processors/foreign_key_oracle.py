"""Joins by foreign key, as plainly as they can be said: what the result must be, given both tables.

Values are `reference:detail` on the left and plain words on the right. What comes in between is nobody's
promise: of every epoch only the tables at its end, and the last update of each key, are compared.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.epochs import EpochRunner, MemoryTask

from millstream import KTable, Store, StreamsBuilder, Topology, serdes
from millstream.log.partitioner import partition_for_key
from millstream.task.records import RawBatch
from millstream.task.task import TaskResult

__all__ = [
    "LEFT",
    "RIGHT",
    "Event",
    "Tables",
    "build",
    "joined",
    "random_epochs",
    "reference",
    "run",
    "table",
]

LEFT, RIGHT = "l", "r"
WORDS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
PARTITIONS = {LEFT: 2, RIGHT: 3}

Event = tuple[str, str, str | None, int]
"""Topic, key, value, timestamp."""


def reference(_key: str, value: str) -> str | None:
    """The right row that a left value refers to."""
    return value.partition(":")[0] or None


def joined(left: object, right: object) -> str:
    """What joiners make."""
    return f"{left}+{right}"


def table(builder: StreamsBuilder, topic: str, **options: Any) -> KTable[str, str]:
    return builder.table(topic, store=Store(topic, **WORDS, **options), **WORDS)


def build(body: Callable[[StreamsBuilder], KTable[Any, Any]]) -> Topology:
    """A topology whose result goes to `out`."""
    builder = StreamsBuilder()
    body(builder).to_stream().to("out", **WORDS)
    return builder.build()


@dataclass
class Tables:
    """Both tables as they are."""

    left: dict[str, str] = field(default_factory=dict)
    right: dict[str, str] = field(default_factory=dict)

    def take(self, epoch: Iterable[Event]) -> None:
        """Each key has its last value. The records of a key are all in one partition."""
        for topic, key, value, _ in epoch:
            rows = self.left if topic == LEFT else self.right
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value

    def inner(self) -> dict[str, str]:
        """The rows of an inner join."""
        return {key: value for key, value in self.left_join().items() if not value.endswith("+None")}

    def left_join(self) -> dict[str, str]:
        """The rows of a left join."""
        return {
            key: joined(value, self.right.get(reference(key, value) or ""))
            for key, value in self.left.items()
        }


class _AnyOrder(EpochRunner):
    """What comes from several senders stands in any order."""

    def __init__(self, topology: Topology, rng: random.Random, **options: Any) -> None:
        super().__init__(topology, **options)
        self._rng = rng

    def run_task(self, task: MemoryTask, raws: Sequence[RawBatch]) -> TaskResult:
        shuffled = list(raws)
        self._rng.shuffle(shuffled)
        return super().run_task(task, shuffled)


def random_epochs(rng: random.Random, *, keys: int = 4, references: int = 3) -> list[list[Event]]:
    """Left rows move between right rows while these change, mostly in one epoch, at times in no order."""
    epochs = []
    for number in range(rng.randint(2, 5)):
        epoch: list[Event] = []
        for _ in range(rng.randint(1, 12)):
            time = max(0, 10 * number + rng.randint(-8, 12))
            if rng.random() < 0.6:
                target = rng.choice([*(f"f{one}" for one in range(references)), ""])
                value = None if rng.random() < 0.2 else f"{target}:{rng.randrange(3)}"
                epoch.append((LEFT, f"k{rng.randrange(keys)}", value, time))
            else:
                word = None if rng.random() < 0.25 else f"w{rng.randrange(4)}"
                epoch.append((RIGHT, f"f{rng.randrange(references)}", word, time))
        epochs.append(epoch)
    return epochs


def run(
    topology: Topology,
    epochs: Sequence[Sequence[Event]],
    *,
    rng: random.Random | None = None,
    after_epoch: Callable[[Mapping[str, str | None]], None] | None = None,
    partitions: Mapping[str, int] | None = None,
    **options: Any,
) -> list[tuple[str, str | None, int]]:
    """All that comes out; `after_epoch` is told the last update of each key."""
    counts = dict(PARTITIONS if partitions is None else partitions)
    offsets: dict[tuple[str, int], int] = {}
    runner: EpochRunner
    if rng is None:
        runner = EpochRunner(topology, partitions=counts, **options)
    else:
        runner = _AnyOrder(topology, rng, partitions=counts, **options)
    with runner:
        for epoch in epochs:
            runner.run_epoch(list(_raws(epoch, counts, offsets)))
            if after_epoch is not None:
                after_epoch({key: value for key, value, _ in _rows(runner)})
        return _rows(runner)


def _rows(runner: EpochRunner) -> list[tuple[str, str | None, int]]:
    return [
        (row.key.decode(), None if row.value is None else row.value.decode(), row.timestamp)
        for row in runner.outputs.get("out", ())
        if row.key is not None
    ]


def _raws(
    epoch: Sequence[Event], counts: Mapping[str, int], offsets: dict[tuple[str, int], int]
) -> Iterable[RawBatch]:
    places: dict[tuple[str, int], list[Event]] = {}
    for event in epoch:
        topic, key = event[:2]
        places.setdefault((topic, partition_for_key(key.encode(), counts[topic])), []).append(event)
    for place, events in places.items():
        first = offsets.get(place, 0)
        offsets[place] = first + len(events)
        yield RawBatch(
            *place,
            list(range(first, first + len(events))),
            [key.encode() for _, key, _, _ in events],
            [None if value is None else value.encode() for _, _, value, _ in events],
            [time for _, _, _, time in events],
        )
