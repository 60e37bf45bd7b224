"""Ranges of keys, as bytes compare."""

from __future__ import annotations


def after_prefix(prefix: bytes) -> bytes | None:
    r"""The smallest key above all keys that begin with the prefix; None if there is none.

    >>> after_prefix(b"a\xff"), after_prefix(b"\xff")
    (b'b', None)
    """
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
