"""The keys of a windowed table, by the keys of its cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.processors.columns.column import Column, are_few, are_many
from millstream.serdes import Serde, deserialize_column

__all__ = ["windowed_keys"]


def windowed_keys(serde: Serde[Any], cells: Sequence[bytes]) -> Column:
    """The table's keys of cells, by the serde of the cells' keys; many of them as a column in Arrow.

    >>> from millstream import serdes
    >>> windowed_keys(serdes.time_windowed(serdes.string, 10), [b"k" + bytes(8)])
    Column([Windowed(key='k', window=Window(start=0, end=10))])
    """
    in_arrow = isinstance(cells, Column) and cells.in_arrow
    if are_many(len(cells)) or (in_arrow and not are_few(len(cells))):
        found = _in_columns(serde, Column.of(cells))
        if found is not None:
            return found
    return Column(deserialize_column(serde, cells))


def _in_columns(serde: Serde[Any], cells: Column) -> Column | None:
    # Only tasks need Polars: programs that are built, and not run, do without.
    import polars as pl  # noqa: PLC0415

    from millstream.serdes.columns import codec_of  # noqa: PLC0415

    codec = codec_of(serde)
    if codec is None or codec.dtype is None:
        return None
    try:
        return Column.of_series(codec.decode(cells.series(pl.Binary())), codec.shown_as)
    except Exception:  # noqa: BLE001 - what a codec can't do, the serde does
        return None
