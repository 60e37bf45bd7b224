"""Bytes, text, numbers, booleans and UUIDs, in the bytes that Kafka's own serdes write.

Each takes exactly its type: a ``bool`` is not an ``int`` here, and bytes of another length are refused
instead of being read as some number.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from millstream.serdes.api import BaseSerde, wrong_type

N = TypeVar("N", int, float)

_UUID_LENGTH = 36
_DOUBLE_BYTES = 8
_SHOWN_BITS = 256
_BYTES_OR_NONE = {bytes, type(None)}


class BytesSerde(BaseSerde[bytes]):
    """Bytes as they are.

    >>> from millstream import serdes
    >>> serdes.bytes.serialize(b"raw")
    b'raw'
    """

    name = "serdes.bytes"
    exact_types = frozenset({bytes})

    def serialize(self, value: bytes, /) -> bytes:
        if not isinstance(value, bytes):
            raise wrong_type("bytes", value)
        return value

    def deserialize(self, data: bytes, /) -> bytes:
        return data

    def serialize_many(self, values: Sequence[bytes | None]) -> list[bytes | None]:
        if set(map(type, values)) <= _BYTES_OR_NONE:
            return values if isinstance(values, list) else list(values)
        return super().serialize_many(values)

    def deserialize_many(self, column: Sequence[bytes | None]) -> list[bytes | None]:
        return column if isinstance(column, list) else list(column)


class StringSerde(BaseSerde[str]):
    r"""Text as UTF-8. Ill-formed bytes are an error, never a replacement character.

    >>> from millstream import serdes
    >>> serdes.string.serialize("müll")
    b'm\xc3\xbcll'
    """

    name = "serdes.string"
    exact_types = frozenset({str})

    def serialize(self, value: str, /) -> bytes:
        if not isinstance(value, str):
            raise wrong_type("str", value)
        return value.encode()

    def deserialize(self, data: bytes, /) -> str:
        return data.decode()

    def serialize_many(self, values: Sequence[str | None]) -> list[bytes | None]:
        encode: Any = str.encode  # unbound, so that it refuses what is not a str
        try:
            return list(map(encode, values))
        except TypeError:
            return [None if value is None else encode(value) for value in values]

    def deserialize_many(self, column: Sequence[bytes | None]) -> list[str | None]:
        decode: Any = bytes.decode
        try:
            return list(map(decode, column))
        except TypeError:
            return [None if data is None else data.decode() for data in column]


class _NumberSerde(BaseSerde[N]):
    """A number of fixed width, big endian."""

    def __init__(self, name: str, code: str) -> None:
        self.name = name
        self._struct = struct.Struct(code)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self._struct.format)

    @property
    def size(self) -> int:
        """How many bytes a number has."""
        return self._struct.size

    def deserialize(self, data: bytes, /) -> N:
        if len(data) != self._struct.size:
            raise ValueError(f"expected {self._struct.size} bytes, got {len(data)}")
        number: N = self._struct.unpack(data)[0]
        return number

    def deserialize_many(self, column: Sequence[bytes | None]) -> list[N | None]:
        unpack = self._struct.unpack
        return [None if data is None else unpack(data)[0] for data in column]


class IntSerde(_NumberSerde[int]):
    """A whole number of fixed width: two's complement, big endian.

    >>> from millstream import serdes
    >>> serdes.int64.serialize(258).hex()
    '0000000000000102'
    >>> serdes.int16.serialize(70_000)
    Traceback (most recent call last):
    ValueError: 70000 does not fit into 16 bits
    """

    exact_types = frozenset({int})

    def serialize(self, value: int, /) -> bytes:
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong_type("int", value)
        try:
            return self._struct.pack(value)
        except struct.error:
            raise ValueError(f"{_shown(value)} does not fit into {8 * self._struct.size} bits") from None

    def serialize_many(self, values: Sequence[int | None]) -> list[bytes | None]:
        pack, slow = self._struct.pack, self.serialize
        if set(map(type, values)) == {int}:
            return list(map(pack, values))
        return [
            pack(value) if type(value) is int else None if value is None else slow(value) for value in values
        ]

    def deserialize_many(self, column: Sequence[bytes | None]) -> list[int | None]:
        present: Any = column
        if None not in column and set(map(len, present)) == {self._struct.size}:
            return list(struct.unpack(f">{len(column)}{self._struct.format[1]}", b"".join(present)))
        return super().deserialize_many(column)


class FloatSerde(_NumberSerde[float]):
    """An IEEE 754 number, big endian. Takes an ``int`` too when it comes back equal.

    >>> from millstream import serdes
    >>> serdes.double.deserialize(serdes.double.serialize(0.5))
    0.5
    >>> serdes.double.serialize(2**53 + 1)
    Traceback (most recent call last):
    ValueError: 9007199254740993 has no exact float
    """

    def __init__(self, name: str, code: str) -> None:
        super().__init__(name, code)
        self.exact_types = frozenset({float} if self.size == _DOUBLE_BYTES else ())

    def serialize(self, value: float, /) -> bytes:
        if isinstance(value, float):
            return self._struct.pack(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong_type("float", value)
        try:
            data = self._struct.pack(value)
            if self._struct.unpack(data)[0] == value:
                return data
        except (OverflowError, struct.error):
            pass
        raise ValueError(f"{_shown(value)} has no exact float")

    def serialize_many(self, values: Sequence[float | None]) -> list[bytes | None]:
        pack, slow = self._struct.pack, self.serialize
        return [
            pack(value) if type(value) is float else None if value is None else slow(value)
            for value in values
        ]


class BooleanSerde(BaseSerde[bool]):
    r"""One byte: 1 is true, 0 is false.

    >>> from millstream import serdes
    >>> serdes.boolean.serialize(True)
    b'\x01'
    """

    name = "serdes.boolean"
    exact_types = frozenset({bool})

    def serialize(self, value: bool, /) -> bytes:  # noqa: FBT001 - the value is what is serialized
        if value is True:
            return b"\x01"
        if value is False:
            return b"\x00"
        raise wrong_type("bool", value)

    def deserialize(self, data: bytes, /) -> bool:
        if data == b"\x01":
            return True
        if data == b"\x00":
            return False
        raise ValueError("expected the one byte 00 or 01")


class UuidSerde(BaseSerde[UUID]):
    """A UUID as its 36 characters, as Kafka's.

    >>> from millstream import serdes
    >>> serdes.uuid.serialize(UUID(int=7))
    b'00000000-0000-0000-0000-000000000007'
    """

    name = "serdes.uuid"
    exact_types = frozenset({UUID})

    def serialize(self, value: UUID, /) -> bytes:
        if not isinstance(value, UUID):
            raise wrong_type("uuid.UUID", value)
        return str(value).encode("ascii")

    def deserialize(self, data: bytes, /) -> UUID:
        if len(data) != _UUID_LENGTH:
            raise ValueError(f"expected the 36 characters of a UUID, got {len(data)} bytes")
        text = data.decode("ascii")
        value = UUID(text)
        if str(value) != text.lower():  # Python also takes hyphens, braces and underscores in odd places
            raise ValueError("expected a UUID written as 8-4-4-4-12 hex digits")
        return value


def _shown(value: int) -> str:
    # Python refuses to print numbers of more than 4300 digits.
    return str(value) if value.bit_length() <= _SHOWN_BITS else f"a number of {value.bit_length()} bits"


PRIMITIVES: Final = (BytesSerde, StringSerde, IntSerde, FloatSerde, BooleanSerde, UuidSerde)
