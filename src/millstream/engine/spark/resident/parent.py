"""A worker process ends with its parent, whatever ends that: nobody is left to serve an old coordinator."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


@contextmanager
def ended_with_parent() -> Iterator[None]:
    """For the length of a `with` block the kernel kills this process when its parent dies.

    Where the kernel can't (it is not Linux), the end of the connection to the coordinator has to do.
    """
    if not sys.platform.startswith("linux"):
        yield
        return
    parent = os.getppid()
    _on_death_of_parent(signal.SIGKILL)
    if os.getppid() != parent:  # it died just before
        os._exit(1)
    try:
        yield
    finally:
        _on_death_of_parent(0)


def _on_death_of_parent(number: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
