"""Columns of keys with their windows: records of `key`, `start` and `end`, shown to Python as `Windowed`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import polars as pl

from millstream.record import MAX_TIME
from millstream.serdes.columns.codec import CannotError, Codec
from millstream.serdes.columns.primitive_codecs import big_endian
from millstream.serdes.windowed import of_record

__all__ = ["SessionWindowedCodec", "TimeWindowedCodec", "WindowedCodec", "key_field", "windowed_type"]

_NUMBER_BYTES: Final = 8
_FIELDS: Final = ("key", "start", "end")


def windowed_type(key: Any) -> pl.Struct:
    """The type of keys of some type with their windows."""
    return pl.Struct({"key": key, "start": pl.Int64(), "end": pl.Int64()})


def key_field(dtype: Any) -> Any:
    """The type of the keys inside of a type that `windowed_type` gives; None for another type."""
    if not isinstance(dtype, pl.Struct) or not dtype.fields or dtype.fields[0].name != "key":
        return None
    inner = dtype.fields[0].dtype
    return inner if dtype == windowed_type(inner) else None


class WindowedCodec(Codec):
    """The bytes of a key and, behind them, one or two numbers of eight bytes each."""

    numbers: ClassVar[tuple[str, ...]]
    """The fields that are written behind the key."""

    def __init__(self, inner: Codec) -> None:
        self._inner = inner
        self.dtype = None if inner.dtype is None else windowed_type(inner.dtype)

    @property
    def shown_as(self) -> Callable[[Any], Any]:
        """See `Codec.shown_as`."""
        return of_record

    def decode(self, data: pl.Series) -> pl.Series:
        """See `Codec.decode`."""
        suffix = _NUMBER_BYTES * len(self.numbers)
        if (data.bin.size() < suffix).any():
            raise CannotError("an entry without a window")
        frame = data.to_frame("data")
        bytes_of, size = pl.col("data").bin, pl.col("data").bin.size()
        parts = frame.select(
            key=bytes_of.slice(0, size - suffix),
            **{
                name: bytes_of.slice(size - suffix + at * _NUMBER_BYTES, _NUMBER_BYTES).bin.reinterpret(
                    dtype=pl.Int64, endianness="big"
                )
                for at, name in enumerate(self.numbers)
            },
        )
        columns = {name: parts[name] for name in self.numbers}
        return _records({"key": self._inner.decode(parts["key"]), **self.window(columns)}, data)

    def encode(self, values: pl.Series) -> pl.Series:
        """See `Codec.encode`."""
        if key_field(values.dtype) is None:
            raise CannotError(f"{values.dtype} where keys and windows are needed")
        fields = values.struct.unnest()
        if fields["key"].null_count() > values.null_count():
            raise CannotError("a window without a key")
        self.check(fields)
        written = pl.lit(self._inner.encode(fields["key"]))
        for name in self.numbers:
            written = written + pl.lit(big_endian(fields[name], _NUMBER_BYTES))
        return pl.select(written).to_series()

    def check(self, fields: pl.DataFrame) -> None:
        """Raise if the serde would refuse a window."""

    def window(self, numbers: Mapping[str, pl.Series]) -> dict[str, pl.Series]:
        """Start and end, by the numbers that were written."""
        raise NotImplementedError


class TimeWindowedCodec(WindowedCodec):
    """The column form of `serdes.time_windowed`."""

    numbers = ("start",)

    def __init__(self, inner: Codec, window_size_ms: int) -> None:
        super().__init__(inner)
        self._size_ms = window_size_ms

    def check(self, fields: pl.DataFrame) -> None:
        """See `WindowedCodec.check`."""
        if (self._ends(fields["start"]) != fields["end"]).any():
            raise CannotError("a window of another size")

    def window(self, numbers: Mapping[str, pl.Series]) -> dict[str, pl.Series]:
        """See `WindowedCodec.window`."""
        return {"start": numbers["start"], "end": self._ends(numbers["start"])}

    def _ends(self, starts: pl.Series) -> pl.Series:
        if self._size_ms > MAX_TIME or (starts < 0).any():
            raise CannotError("times that may leave 64 bits")
        return starts.clip(upper_bound=MAX_TIME - self._size_ms) + self._size_ms


class SessionWindowedCodec(WindowedCodec):
    """The column form of `serdes.session_windowed`."""

    numbers = ("end", "start")

    def window(self, numbers: Mapping[str, pl.Series]) -> dict[str, pl.Series]:
        """See `WindowedCodec.window`."""
        start, end = numbers["start"], numbers["end"]
        if ((start < 0) | (end < start)).any():
            raise CannotError("a window that starts before time 0, or behind its end")
        return {"start": start, "end": end}


def _records(columns: dict[str, pl.Series], data: pl.Series) -> pl.Series:
    """Keys and windows as records; null where there were no bytes."""
    frame = pl.DataFrame(columns)
    record = pl.struct(_FIELDS)
    if data.null_count():
        frame = frame.with_columns(there=data.is_not_null())
        record = pl.when(pl.col("there")).then(record)
    return frame.select(record.alias("key")).to_series()
