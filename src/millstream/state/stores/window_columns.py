"""Rows of a window store in columns: where they are, and which of them have expired, without an object each.

A row is `segment (8) | key | start (8) | 0000`, as `window_key_schema` says of rows by key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from millstream.serdes.columns.primitive_codecs import big_endian
from millstream.state.stores.segments import UNKNOWN_TIME

__all__ = ["WindowRows", "expired_in_turn"]

_NUMBER_BYTES: Final = 8
_SEQUENCE: Final = bytes(4)
_HIGH_BYTE: Final = 2**56
"""Times below begin with a byte of 0."""


@dataclass(frozen=True, slots=True)
class WindowRows:
    """Rows in the order of the store."""

    keys: pl.Series
    """Under which keys they are stored, ascending."""
    order: pl.Series | None
    """Which of the given windows each row is; None if they were in this order already."""

    @classmethod
    def of(cls, keys: pl.Series, starts: pl.Series, interval_ms: int) -> WindowRows:
        """The rows of distinct windows that ascend by key, and those of a key by start."""
        segments = starts // interval_ms
        numbers = pl.lit(big_endian(segments, _NUMBER_BYTES))
        window = pl.lit(big_endian(starts, _NUMBER_BYTES)) + pl.lit(_SEQUENCE)
        rows = pl.select(numbers + pl.lit(keys) + window).to_series()
        if not _ascend_as_bytes(keys, starts):
            order = rows.arg_sort()
        elif segments.is_sorted():
            return cls(rows, None)
        else:
            frame = segments.to_frame("segment")
            order = frame.select(pl.arg_sort_by("segment", maintain_order=True)).to_series()
        return cls(rows.gather(order), order)

    def in_order(self, column: pl.Series) -> pl.Series:
        """A column of the given windows in the order of the rows."""
        return column if self.order is None else column.gather(self.order)

    def as_given(self, column: pl.Series) -> pl.Series:
        """A column of the rows in the order of the given windows."""
        if self.order is None:
            return column
        places = pl.int_range(len(column), eager=True)
        return column.gather(places.scatter(self.order, places))


def expired_in_turn(starts: pl.Series, turns: pl.Series, observed: int, retention_ms: int) -> pl.Series:
    """Which windows have expired when it is their turn to be written, as each moves the time of the store.

    `observed` is the latest start that was written before the first.

    >>> expired_in_turn(pl.Series([0, 95, 100]), pl.Series([2, 0, 1]), -1, 10).to_list()
    [True, False, False]
    """
    latest = max(observed, int(starts.max() or 0))  # type: ignore[arg-type]
    if (starts > latest - retention_ms).all():
        return pl.repeat(value=False, n=len(starts), eager=True)
    frame = pl.DataFrame({"start": starts, "turn": turns}).with_row_index("place")
    until = (pl.col("start").cum_max().clip(lower_bound=observed) - retention_ms).clip(UNKNOWN_TIME)
    in_turn = frame.sort("turn", maintain_order=True).with_columns(expired=pl.col("start") <= until)
    return in_turn.sort("place")["expired"]


def _ascend_as_bytes(keys: pl.Series, starts: pl.Series) -> bool:
    """Whether rows by key and then start are in the order of their bytes.

    They are, unless a key goes on where another one ends with what could be a part of a start.
    """
    sizes = keys.bin.size()
    if sizes.min() == sizes.max():
        return True
    return not (starts >= _HIGH_BYTE).any() and not keys.bin.contains(b"\0").any()
