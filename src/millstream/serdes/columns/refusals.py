"""Which serdes have values that no expression can look at: known before the first record comes."""

from __future__ import annotations

from typing import Any, Final

from msgspec import inspect

from millstream.serdes.json_serde import TypedJsonSerde
from millstream.serdes.nullable_serde import NullableSerde
from millstream.serdes.primitives import UuidSerde
from millstream.serdes.protobuf_serde import ProtobufSerde
from millstream.serdes.schema import schema_type
from millstream.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde

__all__ = ["without_columns"]

_AROUND: Final = (NullableSerde, TimeWindowedSerde, SessionWindowedSerde)
_NEVER: Final = (
    inspect.DateTimeType,
    inspect.DateType,
    inspect.TimeType,
    inspect.TimeDeltaType,
    inspect.UUIDType,
    inspect.DecimalType,
    inspect.EnumType,
    inspect.SetType,
    inspect.FrozenSetType,
    inspect.TupleType,
    inspect.VarTupleType,
    inspect.NamedTupleType,
    inspect.StructType,
    inspect.ExtType,
    inspect.RawType,
    inspect.ByteArrayType,
    inspect.MemoryViewType,
)


def without_columns(serde: Any) -> str | None:
    """What of a serde's values can't be a column; None if all can, or if only the values will tell.

    >>> from datetime import date
    >>> from millstream import serdes
    >>> without_columns(serdes.json({"shop": str, "days": list[date]}))
    'date in days'
    >>> without_columns(serdes.time_windowed(serdes.uuid, 60_000))
    'UUID'
    >>> without_columns(serdes.json({"shop": str})), without_columns(None)
    (None, None)
    """
    if isinstance(serde, _AROUND):
        return without_columns(serde.inner)
    if isinstance(serde, UuidSerde):
        return "UUID"
    if isinstance(serde, ProtobufSerde):
        return "a message of Protobuf"
    if not isinstance(serde, TypedJsonSerde):
        return None
    try:
        return _found(inspect.type_info(schema_type(serde.schema)), "", ())
    except TypeError:  # msgspec reads it, but can't say what it is
        return None


def _found(info: Any, path: str, above: tuple[Any, ...]) -> str | None:
    while isinstance(info, inspect.Metadata):
        info = info.type
    if any(info is one for one in above):
        return None
    if isinstance(info, _NEVER):
        kind = getattr(getattr(info, "cls", None), "__name__", None)
        name = kind or type(info).__name__.removesuffix("Type").lower()
        return f"{name} in {path}" if path else name
    if isinstance(info, inspect.UnionType):
        kinds = [kind for kind in info.types if not isinstance(kind, inspect.NoneType)]
        found = [_found(kind, path, above) for kind in kinds]
        return found[0] if all(found) else None
    if isinstance(info, inspect.ListType):
        return _found(info.item_type, path, above)
    for field in getattr(info, "fields", ()):
        inside = f"{path}.{field.name}" if path else field.name
        found_here = _found(field.type, inside, (*above, info))
        if found_here is not None:
            return found_here
    return None
