"""Something to be done in another thread while something else goes on: again and again, or for so long.

Short works that wait for a disk share a few threads that stay: to start one takes as long as such a work.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeVar

T = TypeVar("T")

_THREADS: Final = 8
_SHORT_TURN_S: Final = 0.00005
_LOW_PRIORITY: Final = 10
"""A tenth of the share of others."""


class _Threads:
    """A few threads for whoever needs them; made when the first work comes."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def begin(self, work: Callable[[], T]) -> Callable[[], T]:
        with self._guard:  # so that nobody ends them in between
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_THREADS, "millstream-beside")
            return self._pool.submit(work).result

    def end(self) -> None:
        with self._guard:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def forget(self) -> None:
        """In a process that was forked, where there are none."""
        self._guard = threading.Lock()
        self._pool = None


_SHARED: Final = _Threads()
os.register_at_fork(after_in_child=_SHARED.forget)


def beside(work: Callable[[], T]) -> Callable[[], T]:
    """Begin a short work in another thread. Returns what waits for its end, and gives its result or error.

    A work must not wait for other works.

    >>> three = beside(lambda: 1 + 2)
    >>> three()
    3
    """
    return _SHARED.begin(work)


def end_threads() -> None:
    """End the shared threads, after the works that have begun. Whoever needs them again gets others."""
    _SHARED.end()


def all_beside(works: Sequence[Callable[[], None]]) -> Callable[[], None]:
    """Begin several short works in other threads. Returns what waits for all of them, and raises an error.

    >>> done = []
    >>> all_beside([lambda: done.append("a"), lambda: done.append("b")])()
    >>> sorted(done)
    ['a', 'b']
    """
    waits = [beside(work) for work in works]

    def wait() -> None:
        errors: list[BaseException] = []
        for one in waits:
            try:
                one()
            except BaseException as error:  # noqa: BLE001 - raised below
                errors.append(error)
        if errors:
            raise errors[0]

    return wait


def at_low_priority(work: Callable[[Callable[[], None]], T]) -> T:
    """Do a long work while nobody else needs the processor; its result or error.

    In a thread of its own, because nobody but root may raise a priority again. The work is given a function
    that lowers it: threads inherit it, so those that others will need have to be there before. Whoever waits
    for Python's lock waits for that thread, too. On Linux; elsewhere threads have no priority of their own.

    >>> at_low_priority(lambda lower: lower() or 1 + 2)
    3
    """
    with ThreadPoolExecutor(1, "millstream-low-priority") as thread:
        return thread.submit(work, _lower_priority).result()


def _lower_priority() -> None:
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOW_PRIORITY)


class _ShortTurns:
    """Lets threads of this process take turns more often while somebody is inside a `with` block.

    A thread that computes keeps Python's lock for five milliseconds if nobody says otherwise, and another one
    waits that long each time it comes back from a file: an epoch does so a hundred times.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._inside = 0
        self._before = 0.0

    def __enter__(self) -> None:
        with self._guard:
            if not self._inside:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, _SHORT_TURN_S))
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._guard:
            self._inside -= 1
            if not self._inside:
                sys.setswitchinterval(self._before)


short_turns: Final = _ShortTurns()
"""For long works of Python beside the epochs."""


@contextmanager
def repeated(action: Callable[[], None], every_s: float, name: str) -> Iterator[None]:
    """Call a function every so often, in a thread of that name, for the length of a `with` block.

    It is called for the first time after the first break, and not any more when the block has ended.

    >>> called = threading.Event()
    >>> with repeated(called.set, 0.001, "example"):
    ...     called.wait(60)
    True
    """
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(every_s):
            action()

    thread = threading.Thread(target=repeat, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Repeater:
    """Calls a function every so often while somebody is inside a `with` block of it. The thread stays.

    For blocks that may be short and many. The first call comes within the time between two, and none when
    the last block has ended.

    >>> called = threading.Event()
    >>> repeater = Repeater(called.set, 0.001, "example")
    >>> with repeater:
    ...     called.wait(60)
    True
    >>> repeater.close()
    """

    def __init__(self, action: Callable[[], None], every_s: float, name: str) -> None:
        self._action = action
        self._every_s = every_s
        self._name = name
        self._guard = threading.Lock()
        self._inside = 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        with self._guard:
            self._inside += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._repeat, name=self._name, daemon=True)
                self._thread.start()

    def __exit__(self, *_: object) -> None:
        with self._guard:  # waits for a call
            self._inside -= 1

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _repeat(self) -> None:
        while not self._over.wait(self._every_s):
            with self._guard:
                if self._inside:
                    self._action()


def with_timeout(ask: Callable[[], T], timeout_s: float, whom: str) -> Callable[[], T]:
    """A function that asks a question, and raises a TimeoutError if the answer takes too long.

    As long as one is not answered, no other one is asked. An answer that comes too late is thrown away.

    >>> with_timeout(lambda: 7, 60, "The storage")()
    7
    """
    asking: threading.Thread | None = None

    def ask_in_time() -> T:
        nonlocal asking
        answers: list[T] = []
        errors: list[BaseException] = []

        def answer() -> None:
            try:
                answers.append(ask())
            except BaseException as error:  # noqa: BLE001 - raised below
                errors.append(error)

        if asking is None or not asking.is_alive():
            asking = threading.Thread(target=answer, name="millstream-question", daemon=True)
            asking.start()
            asking.join(timeout_s)
        if answers:
            return answers[0]
        if errors:
            raise errors[0]
        raise TimeoutError(f"{whom} has not answered within {timeout_s:g} s.")

    return ask_in_time
