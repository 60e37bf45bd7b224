"""Something to be done again and again while something else goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["repeated"]


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
