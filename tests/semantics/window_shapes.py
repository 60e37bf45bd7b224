"""What cases of windows are made of: numbers by key, and the stores of windows."""

from __future__ import annotations

from typing import TypeAlias

from tests.semantics.shapes import NUMBERS, numbers

from millstream import (
    KGroupedStream,
    KTable,
    SlidingWindows,
    Store,
    StreamsBuilder,
    TimeWindows,
    UnlimitedWindows,
    Windowed,
    serdes,
)
from millstream.serdes import Serde

KEEP = 100_000
"""A retention that lets go of nothing in these cases."""

UNLIMITED_MS = 2**63 - 1

Counts: TypeAlias = KTable[Windowed[str], int]


def grouped(b: StreamsBuilder) -> KGroupedStream[str, int]:
    return numbers(b, "in").group_by_key(**NUMBERS)


def number_windows(name: str, retention: int | None = None, *, caching: bool = True) -> Store:
    """A store of windows or sessions of numbers."""
    return Store(name, key=serdes.string, value=serdes.int64, retention=retention, caching=caching)


def word_windows(name: str, retention: int | None = None, *, caching: bool = True) -> Store:
    """A store of windows or sessions of words."""
    return Store(name, key=serdes.string, value=serdes.string, retention=retention, caching=caching)


def in_windows(size_ms: int) -> Serde[Windowed[str]]:
    """The keys of time windows and of sliding windows of a size."""
    return serdes.time_windowed(serdes.string, size_ms)


def in_sessions() -> Serde[Windowed[str]]:
    return serdes.session_windowed(serdes.string)


def counted(
    b: StreamsBuilder,
    windows: TimeWindows | SlidingWindows | UnlimitedWindows,
    retention: int | None = None,
) -> Counts:
    """A cached count in windows."""
    return grouped(b).windowed_by(windows).count(store=number_windows("counts", retention))
