"""Where columns enter and leave a task: decoded and encoded. Vectorised throughout.

Polars is imported when there is something to do for it: a task of the row tier does without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.processors.columns.column import Column
from millstream.serdes import Serde

if TYPE_CHECKING:
    import polars as pl
else:
    from millstream.processors.columns import lazy_polars as pl

__all__ = ["decoded", "encoded"]


def decoded(serde: Serde[Any], column: Column) -> Column | None:
    """A column of bytes as a column of values; None if that has to be done one by one."""
    from millstream.serdes.columns import codec_of  # noqa: PLC0415 - see above

    codec = codec_of(serde)
    if codec is None:
        return None
    try:
        return Column.of_series(codec.decode(column.series(pl.Binary())))
    except Exception:  # noqa: BLE001 - whatever it is: the serde finds the record to blame
        return None


def encoded(serde: Serde[Any], column: Column) -> Column | None:
    """A column of values as a column of bytes; None if that has to be done one by one."""
    from millstream.serdes.columns import codec_to_write, learn  # noqa: PLC0415 - see above

    series = column.series()
    if column.null_count == len(column):
        return Column.of_series(pl.Series([None], dtype=pl.Binary).new_from_index(0, len(column)))
    codec = codec_to_write(serde, series.dtype)
    if codec is None:
        return None
    try:
        written = codec.encode(series)
    except Exception:  # noqa: BLE001 - whatever it is: the serde finds the record to blame
        return None
    learn(serde, series.dtype)
    return Column.of_series(written)
