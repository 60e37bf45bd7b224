"""Times and durations: milliseconds, or `datetime.timedelta`."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Final

from millstream.errors import MillstreamError, TopologyError
from millstream.record import MAX_TIME

_MILLISECOND: Final = timedelta(milliseconds=1)


def milliseconds(
    duration: int | timedelta, what: str = "a duration", error: type[MillstreamError] = TopologyError
) -> int:
    """A duration in whole milliseconds; `what` names it where it is refused.

    >>> milliseconds(timedelta(seconds=2)), milliseconds(5)
    (2000, 5)
    >>> milliseconds(1.5, "the grace")
    Traceback (most recent call last):
    millstream.errors.TopologyError: the grace is 1.5, which is no duration. Remedy: ...
    """
    if isinstance(duration, timedelta):
        found, rest = divmod(duration, _MILLISECOND)
        if rest:
            raise error(
                f"{what} is {duration!r}, which is no whole number of milliseconds. Remedy: round it to "
                f"{found} ms or {found + 1} ms"
            )
    elif isinstance(duration, int) and not isinstance(duration, bool):
        found = duration
    else:
        raise error(
            f"{what} is {duration!r}, which is no duration. Remedy: give whole milliseconds (an int) or a "
            "datetime.timedelta"
        )
    if abs(found) > MAX_TIME:
        raise error(
            f"{what} is {found} ms, which does not fit. Remedy: give at most {MAX_TIME} ms (2**63 - 1)"
        )
    return found


def not_negative(what: str, duration: int | timedelta) -> int:
    """A duration of a program in milliseconds, or the refusal of one below 0.

    >>> not_negative("the grace of windows", timedelta(seconds=2))
    2000
    """
    found = milliseconds(duration, what)
    if found < 0:
        raise TopologyError(f"{what} is {found} ms. Remedy: give 0 or more milliseconds")
    return found


def now_ms() -> int:
    """The machine's clock. For coordinators and logs: tasks read the clock of their epoch."""
    return time.time_ns() // 1_000_000
