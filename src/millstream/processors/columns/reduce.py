"""`reduce(expression)`: an expression that makes one value of several, as `value.max()` does.

It stands for a reducer of two values. With caching on it is given the value so far and all new ones of a key
at once, so it must be associative: what it makes of all must be what it makes of the first two, then of that
and the third. Without caching every record is an update, and it is called for each.
"""

from __future__ import annotations

from typing import Any

import polars as pl
from polars.exceptions import PanicException

from millstream.processors.aggregate import StreamReduce
from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.processors.columns.expressions import Declared, series_of
from millstream.processors.columns.key_columns import key_bytes
from millstream.processors.columns.python_types import column_type
from millstream.processors.table import Updates, drop_nulls
from millstream.serdes.columns.types import canonical
from millstream.state.stores.cell_store import Cell

__all__ = ["ColumnReduce"]


class ColumnReduce(StreamReduce):
    """Combines the values of each key by an expression."""

    def __init__(
        self, store: str, expression: pl.Expr, declared: Declared, *, caching: bool, send_old: bool
    ) -> None:
        super().__init__(store, self._of_two, caching=caching, send_old=send_old)
        self._expression = expression
        self._declared = declared

    def process(self, batch: Batch) -> Batch | None:
        """See `Operator.process`."""
        batch = drop_nulls(self.context, batch)
        if not self.caching or not len(batch):
            return super().process(batch)
        try:
            reduced = self._reduced(batch)
            keys: list[bytes] = reduced["key"].to_list()
            cells = _cells(reduced)
            self.store.save(dict(zip(keys, cells, strict=True)))
        except (Exception, PanicException):  # noqa: BLE001 - row by row it is found which record is at fault
            return super().process(batch)
        updates = Updates()
        updates.rows, updates.key_bytes = list(range(len(keys))), keys
        updates.news, updates.timestamps = reduced["new"].to_list(), reduced["time"].to_list()
        updates.olds = [None] * len(keys)
        self._remember(batch.take(Column.of_series(reduced["row"])), updates)
        return None

    def _reduced(self, batch: Batch) -> pl.DataFrame:
        """One row per key, in the order of their last rows."""
        values = series_of(batch.values, self._declared.value)
        frame = pl.DataFrame(
            {
                "row": pl.int_range(len(batch), eager=True),
                "key": key_bytes(self.store.key_serde, batch.keys, self._declared.key),
                "value": values,
                "time": series_of(batch.timestamps, pl.Int64()),
            }
        )
        found = self.store.load(frame["key"].unique().to_list())
        before = [(key, *cell) for key, cell in found.items() if cell is not None]
        if before:
            keys, olds, times = zip(*before, strict=True)
            first = pl.DataFrame(
                {
                    "row": pl.Series([-1], dtype=pl.Int64).new_from_index(0, len(before)),
                    "key": pl.Series(keys, dtype=pl.Binary),
                    "value": pl.Series(olds, dtype=values.dtype, strict=True),
                    "time": pl.Series(times, dtype=pl.Int64),
                }
            )
            frame = pl.concat([first, frame])
        grouped = frame.group_by("key", maintain_order=True).agg(
            new=self._expression, row=pl.col("row").last(), time=pl.col("time").max()
        )
        wanted = canonical(grouped.schema["new"])
        if wanted != values.dtype:
            raise TypeError(f"a reducer of {values.dtype} must give {values.dtype}, not {wanted}")
        return grouped.with_columns(pl.col("new").cast(wanted)).sort("row")

    def _of_two(self, so_far: Any, new: Any) -> Any:
        """The reducer, for two values."""
        dtype = self._declared.value if self._declared.value is not None else column_type(new)
        both = pl.DataFrame({"value": pl.Series([so_far, new], dtype=dtype, strict=True)})
        result = both.select(new=self._expression)["new"]
        if canonical(result.dtype) != dtype:
            raise TypeError(f"a reducer of {dtype} must give {dtype}, not {result.dtype}")
        return result.cast(dtype).item()


def _cells(reduced: pl.DataFrame) -> list[Cell]:
    return [
        None if new is None else (new, time)
        for new, time in zip(reduced["new"].to_list(), reduced["time"].to_list(), strict=True)
    ]
