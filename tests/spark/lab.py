"""A folder with topics and state for one test: write input, make applications, read results."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from millstream import Streams, StreamsConfig, Topology
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.manifest import ManifestChain
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.record import Headers
from millstream.types import Offset, Partition

ENGINE = os.environ.get("MILLSTREAM_ENGINE", "jobs")
"""On which engine the tests of Spark run that are not about one of them: "jobs" or "resident"."""
about_jobs = pytest.mark.skipif(ENGINE != "jobs", reason="it is about the engine of Spark jobs")
"""Marks a test that is about what only a Spark job per epoch does."""

Pair = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True)
class Row:
    """A record as a reader of the log sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers

    @property
    def text(self) -> str:
        return (self.key or b"").decode()

    @property
    def number(self) -> int:
        """An int64 value."""
        return int.from_bytes(self.value or b"", signed=True)


class Lab:
    """Where an application of a test lives."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self.folder = folder
        self.spark = spark
        self.engine = ENGINE
        folder.mkdir(mode=0o700, exist_ok=True)
        self.log = FileLog(folder / "log")

    @property
    def state_dir(self) -> Path:
        return self.folder / "state"

    def topic(self, name: str, parts: Sequence[Sequence[Pair]]) -> None:
        """Make a topic and fill each of its partitions; record n of a partition has the time n."""
        self.log.create_topic(name, TopicConfig(partitions=len(parts)))
        for number, pairs in enumerate(parts):
            self.append(name, pairs, partition=number)

    def append(self, name: str, pairs: Sequence[Pair], *, partition: int = 0) -> None:
        if pairs:
            place = TopicPartition(name, Partition(partition))
            first = self.log.latest(place)
            keys = [None if key is None else key.encode() for key, _ in pairs]
            values = [None if value is None else value.encode() for _, value in pairs]
            self.log.append(place, record_batch(keys, values, list(range(first, first + len(pairs)))))

    def app(
        self, topology: Topology, app_id: str = "app", *, standby: bool = False, **settings: Any
    ) -> Streams:
        given = {"state_dir": self.state_dir, "default_partitions": 2, "engine": self.engine, **settings}
        config = StreamsConfig(**given)
        log = self.folder / "log"
        return Streams(topology, app_id=app_id, log=log, spark=self.spark, config=config, standby=standby)

    def run(self, topology: Topology, app_id: str = "app", **settings: Any) -> Streams:
        """Run until all input is committed; the application is closed."""
        with self.app(topology, app_id, **settings) as app:
            app.run(until="caught-up")
        return app

    def rows(self, topic: str) -> list[Row]:
        return list(self._rows(topic))

    def by_key(self, topic: str) -> dict[str, list[int]]:
        """The int64 values of each key, in the order of its partition."""
        found: dict[str, list[int]] = {}
        for row in self._rows(topic):
            found.setdefault(row.text, []).append(row.number)
        return found

    def last_by_key(self, topic: str) -> dict[str, int]:
        return {key: values[-1] for key, values in self.by_key(topic).items()}

    def committed(self, app_id: str = "app") -> int:
        """How many input records the last commit covers."""
        head = ManifestChain(ApplicationStorage(self.folder / "log", app_id)).latest()
        return 0 if head is None else sum(offset for _, _, offset in head.positions)

    def everything(self) -> dict[str, list[Row]]:
        """All that anybody can see: every topic, changelogs included."""
        return {topic: self.rows(topic) for topic in self.log.topics()}

    def files(self) -> dict[str, bytes]:
        """Every file of the log: topics, manifests, leases, sealed files."""
        root = self.folder / "log"
        paths = (path for path in root.rglob("*") if path.is_file())
        return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}

    def _rows(self, topic: str) -> Iterator[Row]:
        for number in range(self.log.config(topic).partitions):
            for batch in self.log.read(TopicPartition(topic, Partition(number)), Offset(0)):
                columns = (batch.keys(), batch.values(), batch.timestamps(), batch.headers())
                for row, (key, value, time, headers) in enumerate(zip(*columns, strict=True)):
                    yield Row(number, batch.base_offset + row, key, value, time, headers)
