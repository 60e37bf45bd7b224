"""The rows of a batch by key, combined: what a built-in aggregation folds instead of each row.

Batches of many rows go through Polars, which is imported for the first of them: programs with small batches
do without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column, are_many
from millstream.processors.fold import Combine, Counting, PartialAggregate
from millstream.processors.record_cache import HeldBack
from millstream.serdes import Serde
from millstream.state.stores.cell_store import CellStore

__all__ = ["Groups", "fold_in_columns", "group_rows", "has_partials"]

_PYTHON_TYPES = {"String": str, "Binary": bytes, "Int64": int}
_EQUAL_BY_BYTES = frozenset({str, bytes, int})
"""Types whose values are equal if, and only if, their bytes are."""


@dataclass(frozen=True, slots=True)
class Groups:
    """One entry per distinct key, in the order of the keys' last rows."""

    rows: Sequence[int]
    """The last row of each key."""
    combined: Sequence[Any]
    """What stands for all values of the key."""
    timestamps: Sequence[int]
    """The largest of the key's rows."""


def group_rows(batch: Batch, key_serde: Serde[Any], combine: Combine) -> Groups | None:
    """The rows by key; None if the keys or values are of types that have to be taken one by one.

    The keys are compared as Python objects: only those of each group are ever serialized.
    """
    kind = _kind_of(batch.keys, key_serde)
    if kind is None:
        return None
    if isinstance(combine, Counting) and are_many(len(batch)) and kind is not int:
        return _counted(batch, kind)
    found = combine.combined(batch.keys, batch.values)
    if found is None:
        return None
    last = dict(zip(batch.keys, range(len(batch)), strict=True))
    ordered = sorted(last.items(), key=itemgetter(1))
    rows = [row for _, row in ordered]
    return Groups(rows, [found[key] for key, _ in ordered], _largest(batch, last, ordered))


def has_partials(values: Sequence[Any]) -> bool:
    """Whether some of the values stand for several ones: see `PartialAggregate`."""
    if isinstance(values, Column):
        return values.shown_as is PartialAggregate
    return PartialAggregate in set(map(type, values))


def fold_in_columns(store: CellStore[Any], batch: Batch, combine: Combine) -> HeldBack | None:
    """Fold a batch into a cached table as the column tier does. None if it can't: nothing has happened."""
    kind = _kind_of(batch.keys, store.key_serde)
    if kind is None or kind is int:
        return None
    from millstream.processors.columns.row_folds import fold_rows  # noqa: PLC0415 - see above

    return fold_rows(store, batch, kind, combine)


def _kind_of(keys: Sequence[Any], serde: Serde[Any]) -> type | None:
    """The one type of all keys, if they are equal just when their bytes are."""
    if isinstance(keys, Column):
        kinds = {_PYTHON_TYPES.get(str(keys.dtype()))} if not keys.null_count else set()
    else:
        kinds = set(map(type, keys))
    exact: frozenset[type] = getattr(serde, "exact_types", frozenset())
    return kinds.pop() if len(kinds) == 1 and kinds <= exact & _EQUAL_BY_BYTES else None


def _counted(batch: Batch, kind: type) -> Groups:
    """The same for a count of many rows, by Polars: several times faster than dictionaries."""
    import polars as pl  # noqa: PLC0415 - see above

    dtype = pl.String if kind is str else pl.Binary
    keys, times = batch.keys, batch.timestamps
    frame = pl.DataFrame(
        {
            "key": keys.series() if isinstance(keys, Column) else pl.Series(keys, dtype=dtype),
            "time": times.series() if isinstance(times, Column) else pl.Series(times, dtype=pl.Int64),
        }
    ).with_row_index("row")
    last = frame.group_by("key").agg(pl.len(), pl.col("row").last(), pl.col("time").max()).sort("row")
    columns = (last["row"].cast(pl.Int64), last["len"].cast(pl.Int64), last["time"])
    return Groups(*map(Column.of_series, columns))


def _largest(batch: Batch, last: dict[Any, int], ordered: list[tuple[Any, int]]) -> list[int]:
    """The largest timestamp of each key."""
    timestamps = batch.timestamps if isinstance(batch.timestamps, list) else list(batch.timestamps)
    if timestamps == sorted(timestamps):  # the usual case, and then sorting costs next to nothing
        return [timestamps[row] for _, row in ordered]
    largest: dict[Any, int] = dict.fromkeys(last, -1)
    for key, timestamp in zip(batch.keys, timestamps, strict=True):
        largest[key] = max(timestamp, largest[key])
    return [largest[key] for key, _ in ordered]
