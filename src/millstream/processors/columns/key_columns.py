"""Keys as the bytes that a store has for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from millstream.processors.columns.expressions import series_of
from millstream.serdes.columns import CannotError, codec_to_write, learn

__all__ = ["key_bytes"]


def key_bytes(serde: Any, keys: Sequence[Any], declared: pl.DataType | None) -> pl.Series:
    """Keys as the store's bytes. Raises if they have to be taken one by one."""
    series = series_of(keys, declared)
    codec = codec_to_write(serde, series.dtype)
    if codec is None:
        raise CannotError(f"keys of {series.dtype}")
    encoded = codec.encode(series)
    learn(serde, series.dtype)
    return encoded
