"""A frame out of parts: each is a function that Spark runs in a task of its own, and gives Arrow batches."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from millstream.engine.spark.datasource.topics import fitted
from millstream.engine.spark.packing import dumped
from millstream.engine.spark.session import use_our_python
from millstream.errors import ConfigError
from millstream.io.spark_types import ReadPart, ddl


class _PartsReader(DataSourceReader):
    def __init__(self, parts: Sequence[bytes], schema: StructType) -> None:
        self._parts = parts
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """A task per part."""
        return [InputPartition(number) for number in range(len(self._parts))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Spark's tasks call it, in its workers."""
        if partition.value is not None:
            part: ReadPart = cloudpickle.loads(self._parts[partition.value])
            for batch in part():
                yield fitted(batch, self._schema)


def frame_of_parts(spark: Any, schema: pa.Schema, parts: Sequence[ReadPart]) -> Any:
    """A lazy frame. Parts hold serdes of the user's, so they travel in the class of a source of their own."""
    if not isinstance(spark, SparkSession):
        raise ConfigError(
            f"to_spark() needs a SparkSession, and got {type(spark).__name__}. Remedy: give the session, for "
            "example SparkSession.builder.getOrCreate()"
        )
    use_our_python(spark.sparkContext)
    try:
        packed = tuple(map(dumped, parts))
    except Exception as error:
        raise ConfigError(
            f"to_spark(): a serde can't be sent to Spark's workers: {type(error).__name__}: {error}. Remedy: "
            "let it hold nothing that belongs to this process (a connection, a lock, an open file)"
        ) from error
    source = _source_of(f"millstream-{secrets.token_hex(4)}", ddl(schema), packed)
    spark.dataSource.register(source)
    return spark.read.format(source.name()).load()


def _source_of(called: str, columns: str, parts: tuple[bytes, ...]) -> type[DataSource]:
    class Parts(DataSource):
        @classmethod
        def name(cls) -> str:
            return called

        def schema(self) -> str:
            return columns

        def reader(self, schema: StructType) -> DataSourceReader:
            return _PartsReader(parts, schema)

    return Parts
