"""Columns of bytes, text, numbers and booleans."""

from __future__ import annotations

import sys
from array import array

import polars as pl
import pyarrow as pa

from millstream.serdes.columns.codec import CannotError, Codec, require

__all__ = ["BooleanCodec", "BytesCodec", "FloatCodec", "IntCodec", "StringCodec", "big_endian"]

_SIGNED = {2: pl.Int16(), 4: pl.Int32(), 8: pl.Int64()}
_FLOATS = {4: pl.Float32(), 8: pl.Float64()}
_BYTES = {1: "b", 2: "h", 4: "i", 8: "q"}


class BytesCodec(Codec):
    """Bytes as they are."""

    dtype = pl.Binary()

    def decode(self, data: pl.Series) -> pl.Series:
        """See `Codec.decode`."""
        return data

    def encode(self, values: pl.Series) -> pl.Series:
        """See `Codec.encode`."""
        require(values, self.dtype)
        return values


class StringCodec(Codec):
    """Text as UTF-8."""

    dtype = pl.String()

    def decode(self, data: pl.Series) -> pl.Series:
        """See `Codec.decode`."""
        return data.cast(pl.String, strict=True)

    def encode(self, values: pl.Series) -> pl.Series:
        """See `Codec.encode`."""
        require(values, self.dtype)
        return values.cast(pl.Binary)


class IntCodec(Codec):
    """Whole numbers of two, four or eight bytes, big endian."""

    dtype = pl.Int64()

    def __init__(self, size: int) -> None:
        self.size = size

    def decode(self, data: pl.Series) -> pl.Series:
        """See `Codec.decode`."""
        return _reinterpreted(data, _SIGNED[self.size], self.size).cast(pl.Int64)

    def encode(self, values: pl.Series) -> pl.Series:
        """See `Codec.encode`."""
        require(values, self.dtype)
        return big_endian(values.cast(_SIGNED[self.size], strict=True), self.size)


class FloatCodec(Codec):
    """IEEE 754 numbers, big endian."""

    dtype = pl.Float64()

    def __init__(self, size: int) -> None:
        self.size = size

    def decode(self, data: pl.Series) -> pl.Series:
        """See `Codec.decode`."""
        return _reinterpreted(data, _FLOATS[self.size], self.size).cast(pl.Float64)

    def encode(self, values: pl.Series) -> pl.Series:
        """See `Codec.encode`."""
        require(values, self.dtype)
        narrow = values.cast(_FLOATS[self.size])
        if (narrow.is_infinite() & ~values.is_infinite()).any():
            raise CannotError("a number that is too large for 32 bits")
        return big_endian(narrow, self.size)


class BooleanCodec(Codec):
    """One byte, 0 or 1."""

    dtype = pl.Boolean()

    def decode(self, data: pl.Series) -> pl.Series:
        """See `Codec.decode`."""
        number = _reinterpreted(data, pl.UInt8(), 1)
        if (number > 1).any():
            raise CannotError("a byte that is neither 00 nor 01")
        return number.cast(pl.Boolean)

    def encode(self, values: pl.Series) -> pl.Series:
        """See `Codec.encode`."""
        require(values, self.dtype)
        return big_endian(values.cast(pl.Int8), 1)


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
