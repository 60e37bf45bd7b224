"""Writing frames into a topic: tasks seal their rows, the driver commits them all at once.

A task that is run twice leaves nothing behind, a job that fails writes nothing. With a number for the batch
(``txnVersion`` and ``txnAppId``, as Delta Lake calls them; or the batch id of a streaming query) it is in the
topic exactly once, also if the driver dies and does it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from millstream.clock import now_ms
from millstream.commit.batch_writes import BatchWriter, SealedPart, check_writable, writer_of_place
from millstream.engine.spark.datasource.options import SourceOptions
from millstream.errors import ConfigError
from millstream.io.producer import encoded_batch
from millstream.io.tables_in import RecordColumns
from millstream.log import FileLog, open_log
from millstream.log.producer import by_partition
from millstream.serdes import Serde, boolean, double, float32, int16, int32, int64, json, string
from millstream.serdes import bytes as raw_bytes
from millstream.types import Partition

_SEALED_BYTES: Final = 64 << 20
"""A task seals a file for about so many bytes: it holds no more in memory."""
_ALL_OTHERS: Final = "spark"
"""The writer of batches that nobody has numbered."""
_BY_TYPE: Final[dict[pa.DataType, Serde[Any]]] = {
    pa.string(): string,
    pa.large_string(): string,
    pa.binary(): raw_bytes,
    pa.large_binary(): raw_bytes,
    pa.int16(): int16,
    pa.int32(): int32,
    pa.int64(): int64,
    pa.float32(): float32,
    pa.float64(): double,
    pa.bool_(): boolean,
}


@dataclass
class Sealed(WriterCommitMessage):
    """What a task has sealed."""

    parts: tuple[SealedPart, ...]


class _Writer:
    """What both writers know. It travels to Spark's workers."""

    def __init__(self, options: SourceOptions, writer: str) -> None:
        log = options.log
        self._options = options
        self._address = log.address
        self._topic = options.topic
        self._partitions = check_writable(log, self._topic)
        self._columns = RecordColumns(
            options.given.get("key_column"),
            options.given.get("value_column"),
            options.given.get("timestamp_column"),
        )
        self._name = writer
        self._folder = BatchWriter(log, writer).begin()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sealed:
        """Spark's tasks call it, in its workers."""
        log = open_log(self._address)
        batches = BatchWriter(log, self._name)
        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        sealed: list[SealedPart] = []
        gathered: list[pa.RecordBatch] = []
        for batch in iterator:
            if batch.num_rows:
                gathered.append(self._encoded(batch))
            if sum(one.nbytes for one in gathered) >= _SEALED_BYTES:
                sealed.append(self._seal(batches, number, gathered))
                gathered = []
        if gathered:
            sealed.append(self._seal(batches, number, gathered))
        return Sealed(tuple(sealed))

    def _seal(self, batches: BatchWriter, number: int, rows: Sequence[pa.RecordBatch]) -> SealedPart:
        whole = pa.Table.from_batches(rows).combine_chunks().to_batches()[0]
        parts = by_partition(whole, self._partitions, number % self._partitions)
        found: dict[tuple[str, Partition], pa.RecordBatch] = {(self._topic, at): part for at, part in parts}
        return batches.seal(self._folder, str(number), found)

    def _encoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        key, value = self._serde("key", batch), self._serde("value", batch)
        return encoded_batch(batch, self._columns, key, value, self._topic, now_ms())

    def _serde(self, part: str, batch: pa.RecordBatch) -> Serde[Any]:
        if part in self._options.given:
            return self._options.serde(part)
        name = self._options.given.get(f"{part}_column", part)
        kind = batch.schema.field(name).type if name in batch.schema.names else None
        return json if kind is None else _BY_TYPE.get(kind, json)

    def _commit(self, number: int | None, messages: Sequence[Any]) -> None:
        BatchWriter(self._log(), self._name).commit(number, _parts(messages))

    def _abort(self, messages: Sequence[Any]) -> None:
        BatchWriter(self._log(), self._name).discard(_parts(messages))

    def _log(self) -> FileLog:
        return open_log(self._address)


def _writer_of_query(checkpoint: str) -> str:
    """A name that the query keeps for as long as its checkpoint: the query's own id, if it can be read.

    A query whose checkpoint was deleted begins anew, with batch 0: by another name, or its batches would be
    taken for those that are there.
    """
    try:
        metadata = Path(checkpoint.removeprefix("file:").replace("///", "/")) / "metadata"
        return f"query-{msgspec.json.decode(metadata.read_bytes())['id']}"
    except (OSError, ValueError, KeyError, msgspec.DecodeError):
        return writer_of_place(checkpoint)


def _parts(messages: Sequence[Any]) -> list[SealedPart]:
    return [part for message in messages if isinstance(message, Sealed) for part in message.parts]


class TopicWriter(_Writer, DataSourceArrowWriter):
    """A frame, in one go."""

    def __init__(self, options: SourceOptions) -> None:
        self._number = options.number("txnVersion")
        writer = options.given.get("txnAppId")
        if (writer is None) is not (self._number is None):
            raise ConfigError(
                "txnAppId and txnVersion belong together: who writes, and the number of the batch. Remedy: "
                'give both, .option("txnAppId", "nightly").option("txnVersion", 7), or none'
            )
        super().__init__(options, writer or _ALL_OTHERS)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Spark calls it when all tasks have succeeded."""
        self._commit(self._number, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Spark calls it when a task has failed for good."""
        self._abort(messages)


class TopicStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The batches of a streaming query."""

    def __init__(self, options: SourceOptions) -> None:
        place = options.given.get("checkpointLocation")
        writer = options.given.get("txnAppId") or (None if place is None else _writer_of_query(place))
        if writer is None:
            raise ConfigError(
                "A streaming query that writes to a topic needs a name by which its batches are known. "
                'Remedy: .option("checkpointLocation", "..."), or .option("txnAppId", "orders-import")'
            )
        super().__init__(options, writer)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's
        """Spark calls it when all tasks of a batch have succeeded."""
        self._commit(batchId, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's
        """Spark calls it when a task has failed for good."""
        del batchId
        self._abort(messages)
