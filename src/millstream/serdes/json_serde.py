"""JSON through msgspec: plain, or checked against a declared schema.

``serdes.json`` takes whatever JSON can say and gives back dicts, lists, strings and numbers. What JSON
cannot say changes on the way: a tuple comes back as a list, a date as text, NaN as null.

``serdes.json(schema)`` knows the type. It refuses bytes that do not fit, and it refuses to write a value
that would not come back equal, so that no bad value is found only when it is read. Fields that the
schema does not name are ignored when reading. The check costs one more round trip per value written.

Keys are written in sorted order, without white space: the same value gives the same bytes, so JSON can
be a state key. With a schema, ``1`` in a float field is written as ``1.0``, for the two are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

import msgspec

from millstream.serdes.api import BaseSerde, short_repr
from millstream.serdes.records import plain_record
from millstream.serdes.schema import describe_schema, schema_type

T = TypeVar("T")

_encode = msgspec.json.Encoder(order="sorted").encode
decode_json = msgspec.json.Decoder().decode


class DecodedJson(BaseSerde[T]):
    """What serdes of JSON share: reading."""

    def __init__(self, decode: Callable[[bytes], T]) -> None:
        self._decode = decode

    def deserialize(self, data: bytes, /) -> T:
        return self._decode(data)

    def deserialize_many(self, column: Sequence[bytes | None]) -> list[T | None]:
        decode = self._decode
        return [None if data is None else decode(data) for data in column]


class VerifiedJson(DecodedJson[T]):
    """JSON that refuses to write what would not come back equal."""

    def serialize(self, value: T, /) -> bytes:
        """Encode the value and make sure that it can be read again."""
        return _encode_verified(value, self._decode)

    def serialize_many(self, values: Sequence[T | None]) -> list[bytes | None]:
        decode = self._decode
        return [None if value is None else _encode_verified(value, decode) for value in values]


class JsonSerde(DecodedJson[Any]):
    """Plain JSON; call it with a schema to get a checked one.

    >>> from millstream import serdes
    >>> serdes.json.serialize({"shop": "north", "amount": 3})
    b'{"amount":3,"shop":"north"}'
    >>> serdes.json.deserialize(b"[1, 2.5, null]")
    [1, 2.5, None]
    """

    name = "serdes.json"

    def __init__(self) -> None:
        super().__init__(decode_json)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()

    @overload
    def __call__(self, schema: type[T], /) -> TypedJsonSerde[T]: ...
    @overload
    def __call__(self, schema: Mapping[str, Any], /) -> TypedJsonSerde[dict[str, Any]]: ...
    def __call__(self, schema: Any, /) -> TypedJsonSerde[Any]:
        """Return a serde for one declared shape.

        The schema is a dataclass, a TypedDict, any other type that msgspec knows, or a mapping from
        field names to Python types or Polars data types. A Polars type admits null, as a Polars column
        does; a Python type admits it only when it says so (``int | None``).

        >>> from dataclasses import dataclass
        >>> from millstream import serdes
        >>> @dataclass(frozen=True)
        ... class Order:
        ...     shop: str
        ...     amount: int
        >>> serdes.json(Order).deserialize(b'{"shop": "north", "amount": 3}')
        Order(shop='north', amount=3)
        >>> serdes.json({"shop": str, "amount": int}).serialize({"shop": "north", "amount": "3"})
        Traceback (most recent call last):
        ValueError: the value would not be readable again: Expected `int`, got `str` - at `$.amount`
        """
        return TypedJsonSerde(schema)

    def serialize(self, value: Any, /) -> bytes:
        return _encode(value)

    def serialize_many(self, values: Sequence[Any]) -> list[bytes | None]:
        return [None if value is None else _encode(value) for value in values]


class TypedJsonSerde(VerifiedJson[T]):
    """JSON of one declared shape; made by ``serdes.json(schema)``.

    ``schema`` is what the user declared.

    >>> from millstream import serdes
    >>> serdes.json({"shop": str}).schema
    {'shop': <class 'str'>}
    """

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self.name = f"serdes.json({describe_schema(schema)})"
        super().__init__(_schema_decoder(schema, self.name))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.schema,)


def _schema_decoder(schema: Any, name: str) -> Any:
    """Return the ``decode`` function of a schema, or raise TypeError for what is none."""
    try:
        return msgspec.json.Decoder(schema_type(schema)).decode
    except TypeError as cause:
        raise TypeError(
            f"{name}: the schema cannot be used: {cause}. Remedy: give a dataclass, a TypedDict, or a "
            "mapping from field names to types, for example serdes.json({'shop': str, 'amount': int})."
        ) from cause


def _encode_verified(value: Any, decode: Callable[[bytes], Any]) -> bytes:
    """Encode a value, or raise ValueError when ``decode`` would not give an equal value back.

    What is returned is the encoding of the value that came back: 1 and 1.0 in a float field give the
    same bytes. A dict may stand for a dataclass of the same fields.
    """
    data = _encode(value)
    try:
        returned = decode(data)
    except msgspec.DecodeError as cause:
        raise ValueError(f"the value would not be readable again: {cause}") from cause
    if returned != value and _has_equality(type(value)) and plain_record(returned) != value:
        raise ValueError(f"the value would not come back equal from JSON, but as {short_repr(returned)}")
    return _encode(returned)


def _has_equality(cls: type) -> bool:
    """Tell whether a class has an == of its own; without one, only decoding can be the check."""
    equality: object = cls.__eq__
    return equality is not object.__eq__
