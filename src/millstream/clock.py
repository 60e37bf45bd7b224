"""Times and durations: milliseconds, or `datetime.timedelta`."""

from __future__ import annotations

import time
from datetime import timedelta

from millstream.errors import TopologyError


def milliseconds(duration: int | timedelta) -> int:
    """A duration in whole milliseconds.

    >>> milliseconds(timedelta(seconds=2)), milliseconds(5)
    (2000, 5)
    """
    return duration if isinstance(duration, int) else duration // timedelta(milliseconds=1)


def not_negative(what: str, duration: int | timedelta) -> int:
    """A duration of a program in milliseconds, or the refusal of one below 0.

    >>> not_negative("the grace of windows", timedelta(seconds=2))
    2000
    """
    found = milliseconds(duration)
    if found < 0:
        raise TopologyError(f"{what} is {found} ms. Remedy: give 0 or more milliseconds")
    return found


def now_ms() -> int:
    """The machine's clock. For coordinators and logs: tasks read the clock of their epoch."""
    return time.time_ns() // 1_000_000
