"""Looking a table up for a whole column of keys, without a Python object per row.

The rows of the distinct keys are read at once and decoded as a column. Keys that the pass itself has written
are not the same for all of its rows: those rows are looked up one by one, as of their places in the order.
It gives what the lookups of single rows give, or None where a serde has no column form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from millstream.processors.batch import OrderKey
from millstream.processors.columns.column import Column, are_many
from millstream.processors.table_history import TableHistory
from millstream.state.stores.cell_store import CellStore

if TYPE_CHECKING:
    import polars as pl
else:
    from millstream.processors.columns import lazy_polars as pl

__all__ = ["values_in_columns"]


def values_in_columns(
    store: CellStore[Any],
    history: TableHistory | None,
    keys: Column,
    orders: Sequence[OrderKey] | None,
) -> Column | None:
    """The values that a table has for keys as of places in the order, as a column."""
    if store.has_versions or not keys.in_arrow or keys.shown_as is not None or not are_many(len(keys)):
        return None
    from millstream.processors.aggregations.column_groups import (  # noqa: PLC0415 - imports Polars
        FAILURES,
        can_decode,
        load_cells,
    )
    from millstream.serdes.columns import codec_of  # noqa: PLC0415 - the same

    codec = codec_of(store.cell_key_serde)
    if codec is None or not can_decode(store):
        return None
    try:
        data = codec.encode(keys.series())
        distinct = data.unique().drop_nulls().sort()
        values, _ = load_cells(store, distinct.to_list())
        assert isinstance(values, pl.Series)  # it can be decoded
        found = _of_each_row(data, distinct, values)
        changed = [] if history is None or orders is None else history.changed_keys()
        if history is not None and orders is not None and changed:
            rows = data.is_in(pl.Series(changed, dtype=pl.Binary).implode()).arg_true()
            cells = history.as_of(store, data.gather(rows).to_list(), [orders[row] for row in rows.to_list()])
            as_of_rows = [None if cell is None else store.thawed(cell[0]) for cell in cells]
            found = found.scatter(rows, pl.Series(as_of_rows, dtype=found.dtype, strict=True))
    except FAILURES:  # what columns can't do, rows can, or they find the record to blame
        return None
    return Column.of_series(found)


def _of_each_row(data: pl.Series, distinct: pl.Series, values: pl.Series) -> pl.Series:
    """The value of each row's key."""
    rows, table = pl.DataFrame({"key": data}), pl.DataFrame({"key": distinct, "value": values})
    return rows.join(table, on="key", how="left", maintain_order="left")["value"]
