"""Small logs, and short ways to fill and to read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from tests.log.sealing import sealed_range

from millstream.durable.layer import OsFileLayer
from millstream.log import FileLog, TopicPartition, record_batch
from millstream.log.api import SealedRange
from millstream.log.embedded.partition import Limits
from millstream.record import Headers
from millstream.types import Offset, Partition

Row = tuple[bytes | None, bytes | None, int, Headers]


class WithoutSync(OsFileLayer):
    """The real file system, without waiting for the disk: nobody takes the power away in these tests."""

    def fsync(self, fd: int) -> None:
        pass

    def sync_folder(self, path: Path) -> None:
        pass


@dataclass
class Clock:
    """A clock that stands still until it is told."""

    now: int = 1_000

    def __call__(self) -> int:
        return self.now


@dataclass
class Kit:
    """A folder for a log, and what tests do with it."""

    root: Path
    clock: Clock = field(default_factory=Clock)
    limits: Limits = field(default_factory=lambda: Limits(segment_entries=4))
    orders: TopicPartition = field(default_factory=lambda: TopicPartition("orders", Partition(0)))

    def open(self) -> FileLog:
        """Open the log as another process would: nothing is known yet."""
        return FileLog(self.root, files=WithoutSync(), limits=self.limits, now_ms=self.clock)

    def values(
        self, log: FileLog, where: TopicPartition | None = None, start: int | None = None
    ) -> list[bytes | None]:
        """Return all values from an offset on (default: the first there is)."""
        where = where or self.orders
        begin = log.earliest(where) if start is None else Offset(start)
        return [value for batch in log.read(where, begin) for value in batch.values()]

    def rows(self, log: FileLog, where: TopicPartition | None = None) -> list[Row]:
        """Return all records."""
        where = where or self.orders
        return [row for batch in log.read(where, log.earliest(where)) for row in self.rows_of(batch.records)]

    @staticmethod
    def rows_of(records: pa.RecordBatch) -> list[Row]:
        """Return the records of a batch."""
        return [
            (
                row["key"],
                row["value"],
                row["timestamp"],
                tuple((h["key"], h["value"]) for h in row["headers"] or ()),
            )
            for row in records.to_pylist()
        ]

    @staticmethod
    def batch(*values: bytes | str | None, at: int = 5) -> pa.RecordBatch:
        """Return a batch of records without keys, one millisecond after another."""
        encoded = [value.encode() if isinstance(value, str) else value for value in values]
        return record_batch([None] * len(values), encoded, range(at, at + len(values)))

    def seal(
        self,
        *values: str,
        epoch: int,
        task: str = "0_0",
        publisher: str = "app",
        at: int = 5,
        attempt: int = 0,
    ) -> SealedRange:
        """Seal some values: see `sealed_range`."""
        return sealed_range(
            self.root,
            self.batch(*values, at=at),
            epoch=epoch,
            task=task,
            publisher=publisher,
            attempt=attempt,
            now=self.clock(),
        )


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path / "data")


@pytest.fixture
def log(kit: Kit) -> FileLog:
    """A log with the topic ``orders`` (one partition); four entries fill a segment."""
    log = kit.open()
    log.create_topic("orders")
    return log
