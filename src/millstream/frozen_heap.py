"""Garbage collection without long pauses, for processes that run epochs.

Python looks now and then at all objects that there are. Those of the libraries alone are so many that it
takes a tenth of a second, in which an epoch stands still, and hardly anything is ever found among them. So
what is there when a process begins to run epochs is left out, until it ends to.
"""

from __future__ import annotations

import gc
import threading
from typing import Final

__all__ = ["FROZEN_HEAP"]


class _FrozenHeap:
    """Leaves out what is there when the first comes in, until the last has left. By any thread.

    >>> with FROZEN_HEAP:
    ...     gc.get_freeze_count() > 0
    True
    >>> gc.get_freeze_count()
    0
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._inside = 0
        self._is_thawed = True
        """Nobody else had frozen anything before: Spark does so before it forks its workers."""

    def __enter__(self) -> None:
        with self._guard:
            if not self._inside:
                self._is_thawed = not gc.get_freeze_count()
                gc.freeze()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._guard:
            self._inside -= 1
            if not self._inside and self._is_thawed:
                gc.unfreeze()


FROZEN_HEAP: Final = _FrozenHeap()
