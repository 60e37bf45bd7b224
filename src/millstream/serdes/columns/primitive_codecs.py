"""Columns of bytes, text, numbers and booleans."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from millstream.serdes.columns.codec import CannotError, Codec, require

_SIGNED = {2: pl.Int16(), 4: pl.Int32(), 8: pl.Int64()}
_FLOATS = {4: pl.Float32(), 8: pl.Float64()}
_BYTES = {1: "b", 2: "h", 4: "i", 8: "q"}

Convert = Callable[[pl.Series], pl.Series]


@dataclass(frozen=True)
class PrimitiveCodec(Codec):
    """One function each way, for a column of exactly one type."""

    dtype: pl.DataType
    read: Convert
    write: Convert

    def decode(self, data: pl.Series) -> pl.Series:
        return self.read(data)

    def encode(self, values: pl.Series) -> pl.Series:
        require(values, self.dtype)
        return self.write(values)


def int_codec(size: int) -> PrimitiveCodec:
    """Whole numbers of two, four or eight bytes, big endian."""
    stored = _SIGNED[size]
    return PrimitiveCodec(
        pl.Int64(),
        lambda data: _reinterpreted(data, stored, size).cast(pl.Int64),
        lambda values: big_endian(values.cast(stored, strict=True), size),
    )


def float_codec(size: int) -> PrimitiveCodec:
    """IEEE 754 numbers, big endian."""
    stored = _FLOATS[size]

    def write(values: pl.Series) -> pl.Series:
        narrow = values.cast(stored)
        if (narrow.is_infinite() & ~values.is_infinite()).any():
            raise CannotError("a number that is too large for 32 bits")
        return big_endian(narrow, size)

    return PrimitiveCodec(
        pl.Float64(), lambda data: _reinterpreted(data, stored, size).cast(pl.Float64), write
    )


def _read_booleans(data: pl.Series) -> pl.Series:
    number = _reinterpreted(data, pl.UInt8(), 1)
    if (number > 1).any():
        raise CannotError("a byte that is neither 00 nor 01")
    return number.cast(pl.Boolean)


def _reinterpreted(data: pl.Series, dtype: pl.DataType, size: int) -> pl.Series:
    if (data.bin.size() != size).any():
        raise CannotError(f"an entry that has not {size} bytes")
    return data.bin.reinterpret(dtype=dtype, endianness="big")


def big_endian(numbers: pl.Series, size: int) -> pl.Series:
    """The bytes of numbers of `size` bytes each, the highest byte first."""
    nulls = numbers.is_null() if numbers.null_count() else None
    plain = numbers if nulls is None else numbers.fill_null(0)
    swapped = array(_BYTES[size])
    # A series may start in the middle of its buffer, and end before its end.
    arrow = plain.rechunk().to_arrow()
    swapped.frombytes(arrow.buffers()[1][arrow.offset * size : (arrow.offset + len(arrow)) * size])
    if sys.byteorder == "little":
        swapped.byteswap()
    fixed = pa.Array.from_buffers(pa.binary(size), len(plain), [None, pa.py_buffer(swapped)])
    column = pl.from_arrow(fixed.cast(pa.large_binary()))
    assert isinstance(column, pl.Series)  # an array is no table
    if nulls is None:
        return column
    return column.to_frame("data").select(pl.when(~nulls).then(pl.col("data"))).to_series()


BYTES = PrimitiveCodec(pl.Binary(), lambda data: data, lambda values: values)
STRING = PrimitiveCodec(
    pl.String(), lambda data: data.cast(pl.String, strict=True), lambda values: values.cast(pl.Binary)
)
BOOLEAN = PrimitiveCodec(pl.Boolean(), _read_booleans, lambda values: big_endian(values.cast(pl.Int8), 1))
