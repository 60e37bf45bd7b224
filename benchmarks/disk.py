"""Disk: what stores, changelogs, manifests and sealed files take, against the live keys and values.

One application with one table, in this process, as shipped: maintenance comes, rests and is waited for as it
does beside Spark. Epochs follow each other without a break, each changes so many of the keys, and they go on
while maintenance is at work. Disk is looked at after every epoch, and whenever maintenance is done.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.simulation.executor import InProcessExecutor

from benchmarks.applications import workplace
from benchmarks.figures import Figure, Scale, at_most
from millstream import StreamsBuilder, serdes
from millstream.config import StreamsConfig
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.maintenance.background import BackgroundScheduler
from millstream.types import Partition

__all__ = ["disk"]

BACKENDS = ("lmdb", "rocksdb")
TIMES_LIVE = 3.0
TOPIC = "users"
Value = Callable[[random.Random], bytes]


def disk(scale: Scale) -> list[Figure]:
    """Random bytes, JSON and counters; many and few keys an epoch."""
    keys = scale.of(200_000, 20_000)
    rounds = scale.of(20, 3)
    return [
        figure
        for backend in BACKENDS
        for name, value, part in (
            ("100 random bytes, 5 % an epoch", _random_bytes, 0.05),
            ("100 random bytes, 0.5 % an epoch", _random_bytes, 0.005),
            ("JSON, 5 % an epoch", _order, 0.05),
            ("8-byte counters, 5 % an epoch", _counter, 0.05),
        )
        for figure in _measured(f"{backend}, {name}", backend, value, part, keys, rounds)
    ]


def _random_bytes(chance: random.Random) -> bytes:
    return chance.randbytes(100)


def _order(chance: random.Random) -> bytes:
    order = {
        "customer": chance.randrange(10**6),
        "status": chance.choice(["open", "paid", "sent", "returned"]),
        "total": round(chance.uniform(1, 500), 2),
        "currency": "EUR",
        "items": [{"article": chance.randrange(10**5), "number": chance.randrange(1, 9)} for _ in range(3)],
    }
    return json.dumps(order, separators=(",", ":")).encode()


def _counter(chance: random.Random) -> bytes:
    return serdes.int64.serialize(chance.randrange(10_000))


def _measured(
    name: str, backend: str, value: Value, part: float, keys: int, rounds: int
) -> tuple[Figure, ...]:
    chance = random.Random(1)
    everybody = list(range(keys))
    chance.shuffle(everybody)
    with workplace() as folder, _Table(folder, backend, value) as table:
        for at in range(0, keys, keys // 20):
            table.epoch(everybody[at : at + keys // 20])
        table.maintenance.wait()
        table.after_maintenance.clear()
        taken: list[float] = []
        always: list[int] = []
        while len(table.after_maintenance) < rounds:
            taken.append(table.epoch(chance.sample(everybody, int(keys * part))))
            always.append(_bytes_on_disk(folder))
        table.maintenance.wait()
    found = [size / table.live_bytes for size in table.after_maintenance]
    return (
        at_most(
            Figure(f"{name}: after maintenance, median", statistics.median(found), "x", found), TIMES_LIVE
        ),
        at_most(Figure(f"{name}: after maintenance, most", max(found), "x"), TIMES_LIVE),
        Figure(f"{name}: at any time, most", max(always) / table.live_bytes, "x"),
        Figure(f"{name}: an epoch", statistics.median(taken), "s"),
    )


class _Table:
    """An application that keeps a topic as a table."""

    def __init__(self, folder: Path, backend: str, value: Value) -> None:
        self._folder = folder
        self._value = value
        self._chance = random.Random(2)
        self._live: dict[int, int] = {}
        self._log = FileLog(folder / "log")
        self._log.create_topic(TOPIC, TopicConfig(retention_bytes=1 << 20))
        builder = StreamsBuilder()
        builder.table(TOPIC, key=serdes.bytes, value=serdes.bytes, store="users")
        self._executor = InProcessExecutor(
            builder.build(),
            application_id="app",
            log_root=folder / "log",
            state_dir=folder / "state",
            backend=backend,
        )
        self.maintenance = BackgroundScheduler(
            "maintenance",
            self._tend,
            interval=StreamsConfig().maintenance_interval_epochs,
            urgency=self._executor.maintenance.urgency,
        )
        self.after_maintenance: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.maintenance.wait()
        self._executor.close()

    @property
    def live_bytes(self) -> int:
        """Keys, values, and the timestamp that belongs to each."""
        return sum(len(_key(number)) + 8 + size for number, size in self._live.items())

    def epoch(self, numbers: Sequence[int]) -> float:
        """Change some keys; return how long it took, with the waiting for maintenance."""
        values = [self._value(self._chance) for _ in numbers]
        self._live.update(zip(numbers, map(len, values), strict=True))
        now = int(time.time() * 1000)
        rows = record_batch(list(map(_key, numbers)), values, [now] * len(values))
        self._log.append(TopicPartition(TOPIC, Partition(0)), rows)
        began = time.perf_counter()
        self._executor.run_epoch()
        self.maintenance.epoch_ended()
        return time.perf_counter() - began

    def _tend(self) -> None:
        self._executor.maintenance.run()
        self.after_maintenance.append(_bytes_on_disk(self._folder))


def _key(number: int) -> bytes:
    return b"key-%08d" % number


def _bytes_on_disk(folder: Path) -> int:
    """All but the input, which has a retention. What goes while it is counted is not counted."""
    found = 0
    for root, folders, files in os.walk(folder):
        if TOPIC in folders and Path(root).name == "topics":
            folders.remove(TOPIC)
        for file in files:
            with suppress(FileNotFoundError):
                found += Path(root, file).stat().st_blocks * 512
    return found
