"""Reading topics: in one go, or as a stream by offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from millstream import serdes
from millstream.engine.spark.datasource.options import SourceOptions, json_schema
from millstream.errors import ConfigError
from millstream.io.positions import offset_at, partitions_of
from millstream.io.spark_frames import TopicRange, for_spark_to_read, read_range
from millstream.io.spark_types import ddl
from millstream.io.topic_table import TopicTable
from millstream.log import TopicPartition
from millstream.serdes import JsonSerde, Serde
from millstream.types import Offset, Partition


class RangePartition(InputPartition):
    """A range of one partition, for a task to read."""

    def __init__(self, wanted: TopicRange) -> None:
        super().__init__(wanted)


def fitted(batch: pa.RecordBatch, schema: StructType) -> pa.RecordBatch:
    """A batch whose types are, to the name of a list's element, what PySpark compares them with."""
    wanted = to_arrow_schema(schema, timezone="UTC")
    columns = [batch.column(field.name).cast(field.type) for field in wanted]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def topic_ddl(options: SourceOptions) -> str:
    """The columns of a topic, as Spark writes them."""
    parts = []
    shown = for_spark_to_read(TopicTable(options.topic, options.serde("key"), options.serde("value")))
    for field in shown.empty().schema:
        given = options.schema_of(field.name) if field.name in {"key", "value"} else None
        text = ddl(pa.schema([field]))
        parts.append(text if given is None else f"`{field.name}` STRUCT<{given}>")
    return ", ".join(parts)


def topic_table(options: SourceOptions, schema: StructType) -> TopicTable:
    """How the topic is read, so that it fits the schema."""
    key, value = (_fitting(options.serde(part), schema, part) for part in ("key", "value"))
    return for_spark_to_read(TopicTable(options.topic, key, value))


def _fitting(serde: Serde[Any], schema: StructType, part: str) -> Serde[Any]:
    kind = schema[part].dataType if part in schema.names else None
    return (
        serdes.json(json_schema(kind))
        if isinstance(serde, JsonSerde) and isinstance(kind, StructType)
        else serde
    )


class _Topic:
    """What both readers know."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._table = topic_table(options, schema)
        self._address = options.log.address

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Spark's tasks call it, in its workers."""
        wanted = partition.value
        if wanted is not None:
            for batch in read_range(self._address, self._table, wanted):
                yield fitted(batch, self._schema)

    def _offsets(self, which: str, default: Any) -> dict[TopicPartition, Offset]:
        log, position = self._options.log, self._options.position(which)
        what = "start" if which == "starting" else "end"
        return {
            place: offset_at(log, place, default if position is None else position, what)
            for place in partitions_of(log, self._options.topic, None)
        }


class TopicReader(_Topic, DataSourceReader):
    """All records from a position to another."""

    def partitions(self) -> Sequence[InputPartition]:
        """A task per partition that has records."""
        starts, ends = self._offsets("starting", "earliest"), self._offsets("ending", "latest")
        for place, start in starts.items():
            if start > ends[place]:
                raise ConfigError(
                    f"partition {place.partition} of topic {place.topic!r} is to be read from offset "
                    f"{start:,} to {ends[place]:,}. Likely cause: startingOffsets is behind the end, or "
                    "behind endingOffsets. Remedy: choose an earlier one"
                )
        return [
            RangePartition(TopicRange(place.partition, start, ends[place]))
            for place, start in starts.items()
            if start < ends[place]
        ]


class TopicStreamReader(_Topic, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Records as they come. What lies between two offsets reads the same every time."""

    _target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - PySpark's name
        """Where a query begins that has no checkpoint."""
        return {
            str(place.partition): offset for place, offset in self._offsets("starting", "earliest").items()
        }

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - PySpark's name
        """``maxOffsetsPerTrigger`` records a batch at most, if that was said."""
        most = self._options.number("maxOffsetsPerTrigger")
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - PySpark's
        """The end of the next batch."""
        end = self._latest() if self._target is None else self._target
        if not isinstance(limit, ReadMaxRows):
            return end
        share = max(1, limit.max_rows // max(1, len(end)))
        return {number: min(offset, start.get(number, 0) + share) for number, offset in end.items()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - PySpark's name
        """All that is there now, and no more."""
        self._target = self._latest()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """A task per partition that has records in the range."""
        return [
            RangePartition(TopicRange(int(number), start.get(number, 0), offset))
            for number, offset in end.items()
            if start.get(number, 0) < offset
        ]

    def _latest(self) -> dict[str, int]:
        log, topic = self._options.log, self._options.topic
        count = log.config(topic).partitions
        return {str(number): log.latest(TopicPartition(topic, Partition(number))) for number in range(count)}
