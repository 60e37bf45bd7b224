"""Watches the executors while an epoch runs, and gives it up as soon as one is lost.

Spark would run the lost tasks again, too: but where it likes, and after a while in which it hopes for the
executor to come back. Where standbys are kept the epoch is better run again at once, by those.

It does not know Spark: whoever makes it says how a loss is seen, and how an epoch is given up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["LossWatch"]

_LOGGER = logging.getLogger("millstream")
_LOOKS_EVERY_S: Final = 0.2


class LossWatch:
    """One thread, which looks while an epoch is at work."""

    def __init__(self, is_lost: Callable[[], bool], give_up: Callable[[], None]) -> None:
        self._is_lost = is_lost
        self._give_up = give_up
        self._changed = threading.Condition()
        self._is_at_work = False
        self._epochs = 0
        self._is_over = False
        self.has_given_up = False
        """Whether the last epoch was given up."""
        self._thread: threading.Thread | None = None

    @contextmanager
    def epoch_at_work(self) -> Iterator[None]:
        """An epoch is at work, for the length of a `with` block."""
        with self._changed:
            self._is_at_work, self.has_given_up = True, False
            self._epochs += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="millstream-loss-watch", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._is_at_work = False

    def close(self) -> None:
        """Look no more."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_over, _LOOKS_EVERY_S)
                self._changed.wait_for(lambda: self._is_over or self._is_at_work)
                if self._is_over:
                    return
                number = self._epochs
            try:
                if self._is_lost() and self._is_still_at_work(number):
                    self._give_up()
            except Exception:
                _LOGGER.debug("Executors could not be looked at", exc_info=True)  # Spark may be gone

    def _is_still_at_work(self, number: int) -> bool:
        """Whether it is the same epoch after the executors were looked at; then it is given up."""
        with self._changed:
            self.has_given_up |= self._is_at_work and number == self._epochs
            return self.has_given_up
