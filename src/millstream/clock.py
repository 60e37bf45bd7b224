"""Durations: milliseconds, or `datetime.timedelta`."""

from __future__ import annotations

from datetime import timedelta


def milliseconds(duration: int | timedelta) -> int:
    """A duration in whole milliseconds.

    >>> milliseconds(timedelta(seconds=2)), milliseconds(5)
    (2000, 5)
    """
    return duration if isinstance(duration, int) else duration // timedelta(milliseconds=1)
