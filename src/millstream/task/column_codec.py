"""Where columns enter and leave a task: decoded, put into the task's order, encoded. Vectorised throughout.

Polars is imported when there is something to do for it: a task of the row tier does without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.serdes import Serde
from millstream.task.records import DecodedPart

if TYPE_CHECKING:
    import polars as pl
else:
    from millstream.processors.columns import lazy_polars as pl

__all__ = ["MergedColumns", "decoded", "encoded"]


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
        return Column.of_series(_nulls(len(column)))
    codec = codec_to_write(serde, series.dtype)
    if codec is None:
        return None
    try:
        written = codec.encode(series)
    except Exception:  # noqa: BLE001 - whatever it is: the serde finds the record to blame
        return None
    learn(serde, series.dtype)
    return Column.of_series(written)


class MergedColumns:
    """The records of several partitions in the task's order: see `runtime.inputs`."""

    def __init__(
        self, parts: Sequence[DecodedPart], keys: Column, values: Column, timestamps: Column
    ) -> None:
        self._sources = [part.source for part in parts]
        self._starts = pl.Series([0, *(len(part.rows) for part in parts)]).cum_sum().to_list()
        numbers = [
            pl.Series([number], dtype=pl.Int64).new_from_index(0, len(part.rows))
            for number, part in enumerate(parts)
        ]
        frame = pl.DataFrame(
            {
                "part": pl.concat(numbers),
                "time": pl.concat([part.timestamps.series().cum_max() for part in parts]),
            }
        )
        # A stable sort: rows of a part stand in order already, and parts one after the other.
        order = frame.select(pl.arg_sort_by("time", maintain_order=True)).to_series()
        self._order = order
        self._parts = frame["part"].gather(order)
        rows = Column.of_series(order)
        self._keys, self._values, self.timestamps = keys.take(rows), values.take(rows), timestamps.take(rows)
        self._headers = _headers(parts, order)
        self._places: list[int] | None = None

    @classmethod
    def of(cls, parts: Sequence[DecodedPart]) -> MergedColumns | None:
        """The parts as one, if all of them stand in columns of the same types."""
        if any(part.olds is not None for part in parts):
            return None
        columns = [(part.keys, part.values, part.timestamps) for part in parts]
        if not all(column.in_arrow for three in columns for column in three):
            return None
        whole = [Column.concat(pieces) for pieces in zip(*columns, strict=True)]
        return cls(parts, *whole) if all(column.in_arrow for column in whole) else None

    def place(self, origin: int) -> tuple[int, int]:
        """Which row of which part a row of the task is."""
        if self._places is None:
            self._places = self._order.to_list()
        part = self._parts[origin]
        return part, self._places[origin] - self._starts[part]

    def batches(self, start: int, end: int, *, ordered: bool) -> dict[str, Batch]:
        """Rows from `start` to `end` by source node."""
        if len(set(self._sources)) == 1:
            return {self._sources[0]: self._batch(range(start, end), ordered=ordered)}
        sources = list(dict.fromkeys(self._sources))
        of_part = pl.Series([sources.index(source) for source in self._sources])
        of_row = of_part.gather(self._parts[start:end])
        found: dict[str, Batch] = {}
        for number in of_row.unique(maintain_order=True).to_list():
            rows = (of_row == number).arg_true().cast(pl.Int64) + start
            found[sources[number]] = self._batch(Column.of_series(rows), ordered=ordered)
        return found

    def _batch(self, origins: Sequence[int], *, ordered: bool) -> Batch:
        headers = None
        if self._headers is not None:
            headers = [self._headers[origin] for origin in origins]
        return Batch(
            keys=_some(self._keys, origins),
            values=_some(self._values, origins),
            timestamps=_some(self.timestamps, origins),
            headers=headers if headers is not None and any(headers) else None,
            origins=origins,
            order=[(origin,) for origin in origins] if ordered else None,
        )


def _some(column: Column, rows: Sequence[int]) -> Column:
    return column[rows.start : rows.stop] if isinstance(rows, range) else column.take(Column.of(rows))


def _headers(parts: Sequence[DecodedPart], order: pl.Series) -> list[Any] | None:
    if all(part.raw.headers is None for part in parts):
        return None
    every = [part.raw.headers_of(row) for part in parts for row in part.rows]
    return [every[row] for row in order]


def _nulls(count: int) -> pl.Series:
    return pl.Series([None], dtype=pl.Binary).new_from_index(0, count)
