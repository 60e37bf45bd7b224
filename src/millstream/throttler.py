"""Long works beside the epochs, in small steps that give way to an epoch at work.

A work that computes for tenths of a second takes a core from an epoch of some milliseconds, and Python's lock
again and again. So it calls :func:`maybe_throttle` after each of its small steps; in a thread that is not
throttled that does nothing. As with the cleaner of Kafka's log, nothing depends on it but when work is done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["Throttler", "maybe_throttle"]

_STEP_S: Final = 0.002
"""So long it works before it looks whether an epoch is at work."""
SMALL_EPOCH_S: Final = 0.05
"""An epoch that takes longer is not given way any more: it does not matter to it, and might last."""


class _ThrottledThread(threading.local):
    throttler: Throttler | None = None


_THREAD: Final = _ThrottledThread()


def maybe_throttle() -> None:
    """End a step: wait while a small epoch is at work, if this thread is throttled.

    Whoever holds a lock that an epoch waits for keeps it for 50 ms longer at most. The cleaner of a topic has
    such a lock: a plan that meets it leaves the partition to the next epoch after a second.
    """
    throttler = _THREAD.throttler
    if throttler is not None:
        throttler.step_ended()


class Throttler:
    """Lets the works of one thread give way to the epochs of another.

    >>> throttler = Throttler()
    >>> with throttler.throttled():
    ...     maybe_throttle()  # no epoch is at work
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._may_go_on = threading.Event()
        self._may_go_on.set()
        self._is_hurried = False
        self._epoch_began = clock()
        self._step_began = clock()

    @contextmanager
    def epoch(self) -> Iterator[None]:
        """An epoch is at work, for the length of the `with` block."""
        self._epoch_began = self._clock()
        self._may_go_on.clear()
        try:
            yield
        finally:
            self._may_go_on.set()

    @contextmanager
    def throttled(self) -> Iterator[None]:
        """This thread is throttled, for the length of the `with` block or until somebody is in a hurry."""
        self._step_began = self._clock()
        _THREAD.throttler = self
        try:
            yield
        finally:
            _THREAD.throttler = None

    def reset(self) -> None:
        """A work is about to begin that nobody waits for yet."""
        self._is_hurried = False

    def hurry(self) -> None:
        """The work is waited for: it goes on to its end without a rest."""
        self._is_hurried = True
        self._may_go_on.set()

    def step_ended(self) -> None:
        """Wait, if the step was long enough, until the epoch at work has ended, or is not a small one."""
        now = self._clock()
        if self._is_hurried or now - self._step_began < _STEP_S:
            return
        self._may_go_on.wait(max(0.0, self._epoch_began + SMALL_EPOCH_S - now))
        self._step_began = self._clock()
