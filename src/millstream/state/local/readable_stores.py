"""The stores that a process has open, for threads that read them from outside: tasks' and copies' alike.

Whoever opens stores to keep them says so; whoever reads finds them here, and pins one if it takes more than
one look. Pins have a bound: those that were not used for longest, or not for half a minute, are given up.
"""

from __future__ import annotations

import threading
import time
from itertools import count
from typing import Final

from millstream.state.errors import PinLostError
from millstream.state.local.task_stores import TaskStores
from millstream.state.stores.pinned import LONGEST_IDLE_S, PinnedStore

__all__ = ["ReadableStores"]

MOST_PINS: Final = 64
"""Each costs a look at what is about to be overwritten, in each commit."""


class ReadableStores:
    """Used by any thread."""

    def __init__(self, most_pins: int = MOST_PINS) -> None:
        self._most_pins = most_pins
        self._lock = threading.Lock()
        self._held: dict[str, TaskStores] = {}
        self._pins: dict[int, PinnedStore] = {}
        self._numbers = count(1)

    def add(self, task_id: str, stores: TaskStores) -> None:
        """Stores that were opened, and can be read until they are closed."""
        with self._lock:
            self._held[task_id] = stores

    def find(self, task_id: str) -> TaskStores | None:
        """The stores of a task, if they are open."""
        with self._lock:
            stores = self._held.get(task_id)
            if stores is not None and stores.whole.is_closed:
                del self._held[task_id]
                return None
            return stores

    def keep(self, pin: PinnedStore) -> int:
        """Keep a pin, for later reads; its number."""
        with self._lock:
            number = next(self._numbers)
            self._pins[number] = pin
            oldest = sorted(self._pins, key=lambda one: self._pins[one].used)
            too_many, idle_since = len(self._pins) - self._most_pins, time.monotonic() - LONGEST_IDLE_S
            gone = [
                self._pins.pop(one)
                for place, one in enumerate(oldest)
                if place < too_many or self._pins[one].used < idle_since
            ]
        for one in gone:
            one.close()
        return number

    def pinned(self, number: int) -> PinnedStore:
        """A pin that was kept. Raises if it was given up."""
        with self._lock:
            pin = self._pins.get(number)
        if pin is None:
            raise PinLostError("What was read can't be read on at the same version: it was let go.")
        return pin

    def let_go(self, number: int) -> None:
        """A pin is not needed any more."""
        with self._lock:
            pin = self._pins.pop(number, None)
        if pin is not None:
            pin.close()
