"""Where a source begins that was never read: at the beginning, at the end, or at a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

OffsetReset: TypeAlias = "Literal['earliest', 'latest'] | int | datetime | timedelta"
"""A time is in milliseconds or a datetime with its zone; a timedelta is so long before the first look."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_offset_reset(value: object) -> bool:
    """Whether a source can begin there.

    >>> is_offset_reset("latest"), is_offset_reset("last"), is_offset_reset(datetime(2026, 1, 1))
    (True, False, False)
    """
    if isinstance(value, str):
        return value in {"earliest", "latest"}
    if isinstance(value, datetime):
        return value.tzinfo is not None
    if isinstance(value, timedelta):
        return value >= timedelta()
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def how_to_reset() -> str:
    """The remedy of a value that is none."""
    return (
        "use 'earliest', 'latest', a time (milliseconds, or a datetime with its zone), or a timedelta before "
        "now"
    )


def reset_time(reset: int | datetime | timedelta, now_ms: int) -> int:
    """The time in milliseconds at which to begin.

    >>> reset_time(datetime(1970, 1, 1, 0, 1, tzinfo=UTC), 0), reset_time(timedelta(seconds=2), 5_000)
    (60000, 3000)
    """
    if isinstance(reset, timedelta):
        return max(0, now_ms - reset // timedelta(milliseconds=1))
    return reset if isinstance(reset, int) else (reset - _EPOCH) // timedelta(milliseconds=1)
