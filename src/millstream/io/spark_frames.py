"""Topics as Spark frames: Spark's tasks read the log themselves, a task per partition.

Nothing here imports PySpark: what its tasks do is all that is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from millstream.io.spark_types import ReadPart, for_spark, spark_serde
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


def topic_parts(
    address: str, table: TopicTable, ranges: Sequence[TopicRange]
) -> tuple[pa.Schema, list[ReadPart]]:
    """What a Spark frame of a topic is made of."""
    shown = for_spark_to_read(table)
    return shown.empty().schema, [_ReadTopic(address, shown, wanted) for wanted in ranges]


@dataclass(frozen=True, slots=True)
class _ReadTopic:
    address: str
    table: TopicTable
    wanted: TopicRange

    def __call__(self) -> Iterator[pa.RecordBatch]:
        return read_range(self.address, self.table, self.wanted)
