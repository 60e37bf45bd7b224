"""Ctrl-C and SIGTERM: how a program that runs is asked to stop, and asked again.

The first time sets an event, and whoever runs looks at it between two epochs. The second time what is at work
is given up: cancelled if that can be done, else left where it is. Either way the user is told at once, in one
line.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, Final, Self

__all__ = ["StopSignals", "kept_handlers", "say"]

_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)
_STDERR: Final = 2
_INTERRUPTED: Final = 3
"""So many times something must have been asked before it is interrupted that was only cancelled."""


def say(line: str) -> None:
    """Write a line to stderr, past Python's buffers: these may be in use where the signal came."""
    with suppress(OSError):
        os.write(_STDERR, f"{line}\n".encode())


class _GivenUp(BaseException):
    """What is at work is given up."""


class StopSignals:
    """Catches both signals for the length of a `with` block, if that is in the main thread.

    cancel
        Ends what is at work from outside; False if it can't: then it is interrupted by an exception. None:
        the second time changes nothing, for what is at work is the end itself. After it the signals mean
        what they meant before, so that a third one ends the process.
    say
        Tells a line to the user, from inside a signal handler.
    """

    def __init__(
        self,
        app_id: str,
        stop: threading.Event,
        *,
        cancel: Callable[[], bool] | None,
        say: Callable[[str], None] = say,
    ) -> None:
        self._app_id = app_id
        self._stop = stop
        self._cancel = cancel
        self._say = say
        self._told = 0
        self._before: dict[signal.Signals, Any] = {}

    @property
    def gave_up(self) -> bool:
        """Whether what was at work was given up."""
        return self._cancel is not None and self._told > 1

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _NUMBERS:
                self._before[number] = signal.signal(number, self._asked)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> bool:
        self._restore()
        return isinstance(error, _GivenUp)

    def _restore(self) -> None:
        before, self._before = self._before, {}  # a signal may come in the middle
        for number, handler in before.items():
            signal.signal(number, handler)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._told += 1
        self._stop.set()
        if self._told == 1:
            self._say(f"stopping {self._app_id}, after what is at work")
        elif self._cancel is not None:
            self._say(
                f"stopping {self._app_id} at once: what is at work is given up, and done again next time"
            )
            if not self._cancel() or self._told >= _INTERRUPTED:
                raise _GivenUp
        else:
            self._restore()  # before it is said: the next one may come as soon as it is read
            self._say(f"stopping {self._app_id}: it is at its end; once more kills it")


@contextmanager
def kept_handlers() -> Iterator[None]:
    """What is done inside may put handlers of its own in place: afterwards there are those from before."""
    before = {number: signal.getsignal(number) for number in _NUMBERS}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                if handler is not None:
                    signal.signal(number, handler)
