"""A table, grouped by its values and counted: a program whose output shows every old value it has had."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.simulation.executor import InProcessExecutor
from tests.state.small_app import FastFiles

from millstream import Store, StreamsBuilder, StreamsConfig, Topology, serdes
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.coordinator import CoordinatorSettings
from millstream.commit.epoch_job import PlannedTask
from millstream.commit.store_opening import opened_stores
from millstream.durable.layer import FileLayer
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.query.replica import StoreReplica
from millstream.state.backends import memory
from millstream.types import Offset, Partition

REUSED = "reuse_ktable_source_topics"
A_DAY = 86_400_000

Rows = Sequence[tuple[bytes | None, bytes | None]]


def topology(optimization: str = REUSED, **table: Any) -> Topology:
    builder = StreamsBuilder()
    options: dict[str, Any] = {"key": serdes.string, "value": serdes.string, **table}
    users: Any = builder.table("users", store=options.pop("store", "users"), **options)
    per_city = users.group_by(lambda name, city: (city, name)).count(store=Store("per-city"))
    per_city.to_stream().to("cities", key=serdes.string, value=serdes.int64)
    return builder.build(optimization=optimization)


@dataclass
class TableApp:
    """The program in two folders below a root, with a clock of its own."""

    root: Path
    topology: Topology
    backend: str = "memory"
    topic: TopicConfig = field(default_factory=TopicConfig)
    config: StreamsConfig | None = None
    settings: CoordinatorSettings = field(default_factory=CoordinatorSettings)
    application_id: str = "app"
    files: FileLayer = field(default_factory=FastFiles)
    now: int = 100 * A_DAY

    def create(self) -> TableApp:
        self.root.mkdir(mode=0o700, parents=True)
        self.log().create_topic("users", self.topic)
        return self

    def log(self) -> FileLog:
        return FileLog(self.root / "log", files=self.files, now_ms=lambda: self.now)

    def append(self, rows: Rows, partition: int = 0) -> None:
        """Append records whose times are their offsets."""
        place = TopicPartition("users", Partition(partition))
        first = self.log().latest(place)
        times = range(first, first + len(rows))
        self.log().append(place, record_batch([key for key, _ in rows], [value for _, value in rows], times))

    def start(self) -> InProcessExecutor:
        """A new process, after the lease of the one before has ended."""
        memory._kept.clear()
        self.now += 3_600_000
        return InProcessExecutor(
            self.topology,
            application_id=self.application_id,
            log_root=self.root / "log",
            state_dir=self.root / "state",
            backend=self.backend,
            config=self.config,
            settings=self.settings,
            clock=lambda: self.now,
            files=self.files,
        )

    def run(self) -> None:
        with self.start() as executor:
            executor.run_until_caught_up()

    def lose_disk(self) -> None:
        shutil.rmtree(self.root / "state", ignore_errors=True)
        memory._kept.clear()

    def store(self, executor: InProcessExecutor, partition: int = 0) -> dict[bytes, bytes]:
        """The rows of the table's store at the head, as a task sees them when it opens it."""
        entry = executor.coordinator.head.tasks.get(f"0_{partition}")
        sub = executor.worker.subtopology(0)
        planned = PlannedTask(f"0_{partition}", 0, Partition(partition), 0)
        with opened_stores(executor.worker, sub, planned, entry) as backends:
            return dict(backends["users"].scan())

    def restored(self) -> dict[bytes, bytes]:
        """The same on a new disk."""
        self.lose_disk()
        with self.start() as executor:
            return self.store(executor)

    def replica(self) -> dict[Any, Any]:
        folder = ApplicationStorage(self.root / "log", self.application_id, self.files)
        return dict(StoreReplica(folder, self.log(), self.topology.plan(), "users").all())

    def outputs(self) -> list[tuple[bytes | None, bytes | None, int]]:
        log = self.log()
        if "cities" not in log.topics():
            return []
        return [
            row
            for batch in log.read(TopicPartition("cities", Partition(0)), Offset(0))
            for row in zip(batch.keys(), batch.values(), batch.timestamps(), strict=True)
        ]


def fold(rows: Rows, first: int = 0) -> dict[bytes, bytes]:
    """What the store must hold after these records: timestamps (the offsets) and values."""
    state: dict[bytes, bytes] = {}
    for offset, (key, value) in enumerate(rows):
        if key is None or offset < first:
            continue
        state.pop(key, None)
        if value is not None:
            state[key] = offset.to_bytes(8, "big") + value
    return state
