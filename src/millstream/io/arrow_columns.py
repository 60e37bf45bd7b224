"""Columns of bytes into Arrow columns and back, by serdes.

Where a serde has a column form (:mod:`millstream.serdes.columns`) no Python object is made per record. Where
it has none, values are read one by one, and Arrow infers their type: that of all rows together, or the one
that is given. Whatever fails is told with its topic, partition and offset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any, Final
from uuid import UUID

import msgspec
import polars as pl
import pyarrow as pa

from millstream.errors import SerdeError
from millstream.record import Windowed
from millstream.serdes import (
    BaseSerde,
    ColumnError,
    NullableSerde,
    Serde,
    SessionWindowedSerde,
    TimeWindowedSerde,
    TypedJsonSerde,
    deserialize_column,
    serde_failure,
    serde_name,
    serialize_column,
)
from millstream.serdes.columns import codec_of, codec_to_write
from millstream.serdes.columns.types import canonical
from millstream.serdes.primitives import UuidSerde
from millstream.serdes.windowed import as_record, of_record

__all__ = ["TIMESTAMP", "Place", "arrow_type", "decode", "encode", "has_windows", "plain"]

TIMESTAMP: Final = pa.timestamp("ms", "UTC")
"""How tables show times."""

Place = Callable[[int], dict[str, Any]]
"""Where a row is: topic, partition, offset or store, for messages."""
_WINDOWED: Final = (TimeWindowedSerde, SessionWindowedSerde)


def has_windows(serde: Serde[Any]) -> bool:
    """Whether keys of a serde have a window, which tables show as columns of its own."""
    return isinstance(serde, _WINDOWED)


def arrow_type(serde: Serde[Any]) -> pa.DataType | None:
    """The Arrow type of a serde's values; None if that depends on the values.

    >>> from millstream import serdes
    >>> str(arrow_type(serdes.json({"shop": str, "amount": int}))), arrow_type(serdes.json)
    ('struct<shop: string, amount: int64>', None)
    """
    if isinstance(serde, NullableSerde):
        return arrow_type(serde.inner)
    if isinstance(serde, UuidSerde):
        return pa.string()
    codec = codec_of(serde)
    if codec is None or codec.dtype is None:
        return None
    return plain(pl.Series([], dtype=codec.dtype).to_arrow()).type


def decode(
    serde: Serde[Any],
    column: pa.Array,
    place: Place,
    *,
    part: str = "value",
    kind: pa.DataType | None = None,
) -> pa.Array:
    """Bytes as values; null stays null. ``kind`` is the type to use where the serde has no column form."""
    codec = codec_of(serde)
    if codec is not None and codec.dtype is not None:
        try:
            return plain(codec.decode(pl.Series("bytes", column, dtype=pl.Binary)).to_arrow())
        except Exception:  # noqa: BLE001, S110 - whatever it is: the serde finds the record to blame
            pass
    data = column.to_pylist()
    try:
        values = deserialize_column(serde, data)
    except ColumnError as error:
        raise serde_failure(
            error.cause, serde=serde, data=data[error.index], part=part, **place(error.index)
        ) from error.cause
    return _array([_shown(value) for value in values], kind or arrow_type(serde), serde, part, place)


def encode(serde: Serde[Any], column: pa.Array, place: Place, *, part: str = "value") -> pa.Array:
    """Values as bytes; null stays null."""
    series = pl.Series("values", column)
    try:
        series = series.cast(canonical(series.dtype))
        codec = codec_to_write(serde, series.dtype)
        if codec is not None:
            return plain(codec.encode(series).to_arrow())
    except Exception:  # noqa: BLE001, S110 - whatever it is: the serde finds the record to blame
        pass
    values = [_taken(serde, value) for value in column.to_pylist()]
    try:
        return pa.array(serialize_column(serde, values), pa.binary())
    except ColumnError as error:
        raise serde_failure(
            error.cause, serde=serde, value=values[error.index], part=part, **place(error.index)
        ) from error.cause


def plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column with the types that every reader knows: strings and lists of 32-bit offsets."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = plain_type(whole.type)
    return whole if kind == whole.type else whole.cast(kind)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type that stands for a type.

    >>> str(plain_type(pa.large_list(pa.large_string())))
    'list<item: string>'
    """
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, plain_type(field.type)) for field in kind])
    return kind


def _shown(value: Any) -> Any:
    """A value as Arrow takes it."""
    if isinstance(value, Windowed):
        return as_record(Windowed(_shown(value.key), value.window))
    if isinstance(value, UUID):
        return str(value)
    if is_dataclass(value) or isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value, builtin_types=(bytes,), str_keys=True)
    return value


def _taken(serde: Serde[Any], value: Any) -> Any:
    """A value that Arrow gave, as the serde takes it."""
    if value is None:
        return None
    if isinstance(serde, _WINDOWED):
        windowed = of_record(value)
        return Windowed(_taken(serde.inner, windowed.key), windowed.window)
    if isinstance(serde, TypedJsonSerde):
        try:
            return serde.deserialize(msgspec.json.encode(value))
        except (ValueError, TypeError):
            return value  # the serde says what is wrong with it
    if isinstance(serde, UuidSerde) and isinstance(value, str):
        return UUID(value)
    return value


def _array(
    values: list[Any], kind: pa.DataType | None, serde: Serde[Any], part: str, place: Place
) -> pa.Array:
    try:
        return plain(pa.array(values, kind))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        where = ", ".join(f"{name} {what!r}" for name, what in place(0).items() if name != "offset")
        what = f"which began as {kind}" if kind is not None else "for they are not of one type"
        name = repr(serde) if isinstance(serde, BaseSerde) else serde_name(serde)
        raise SerdeError(
            f"The {part}s of {where}, read with {name}, can't be one column of a table, {what}: {error}. "
            "Likely cause: records of different shapes in one topic or store. Remedy: give a serde with a "
            "schema, for example serdes.json({'shop': str, 'amount': int}), or read them as serdes.bytes or "
            "serdes.string and take them apart yourself.",
            **{name: what for name, what in place(0).items() if name != "offset"},
        ) from error
