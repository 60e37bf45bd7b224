"""What a Spark user would write instead: Structured Streaming over the same records.

The best settings that we know of: RocksDB with changelog checkpointing, joins in their newest state format,
as many shuffle partitions as the topic has, Arrow. The records are in Parquet files, so many per trigger as
an epoch of ours takes. The updates are written to Parquet files by `foreachBatch`, which is how one writes
them: Spark's own file sink takes no updates. Beside that the same query is measured with its result thrown
away (`noop`), while ours is written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.applications import PARTITIONS, split
from millstream.engine.spark.java import ensure_java, environment_variable

__all__ = [
    "appended_to",
    "counted",
    "counted_by_processor",
    "counted_words",
    "native_session",
    "seconds_of",
    "seconds_per_batch",
    "stream_of",
    "write_files",
]

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.join.stateFormatVersion": "4",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.log.level": "ERROR",
}
SCHEMA = "key string, value string, timestamp long"


@contextmanager
def native_session(folder: Path) -> Iterator[SparkSession]:
    """A session for Structured Streaming."""
    maker: Any = SparkSession.builder
    for name, value in {**_SETTINGS, "spark.local.dir": str(folder / "native")}.items():
        maker = maker.config(name, value)
    with ensure_java(), environment_variable("PYSPARK_PYTHON", sys.executable):
        session: SparkSession = maker.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def write_files(batches: list[pa.RecordBatch], folder: Path) -> None:
    """One file per partition and trigger."""
    folder.mkdir(parents=True)
    for number, batch in enumerate(batches):
        for partition, rows in enumerate(split(batch, PARTITIONS)):
            table = pa.table(
                {
                    "key": rows.column(0).cast(pa.string()),
                    "value": rows.column(1).cast(pa.string()),
                    "timestamp": rows.column(2),
                }
            )
            pq.write_table(table, folder / f"{number:04}-{partition}.parquet")


def seconds_per_batch(
    session: SparkSession,
    files: Path,
    query: Callable[[DataFrame], DataFrame],
    checkpoint: Path,
    output: Path | None,
    *,
    mode: str = "update",
) -> list[float]:
    """Run a query over all files, and say how long each micro-batch took, from trigger to commit.

    Without an output its results are thrown away.
    """
    write = None if output is None else appended_to(output)
    return seconds_of(query(stream_of(session, files)), checkpoint, write, mode=mode)


def stream_of(
    session: SparkSession, files: Path, *, schema: str = SCHEMA, per_trigger: int = PARTITIONS
) -> DataFrame:
    """Files as a stream, so many at a time."""
    return session.readStream.schema(schema).option("maxFilesPerTrigger", per_trigger).parquet(str(files))


def appended_to(output: Path) -> Callable[[DataFrame, int], None]:
    """Writes the results of each micro-batch to a folder."""
    return lambda updates, _: updates.write.mode("append").parquet(str(output))


def seconds_of(
    frame: DataFrame, checkpoint: Path, write: Callable[[DataFrame, int], None] | None, *, mode: str
) -> list[float]:
    """Run a streaming query to its end: the time of each micro-batch that had records."""
    writer = frame.writeStream.outputMode(mode)
    writer = writer.format("noop") if write is None else writer.foreachBatch(write)
    running = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    running.awaitTermination()
    return [
        progress["durationMs"]["triggerExecution"] / 1000
        for progress in running.recentProgress
        if progress["numInputRows"]
    ]


def counted(rows: DataFrame) -> DataFrame:
    """Count by key."""
    return rows.groupBy("key").count()


def counted_words(rows: DataFrame) -> DataFrame:
    """Word count."""
    words = functions.explode(functions.split("value", " ")).alias("word")
    return rows.select(words).groupBy("word").count()


class Counter(StatefulProcessor):
    """Count by key, in Spark's own way to keep state in Python."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Make the state."""
        self._count = handle.getValueState("count", "count long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803, ARG002 - Spark's
        """Count rows of a key."""
        from pyspark.sql import Row  # noqa: PLC0415 - in the worker

        before = self._count.get()
        count = (0 if before is None else before[0]) + sum(1 for _ in rows)
        self._count.update((count,))
        yield Row(key=key[0], count=count)

    def close(self) -> None:
        """Nothing to let go of."""


def counted_by_processor(rows: DataFrame) -> DataFrame:
    """Count by key with `transformWithState`."""
    return rows.groupBy("key").transformWithState(
        statefulProcessor=Counter(),
        outputStructType="key string, count long",
        outputMode="Update",
        timeMode="None",
    )
