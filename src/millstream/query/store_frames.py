"""Stores as Spark frames: a task per partition, each of which reads the store's changelog itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from millstream.commit.manifest import Manifest
from millstream.io.spark_types import for_spark, spark_serde
from millstream.log import open_log
from millstream.query.store_table import StoreTable
from millstream.state.backends.memory import MemoryBackend
from millstream.state.changelog.follow import StorePosition, Target, follow
from millstream.state.changelog.source_changelog import StoreStart, target_of
from millstream.state.specs import StoreBuilder
from millstream.task.serde_book import SerdeBook
from millstream.topology.plan import SubTopology
from millstream.types import Offset, Partition, Version


@dataclass(frozen=True, slots=True)
class StorePart:
    """One partition of a store at a commit. It travels to Spark's workers."""

    address: str
    """Of the log."""
    application_id: str
    spec: StoreBuilder
    partition: int
    version: int
    offset: int
    """Of the changelog, behind the last row of the commit."""
    origin: StoreStart | None

    @property
    def target(self) -> Target:
        """Where a copy of the partition has to get to."""
        position = StorePosition(Version(self.version), Offset(self.offset))
        return target_of(self.spec, self.application_id, Partition(self.partition), position, self.origin)

    def up_to(self, offset: int) -> StorePart:
        """The same, up to an offset of the changelog."""
        return replace(self, offset=offset)

    def __call__(self) -> Iterator[pa.RecordBatch]:
        """The rows, with the types that Spark takes."""
        backend = MemoryBackend()
        follow(backend, self.target, open_log(self.address))
        table = StoreTable(self.spec)
        for batch in table.of(self.partition, table.rows_of(backend)).to_batches():
            yield for_spark(batch)


def store_parts(
    address: str, application_id: str, sub: SubTopology, spec: StoreBuilder, head: Manifest
) -> list[StorePart]:
    """The partitions of a store, by number."""
    parts = []
    for task_id, entry in head.tasks.items():
        number, partition = (int(part) for part in task_id.split("_"))
        if number == sub.number and (spec.has_changelog or spec.name in entry.origins):
            offset = entry.changelogs.get(spec.name, Offset(0))
            origin = entry.origins.get(spec.name)
            part = StorePart(address, application_id, spec, partition, entry.version, offset, origin)
            parts.append(part)
    return sorted(parts, key=lambda part: part.partition)


def store_targets(
    application_id: str, sub: SubTopology, spec: StoreBuilder, head: Manifest
) -> list[tuple[int, Target]]:
    """Where the copy of each partition has to get to."""
    return [(part.partition, part.target) for part in store_parts("", application_id, sub, spec, head)]


def bound_to(spec: StoreBuilder, head: Manifest | None) -> StoreBuilder:
    """A store whose automatic serdes know what they had inferred at a commit."""
    book = SerdeBook()
    inferred = () if head is None else head.inferred_types
    book.restore({(name, part): kind for name, part, kind in inferred})  # type: ignore[misc]
    return replace(
        spec, key=book.bound(spec.name, "key", spec.key), value=book.bound(spec.name, "value", spec.value)
    )


def for_spark_to_read(spec: StoreBuilder) -> StoreBuilder:
    """A bound store as Spark is shown it."""
    return replace(spec, key=spark_serde(spec.key), value=spark_serde(spec.value))


def store_frame_parts(
    address: str, application_id: str, sub: SubTopology, spec: StoreBuilder, head: Manifest | None
) -> tuple[pa.Schema, list[StorePart]]:
    """What a Spark frame of a store at a commit is made of; nothing before the first."""
    shown = for_spark_to_read(bound_to(spec, head))
    parts = [] if head is None else store_parts(address, application_id, sub, shown, head)
    return StoreTable(shown).of(0, ()).schema, parts
