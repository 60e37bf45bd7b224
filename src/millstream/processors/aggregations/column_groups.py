"""The rows of a batch, grouped and aggregated by key in columns, into the cells of a table.

The distinct keys of a batch are read from the store in one go, folded in one go, and written in one go:
Python sees each key once, not each record. State, updates and timestamps are those of the row form.

A stored cell is the eight bytes of its timestamp and then the value's own (see `CellStore`). If
the store's value serde has a column form, cells are taken apart and put together without a Python object for
value or timestamp; else they go through the store's own bulk calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

import polars as pl
from polars.exceptions import PanicException

from millstream.processors.aggregations.aggregation import Aggregation, has_partials
from millstream.processors.aggregations.column_form import ColumnForm
from millstream.processors.aggregations.groups import key_type
from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.processors.table import TableOperator, Updates
from millstream.serdes import Serde
from millstream.serdes.columns import CannotError, codec_of, codec_to_write, learn
from millstream.serdes.columns.primitive_codecs import big_endian
from millstream.state.stores.cell_store import CellStore
from millstream.state.stores.written_columns import WrittenColumns

__all__ = [
    "FAILURES",
    "PLAIN",
    "Cells",
    "ColumnGroups",
    "TableCells",
    "can_decode",
    "decoded_cells",
    "encoded_cells",
    "encoded_keys",
    "fold_in_columns",
    "load_cells",
    "operand",
    "plain_operand",
    "plain_rows",
    "rows_by_key",
    "save_cells",
]

FAILURES: Final = (Exception, PanicException)
"""Whatever Polars may raise: then the row form does it, or finds the record to blame."""
_TIMESTAMP_BYTES: Final = 8
PLAIN: Final[dict[type, pl.DataType]] = {int: pl.Int64(), str: pl.String(), bytes: pl.Binary()}


def fold_in_columns(
    table: TableOperator, batch: Batch, aggregation: Aggregation, key_serde: Serde[Any]
) -> bool:
    """Fold plain keys and values into a cached table. False if it can't: nothing has happened then.

    `key_serde` leads from the keys of the batch to those of the cells.
    """
    form = aggregation.columns
    if has_partials(batch.values) and aggregation.partials is not None:
        form = aggregation.partials.columns
    if form is None:
        return False
    try:
        rows = plain_rows(form, batch, table.store, key_serde)
        groups = ColumnGroups(form, rows, TableCells(table.store), each=False)
        groups.save()
    except FAILURES:  # row by row it fails again, and it is known where
        table.context.fell_back("columns", len(batch))
        return False
    groups.hold_back(table, batch)
    return True


def plain_rows(form: ColumnForm, batch: Batch, store: CellStore[Any], key_serde: Serde[Any]) -> pl.DataFrame:
    """Rows whose keys and values Python could compare as well as columns can. Raises if they are others."""
    values, kind = batch.values, key_type(batch.keys, key_serde)
    if kind is None or kind is int:
        raise CannotError("keys that may be equal without having the same bytes")
    if has_partials(values):
        if not values.in_arrow:
            raise CannotError("partial aggregates among values, from several senders")
        values = Column.of_series(values.series())
    return rows_by_key(key_serde, batch, plain_operand(form, values, store), PLAIN[kind])


def plain_operand(form: ColumnForm, values: Column, store: CellStore[Any]) -> pl.Series:
    """What is folded, if a store keeps it exactly. Raises if it does not, or if the form does not take it."""
    folded = operand(form, values, None)
    if not any(folded.dtype == PLAIN.get(exact) for exact in store.exact_types):
        raise CannotError(f"{folded.dtype} in a store of other values")
    return folded


def rows_by_key(
    serde: Any, batch: Batch, values: pl.Series, declared_key: pl.DataType | None
) -> pl.DataFrame:
    """Rows as a `ColumnForm` takes them. Raises if the keys have to be encoded one by one."""
    data, times = encoded_keys(serde, batch.keys, declared_key), batch.timestamps.series(pl.Int64())
    return pl.DataFrame({"key": data, "value": values, "time": times}).with_row_index("row")


def encoded_keys(serde: Any, keys: Column, declared: pl.DataType | None) -> pl.Series:
    """Keys as bytes. Raises if they have to be encoded one by one."""
    series = keys.series(declared)
    codec = codec_to_write(serde, series.dtype)
    if codec is None or not codec.takes(keys.shown_as):
        raise CannotError(f"keys of {series.dtype}")
    data = codec.encode(series)
    learn(serde, series.dtype)
    return data


def operand(form: ColumnForm, values: Column, declared: pl.DataType | None) -> pl.Series:
    """What is folded, as a column. Raises if the form does not take it."""
    if not form.looks_at_values:
        return pl.Series([1], dtype=pl.Int64).new_from_index(0, len(values))
    series = values.series(declared)
    form.check(series)
    return series


class Cells(Protocol):
    """The cells of a table, by what rows are grouped by. All columns are in the order of these groups."""

    def keys(self, groups: pl.Series) -> pl.Series:
        """The keys of the cells, in bytes."""

    def load(self, groups: pl.Series) -> tuple[Sequence[Any] | pl.Series, pl.Series]:
        """Values and timestamps of distinct groups in ascending order; None where there is nothing."""

    def save(
        self, groups: pl.Series, values: Sequence[Any] | pl.Series, times: pl.Series, turns: pl.Series
    ) -> None:
        """Write such values and timestamps; `turns` gives the order in which single rows would do it."""


class TableCells:
    """The cells of a table whose rows are grouped by the keys of its cells."""

    def __init__(self, store: CellStore[Any]) -> None:
        self._store = store

    def keys(self, groups: pl.Series) -> pl.Series:
        """See `Cells.keys`."""
        return groups

    def load(self, groups: pl.Series) -> tuple[Sequence[Any] | pl.Series, pl.Series]:
        """See `Cells.load`."""
        return load_cells(self._store, groups.to_list())

    def save(
        self, groups: pl.Series, values: Sequence[Any] | pl.Series, times: pl.Series, turns: pl.Series
    ) -> None:
        """See `Cells.save`."""
        del turns
        save_cells(self._store, groups, values, times)


class ColumnGroups:
    """Read, folded, ready to be written: whatever can go wrong went wrong before anything has changed.

    `grouped` is what `ColumnForm.grouped` would make of the rows, in the order of the keys, where the caller
    knows a shorter way.
    """

    def __init__(
        self,
        form: ColumnForm,
        frame: pl.DataFrame,
        cells: Cells,
        *,
        each: bool,
        grouped: pl.DataFrame | None = None,
    ) -> None:
        self._form = form
        self._cells = cells
        self.each = frame.clear()
        """The aggregate after every row, if `each` asks for it."""
        if each or form.in_order(frame.schema["value"]):
            before = _before(form, frame, frame["key"].unique().sort(), cells)
            old = pl.coalesce(pl.col("new").shift().over("key"), "before")
            rows = form.each(frame, before).with_columns(old=old)
            self.each = rows.select("row", "key", "new", "old", "time", *form.state)
            self.last = self.each.group_by("key").last().sort("key")
            """One row per key, in the order of the keys."""
        else:
            if grouped is None:
                grouped = form.grouped(frame).sort("key")
            self.last = form.last(frame, grouped, _before(form, frame, grouped["key"], cells))

    def save(self) -> None:
        """Write the new cells."""
        last = self.last
        self._cells.save(last["key"], self._form.values_of(last), last["time"], last["row"])

    def hold_back(self, table: TableOperator, batch: Batch) -> None:
        """With caching: one update per key, in the order of their last rows."""
        last = self.last.sort("row", maintain_order=True)
        keys = self._cells.keys(last["key"])
        values = self._form.values_of(last)
        changed = batch.take(Column.of_series(last["row"]))
        if not isinstance(values, pl.Series) or values.dtype.is_nested() or values.null_count():
            shown = values if self._form.shown_as is None else map(self._form.shown_as, values)
            table.hold_back(changed, _updates(keys, list(shown), last["time"]))
            return
        held = replace(
            changed,
            values=Column.of_series(values),
            timestamps=Column.of_series(last["time"]),
            olds=None,
            order=None,
        )
        table.cache.hold((Column.of_series(keys), held))


def _updates(keys: pl.Series, news: list[Any], times: pl.Series) -> Updates:
    updates = Updates()
    updates.key_bytes, updates.news, updates.timestamps = keys.to_list(), news, times.to_list()
    updates.rows, updates.olds = list(range(len(news))), [None] * len(news)
    return updates


def _before(form: ColumnForm, frame: pl.DataFrame, keys: pl.Series, cells: Cells) -> pl.DataFrame:
    """The cells of keys in ascending order, as they are now."""
    values, times = cells.load(keys)
    columns = form.columns_of(values, frame.schema["value"])
    before = pl.DataFrame({"key": keys, **columns, "time_before": times})
    form.check_totals(frame, before)
    return before


def load_cells(store: CellStore[Any], keys: list[bytes]) -> tuple[Sequence[Any] | pl.Series, pl.Series]:
    """Values and timestamps of distinct keys in ascending order; None where there is nothing."""
    if store.has_versions:
        raise CannotError("versions, which are written one by one")
    if not can_decode(store):
        cells = list(store.load(keys).values())
        times = pl.Series([None if cell is None else cell[1] for cell in cells], dtype=pl.Int64)
        return [None if cell is None else cell[0] for cell in cells], times
    return decoded_cells(store, pl.Series(store.load_encoded(keys), dtype=pl.Binary))


def can_decode(store: CellStore[Any]) -> bool:
    """Whether cells can be taken apart in columns."""
    codec = codec_of(store.value_serde)
    return codec is not None and codec.dtype is not None


def decoded_cells(store: CellStore[Any], data: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Values and timestamps of encoded cells, null where there is none. Raises if `can_decode` says no."""
    codec = codec_of(store.value_serde)
    if codec is None:
        raise CannotError("values without a column")
    if (data.bin.size() < _TIMESTAMP_BYTES).any():
        raise CannotError("a cell without a timestamp")
    times = data.bin.slice(0, _TIMESTAMP_BYTES).bin.reinterpret(dtype=pl.Int64, endianness="big")
    return codec.decode(data.bin.slice(_TIMESTAMP_BYTES)), times


def save_cells(
    store: CellStore[Any], keys: pl.Series, values: Sequence[Any] | pl.Series, times: pl.Series
) -> None:
    """Write values and timestamps of distinct keys in ascending order; None deletes."""
    data = encoded_cells(store, values, times)
    if data is None:
        cells = [None if value is None else (value, time) for value, time in zip(values, times, strict=True)]
        store.save(dict(zip(keys.to_list(), cells, strict=True)))
        return
    columns = (keys, data, times)
    store.save_columns(WrittenColumns(*(column.rechunk().to_arrow() for column in columns)))


def encoded_cells(
    store: CellStore[Any], values: Sequence[Any] | pl.Series, times: pl.Series
) -> pl.Series | None:
    """Values and timestamps as cells; None if that has to be done one by one."""
    codec = codec_to_write(store.value_serde, values.dtype) if isinstance(values, pl.Series) else None
    if codec is None or codec.dtype is None or not isinstance(values, pl.Series) or values.null_count():
        return None
    data = pl.select(pl.lit(big_endian(times, _TIMESTAMP_BYTES)) + pl.lit(codec.encode(values))).to_series()
    learn(store.value_serde, values.dtype)
    return data
