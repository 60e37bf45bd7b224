"""A look at RocksDB's journals (its manifest and its log) before RocksDB reads them.

A record of a journal has a byte that says what it is. One that is damaged so that it looks like a record of
a recycled file (5 to 8; such files are never made here) lets RocksDB read the same place for ever, and a
process that opens the store hangs. So these are looked for first. What else is damaged RocksDB finds itself.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

_BLOCK: Final = 32 << 10
_HEADER: Final = struct.Struct("<IHB")
"""Checksum, length, kind."""
_RECYCLED: Final = range(5, 9)


def damaged_journal(folder: Path) -> str | None:
    """Which journal of a database RocksDB must not be given, and why; None if there is none."""
    for path in sorted([*folder.glob("MANIFEST-*"), *folder.glob("*.log")]):
        place = _recycled(path.read_bytes())
        if place is not None:
            return f"{path.name} has a record of a kind that was never written, at byte {place}"
    return None


def _recycled(data: bytes) -> int | None:
    """Where the first record begins that claims to be of a recycled file."""
    position = 0
    while position + _HEADER.size <= len(data):
        left = _BLOCK - position % _BLOCK
        if left < _HEADER.size:  # the rest of a block is too short for a record
            position += left
            continue
        _, length, kind = _HEADER.unpack_from(data, position)
        if kind in _RECYCLED:
            return position
        if length + _HEADER.size > left:
            return None  # RocksDB finds that
        position += _HEADER.size + length
    return None
