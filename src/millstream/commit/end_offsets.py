"""Where source partitions end: looked at where somebody has written, if the log can tell; else everywhere.

An epoch reads a few partitions of many, and to open a file of each of the others only to find that nothing
has come costs more than to read the few. What the log does not tell of (another host's write to a shared file
system) is found when all are looked at: now and then, and whenever there is nothing else to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from millstream.log.api import Log, LogWatch, TopicPartition
from millstream.types import Offset

__all__ = ["EndOffsets"]

_LOOK_AT_ALL_S: Final = 1.0
_LOOK_TIMES: Final = 20
"""So long epochs take for granted what nobody has told of; or so many times as long as it takes to look."""


class EndOffsets:
    """The ends of some partitions, as of the last look. `look` at them first, or `look_at_all`."""

    def __init__(self, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._places: Sequence[TopicPartition] = ()
        self._ends: dict[TopicPartition, Offset] = {}
        self._watch: LogWatch | None = None
        self._look_again = clock()
        self.is_complete = False
        """Nothing that was in the log before the last look is missing."""

    @property
    def is_told(self) -> bool:
        """The log tells of new records."""
        return self._watch is not None

    def look(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Where the partitions end. What is known may be older than the last write to a partition."""
        if places != self._places:
            self.close()
            self._places = places
            self._watch = self._log.watch(places)
            return self.look_at_all()
        if self._watch is None or self._clock() >= self._look_again:
            return self.look_at_all()
        changed = self._watch.changed()
        if changed is None:
            self.close()
            return self.look(places)  # watches anew what is there
        self._ends.update((place, self._log.latest(place)) for place in changed)
        self.is_complete = False
        return self._ends

    def look_at_all(self) -> dict[TopicPartition, Offset]:
        """Where the same partitions end, after a look at each of them."""
        if self._watch is not None:
            self._watch.changed()  # before the look: what comes after it is told the next time
        began = self._clock()
        self._ends = {place: self._log.latest(place) for place in self._places}
        ended = self._clock()
        self._look_again = ended + max(_LOOK_AT_ALL_S, _LOOK_TIMES * (ended - began))
        self.is_complete = True
        return self._ends

    def wait(self, timeout_s: float) -> bool:
        """Wait for a write to one of the partitions; False if none came in time, or nobody tells of it."""
        if self._watch is not None:
            return self._watch.wait(timeout_s)
        time.sleep(max(0.0, timeout_s))
        return False

    def close(self) -> None:
        """Be told no more, until the next look."""
        self._places = ()
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
