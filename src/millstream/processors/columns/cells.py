"""Cells of a table (value and timestamp of each key) as columns: read from its store, and written to it.

A stored cell is the eight bytes of its timestamp and then the value's own (see `CellStore`). If the store's
value serde has a column form, cells are taken apart and put together without a Python object for value or
timestamp; else they go through the store's own bulk calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from millstream.serdes.columns import CannotError, codec_of, codec_to_write, learn
from millstream.serdes.columns.primitive_codecs import big_endian
from millstream.state.stores.cell_store import CellStore
from millstream.state.stores.written_columns import WrittenColumns

__all__ = ["load_cells", "save_cells"]

_TIMESTAMP_BYTES: Final = 8


def load_cells(store: CellStore[Any], keys: list[bytes]) -> tuple[Sequence[Any] | pl.Series, pl.Series]:
    """Values and timestamps of distinct keys in ascending order; None where there is nothing."""
    codec = codec_of(store.value_serde)
    if codec is None or codec.dtype is None:
        cells = list(store.load(keys).values())
        times = pl.Series([None if cell is None else cell[1] for cell in cells], dtype=pl.Int64)
        return [None if cell is None else cell[0] for cell in cells], times
    data = pl.Series(store.load_encoded(keys), dtype=pl.Binary)
    if (data.bin.size() < _TIMESTAMP_BYTES).any():
        raise CannotError("a cell without a timestamp")
    times = data.bin.slice(0, _TIMESTAMP_BYTES).bin.reinterpret(dtype=pl.Int64, endianness="big")
    return codec.decode(data.bin.slice(_TIMESTAMP_BYTES)), times


def save_cells(
    store: CellStore[Any], keys: pl.Series, values: Sequence[Any] | pl.Series, times: pl.Series
) -> None:
    """Write values and timestamps of distinct keys in ascending order, none of them a delete."""
    codec = codec_to_write(store.value_serde, values.dtype) if isinstance(values, pl.Series) else None
    if codec is None or codec.dtype is None or not isinstance(values, pl.Series) or values.null_count():
        cells = [None if value is None else (value, time) for value, time in zip(values, times, strict=True)]
        store.save(dict(zip(keys.to_list(), cells, strict=True)))
        return
    data = pl.select(pl.lit(big_endian(times, _TIMESTAMP_BYTES)) + pl.lit(codec.encode(values))).to_series()
    learn(store.value_serde, values.dtype)
    columns = (keys, data, times)
    store.save_columns(WrittenColumns(*(column.rechunk().to_arrow() for column in columns)))
