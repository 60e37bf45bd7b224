"""Where columns enter and leave a task: decoded and encoded. Vectorised throughout."""

from __future__ import annotations

from typing import Any

import polars as pl

from millstream.processors.columns.column import Column
from millstream.serdes import Serde
from millstream.serdes.columns import codec_of, codec_to_write, learn

__all__ = ["decoded", "encoded"]


def decoded(serde: Serde[Any], column: Column) -> Column | None:
    """A column of bytes as a column of values; None if that has to be done one by one."""
    codec = codec_of(serde)
    if codec is None:
        return None
    try:
        return Column.of_series(codec.decode(column.series(pl.Binary())), codec.shown_as)
    except Exception:  # noqa: BLE001 - whatever it is: the serde finds the record to blame
        return None


def encoded(serde: Serde[Any], column: Column) -> Column | None:
    """A column of values as a column of bytes; None if that has to be done one by one."""
    series = column.series()
    if column.null_count == len(column):
        return Column.of_series(pl.Series([None], dtype=pl.Binary).new_from_index(0, len(column)))
    codec = codec_to_write(serde, series.dtype)
    if codec is None or not codec.takes(column.shown_as):
        return None
    try:
        written = codec.encode(series)
    except Exception:  # noqa: BLE001 - whatever it is: the serde finds the record to blame
        return None
    learn(serde, series.dtype)
    return Column.of_series(written)
