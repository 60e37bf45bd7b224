"""Who may be at a store: whoever writes it, or one reader of another thread. Whoever writes goes first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["WriteLock"]


class WriteLock:
    """Held in a `with` block by whoever writes. Readers that come meanwhile wait, however many they are.

    With a plain lock the thread that applies a commit would wait for all of them, one after the other.

    >>> lock = WriteLock()
    >>> with lock:
    ...     lock.try_hold()
    False
    >>> with lock.reading():
    ...     pass
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_held = False
        self._writers = 0
        """How many wait."""

    def __enter__(self) -> None:
        with self._changed:
            self._writers += 1
            try:
                while self._is_held:
                    self._changed.wait()
                self._is_held = True
            finally:
                self._writers -= 1

    def __exit__(self, *_: object) -> None:
        self.release()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Held by a reader of another thread, for the length of a `with` block."""
        with self._changed:
            while self._is_held or self._writers:
                self._changed.wait()
            self._is_held = True
        try:
            yield
        finally:
            self.release()

    def try_hold(self) -> bool:
        """Hold it if nobody does, until it is released; return whether."""
        with self._changed:
            if self._is_held:
                return False
            self._is_held = True
            return True

    def release(self) -> None:
        """Let others have it."""
        with self._changed:
            self._is_held = False
            self._changed.notify_all()
