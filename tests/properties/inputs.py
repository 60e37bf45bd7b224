"""Random inputs: epochs of records from several topics and partitions, and a clock."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace

from tests.properties.oracle_nodes import Headers
from tests.properties.spec import Spec

KEYS = (None, "k0", "k1", "k1", "k2", "k3")


@dataclass(frozen=True)
class Input:
    """A record of the log."""

    topic: str
    partition: int
    offset: int
    key: str | None
    value: int | None
    timestamp: int
    headers: Headers = ()


@dataclass(frozen=True)
class Epoch:
    """The records of an epoch, and what the clock says when it ends."""

    now_ms: int
    records: tuple[Input, ...]


def random_epochs(spec: Spec, records: int = 44) -> tuple[Epoch, ...]:
    """Epochs for a spec, from its seed: late records, equal times, repeated keys, None, headers."""
    rng = random.Random(f"inputs of {spec.seed}")
    offsets: Counter[tuple[str, int]] = Counter()
    topics = spec.input_topics
    epochs = []
    now, base = 0, 0
    for _ in range(rng.choice((1, 2, 3, 4))):
        rows = []
        for _ in range(rng.randint(0, records // 2)):
            topic, partition = rng.choice(topics), rng.randrange(spec.partitions)
            base += rng.choice((0, 0, 1, 3, 8))
            rows.append(_row(rng, topic, partition, offsets[topic, partition], base))
            offsets[topic, partition] += 1
        now += rng.choice((0, 3, 10, 25))
        epochs.append(Epoch(now, tuple(rows)))
    return tuple(epochs)


def punctual(epochs: tuple[Epoch, ...]) -> tuple[Epoch, ...]:
    """The same records, none of them late: what goes through repartitions can be combined."""
    times: dict[tuple[str, int], int] = {}
    changed = []
    for epoch in epochs:
        rows = []
        for row in epoch.records:
            place = (row.topic, row.partition)
            times[place] = max(row.timestamp, times.get(place, 0))
            rows.append(replace(row, timestamp=times[place]))
        changed.append(replace(epoch, records=tuple(rows)))
    return tuple(changed)


def _row(rng: random.Random, topic: str, partition: int, offset: int, base: int) -> Input:
    timestamp = max(0, base + rng.choice((0, 0, 0, 1, -5, -20)))
    value = None if rng.random() < 0.15 else rng.randrange(40)
    headers: Headers = ()
    if rng.random() < 0.25:
        headers = tuple((rng.choice("xy"), bytes(rng.randrange(3))) for _ in range(rng.randint(1, 2)))
    return Input(topic, partition, offset, rng.choice(KEYS), value, timestamp, headers)


def describe_epochs(epochs: tuple[Epoch, ...]) -> str:
    """The records, one a line."""
    lines = []
    for epoch in epochs:
        lines.append(f"  epoch, clock {epoch.now_ms}:")
        for row in epoch.records:
            place = f"{row.topic}/{row.partition}/{row.offset}"
            headers = f" {row.headers}" if row.headers else ""
            lines.append(f"    {place} {row.key} = {row.value} @{row.timestamp}{headers}")
    return "\n".join(lines)
