"""The last commits of an application, and since when each of them was the last one."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from operator import itemgetter
from typing import Final

from millstream.commit.manifest import Manifest
from millstream.types import Epoch

__all__ = ["CommitTimes"]

_MOST: Final = 8_192
"""So many are remembered. Who allows answers that are older gets such as are not."""


class CommitTimes:
    """Told by the process that commits; asked by any thread of it.

    `read_head` is asked for the last commit before the first that is told.
    """

    def __init__(
        self, read_head: Callable[[], Manifest | None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read_head = read_head
        self._clock = clock
        self._lock = threading.Lock()
        self._head: Manifest | None = None
        self._times: list[tuple[float, Epoch]] = []

    def note(self, manifest: Manifest) -> None:
        """A commit that everybody can see."""
        with self._lock:
            self._take(manifest)

    def head(self) -> Manifest | None:
        """The last commit; None before the first."""
        with self._lock:
            if self._head is None:
                found = self._read_head()
                if found is not None:
                    self._take(found)
            return self._head

    def last_before(self, seconds: float) -> Epoch:
        """The commit that was the last one so long ago, or a later one if that is not known any more."""
        with self._lock:
            if not self._times:
                return Epoch(0)
            at = bisect_right(self._times, self._clock() - seconds, key=itemgetter(0))
            return self._times[max(0, at - 1)][1]

    def _take(self, manifest: Manifest) -> None:
        if self._head is None or manifest.epoch > self._head.epoch:
            self._head = manifest
            self._times.append((self._clock(), manifest.epoch))
            if len(self._times) > 2 * _MOST:
                del self._times[:_MOST]
