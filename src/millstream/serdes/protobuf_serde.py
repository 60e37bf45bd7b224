"""Protobuf: messages of a generated class. Needs the extra ``protobuf``, as the class does.

The bytes are the deterministic encoding, so that equal messages give equal bytes within one version of
Protobuf. Fields that the class does not know are kept, as Protobuf does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from millstream.serdes.api import BaseSerde, wrong_type
from millstream.serdes.confluent_wire import framed, unframed

M = TypeVar("M")


class ProtobufSerde(BaseSerde[M]):
    """Messages of one class; made by ``serdes.protobuf(cls)``.

    >>> from google.protobuf.duration_pb2 import Duration
    >>> from millstream import serdes
    >>> serdes.protobuf(Duration)
    serdes.protobuf(Duration)
    """

    def __init__(self, message: type[M], schema_id: int | None, indexes: Sequence[int]) -> None:
        parse: Any = getattr(message, "FromString", None)
        if not isinstance(message, type) or parse is None:
            raise TypeError(f"{message!r} is no class of Protobuf messages: give the class that protoc made")
        self.message = message
        self.schema_id = schema_id
        self.indexes = tuple(indexes)
        self.name = f"serdes.protobuf({message.__name__})"
        self._indexes = _encoded(self.indexes)
        self._parse = parse

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.schema_id, self.indexes)

    def serialize(self, value: M, /) -> bytes:
        if type(value) is not self.message:
            raise wrong_type(self.message.__name__, value)
        message: Any = value
        data: bytes = message.SerializeToString(deterministic=True)
        return data if self.schema_id is None else framed(self.schema_id, self._indexes + data)

    def deserialize(self, data: bytes, /) -> M:
        if self.schema_id is not None:
            # Messages of all versions are read alike, so whichever id it is will do.
            _, data = unframed(data)
            if not data.startswith(self._indexes):
                raise ValueError(f"another message of the schema than {list(self.indexes)}")
            data = data[len(self._indexes) :]
        message: M = self._parse(data)
        return message


def protobuf(
    message: type[M], *, schema_id: int | None = None, indexes: Sequence[int] = (0,)
) -> ProtobufSerde[M]:
    """Return a serde for the messages of a generated class.

    ``schema_id`` writes and expects Confluent's wire format, in which ``indexes`` says where in its file the
    message is defined: the first one, unless you say otherwise.

    >>> from google.protobuf.duration_pb2 import Duration
    >>> from millstream import serdes
    >>> serde = serdes.protobuf(Duration)
    >>> serde.deserialize(serde.serialize(Duration(seconds=5))).seconds
    5
    """
    return ProtobufSerde(message, schema_id, indexes)


def _encoded(indexes: Sequence[int]) -> bytes:
    """The indexes as Confluent writes them: their number and each of them, as zigzag varints."""
    if tuple(indexes) == (0,):
        return b"\x00"  # the usual case has a short form
    return b"".join(_varint(2 * number) for number in (len(indexes), *indexes))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits a byte
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
