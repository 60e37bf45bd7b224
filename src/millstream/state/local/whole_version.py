"""When the stores of a task may be read by others than the thread that moves them from version to version.

Stores are **whole** while nobody moves them: then all of them are at one version, which was committed. A move
that fails leaves them not whole for ever; whoever made it closes them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from millstream.state.errors import StoreNotHereError
from millstream.types import Version

__all__ = ["WholeVersion"]


class WholeVersion:
    """The version of stores that are open. One thread moves them, any thread reads.

    >>> stores = WholeVersion("0_1", Version(7))
    >>> with stores.moved_to(Version(8)):
    ...     pass
    >>> with stores.read(at_least=Version(8), wait_s=1.0) as version:
    ...     version
    8
    """

    def __init__(self, task_id: str, version: Version) -> None:
        self._task_id = task_id
        self._version = version
        self._changed = threading.Condition()
        self._is_moving = False
        self.is_closed = False

    @property
    def now(self) -> Version:
        """The last one that they were whole at."""
        return self._version

    @contextmanager
    def moved_to(self, version: Version) -> Iterator[None]:
        """The stores are moved, in a `with` block. Reads that have begun are waited for."""
        self._is_moving = True  # first: reads that have not begun let it pass, however many they are
        with self._changed:
            pass
        yield
        with self._changed:
            self._version = version
            self._is_moving = False
            self._changed.notify_all()

    @contextmanager
    def read(self, at_least: Version, wait_s: float) -> Iterator[Version]:
        """The version that the stores are at, for the length of a `with` block: they are not moved meanwhile.

        Waits a while for stores that are moved, or behind.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.is_closed or self._is_at(at_least), wait_s)
            if self.is_closed:
                raise StoreNotHereError(f"the stores of task {self._task_id} are closed here")
            if not self._is_at(at_least):
                what = "on the way to another version" if self._is_moving else f"at version {self._version}"
                raise StoreNotHereError(
                    f"the stores of task {self._task_id} are {what} here, and {at_least} is wanted"
                )
            yield self._version

    def close(self) -> None:
        """Nobody may read them any more. Reads that have begun are waited for."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    def _is_at(self, at_least: Version) -> bool:
        return not self._is_moving and self._version >= at_least
