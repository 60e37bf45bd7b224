r"""Room for one key below the empty one.

LMDB refuses the empty key, and RocksDB's marker needs a key that no user has. So keys are **lifted**: a key
of nothing but zero bytes (the empty key is one) gets one more zero; every other key stays as it is.

::

    b""      ->  b"\0"              b"a"      ->  b"a"
    b"\0"    ->  b"\0\0"            b"\0a"    ->  b"\0a"

No key is lifted to ``b""``, and two keys never to the same one. Order is kept: an all-zero key is smaller
than every key with another byte in it, before and after, and among themselves they keep their lengths' order.

And it is free: all-zero keys come first in any ascending sequence, so in a sorted batch only the head has to
be looked at.
"""

from __future__ import annotations

from millstream.state.backends.api import Entry, Row

__all__ = ["lift", "lift_entries", "lift_keys", "lower", "lower_page"]

_ZERO = b"\0"


def lift(key: bytes) -> bytes:
    r"""Return the key as it is stored.

    >>> lift(b""), lift(b"\0"), lift(b"\0a")
    (b'\x00', b'\x00\x00', b'\x00a')
    """
    return key if key.strip(_ZERO) else key + _ZERO


def lower(stored: bytes) -> bytes:
    r"""Undo :func:`lift`.

    >>> lower(lift(b"\0\0"))
    b'\x00\x00'
    """
    return stored if stored.strip(_ZERO) else stored[:-1]


def lift_keys(keys: list[bytes]) -> list[bytes]:
    """Lift ascending keys."""
    head = 0
    for key in keys:
        if key.strip(_ZERO):
            break
        head += 1
    return [key + _ZERO for key in keys[:head]] + keys[head:] if head else keys


def lift_entries(entries: list[Entry]) -> list[Entry]:
    """Lift the keys of ascending entries."""
    head = 0
    for key, _ in entries:
        if key.strip(_ZERO):
            break
        head += 1
    return [(key + _ZERO, value) for key, value in entries[:head]] + entries[head:] if head else entries


def lower_page(rows: list[Row]) -> list[Row]:
    """Lower the keys of rows that are ascending or descending."""
    if rows and not (rows[0][0].strip(_ZERO) and rows[-1][0].strip(_ZERO)):
        return [(lower(key), value) for key, value in rows]
    return rows
