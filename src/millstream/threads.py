"""Something to be done in another thread while something else goes on: again and again, or for so long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

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
