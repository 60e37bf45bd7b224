r"""Keys as they are stored: room for one key below the empty one.

LMDB refuses the empty key, and RocksDB's marker needs a key that no user has. So a key of nothing but zero
bytes (the empty key is one) gets one more zero; every other key stays as it is.

::

    b""      ->  b"\0"              b"a"      ->  b"a"
    b"\0"    ->  b"\0\0"            b"\0a"    ->  b"\0a"

No key is encoded as ``b""``, and two keys never alike. Order is kept: an all-zero key is smaller than every
key with another byte in it, before and after, and among themselves they keep their lengths' order.

And it is free: all-zero keys come first in any ascending sequence, so in a sorted batch only the head has to
be looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from millstream.state.backends.base import Entry, Row

_ZERO = b"\0"


def encode_key(key: bytes) -> bytes:
    r"""Return the key as it is stored.

    >>> encode_key(b""), encode_key(b"\0"), encode_key(b"\0a")
    (b'\x00', b'\x00\x00', b'\x00a')
    """
    return key if key.strip(_ZERO) else key + _ZERO


def decode_key(stored: bytes) -> bytes:
    r"""Undo :func:`encode_key`.

    >>> decode_key(encode_key(b"\0\0"))
    b'\x00\x00'
    """
    return stored if stored.strip(_ZERO) else stored[:-1]


def encode_keys(keys: list[bytes]) -> list[bytes]:
    """Encode ascending keys."""
    head = _all_zero(keys)
    return [key + _ZERO for key in keys[:head]] + keys[head:] if head else keys


def encode_entries(entries: list[Entry]) -> list[Entry]:
    """Encode the keys of ascending entries."""
    head = _all_zero(map(itemgetter(0), entries))
    return [(key + _ZERO, value) for key, value in entries[:head]] + entries[head:] if head else entries


def decode_rows(rows: list[Row]) -> list[Row]:
    """Decode the keys of rows that are ascending or descending."""
    if rows and not (rows[0][0].strip(_ZERO) and rows[-1][0].strip(_ZERO)):
        return [(decode_key(key), value) for key, value in rows]
    return rows


def _all_zero(keys: Iterable[bytes]) -> int:
    """How many keys in front are nothing but zeros."""
    head = 0
    for key in keys:
        if key.strip(_ZERO):
            break
        head += 1
    return head
