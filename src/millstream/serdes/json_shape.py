"""The shape of JSON values as text, and whether values of one shape can be read by another.

A shape says what stands in the bytes: field names and types. Names of classes, the order of a record's
fields, the values of defaults and docstrings are not in it, for they change no byte.

What may be added: fields with a default, alternatives (``int`` to ``int | None``), members of an enum.
Whatever else is refused, also what could be read at a loss: a field that is gone would be dropped with the
next write, and a large ``int`` is no ``float``.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
from msgspec import inspect

from millstream.serdes.schema import describe_schema, schema_type

_PARTS: Final = ("item_type", "item_types", "key_type", "value_type", "types")
"""Where a type has others inside."""
_BY_POSITION: Final = (inspect.NamedTupleType,)


def json_shape(schema: Any) -> str:
    """Describe the JSON values of a schema.

    >>> json_shape({"shop": str, "amount": int | None})
    '{"is":{"record":0},"records":[{"fields":[["amount",{"of":["int","none"],"type":"union"},true],["shop","str",true]]}]}'
    """
    shapes = _Shapes()
    try:
        root = shapes.of(inspect.type_info(schema_type(schema)))
    except TypeError:
        root = describe_schema(schema)  # msgspec reads it, but can't say what it is
    return json.dumps({"is": root, "records": shapes.records}, sort_keys=True, separators=(",", ":"))


def json_incompatibility(old: str, new: str) -> str | None:
    """Why values of the old shape can't be read by the new one; None if they can.

    >>> json_incompatibility(json_shape({"amount": int}), json_shape({"amount": int | None}))
    >>> json_incompatibility(json_shape({"amount": int}), json_shape({"amount": str}))
    "field 'amount' was int and is str now"
    >>> json_incompatibility(json_shape({"amount": int}), json_shape({"amount": int, "shop": str}))
    "field 'shop' is new and has no default"
    """
    if not old or not new:
        return "there was a schema and is none now" if old else "there was no schema and is one now"
    before, after = json.loads(old), json.loads(new)
    comparison = _Comparison(before["records"], after["records"])
    return comparison.incompatibility(before["is"], after["is"], "", frozenset())


class _Shapes:
    """Makes shapes. Records are numbered, since a record may be inside itself."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self._numbers: dict[int, int] = {}

    def of(self, info: Any) -> Any:
        while isinstance(info, inspect.Metadata):
            info = info.type
        if hasattr(info, "fields"):
            return self._record(info)
        name = type(info).__name__.removesuffix("Type").lower()
        if isinstance(info, inspect.EnumType):
            return {"type": name, "values": sorted(repr(member.value) for member in info.cls)}
        if isinstance(info, inspect.LiteralType):
            return {"type": name, "values": sorted(map(repr, info.values))}
        if isinstance(info, inspect.CustomType):
            return f"{info.cls.__module__}.{info.cls.__qualname__}"
        text = " ".join([name, *_constraints(info)])
        inner = [self.of(part) for part in _parts(info)]
        return {"type": text, "of": inner} if inner else text

    def _record(self, info: Any) -> Any:
        if id(info) not in self._numbers:
            number = self._numbers[id(info)] = len(self.records)
            self.records.append(None)
            self.records[number] = self._fields(info)
        return {"record": self._numbers[id(info)]}

    def _fields(self, info: Any) -> dict[str, Any]:
        by_position = isinstance(info, _BY_POSITION) or getattr(info, "array_like", False)
        fields = info.fields if by_position else sorted(info.fields, key=lambda field: field.encode_name)
        found: dict[str, Any] = {
            "fields": [[field.encode_name, self.of(field.type), field.required] for field in fields]
        }
        if by_position:
            found["by_position"] = True
        if getattr(info, "tag", None) is not None:
            found["tag"] = f"{info.tag_field}={info.tag!r}"
        return found


def _parts(info: Any) -> list[Any]:
    found: list[Any] = []
    for name in _PARTS:
        part = getattr(info, name, ())
        found += part if isinstance(part, tuple) else [part]
    # The order of alternatives is of no account, that of all other parts is.
    return sorted(found, key=_sort_key) if isinstance(info, inspect.UnionType) else found


