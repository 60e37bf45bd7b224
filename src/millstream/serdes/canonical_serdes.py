"""Serdes of which every value has one form in bytes: what can be read is what would be written again.

Bytes that came from elsewhere may then stand for the bytes of a store, without a look at the values. JSON has
many forms of a value (spaces, the order of keys), a UUID two (upper and lower case), a number that is not a
number millions, and of a serde of the user's own nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.serdes.primitives import BooleanSerde, BytesSerde, IntSerde, StringSerde

Readable = Callable[[pa.Array], pa.Array]
"""From a column of bytes: which of them the serde reads. Nulls stay nulls."""


def readable_by(serde: Any) -> Readable | None:
    r"""What a serde can read, None if its values may have several forms. No serde means bytes.

    >>> from millstream import serdes
    >>> readable_by(serdes.string)(pa.array([b"sea", b"\xff", None])).to_pylist()
    [True, False, None]
    >>> readable_by(serdes.json) is None
    True
    """
    if serde is None:
        return _all
    make = _MAKERS.get(type(serde))
    return None if make is None else make(serde)


def _all(column: pa.Array) -> pa.Array:
    return pc.equal(pc.binary_length(column), pc.binary_length(column))


def _text(column: pa.Array) -> pa.Array:
    try:
        column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if data is None else _is_text(data) for data in column.to_pylist()], pa.bool_())
    return _all(column)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _of_size(size: int, column: pa.Array) -> pa.Array:
    return pc.equal(pc.binary_length(column), size)


def _boolean(column: pa.Array) -> pa.Array:
    return pc.or_(pc.equal(column, b"\x00"), pc.equal(column, b"\x01"))


_MAKERS: Final[dict[type, Callable[[Any], Readable]]] = {
    BytesSerde: lambda _: _all,
    StringSerde: lambda _: _text,
    IntSerde: lambda serde: partial(_of_size, serde.size),
    BooleanSerde: lambda _: _boolean,
}
"""By exact type: a subclass may do anything."""
