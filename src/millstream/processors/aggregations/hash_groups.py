"""Many rows with many keys, grouped by Arrow's hash table.

Polars collects the row numbers of each group before it aggregates them. With tens of thousands of groups
these no longer fit into the processor's cache; a hash table of the aggregates themselves does. With few rows,
or few groups, Polars is faster.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import polars as pl
import pyarrow as pa

__all__ = ["ArrowFunction", "are_many_groups", "grouped_by_arrow"]

ArrowFunction: TypeAlias = Literal["sum", "count_all"]
"""A hash aggregation of Arrow's."""

_MANY_ROWS: Final = 100_000
_SAMPLED_ROWS: Final = 10_000
_MANY_IN_SAMPLE: Final = _SAMPLED_ROWS // 2
"""With so many distinct keys among the first rows there are tens of thousands of groups."""
_MOST_BYTES: Final = 1 << 30
"""Of keys: Arrow's fast hash table takes offsets of 32 bits."""
_TYPES: Final[dict[pl.DataType, pa.DataType]] = {pl.Binary(): pa.binary(), pl.String(): pa.string()}


def are_many_groups(keys: pl.Series) -> bool:
    """Whether `grouped_by_arrow` can do it, and is worth it."""
    return (
        len(keys) >= _MANY_ROWS
        and keys.dtype in _TYPES
        and not keys.null_count()
        and keys.head(_SAMPLED_ROWS).n_unique() > _MANY_IN_SAMPLE
        and keys.estimated_size() < _MOST_BYTES
    )


def grouped_by_arrow(frame: pl.DataFrame, function: ArrowFunction) -> pl.DataFrame:
    """One row per key, as `ColumnForm.grouped` gives it: its last row, largest time, and aggregate."""
    key = frame["key"]
    columns = {"key": key.to_arrow().cast(_TYPES[key.dtype])}
    columns |= {name: frame[name].to_arrow() for name in ("row", "time")}
    if function == "sum":
        columns["value"] = frame["value"].to_arrow()
    found = pa.table(columns).group_by("key", use_threads=False)
    whole: tuple[str | list[str], str] = ([], function) if function == "count_all" else ("value", function)
    grouped = found.aggregate([("row", "last"), ("time", "max"), whole])
    rows = pl.from_arrow(grouped.rename_columns(["key", "row", "time", "new"]))
    assert isinstance(rows, pl.DataFrame)  # a table is no array
    return rows
