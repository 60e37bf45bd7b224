"""Topics as Spark frames: Spark's tasks read the log themselves, a task per partition.

Nothing here imports PySpark: a frame is made by the session that is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.errors import ConfigError
from millstream.io.spark_types import ddl, for_spark, spark_serde
from millstream.io.topic_table import TopicTable
from millstream.log import TopicPartition, open_log
from millstream.types import Offset, Partition


@dataclass(frozen=True, slots=True)
class TopicRange:
    """Records of one partition, from an offset to before another."""

    partition: int
    start: int
    end: int


def for_spark_to_read(table: TopicTable) -> TopicTable:
    """A topic as Spark is shown it."""
    return TopicTable(table.topic, spark_serde(table.key), spark_serde(table.value))


def read_range(address: str, table: TopicTable, wanted: TopicRange) -> Iterator[pa.RecordBatch]:
    """The records of a range, with the types that Spark takes."""
    place = TopicPartition(table.topic, Partition(wanted.partition))
    for batch in open_log(address).read(place, Offset(wanted.start), Offset(wanted.end)):
        if len(batch):
            yield for_spark(table.of([batch]))


def topic_frame(spark: Any, address: str, table: TopicTable, ranges: Sequence[TopicRange]) -> Any:
    """A Spark frame of a topic."""
    shown = for_spark_to_read(table)
    reads = [_ReadTopic(address, shown, wanted) for wanted in ranges]
    return frame_of_parts(spark, shown.empty().schema, reads)


def frame_of_parts(
    spark: Any, schema: pa.Schema, parts: Sequence[Callable[[], Iterator[pa.RecordBatch]]]
) -> Any:
    """A Spark frame, each part of which is read by a task of its own."""
    if not hasattr(spark, "range") or not hasattr(spark, "createDataFrame"):
        raise ConfigError(
            f"to_spark() needs a SparkSession, and got {type(spark).__name__}. Remedy: give the session, for "
            "example SparkSession.builder.getOrCreate()"
        )
    return spark.range(0, len(parts), 1, max(1, len(parts))).mapInArrow(_ReadParts(tuple(parts)), ddl(schema))


@dataclass(frozen=True, slots=True)
class _ReadTopic:
    address: str
    table: TopicTable
    wanted: TopicRange

    def __call__(self) -> Iterator[pa.RecordBatch]:
        return read_range(self.address, self.table, self.wanted)


class _ReadParts:
    """What Spark's tasks run: each is given the numbers of its parts."""

    def __init__(self, parts: tuple[Callable[[], Iterator[pa.RecordBatch]], ...]) -> None:
        self._parts = parts

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._parts[number]()
