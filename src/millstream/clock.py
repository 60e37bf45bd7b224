"""Times and durations: milliseconds, or `datetime.timedelta`."""

from __future__ import annotations

import time
from datetime import timedelta


def milliseconds(duration: int | timedelta) -> int:
    """A duration in whole milliseconds.

    >>> milliseconds(timedelta(seconds=2)), milliseconds(5)
    (2000, 5)
    """
    return duration if isinstance(duration, int) else duration // timedelta(milliseconds=1)


def now_ms() -> int:
    """The machine's clock. For coordinators and logs: tasks read the clock of their epoch."""
    return time.time_ns() // 1_000_000
