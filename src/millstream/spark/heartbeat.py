"""Keeps the lease alive while a Spark job runs: an epoch may take longer than a lease lasts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from millstream.errors import MillstreamError
from millstream.runtime.lease import Lease

__all__ = ["kept_alive"]

_BEATS_PER_TTL = 3


@contextmanager
def kept_alive(lease: Lease, ttl_ms: int) -> Iterator[None]:
    """Renew the lease a few times per its length, for the length of a `with` block.

    A renewal that fails is not an error here: whether the lease still holds is asked at the commit.
    """
    over = threading.Event()

    def beat() -> None:
        while not over.wait(ttl_ms / 1000 / _BEATS_PER_TTL):
            with suppress(OSError, MillstreamError):
                lease.renew()

    thread = threading.Thread(target=beat, name="millstream-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
