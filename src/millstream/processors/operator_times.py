"""What an operator of windows knows of time: its own stream time, and up to when it has emitted windows.

They are kept with the commit, per operator and task, so that a restart forgets nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["UNKNOWN_TIME", "OperatorTimes"]

UNKNOWN_TIME: Final = -1


@dataclass(slots=True)
class OperatorTimes:
    """The times of one operator in one task."""

    observed: int = UNKNOWN_TIME
    """The largest timestamp that it has seen."""
    emitted: int = UNKNOWN_TIME
    """Windows that had closed by then were emitted, where they are emitted on close. In an outer join of
    streams: the time of the record without a partner that is waited for (see `joins.unmatched`)."""
    active: int = UNKNOWN_TIME
    """Where windows close by the clock: the wall clock when stream time last moved or a record came."""
    open_until: int = UNKNOWN_TIME
    """Where windows close by the clock: the stream time at which all that records have opened has closed."""
