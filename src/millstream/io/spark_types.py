"""Arrow types as Spark names them, and serdes that Spark can be shown.

Spark has to know the type of a column before it reads it. So where a serde has no type of its own, its bytes
are shown: JSON without a schema as text, everything else as they are. Nothing here knows PySpark: types go to
it as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from millstream.io.arrow_columns import arrow_type
from millstream.serdes import (
    AutoSerde,
    JsonSerde,
    Serde,
    SessionWindowedSerde,
    TimeWindowedSerde,
    session_windowed,
    string,
    time_windowed,
)
from millstream.serdes import bytes as raw_bytes

ReadPart: TypeAlias = Callable[[], Iterator[pa.RecordBatch]]
"""What a task of Spark reads, in the types that Spark takes. It travels to Spark's workers."""

SPARK_TIMESTAMP: Final = pa.timestamp("us", "UTC")
_MOST_MS: Final = (2**63 - 1) // 1000
"""The last millisecond that Spark's microseconds can say."""
_NAMES: Final[dict[pa.DataType, str]] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    SPARK_TIMESTAMP: "TIMESTAMP",
}


def spark_serde(serde: Serde[Any]) -> Serde[Any]:
    """The serde, or the one that shows its bytes if Spark can't know the type of its values.

    >>> from millstream import serdes
    >>> spark_serde(serdes.int64), spark_serde(serdes.json)
    (serdes.int64, serdes.string)
    """
    if arrow_type(serde) is not None:
        return serde
    if isinstance(serde, TimeWindowedSerde):
        return time_windowed(spark_serde(serde.inner), serde.window_size_ms)
    if isinstance(serde, SessionWindowedSerde):
        return session_windowed(spark_serde(serde.inner))
    is_json = isinstance(serde, JsonSerde) or (isinstance(serde, AutoSerde) and serde.inferred_type == "json")
    return string if is_json else raw_bytes


def spark_type(kind: pa.DataType) -> pa.DataType:
    """The type in which Spark takes a column: everything may be null, times are in microseconds."""
    if pa.types.is_timestamp(kind):
        return SPARK_TIMESTAMP
    if pa.types.is_list(kind):
        return pa.list_(spark_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, spark_type(field.type)) for field in kind])
    return kind


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """The same of a whole schema."""
    return pa.schema([(field.name, spark_type(field.type)) for field in schema])


def ddl(schema: pa.Schema) -> str:
    """A schema as Spark reads it.

    >>> ddl(pa.schema([("key", pa.string()), ("value", pa.struct([("n", pa.list_(pa.int64()))]))]))
    '`key` STRING, `value` STRUCT<`n`: ARRAY<BIGINT>>'
    """
    return ", ".join(f"`{field.name}` {_name(spark_type(field.type))}" for field in schema)


def for_spark(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with the types that Spark takes."""
    schema = spark_schema(batch.schema)
    columns = [
        _in_microseconds(column) if field.type == SPARK_TIMESTAMP else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _in_microseconds(column: pa.Array) -> pa.Array:
    """Times in microseconds; what is later than they can say (the end of an unlimited window) is the last."""
    numbers = column.cast(pa.int64())
    return pc.min_element_wise(numbers, _MOST_MS).cast(pa.timestamp("ms", "UTC")).cast(SPARK_TIMESTAMP)


def _name(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"ARRAY<{_name(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'`{field.name}`: {_name(field.type)}' for field in kind)}>"
    return _NAMES[kind]
