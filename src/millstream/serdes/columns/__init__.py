"""Whole columns of bytes into Polars series and back, without a Python object per record.

A codec is the column form of a serde. It gives exactly the values and bytes that the serde gives, or it gives
up: then the caller goes through the column value by value, with the serde, and finds the record to blame.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.serdes.auto_serde import AutoSerde
from millstream.serdes.columns.codec import CannotError, Codec
from millstream.serdes.columns.json_codec import AnyJsonCodec, typed_json_codec
from millstream.serdes.columns.primitive_codecs import BOOLEAN, BYTES, STRING, float_codec, int_codec
from millstream.serdes.columns.types import kind_of
from millstream.serdes.columns.windowed_codecs import (
    SessionWindowedCodec,
    TimeWindowedCodec,
    WindowedCodec,
    key_field,
)
from millstream.serdes.json_serde import JsonSerde, TypedJsonSerde
from millstream.serdes.primitives import BooleanSerde, BytesSerde, FloatSerde, IntSerde, StringSerde
from millstream.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde

__all__ = ["CannotError", "Codec", "codec_of", "codec_to_write", "learn"]

_INFERRED: dict[str, Codec] = {
    "str": STRING,
    "int": int_codec(8),
    "float": float_codec(8),
    "bool": BOOLEAN,
    "bytes": BYTES,
    "json": AnyJsonCodec(),
}
_MAKERS: dict[type, Callable[[Any], Codec | None]] = {
    BytesSerde: lambda _: BYTES,
    StringSerde: lambda _: STRING,
    BooleanSerde: lambda _: BOOLEAN,
    IntSerde: lambda serde: int_codec(serde.size),
    FloatSerde: lambda serde: float_codec(serde.size),
    TypedJsonSerde: typed_json_codec,
    JsonSerde: lambda _: _INFERRED["json"],
}
"""By exact type: a subclass may do anything."""
_WINDOWED = frozenset({TimeWindowedSerde, SessionWindowedSerde})
"""Serdes of a key and its window, around a serde of the key."""


def codec_of(serde: Any) -> Codec | None:
    """The column form of a serde, None if it has none.

    >>> from millstream import serdes
    >>> codec_of(serdes.int64).dtype
    Int64
    >>> codec_of(serdes.uuid) is None
    True
    """
    if isinstance(serde, AutoSerde):
        return _INFERRED.get(serde.inferred_type or "")
    if type(serde) in _WINDOWED:
        return _around(serde, codec_of(serde.inner))
    make = _MAKERS.get(type(serde))
    return None if make is None else make(serde)


def codec_to_write(serde: Any, dtype: Any) -> Codec | None:
    """The column form of a serde for writing a series of some type; an automatic serde takes the type.

    The caller says afterwards that the column was written: see `learn`.
    """
    if type(serde) in _WINDOWED:
        return _around(serde, codec_to_write(serde.inner, key_field(dtype)))
    if not isinstance(serde, AutoSerde) or serde.inferred_type is not None:
        return codec_of(serde)
    return _INFERRED.get(kind_of(dtype) or "")


def learn(serde: Any, dtype: Any) -> None:
    """Tell an automatic serde that values of a type were written."""
    if type(serde) in _WINDOWED:
        learn(serde.inner, key_field(dtype))
    if isinstance(serde, AutoSerde) and serde.inferred_type is None:
        serde.inferred_type = kind_of(dtype)


def _around(serde: Any, inner: Codec | None) -> WindowedCodec | None:
    """The codec of keys and windows, from that of the keys."""
    if inner is None or inner.shown_as is not None:
        return None  # Python is shown a key's own class only where it stands alone
    if isinstance(serde, TimeWindowedSerde):
        return TimeWindowedCodec(inner, serde.window_size_ms)
    return SessionWindowedCodec(inner)
