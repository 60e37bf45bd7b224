"""Declared shapes of JSON values: from what a user writes to a type that msgspec checks.

Polars data types are recognised by their names, so that nothing here imports Polars.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

import msgspec

_INT64_MAX = 2**63 - 1


def _bounded(low: int, high: int) -> Any:
    # msgspec's bounds are 64-bit; an upper bound beyond that is left to the reader of the number.
    upper = high if high <= _INT64_MAX else None
    return Annotated[int, msgspec.Meta(ge=low, le=upper)]


_POLARS: dict[str, Any] = {
    "String": str,
    "Utf8": str,
    "Categorical": str,
    "Enum": str,
    "Boolean": bool,
    "Binary": bytes,
    "Float32": float,
    "Float64": float,
    "Decimal": decimal.Decimal,
    "Date": dt.date,
    "Datetime": dt.datetime,
    "Time": dt.time,
    "Duration": dt.timedelta,
    **{f"Int{bits}": _bounded(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"UInt{bits}": _bounded(0, 2**bits - 1) for bits in (8, 16, 32, 64)},
}


def schema_type(schema: Any) -> Any:
    """Return the type to check against.

    >>> schema_type({"shop": str, "lines": list[int]}).__annotations__
    {'shop': <class 'str'>, 'lines': list[int]}
    """
    if isinstance(schema, Mapping):
        return _record_type(schema)
    if _is_polars(schema):
        return _polars_type(schema) | None
    if isinstance(schema, type) or hasattr(schema, "__origin__") or hasattr(schema, "__args__"):
        return schema
    raise TypeError(f"{schema!r} is not a type")


def describe_schema(schema: Any) -> str:
    """Return a schema as a user would write it.

    >>> describe_schema({"shop": str, "amount": int | None})
    '{shop: str, amount: int | None}'
    """
    if isinstance(schema, Mapping):
        return "{" + ", ".join(f"{name}: {describe_schema(kind)}" for name, kind in schema.items()) + "}"
    if isinstance(schema, type) and not hasattr(schema, "__origin__"):
        return schema.__name__
    return repr(schema)


def _record_type(fields: Mapping[Any, Any]) -> Any:
    for name in fields:
        if not isinstance(name, str):
            raise TypeError(f"the field name {name!r} is not a str")
    make: Any = TypedDict  # the fields are known at run time only, where mypy cannot follow
    return make("Declared", {name: schema_type(kind) for name, kind in fields.items()})


def _is_polars(kind: Any) -> bool:
    cls = kind if isinstance(kind, type) else type(kind)
    return cls.__module__.partition(".")[0] == "polars"


def _polars_type(kind: Any) -> Any:
    name = kind.__name__ if isinstance(kind, type) else type(kind).__name__
    if name in _POLARS:
        return _POLARS[name]
    if name in {"List", "Array"} and hasattr(kind, "inner"):
        return list[schema_type(kind.inner)]  # type: ignore[misc]  # known at run time only
    if name == "Struct" and hasattr(kind, "fields"):
        return _record_type({field.name: field.dtype for field in kind.fields})
    raise TypeError(f"the Polars type {kind!r} has no JSON form here")
