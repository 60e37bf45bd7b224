"""Ranges of keys, as bytes compare."""

from __future__ import annotations

from collections.abc import Iterable


def after_prefix(prefix: bytes) -> bytes | None:
    r"""The smallest key above all keys that begin with the prefix; None if there is none.

    >>> after_prefix(b"a\xff"), after_prefix(b"\xff")
    (b'b', None)
    """
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def disjoint(ranges: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Ranges, each from a key (inclusive) to another (exclusive), in order and without overlaps.

    >>> disjoint([(b"c", b"d"), (b"a", b"b"), (b"aa", b"bb")])
    [(b'a', b'bb'), (b'c', b'd')]
    """
    found: list[tuple[bytes, bytes]] = []
    behind = b""
    for start, end in sorted(ranges):
        if found and start <= behind:
            behind = max(behind, end)
            found[-1] = (found[-1][0], behind)
        else:
            behind = end
            found.append((start, end))
    return found