def _sort_key(info: Any) -> tuple[str, str]:
    return type(info).__name__, repr(getattr(info, "cls", ""))


def _constraints(info: msgspec.Struct) -> list[str]:
    given = ((name, getattr(info, name)) for name in info.__struct_fields__ if name not in _PARTS)
    return [f"{name}={value!r}" for name, value in given if value is not None]


class _Comparison:
    """Compares two shapes, each with records of its own."""

    def __init__(self, old: list[Any], new: list[Any]) -> None:
        self._old = old
        self._new = new

    def incompatibility(self, old: Any, new: Any, path: str, above: frozenset[tuple[int, int]]) -> str | None:
        """Why the old shape can't be read by the new; `above` are the records that these are inside of."""
        if _is("union", old) or _is("union", new):
            return self._union(old, new, path, above)
        if "record" in old and "record" in new and not isinstance(old, str) and not isinstance(new, str):
            pair = (old["record"], new["record"])
            return None if pair in above else self._record(*pair, path, above | {pair})
        if isinstance(old, str) or isinstance(new, str) or old.get("type") != new.get("type"):
            return None if old == new else _changed(path, old, new)
        if "values" in old:
            gone = sorted(set(old["values"]) - set(new["values"]))
            return f"{_where(path)} may no longer be {', '.join(gone)}" if gone else None
        if len(old["of"]) != len(new["of"]):
            return _changed(path, old, new)
        pairs = zip(old["of"], new["of"], strict=True)
        return _first(self.incompatibility(one, other, f"{path}[]", above) for one, other in pairs)

    def _union(self, old: Any, new: Any, path: str, above: frozenset[tuple[int, int]]) -> str | None:
        for one in _alternatives(old):
            if all(self.incompatibility(one, other, path, above) for other in _alternatives(new)):
                return _changed(path, old, new)
        return None

    def _record(self, old: int, new: int, path: str, above: frozenset[tuple[int, int]]) -> str | None:
        before, after = self._old[old], self._new[new]
        for what in ("tag", "by_position"):
            if before.get(what) != after.get(what):
                return f"{_where(path)} has another {what.replace('_', ' ')}"
        names = [name for name, _, _ in before["fields"]]
        if before.get("by_position") and names != [name for name, _, _ in after["fields"][: len(names)]]:
            return f"{_where(path)} is written by position, and its fields have moved"
        known = {name: (shape, required) for name, shape, required in before["fields"]}
        gone = sorted(known.keys() - {name for name, _, _ in after["fields"]})
        if gone:
            return f"{_where(_below(path, gone[0]))} is gone"
        return _first(
            self._field(known.get(name), shape, required, _below(path, name), above)
            for name, shape, required in after["fields"]
        )

    def _field(
        self, known: tuple[Any, bool] | None, shape: Any, required: Any, path: str, above: Any
    ) -> str | None:
        if known is None:
            return f"{_where(path)} is new and has no default" if required else None
        if required and not known[1]:
            return f"{_where(path)} had a default and has none now"
        return self.incompatibility(known[0], shape, path, above)


def _first(found: Any) -> str | None:
    return next((one for one in found if one is not None), None)


def _is(kind: str, shape: Any) -> bool:
    return not isinstance(shape, str) and shape.get("type") == kind


def _alternatives(shape: Any) -> list[Any]:
    return list(shape["of"]) if _is("union", shape) else [shape]


def _changed(path: str, old: Any, new: Any) -> str:
    return f"{_where(path)} was {_shown(old)} and is {_shown(new)} now"


def _where(path: str) -> str:
    return f"field {path!r}" if path else "the value"


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(shape: Any) -> str:
    if isinstance(shape, str):
        return shape
    if "record" in shape:
        return "a record"
    if "values" in shape:
        return f"one of {', '.join(shape['values'])}"
    if _is("union", shape):
        return " | ".join(map(_shown, shape["of"]))
    return f"{shape['type']}[{', '.join(map(_shown, shape['of']))}]"
