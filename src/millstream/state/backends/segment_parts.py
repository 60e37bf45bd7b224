"""Rows kept apart by segment, for backends that can drop a part of a store but not a range of keys.

A **part** is what has the rows of one segment: those whose keys begin with its name. Keys too short to have a
segment are in the part without a name, which is always there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from millstream.state.backends.base import KeyRange
from millstream.state.backends.key_ranges import after_prefix

T = TypeVar("T")

UNNAMED: Final = b""

PartRange = tuple[bytes, bytes, bytes | None]
"""The name of a part, and the keys in it: from one (inclusive) to another (exclusive) or the end."""


def grouped(items: list[T], keys: list[bytes], segment_bytes: int) -> Iterator[tuple[bytes, list[T]]]:
    """Ascending items, whose keys are given, by the part that they belong to, still ascending."""
    if not segment_bytes or not items:
        yield UNNAMED, items
        return
    at = 0
    while at < len(items):
        name = keys[at][:segment_bytes]
        if len(name) < segment_bytes:
            yield UNNAMED, items[at : at + 1]
            at += 1
            continue
        behind = after_prefix(name)
        stop = len(items) if behind is None else bisect_left(keys, behind, at)
        yield name, items[at:stop]
        at = stop


def ranges_of_parts(
    parts: Iterable[bytes], start: bytes, end: bytes | None, *, reverse: bool = False
) -> list[PartRange]:
    """Cut a range of keys into ascending (or descending) ranges, each inside one part.

    >>> ranges_of_parts([b"", b"s1", b"s2"], b"s1x", None)
    [(b's1', b's1x', None), (b'', b's1x', b's2'), (b's2', b's1x', None), (b'', b's2', None)]
    """
    found: list[PartRange] = []
    position = start
    for name in sorted(parts):
        if name == UNNAMED or (end is not None and name >= end):
            continue
        if name < start and not start.startswith(name):
            continue
        if position < name:  # keys too short to have a segment
            found.append((UNNAMED, position, name))
        found.append((name, start, end))
        position = max(position, name)
    found.append((UNNAMED, position, end))
    return found[::-1] if reverse else found


def is_dropped_whole(part: bytes, drop: KeyRange) -> bool:
    """Whether a range has all keys of a part."""
    start, end = drop
    return part != UNNAMED and start <= part < end and not end.startswith(part)
