"""Dataclasses as plain records and back: what JSON, and columns, have of them are their fields."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

import msgspec

from millstream.serdes.schema import describe_schema, schema_type

__all__ = ["ShownAs", "is_record_class", "plain_record", "plain_records"]

_AS_THEY_ARE: Final = (
    bytes,
    bytearray,
    dt.datetime,
    dt.date,
    dt.time,
    dt.timedelta,
    uuid.UUID,
    decimal.Decimal,
)


def is_record_class(kind: Any) -> bool:
    """Whether values of a class are records of its fields.

    >>> is_record_class(ShownAs), is_record_class(dict)
    (False, False)
    """
    return isinstance(kind, type) and is_dataclass(kind)


def plain_record(value: Any) -> Any:
    """A value with a dict in place of each dataclass in it.

    >>> from millstream import Window
    >>> plain_record([Window(0, 5), "x"])
    [{'start': 0, 'end': 5}, 'x']
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain_record(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {name: plain_record(inner) for name, inner in value.items()}
    return [plain_record(inner) for inner in value] if isinstance(value, list) else value


def plain_records(values: Sequence[Any]) -> list[Any]:
    """The same for many values, of types that columns have.

    >>> from millstream import Window
    >>> plain_records([Window(0, 5), None])
    [{'start': 0, 'end': 5}, None]
    """
    found: list[Any] = msgspec.to_builtins(list(values), builtin_types=_AS_THEY_ARE)
    return found


class ShownAs:
    """Makes values of a schema out of plain records; equal to another one of the same schema.

    >>> from millstream import Window
    >>> ShownAs(Window)({"start": 0, "end": 5})
    Window(start=0, end=5)
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._type = schema_type(schema)

    def __call__(self, record: Any) -> Any:
        """The value of a record; None stays None."""
        return None if record is None else msgspec.convert(record, self._type)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShownAs) and bool(other._schema == self._schema)

    def __hash__(self) -> int:
        return hash(describe_schema(self._schema))
