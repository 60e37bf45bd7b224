"""What a long-lived application is given, and what it must hold: plain Python, which knows no store.

What comes in is a function of its place in the input, so that whoever restarts, or judges, knows it without
being told. Time goes on with every record, a little out of order; some records come much too late.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import NamedTuple

KEYS = 20_000
VALUE_BYTES = 200
WINDOW_MS = 100
RETENTION_MS = 6_000
SEGMENT_MS = 500


class Arrival(NamedTuple):
    """A record of the input. None as its value deletes."""

    key: bytes
    value: bytes | None
    time: int


def arrival(offset: int) -> Arrival:
    """The input at an offset: first every key once, then random ones, of which some are deleted."""
    rng = random.Random(offset)
    key = offset if offset < KEYS else rng.randrange(KEYS)
    is_delete = offset >= KEYS and rng.random() < 0.02
    value = None if is_delete else rng.randbytes(VALUE_BYTES)
    behind = rng.choice((0, 0, 0, 150, 950)) if rng.random() < 0.99 else 2 * RETENTION_MS
    return Arrival(b"key-%06d" % key, value, max(0, offset - behind))


class Model:
    """The rows of both stores after so many records."""

    def __init__(self) -> None:
        self.records = 0
        self.latest: dict[bytes, bytes] = {}
        self.first_live = 0
        """The first segment of windows that has not expired."""
        self._segments: dict[int, dict[bytes, bytes]] = {}
        self._observed = -1

    def take_to(self, records: int) -> None:
        """Take the input in, up to so many records."""
        for offset in range(self.records, records):
            key, value, time = arrival(offset)
            _put(self.latest, key, value)
            self._put_window(key, value, time - time % WINDOW_MS)
        self.records = records

    def stores(self) -> dict[str, dict[bytes, bytes]]:
        """All rows, as bytes, by store."""
        note = struct.pack(">BqqqI", 1, SEGMENT_MS, self._observed, self.first_live, 0)
        return {"latest": self.latest, "windows": {b"": note, **dict(self._windows())}}

    def live_bytes(self) -> int:
        """Of keys and values."""
        return sum(len(key) + len(value) for rows in self.stores().values() for key, value in rows.items())

    def _windows(self) -> Iterator[tuple[bytes, bytes]]:
        for rows in self._segments.values():
            yield from rows.items()

    def _put_window(self, key: bytes, value: bytes | None, start: int) -> None:
        self._observed = max(self._observed, start)
        if start <= self._observed - RETENTION_MS:
            return
        segment = start // SEGMENT_MS
        row = struct.pack(">Q", segment) + key + struct.pack(">qI", start, 0)
        _put(self._segments.setdefault(segment, {}), row, value)
        first = max(self.first_live, (self._observed - RETENTION_MS) // SEGMENT_MS)
        for expired in range(self.first_live, first):
            self._segments.pop(expired, None)
        self.first_live = first


def _put(rows: dict[bytes, bytes], key: bytes, value: bytes | None) -> None:
    if value is None:
        rows.pop(key, None)
    else:
        rows[key] = value
