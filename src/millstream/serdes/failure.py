"""The one place where messages of serialization and deserialization errors are written."""

from __future__ import annotations

from typing import Any, TypedDict, Unpack, overload

from millstream.errors import DeserializationError, MixedTypesError, SerdeError, SerializationError
from millstream.serdes.api import serde_name, short_repr

_SHOWN_BYTES = 16
_PRINTABLE = range(0x20, 0x7F)
_MISSING: Any = object()


def describe_bytes(data: bytes) -> str:
    """Return how long some bytes are and how they begin.

    >>> describe_bytes(b"hello")
    "5 bytes: 68 65 6c 6c 6f 'hello'"
    >>> describe_bytes(bytes(100))
    "100 bytes, first 16: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 '................'"
    >>> describe_bytes(b"")
    'no bytes'
    """
    if not data:
        return "no bytes"
    head = data[:_SHOWN_BYTES]
    text = "".join(chr(byte) if byte in _PRINTABLE else "." for byte in head)
    size = "1 byte" if len(data) == 1 else f"{len(data)} bytes"
    more = f", first {_SHOWN_BYTES}" if len(data) > _SHOWN_BYTES else ""
    return f"{size}{more}: {head.hex(' ')} '{text}'"


class _Place(TypedDict, total=False):
    topic: str | None
    partition: int | None
    offset: int | None
    store: str | None


@overload
def serde_failure(
    cause: Exception, *, serde: object, value: object, part: str = ..., **place: Unpack[_Place]
) -> SerializationError: ...
@overload
def serde_failure(
    cause: Exception, *, serde: object, data: bytes, part: str = ..., **place: Unpack[_Place]
) -> DeserializationError: ...
def serde_failure(
    cause: Exception,
    *,
    serde: object,
    value: object = _MISSING,
    data: bytes = _MISSING,
    part: str = "value",
    **place: Unpack[_Place],
) -> SerdeError:
    """Return the error to raise ``from cause``: give ``value`` when serializing, ``data`` when deserializing.

    >>> from millstream import serdes
    >>> error = serde_failure(
    ...     ValueError("expected 8 bytes, got 2"),
    ...     serde=serdes.int64,
    ...     data=b"hi",
    ...     topic="orders",
    ...     partition=3,
    ...     offset=41,
    ... )
    >>> print(error)
    Cannot deserialize the value of topic 'orders', partition 3, offset 41 with serdes.int64: expected 8
    bytes, got 2 (2 bytes: 68 69 'hi'). Likely cause: another serde wrote these bytes. Remedy: read with the
    serde that wrote them (key= or value=), or choose a deserialization handler that skips or dead-letters
    bad records.
    """
    where, reason = _where(part, place), _reason(cause)
    if data is _MISSING:
        cls = MixedTypesError if isinstance(cause, MixedTypesError) else SerializationError
        what = f"Cannot serialize {where} with {serde_name(serde)}: {reason}"
        return cls(f"{what}{_serialization_advice(cause, value)}", **place)
    what = f"Cannot deserialize {where} with {serde_name(serde)}: {reason} ({describe_bytes(data)})."
    return DeserializationError(f"{what}{_deserialization_advice(cause, place.get('store'))}", **place)


def _where(part: str, place: _Place) -> str:
    known = ((name, place.get(name)) for name in ("store", "topic", "partition", "offset"))
    places = ", ".join(f"{name} {what!r}" for name, what in known if what is not None)
    return f"the {part} of {places}" if places else f"a {part}"


def _reason(cause: Exception) -> str:
    text = str(cause)
    if isinstance(cause, SerdeError) or (isinstance(cause, TypeError | ValueError) and text):
        return text
    return f"{type(cause).__name__}: {text}" if text else type(cause).__name__


def _serialization_advice(cause: Exception, value: object) -> str:
    if isinstance(cause, SerdeError):
        return ""  # it has its own
    return (
        f" (it is {short_repr(value)}). Likely cause: the value is not what this serde takes. Remedy: "
        "give the serde of its type (key= or value= of the operator that writes here), or convert the value "
        "before."
    )


def _deserialization_advice(cause: Exception, store: str | None) -> str:
    if isinstance(cause, SerdeError):
        return ""
    if store is not None:
        return (
            " Likely cause: an earlier version of the program wrote the store with another serde, or the "
            "store is damaged. Remedy: give the store the serde it was written with, or rebuild it from its "
            "changelog."
        )
    return (
        " Likely cause: another serde wrote these bytes. Remedy: read with the serde that wrote them "
        "(key= or value=), or choose a deserialization handler that skips or dead-letters bad records."
    )
