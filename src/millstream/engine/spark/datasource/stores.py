"""Reading stores without the program that wrote them: at a commit, or as a stream of changes.

A stream of a store has a row per change: the key, and its new value, or null if it was deleted. Changes that
later ones replaced may be missing, as in any compacted topic; the last one of a key never is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.manifest import Manifest
from millstream.config import check_application_id
from millstream.engine.spark.datasource.options import SourceOptions
from millstream.engine.spark.datasource.topics import fitted
from millstream.errors import ConfigError, UnknownStoreError
from millstream.io.spark_types import ddl, for_spark
from millstream.log import open_log
from millstream.query.committed_store import CommittedParts
from millstream.query.store_frames import StorePart
from millstream.query.store_table import StoreTable
from millstream.types import Offset


class PartPartition(InputPartition):
    """One partition of a store at a commit, for a task to read; or its changes since an offset."""

    def __init__(self, part: StorePart, since: int | None = None) -> None:
        super().__init__(part)
        self.since = since


class _Store:
    """What both readers know."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Spark's tasks call it, in its workers."""
        if isinstance(partition, PartPartition):
            for batch in _rows(partition.value, partition.since):
                yield fitted(batch, self._schema)


def _rows(part: StorePart, since: int | None) -> Iterator[pa.RecordBatch]:
    if since is None:
        yield from part()
        return
    table, target = StoreTable(part.spec), part.target
    log = open_log(part.address)
    first = max(since, log.earliest(target.changelog), target.first)
    for batch in log.read(target.changelog, Offset(first), target.position.offset):
        rows = batch.records if target.writes_of is None else target.writes_of(batch.records)
        for shown in table.of(part.partition, table.changes_of(rows)).to_batches():
            yield for_spark(shown)


def committed(options: SourceOptions) -> CommittedParts:
    """The store that is meant."""
    app_id = options.given.get("app_id")
    if not app_id or not options.store:
        raise ConfigError(
            'A store is read with its application: .option("app_id", "shop").option("store", "counts")'
        )
    log = options.log
    storage = ApplicationStorage(log.root, check_application_id(app_id))
    if not storage.manifests.is_dir():
        raise UnknownStoreError(
            f"There is no application {app_id!r} in {log.root}. Likely cause: a typing error, or it has "
            "never run. Remedy: run it, or name the right log and app_id"
        )
    return CommittedParts(log, storage, options.store)


def store_ddl(options: SourceOptions) -> str:
    """The columns of a store, as Spark writes them."""
    return ddl(StoreTable(committed(options).spec).of(0, ()).schema)


class StoreReader(_Store, DataSourceReader):
    """A store at the last commit, or at an epoch that is retained."""

    def partitions(self) -> Sequence[InputPartition]:
        """A task per partition."""
        found = committed(self._options)
        epoch = self._options.number("epoch")
        return [PartPartition(part) for part in found.parts(found.head if epoch is None else found.at(epoch))]


class StoreStreamReader(_Store, DataSourceStreamReader):
    """The changes of a store, commit by commit."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - PySpark's name
        """Before the first change; "latest": behind the last one."""
        if self._options.position("starting") == "latest":
            return self._latest(committed(self._options).head)
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - PySpark's name
        """Whole commits."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - PySpark's
        """Where the changelogs stand at the last commit."""
        del limit
        return self._latest(committed(self._options).head) or start

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """A task per partition that has changed."""
        found = committed(self._options)
        by_number = {str(part.partition): part for part in found.parts(found.head)}
        return [
            PartPartition(by_number[number].up_to(offset), start.get(number, 0))
            for number, offset in end.items()
            if start.get(number, 0) < offset
        ]

    def _latest(self, head: Manifest) -> dict[str, int]:
        return {str(part.partition): part.offset for part in committed(self._options).parts(head)}
