"""Which Polars types stand for values between operators, and which Python types they are.

A value is text, a whole number of 64 bits, a double, a boolean, bytes, or a list or record of these: what a
serde can write. Other types of Polars that mean the same (`UInt32`, `Float32`, `Categorical`) become these at
the end of every operator, so that an expression finds the same types whether or not the value went through a
topic on its way.
"""

from __future__ import annotations

from typing import Any

import polars as pl

_PLAIN: dict[pl.DataType, str] = {
    pl.String(): "str",
    pl.Int64(): "int",
    pl.Float64(): "float",
    pl.Boolean(): "bool",
    pl.Binary(): "bytes",
}


def canonical(dtype: Any) -> pl.DataType:
    """The type that stands for a type.

    >>> canonical(pl.List(pl.UInt8))
    List(Int64)
    """
    dtype = dtype if isinstance(dtype, pl.DataType) else dtype()
    assert isinstance(dtype, pl.DataType)
    if isinstance(dtype, pl.List | pl.Array):
        return pl.List(canonical(dtype.inner))
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: canonical(field.dtype) for field in dtype.fields})
    if dtype.is_integer():
        return pl.Int64()
    if dtype.is_float():
        return pl.Float64()
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return pl.String()
    return dtype


def kind_of(dtype: Any) -> str | None:
    """How `serdes.auto` calls a type; None if it does not take it.

    >>> kind_of(pl.Struct({"a": pl.Int64}))
    'json'
    """
    plain = _PLAIN.get(dtype)
    if plain is not None:
        return plain
    return "json" if is_json(dtype) else None


def is_json(dtype: Any) -> bool:
    """Whether a type is a list or record of what JSON can say exactly."""
    if isinstance(dtype, pl.List):
        return _in_json(dtype.inner)
    if isinstance(dtype, pl.Struct):
        return all(_in_json(field.dtype) for field in dtype.fields)
    return False


def _in_json(dtype: Any) -> bool:
    return is_json(dtype) or _PLAIN.get(dtype) in {"str", "int", "float", "bool"}
