"""The fields of a Protobuf message as text, and whether another class reads what it wrote.

Fields are known by their numbers. They may be renamed and added, but neither vanish (their values would be
dropped with the next write) nor become another type. The bytes name nothing, so it has to be the same
message: seconds and nanoseconds are a duration or a time.
"""

from __future__ import annotations

import json
from typing import Any

from millstream.serdes.protobuf_serde import ProtobufSerde


def protobuf_shape(serde: ProtobufSerde[Any]) -> str:
    """Describe the message of a serde, with all messages inside.

    >>> from google.protobuf.duration_pb2 import Duration
    >>> from millstream import serdes
    >>> protobuf_shape(serdes.protobuf(Duration))
    '{"id":"none","indexes":[0],"messages":[{"1":"type 3","2":"type 5"}],"name":"google.protobuf.Duration"}'
    """
    messages: list[Any] = []
    descriptor = getattr(serde.message, "DESCRIPTOR", None)
    if descriptor is not None:
        _add(descriptor, messages, {})
    shape = {
        "id": "none" if serde.schema_id is None else str(serde.schema_id),
        "indexes": list(serde.indexes),
        "messages": messages,
        "name": getattr(descriptor, "full_name", serde.message.__name__),
    }
    return json.dumps(shape, sort_keys=True, separators=(",", ":"))


def protobuf_incompatibility(old: str, new: str) -> str | None:
    """Why what one serde wrote can't be read by another; None if it can."""
    before, after = json.loads(old), json.loads(new)
    if before["name"] != after["name"]:
        return f"the message was {before['name']} and is {after['name']} now"
    if (before["id"] == "none") != (after["id"] == "none"):
        return "messages had a schema id in front or not, and it is the other way round now"
    if before["id"] != "none" and before["indexes"] != after["indexes"]:
        return f"the indexes of the message were {before['indexes']} and are {after['indexes']} now"
    if not before["messages"] or not after["messages"]:
        return None
    return _incompatibility(before["messages"], after["messages"], 0, 0, frozenset())


def _incompatibility(
    old: list[Any], new: list[Any], one: int, other: int, above: frozenset[tuple[int, int]]
) -> str | None:
    if (one, other) in above:
        return None
    before, after = old[one], new[other]
    for number, field in before.items():
        if number not in after:
            return f"field {number} is gone"
        was, now = field.partition(" of "), after[number].partition(" of ")
        if was[:2] != now[:2]:
            return f"field {number} has another type"
        if was[2] and (inner := _incompatibility(old, new, int(was[2]), int(now[2]), above | {(one, other)})):
            return f"field {number}: {inner}"
    added = sorted(number for number in after.keys() - before.keys() if "required" in after[number])
    return f"field {added[0]} is new and required" if added else None


def _add(descriptor: Any, messages: list[Any], numbers: dict[str, int]) -> int:
    """Add a message and those inside it; return its number."""
    if descriptor.full_name not in numbers:
        numbers[descriptor.full_name] = len(messages)
        fields: dict[str, str] = {}
        messages.append(fields)
        for field in sorted(descriptor.fields, key=lambda field: field.number):
            fields[str(field.number)] = _field(field, messages, numbers)
    return numbers[descriptor.full_name]


def _field(field: Any, messages: list[Any], numbers: dict[str, int]) -> str:
    label = "repeated " if _is(field, "repeated") else "required " if _is(field, "required") else ""
    inside = "" if field.message_type is None else f" of {_add(field.message_type, messages, numbers)}"
    return f"{label}type {field.type}{inside}"


def _is(field: Any, label: str) -> bool:
    # Releases before 6.31 have only the label.
    of_label = getattr(field, f"is_{label}", None)
    return field.label == getattr(field, f"LABEL_{label.upper()}") if of_label is None else bool(of_label)
