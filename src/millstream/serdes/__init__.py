r"""Serdes: how keys and values become bytes and back.

Give one wherever an operator takes ``key=`` or ``value=``; without one, ``serdes.auto`` decides by the
type of the values. The numbers, strings and UUIDs are written as Kafka's own serdes write them.

>>> from millstream import serdes
>>> serdes.int64.serialize(1)
b'\x00\x00\x00\x00\x00\x00\x00\x01'
>>> serdes.json({"shop": str, "amount": int}).deserialize(b'{"shop": "north", "amount": 3}')
{'shop': 'north', 'amount': 3}

Your own serde is any object with ``serialize(value) -> bytes`` and ``deserialize(bytes) -> value``.
"""

from __future__ import annotations

import builtins
import uuid as uuid_module
from typing import Final

from millstream.serdes.api import BaseSerde, Serde, bind, of, serde_name
from millstream.serdes.auto_serde import Auto, AutoSerde, find_auto
from millstream.serdes.avro_serde import AvroSerde, avro
from millstream.serdes.column import ColumnError, deserialize_column, serialize_column
from millstream.serdes.failure import describe_bytes, serde_failure
from millstream.serdes.json_serde import JsonSerde, TypedJsonSerde
from millstream.serdes.nullable_serde import NullableSerde, nullable
from millstream.serdes.primitives import (
    BooleanSerde,
    BytesSerde,
    FloatSerde,
    IntSerde,
    StringSerde,
    UuidSerde,
)
from millstream.serdes.protobuf_serde import ProtobufSerde, protobuf
from millstream.serdes.windowed import (
    SessionWindowedSerde,
    TimeWindowedSerde,
    session_windowed,
    time_windowed,
)

__all__ = [
    "Auto",
    "AutoSerde",
    "AvroSerde",
    "BaseSerde",
    "JsonSerde",
    "NullableSerde",
    "ProtobufSerde",
    "Serde",
    "SessionWindowedSerde",
    "TimeWindowedSerde",
    "TypedJsonSerde",
    "auto",
    "avro",
    "boolean",
    "bytes",
    "double",
    "float32",
    "int16",
    "int32",
    "int64",
    "json",
    "nullable",
    "of",
    "protobuf",
    "session_windowed",
    "string",
    "time_windowed",
    "uuid",
]

# What the engine uses besides; not for users, and free to change.
__all__ += [
    "ColumnError",
    "bind",
    "describe_bytes",
    "deserialize_column",
    "find_auto",
    "serde_failure",
    "serde_name",
    "serialize_column",
]

bytes: Final[Serde[builtins.bytes]] = BytesSerde()  # noqa: A001 - read as serdes.bytes
string: Final[Serde[str]] = StringSerde()
int16: Final[Serde[int]] = IntSerde("serdes.int16", ">h")
int32: Final[Serde[int]] = IntSerde("serdes.int32", ">i")
int64: Final[Serde[int]] = IntSerde("serdes.int64", ">q")
float32: Final[Serde[float]] = FloatSerde("serdes.float32", ">f")
double: Final[Serde[float]] = FloatSerde("serdes.double", ">d")
boolean: Final[Serde[bool]] = BooleanSerde()
uuid: Final[Serde[uuid_module.UUID]] = UuidSerde()
json: Final = JsonSerde()
auto: Final = Auto()
