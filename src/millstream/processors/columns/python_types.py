"""Columns out of Python values whose type nobody declared: behind a row operator.

The type is that of each value by itself, never that of the batch it happens to be in: batches are invisible.
So rows are put together by type, and None, which has none, stands alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import polars as pl

from millstream.record import Windowed
from millstream.serdes.columns.windowed_codecs import windowed_type
from millstream.serdes.records import is_record_class

__all__ = ["column_type"]

_SCALARS: dict[type, pl.DataType] = {
    str: pl.String(),
    int: pl.Int64(),
    float: pl.Float64(),
    bool: pl.Boolean(),
    bytes: pl.Binary(),
    type(None): pl.Null(),
}


def column_type(value: Any) -> pl.DataType:
    """The Polars type of one value.

    >>> column_type({"b": 1, "a": [None, "x"]})
    Struct({'a': List(String), 'b': Int64})
    """
    scalar = _SCALARS.get(type(value))
    if scalar is not None:
        return scalar
    if isinstance(value, Mapping):
        return pl.Struct({name: column_type(value[name]) for name in sorted(value)})
    if isinstance(value, list):
        return pl.List(_inner_type(value))
    if isinstance(value, Windowed):
        return windowed_type(column_type(value.key))
    if is_record_class(type(value)):
        return column_type({field.name: getattr(value, field.name) for field in fields(value)})
    raise TypeError(
        f"a {type(value).__name__} has no column type, so no expression can look at it. Remedy: turn it into "
        "str, int, float, bool, bytes, or a dict, list or dataclass of these before"
    )


def _inner_type(values: Sequence[Any]) -> pl.DataType:
    kinds = {str(kind): kind for kind in map(column_type, values) if kind != pl.Null()}
    if len(kinds) > 1:
        raise TypeError(f"a list of {' and '.join(sorted(kinds))} has no column type")
    return next(iter(kinds.values()), pl.Null())
