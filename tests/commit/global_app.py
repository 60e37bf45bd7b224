"""A stream that a processor enriches from a global table, with a global store of the user's own beside it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.simulation.executor import InProcessExecutor
from tests.state.small_app import FastFiles

from millstream import (
    Processor,
    ProcessorContext,
    Record,
    StreamsBuilder,
    StreamsConfig,
    Topology,
    serdes,
    stores,
)
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.coordinator import CoordinatorSettings
from millstream.durable.layer import FileLayer
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.query.replica import StoreReplica
from millstream.state.backends import memory
from millstream.types import Offset, Partition

WORDS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
Rows = Sequence[tuple[str | None, str | None]]


class Enrich(Processor[str, str, str, str]):
    """Sends a word with what the global stores have for it."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self._context = context
        self._rates = context.state_store("rates")
        self._updates = context.state_store("updates")

    def process(self, record: Record[str, str]) -> None:
        rate = self._rates.get(record.value)
        value = f"{record.value}={rate.value if rate else None},{self._updates.get(record.value) or 0}"
        self._context.forward(record.with_value(value))


class CountUpdates(Processor[str, str, None, None]):
    """Counts how often a key of a topic came: a store that its topic's last records alone do not give."""

    def init(self, context: ProcessorContext[None, None]) -> None:
        self._updates = context.state_store("updates")

    def process(self, record: Record[str, str]) -> None:
        self._updates.put(record.key, (self._updates.get(record.key) or 0) + 1)


def topology() -> Topology:
    builder = StreamsBuilder()
    builder.global_table("rates", store="rates", **WORDS)
    updates = stores.key_value("updates", key=serdes.string, value=serdes.int64)
    builder.add_global_store(updates, "changes", CountUpdates, **WORDS)
    builder.stream("orders", **WORDS).process(Enrich).to("out", **WORDS)
    return builder.build()


@dataclass
class GlobalApp:
    """The program in two folders below a root, with a clock of its own."""

    root: Path
    topology: Topology = field(default_factory=topology)
    backend: str = "memory"
    partitions: int = 2
    settings: CoordinatorSettings = field(default_factory=CoordinatorSettings)
    config: StreamsConfig | None = None
    files: FileLayer = field(default_factory=FastFiles)
    now: int = 1_000_000
    application_id: str = "app"

    def create(self) -> GlobalApp:
        self.root.mkdir(mode=0o700, parents=True)
        for topic in ("rates", "changes", "orders"):
            self.log().create_topic(topic, TopicConfig(self.partitions))
        self.log().create_topic("out", TopicConfig(1))
        return self

    def log(self) -> FileLog:
        return FileLog(self.root / "log", files=self.files, now_ms=lambda: self.now)

    def append(self, topic: str, rows: Rows, partition: int = 0) -> None:
        """Append records whose times are their offsets."""
        place = TopicPartition(topic, Partition(partition))
        first = self.log().latest(place)
        keys = [None if key is None else key.encode() for key, _ in rows]
        values = [None if value is None else value.encode() for _, value in rows]
        self.log().append(place, record_batch(keys, values, range(first, first + len(rows))))

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

    def replica(self, store: str) -> dict[Any, Any]:
        folder = ApplicationStorage(self.root / "log", self.application_id, self.files)
        return dict(StoreReplica(folder, self.log(), self.topology.plan(), store).all())

    def outputs(self) -> list[str]:
        """The values that came out, in order."""
        log = self.log()
        return [
            value.decode()
            for batch in log.read(TopicPartition("out", Partition(0)), Offset(0))
            for value in batch.values()
            if value is not None
        ]
