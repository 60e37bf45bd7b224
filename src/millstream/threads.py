"""Something to be done in another thread while something else goes on: again and again, or for so long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

__all__ = ["Impatient", "repeated"]

T = TypeVar("T")


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


class Impatient(Generic[T]):
    """Asks a question, but does not wait for the answer for ever.

    As long as one is not answered, no other one is asked. An answer that comes too late is thrown away.

    >>> Impatient(lambda: 7, 60, "The storage")()
    7
    """

    def __init__(self, ask: Callable[[], T], timeout_s: float, whom: str) -> None:
        self._ask = ask
        self._timeout_s = timeout_s
        self._whom = whom
        self._asking: threading.Thread | None = None

    def __call__(self) -> T:
        """Return the answer; raise what the question raises, or a TimeoutError."""
        answers: list[T] = []
        errors: list[BaseException] = []

        def ask() -> None:
            try:
                answers.append(self._ask())
            except BaseException as error:  # noqa: BLE001 - raised below
                errors.append(error)

        if self._asking is None or not self._asking.is_alive():
            self._asking = threading.Thread(target=ask, name="millstream-question", daemon=True)
            self._asking.start()
            self._asking.join(self._timeout_s)
        if answers:
            return answers[0]
        if errors:
            raise errors[0]
        raise TimeoutError(f"{self._whom} has not answered within {self._timeout_s:g} s.")
