"""The rows of a batch by key, combined: the partial form folds these instead of each row."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.aggregations.column_form import ColumnForm
from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column, are_many
from millstream.serdes import Serde

if TYPE_CHECKING:
    import polars as pl
else:
    from millstream.processors.columns import lazy_polars as pl

__all__ = ["Groups", "group_rows", "key_type"]

_EQUAL_BY_BYTES = frozenset({str, bytes, int})
"""Types whose values are equal if, and only if, their bytes are."""


@dataclass(frozen=True, slots=True)
class Groups:
    """One entry per distinct key, in the order of the keys' last rows."""

    rows: Column
    """The last row of each key."""
    combined: Column
    """What stands for all values of the key."""
    timestamps: Column
    """The largest of the key's rows."""


def group_rows(batch: Batch, key_serde: Serde[Any], aggregation: Aggregation) -> Groups | None:
    """The rows by key; None if the keys or values are of types that have to be taken one by one.

    The keys are compared as Python objects: only those of each group are ever serialized.
    """
    kind = key_type(batch.keys, key_serde)
    if kind is None or aggregation.combiner is None:
        return None
    form = aggregation.columns
    if form is not None and not form.looks_at_values and are_many(len(batch)) and kind is not int:
        return _in_columns(batch, kind, form)
    keys = batch.keys.rows()
    found = aggregation.combiner.combine(keys, batch.values.rows())
    if found is None:
        return None
    if len(keys) == 1:
        return Groups(Column(range(1)), Column([found[keys[0]]]), batch.timestamps)
    last = dict(zip(keys, range(len(batch)), strict=True))
    ordered = sorted(last.items(), key=itemgetter(1))
    columns = (
        [row for _, row in ordered],
        [found[key] for key, _ in ordered],
        _largest(batch, last, ordered),
    )
    return Groups(*map(Column, columns))


def key_type(keys: Column, serde: Serde[Any]) -> type | None:
    """The one type of all keys, if they are equal just when their bytes are."""
    kinds = keys.kinds()
    exact: frozenset[type] = getattr(serde, "exact_types", frozenset())
    return kinds.pop() if len(kinds) == 1 and kinds <= exact & _EQUAL_BY_BYTES else None


def _in_columns(batch: Batch, kind: type, form: ColumnForm) -> Groups:
    """The same of many rows whose values don't matter, by Polars: several times faster than dictionaries."""
    keys = batch.keys.series(pl.String() if kind is str else pl.Binary())
    times = batch.timestamps.series(pl.Int64())
    frame = pl.DataFrame({"key": keys, "time": times}).with_row_index("row")
    last = form.grouped(frame).sort("row")
    return Groups(*map(Column.of_series, (last["row"].cast(pl.Int64), last["new"], last["time"])))


def _largest(batch: Batch, last: dict[Any, int], ordered: list[tuple[Any, int]]) -> list[int]:
    """The largest timestamp of each key."""
    timestamps = batch.timestamps.rows()
    if batch.timestamps.is_sorted():  # the usual case, and then sorting costs next to nothing
        return [timestamps[row] for _, row in ordered]
    largest: dict[Any, int] = dict.fromkeys(last, -1)
    for key, timestamp in zip(batch.keys, timestamps, strict=True):
        largest[key] = max(timestamp, largest[key])
    return [largest[key] for key, _ in ordered]
