"""A coordinator that stops in the middle of a step, and wakes up later: other coordinators work in between.

The work runs in a thread of its own, up to a site; then the caller has the floor again. Only one of the two
ever runs, so the interleaving is exactly the one that the test wrote down.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Final, TypeAlias

from millstream import failpoints

__all__ = ["Site", "Stalled"]

Site: TypeAlias = tuple[str, ...]
"""Failpoints to be passed one after the other; the work stops at the last: ("commit.checked",
"durable.file_synced") is the manifest's temporary file, written and synced, without its name."""

_CAP_S: Final = 120.0


class Stalled:
    """Work that was started and stands still at a site, until :meth:`wake` or :meth:`kill`."""

    def __init__(self, site: Site, work: Callable[[], object]) -> None:
        self._left = list(site)
        self._work = work
        self._has_floor = threading.Event()
        self._go_on = threading.Event()
        self._is_stopped = self._is_killed = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"stalls at {site[-1]}", daemon=True)
        with ExitStack() as arms:
            for name in dict.fromkeys(site):
                arms.enter_context(failpoints.armed(name, partial(self._reached, name)))
            self._thread.start()
            self._wait(self._has_floor)
        if not self._is_stopped:
            raise AssertionError(f"the work never came to {site}") from self._error

    def wake(self) -> BaseException | None:
        """Let the work go on to its end; what it raised."""
        self._go_on.set()
        self._thread.join(_CAP_S)
        assert not self._thread.is_alive(), "the work does not end"
        return self._error

    def kill(self) -> None:
        """Let it end where it stands."""
        self._is_killed = True
        self.wake()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test wants to see it
            self._error = error
        finally:
            self._has_floor.set()

    def _reached(self, name: str) -> None:
        if threading.current_thread() is not self._thread or not self._left or name != self._left[0]:
            return
        self._left.pop(0)
        if self._left:
            return
        self._is_stopped = True
        self._has_floor.set()
        self._wait(self._go_on)
        if self._is_killed:
            raise failpoints.InjectedCrash(name)

    @staticmethod
    def _wait(event: threading.Event) -> None:
        assert event.wait(_CAP_S), "nobody goes on"
