"""Confluent's wire format: a zero byte and the four bytes of a schema id in front of a value's own bytes.

Producers that use a schema registry write it. The ids are given by the user: nothing here asks a registry.
"""

from __future__ import annotations

import struct

_PREFIX = struct.Struct(">bI")
_MAGIC = 0


def framed(schema_id: int, payload: bytes) -> bytes:
    r"""The payload behind the id of its schema.

    >>> framed(7, b"payload")
    b'\x00\x00\x00\x00\x07payload'
    """
    return _PREFIX.pack(_MAGIC, schema_id) + payload


def unframed(data: bytes) -> tuple[int, bytes]:
    """The id of the schema, and the payload.

    >>> unframed(framed(7, b"payload"))
    (7, b'payload')
    """
    if len(data) < _PREFIX.size or data[0] != _MAGIC:
        raise ValueError("expected a zero byte and the four bytes of a schema id in front")
    return _PREFIX.unpack_from(data)[1], data[_PREFIX.size :]
