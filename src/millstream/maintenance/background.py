"""Work that goes on beside the epochs: now and then, one at a time, and rarely in their way."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from millstream.commit.manifest_retention import Urgency
from millstream.threads import short_turns
from millstream.throttler import Throttler

_LOGGER = logging.getLogger("millstream")
_RESTS_TIMES: Final = 4
"""How many times as long as it was at work it rests before it comes early."""
_RESTS_S: Final = 1.0
_RESTS_AFTER_A_FAILURE_S: Final = 60.0
"""And how long at least. A failure is quick, and would be told after every epoch."""
_LONG_S: Final = 1.0
"""From then on a wait is worth telling."""
_PATIENCE_TIMES: Final = 2
_PATIENCE_S: Final = 1.0
"""How many times as long as it took the last time it is waited for, and how long at least."""


class BackgroundScheduler:
    """Does some work in a thread of its own after every so many epochs.

    If it is not done when its turn comes again, that turn is left out. A failure is told as a warning: the
    epochs go on, and the next turn tries again. Its turn may come early, but not so early that it would be at
    work for more than a fifth of the time.

    But what it works off must not pile up without a bound. Under back-pressure it does not rest, and the
    epochs wait for it; if it takes much longer than the last time, they go on.

    As long as nobody waits for it, and its turn has not come again, it gives way to small epochs: see
    :mod:`millstream.throttler`. So it takes as long as an interval of epochs for that at most.

    `has_work` is asked when its turn has come and nothing is at work. `cancel` ends it if
    it is waited for in vain.
    """

    def __init__(
        self,
        what: str,
        work: Callable[[], object],
        *,
        interval: int,
        has_work: Callable[[], bool] = lambda: True,
        urgency: Callable[[], Urgency] = lambda: Urgency.NONE,
        while_waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
        cancel: Callable[[], None] | None = None,
        throttler: Throttler | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._work = work
        self._interval = interval
        self._has_work = has_work
        self._urgency = urgency
        self._while_waiting = while_waiting
        self._cancel = cancel
        self._throttler = Throttler() if throttler is None else throttler
        self._is_cancelled = False
        self._clock = clock
        self._left = interval
        self._rests_until = clock()
        self._has_failed = False
        self._patience_s = _PATIENCE_S
        self._patience_ends = clock()
        self._thread: threading.Thread | None = None

    @property
    def is_at_work(self) -> bool:
        """Whether the work has begun and is not done."""
        return self._thread is not None and self._thread.is_alive()

    def epoch_ended(self, _epoch: object = None) -> None:
        """Count an epoch; begin the work if it is its turn, or urgent."""
        self._left -= 1
        if not self._interval:
            return
        self._wait_under_backpressure()
        if self._left <= 0:
            self._left = self._interval
            if self.is_at_work:
                self._throttler.hurry()
            self._begin()
        elif self._is_early():
            self._begin()

    def nothing_to_do(self) -> None:
        """Begin the work if it is urgent: it might have been its turn if there were epochs."""
        if self._interval and self._is_early():
            self._begin()

    def _begin(self) -> None:
        if not self.is_at_work and self._has_work():
            self._left = self._interval
            self._patience_ends = self._clock() + self._patience_s
            self._throttler.reset()
            self._thread = threading.Thread(target=self._run, name=f"millstream-{self._what}", daemon=True)
            self._thread.start()

    def _is_early(self) -> bool:
        if self._clock() >= self._rests_until:
            return self._urgency() >= Urgency.WORTH_IT
        return not self._has_failed and self._urgency() >= Urgency.BACKPRESSURE

    def _wait_under_backpressure(self) -> None:
        began = self._clock()
        left = self._patience_ends - began
        if not self.is_at_work or left <= 0 or self._urgency() < Urgency.BACKPRESSURE:
            return
        assert self._thread is not None  # it is at work
        self._throttler.hurry()
        with self._while_waiting():
            self._thread.join(left)
        waited = self._clock() - began
        if waited >= _LONG_S:
            _LOGGER.info("The epochs waited %.1f s for the %s.", waited, self._what)

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the work that has begun is done. What takes too long is cancelled, or left behind."""
        if self._thread is None:
            return
        self._throttler.hurry()
        self._thread.join(timeout_s)
        if self._thread.is_alive() and self._cancel is not None:
            self._is_cancelled = True
            self._cancel()
            self._thread.join(timeout_s)
        if self._thread.is_alive():
            _LOGGER.warning("The %s is still at work after %s s. It is left behind.", self._what, timeout_s)
        else:
            self._thread = None

    def _run(self) -> None:
        began = self._clock()
        least = _RESTS_S
        try:
            with short_turns, self._throttler.throttled():
                self._work()
            self._has_failed = False
        except Exception as error:  # noqa: BLE001 - told, not raised: nobody waits for this thread
            if not self._is_cancelled:
                _LOGGER.warning(
                    "The %s failed; the epochs go on, and it is tried again later: %s", self._what, error
                )
            least = _RESTS_AFTER_A_FAILURE_S
            self._has_failed = True
        ended = self._clock()
        self._patience_s = max(_PATIENCE_S, _PATIENCE_TIMES * (ended - began))
        self._rests_until = ended + max(least, _RESTS_TIMES * (ended - began))
