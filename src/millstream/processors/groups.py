"""The rows of a batch by key, combined: what a built-in aggregation folds instead of each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.processors.fold import Combine, Counting
from millstream.serdes import Serde

__all__ = ["Groups", "group_rows"]

_MANY_ROWS = 2_000
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
    kinds = _kinds(batch.keys)
    exact: frozenset[type] = getattr(key_serde, "exact_types", frozenset())
    if len(kinds) != 1 or not kinds <= exact & _EQUAL_BY_BYTES:
        return None
    if isinstance(combine, Counting) and len(batch) >= _MANY_ROWS and int not in kinds:
        return _counted(batch, kinds.pop())
    found = combine.combined(batch.keys, batch.values)
    if found is None:
        return None
    last = dict(zip(batch.keys, range(len(batch)), strict=True))
    ordered = sorted(last.items(), key=itemgetter(1))
    rows = [row for _, row in ordered]
    return Groups(rows, [found[key] for key, _ in ordered], _largest(batch, last, ordered))


def _kinds(keys: Sequence[Any]) -> set[type]:
    if isinstance(keys, Column):
        kind = _PYTHON_TYPES.get(str(keys.dtype()))
        return {kind} if kind is not None and None not in keys else set()
    return set(map(type, keys))


def _counted(batch: Batch, kind: type) -> Groups:
    """The same for a count of many rows, by Polars: several times faster than dictionaries."""
    import polars as pl  # noqa: PLC0415 - programs with small batches do without

    dtype = pl.String if kind is str else pl.Binary
    keys, times = batch.keys, batch.timestamps
    frame = pl.DataFrame(
        {
            "key": keys.series() if isinstance(keys, Column) else pl.Series(keys, dtype=dtype),
            "time": times.series() if isinstance(times, Column) else pl.Series(times, dtype=pl.Int64),
        }
    ).with_row_index("row")
    last = frame.group_by("key").agg(pl.len(), pl.col("row").last(), pl.col("time").max()).sort("row")
    rows = last["row"].cast(pl.Int64)
    return Groups(Column.of_series(rows), last["len"].to_list(), last["time"].to_list())


def _largest(batch: Batch, last: dict[Any, int], ordered: list[tuple[Any, int]]) -> list[int]:
    """The largest timestamp of each key."""
    timestamps = batch.timestamps if isinstance(batch.timestamps, list) else list(batch.timestamps)
    if timestamps == sorted(timestamps):  # the usual case, and then sorting costs next to nothing
        return [timestamps[row] for _, row in ordered]
    largest: dict[Any, int] = dict.fromkeys(last, -1)
    for key, timestamp in zip(batch.keys, timestamps, strict=True):
        largest[key] = max(timestamp, largest[key])
    return [largest[key] for key, _ in ordered]
