"""Large batches of the row tier, folded as the column tier folds: count, sum, min and max of plain values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
from polars.exceptions import PanicException

from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.processors.columns.folded_groups import FoldedGroups, rows_by_key
from millstream.processors.columns.folds import ColumnFold, CountFold, LargestFold, SmallestFold, SumFold
from millstream.processors.columns.key_columns import key_bytes
from millstream.processors.fold import Builtin, Combine
from millstream.processors.groups import has_partials
from millstream.processors.record_cache import HeldBack
from millstream.state.stores.cell_store import CellStore

__all__ = ["fold_rows"]

_FOLDS: dict[Builtin, Callable[[], ColumnFold]] = {
    "count": CountFold,
    "sum": SumFold,
    "min": SmallestFold,
    "max": LargestFold,
}
_TYPES: dict[type, pl.DataType] = {int: pl.Int64(), str: pl.String(), bytes: pl.Binary()}


def fold_rows(store: CellStore[Any], batch: Batch, key_type: type, combine: Combine) -> HeldBack | None:
    """Fold a batch into a cached table. Its updates; None if it can't be done so: nothing has happened."""
    values = batch.values
    if has_partials(values):
        if not isinstance(values, Column):
            return None  # some of them, perhaps: from several senders
        combine, values = combine.again, Column.of_series(values.series())
    name = combine.builtin
    if name is None:
        return None
    fold = _FOLDS[name]()
    try:
        operand = _operand(fold, values)
        if operand is None or _python_type(operand) not in store.exact_types:
            return None
        keys = key_bytes(store.key_serde, batch.keys, _TYPES[key_type])
        groups = FoldedGroups(fold, rows_by_key(keys, operand, batch.timestamps), store, each=False)
        groups.save(store)
    except (Exception, PanicException):  # noqa: BLE001 - row by row it fails again, and it is known where
        return None
    return groups.held_back(batch)


def _operand(fold: ColumnFold, values: Sequence[Any]) -> pl.Series | None:
    """What is folded, as a column; None if the values are not all of one plain type."""
    if not fold.looks_at_values:
        return pl.Series([1], dtype=pl.Int64).new_from_index(0, len(values))
    if isinstance(values, Column):
        operand = values.series()
    else:
        kinds = set(map(type, values))
        dtype = _TYPES.get(kinds.pop()) if len(kinds) == 1 else None
        if dtype is None:
            return None
        operand = pl.Series(values, dtype=dtype, strict=True)
    fold.check(operand)
    return operand


def _python_type(column: pl.Series) -> type | None:
    return next((kind for kind, dtype in _TYPES.items() if dtype == column.dtype), None)
