"""The data source ``millstream``: topics and stores to read and to stream from, topics to write to."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from millstream.engine.spark.datasource.options import SourceOptions
from millstream.engine.spark.datasource.stores import StoreReader, StoreStreamReader, store_ddl
from millstream.engine.spark.datasource.topics import TopicReader, TopicStreamReader, topic_ddl
from millstream.engine.spark.datasource.writers import TopicStreamWriter, TopicWriter
from millstream.engine.spark.session import use_our_python
from millstream.errors import ConfigError


class MillstreamDataSource(DataSource):
    """What Spark makes for each frame; options decide what it is."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` is given."""
        return "millstream"

    def schema(self) -> str:
        """The columns, if the user has not said them."""
        options = self._options()
        return topic_ddl(options) if options.store is None else store_ddl(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``."""
        options = self._options()
        return TopicReader(options, schema) if options.store is None else StoreReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - PySpark's name
        """For ``spark.readStream``."""
        options = self._options()
        if options.store is None:
            return TopicStreamReader(options, schema)
        return StoreStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - PySpark's
        """For ``df.write``."""
        del schema
        if overwrite:
            raise ConfigError("A topic can't be overwritten: records are appended. Remedy: .mode('append')")
        return TopicWriter(self._options())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802
        """For ``df.writeStream``."""
        del schema
        if overwrite:
            raise ConfigError(
                "A topic can't be overwritten: records are appended. Remedy: .outputMode('append')"
            )
        return TopicStreamWriter(self._options())

    def _options(self) -> SourceOptions:
        return SourceOptions(self.options)


def register(spark: SparkSession) -> Any:
    """Let a session know the data source."""
    use_our_python(spark.sparkContext)
    spark.dataSource.register(MillstreamDataSource)
    return spark
