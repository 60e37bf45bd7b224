"""Keeps the lease alive while a Spark job runs: an epoch may take longer than a lease lasts."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress

from millstream.commit.lease import Lease
from millstream.errors import MillstreamError
from millstream.threads import repeated

_BEATS_PER_TTL = 3


def kept_alive(lease: Lease, ttl_ms: int) -> AbstractContextManager[None]:
    """Renew the lease a few times per its length, for the length of a `with` block.

    A renewal that fails is not an error here: whether the lease still holds is asked at the commit.
    """

    def beat() -> None:
        with suppress(OSError, MillstreamError):
            lease.renew()

    return repeated(beat, ttl_ms / 1000 / _BEATS_PER_TTL, "millstream-heartbeat")
