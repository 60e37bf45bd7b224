"""What other slots have sent to a slot, until its tasks take it.

Bundles of an attempt may come before the slot was told to run it: those are kept. Bundles of an attempt that
is over are dropped, and so are those of a sender that the attempt does not name.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Final

from millstream.engine.spark.resident.bundles import BadBundleError, BundleHeader
from millstream.engine.spark.resident.messages import EpochAttempt, Peer
from millstream.errors import MillstreamError
from millstream.task.shuffle_block import ShuffleBlock
from millstream.types import Attempt, Epoch, Term

MAX_INBOX_BYTES: Final = 8 << 30
_BEFORE: Final = EpochAttempt(Term(-1), Attempt(0), Epoch(0))
_AFTER: Final = EpochAttempt(Term(1 << 62), Attempt(0), Epoch(0))


class AbortedError(MillstreamError):
    """The coordinator has given the attempt up."""


class Inbox:
    """Takes bundles from any thread; one thread waits for them."""

    def __init__(self, incarnation: str) -> None:
        self._incarnation = incarnation
        self._changed = threading.Condition()
        self._over = _BEFORE
        self._bundles: dict[tuple[EpochAttempt, int, int], tuple[BundleHeader, list[ShuffleBlock]]] = {}
        self._bytes = 0

    def accepts(self, header: BundleHeader) -> bool:
        """Whether a bundle would be kept: it is for us, and its attempt is not over. Raises if it is full."""
        if header.receiver_incarnation != self._incarnation:
            return False
        with self._changed:
            if self._bytes + header.size > MAX_INBOX_BYTES:
                raise BadBundleError(f"more than {MAX_INBOX_BYTES} bytes wait for the tasks of this slot")
            return _attempt_of(header) > self._over

    def put(self, header: BundleHeader, blocks: list[ShuffleBlock]) -> None:
        """Keep a bundle, unless its attempt is over. The same one again changes nothing."""
        attempt = _attempt_of(header)
        key = (attempt, header.level, header.sender)
        with self._changed:
            if attempt > self._over and key not in self._bundles:
                self._bundles[key] = (header, blocks)
                self._bytes += header.size
                self._changed.notify_all()

    def end(self, attempt: EpochAttempt) -> None:
        """An attempt, and all before it, are over."""
        with self._changed:
            self._over = max(self._over, attempt)
            for key in [key for key in self._bundles if key[0] <= self._over]:
                self._bytes -= self._bundles.pop(key)[0].size
            self._changed.notify_all()

    def close(self) -> None:
        """All attempts are over, for ever."""
        self.end(_AFTER)

    def check(self, attempt: EpochAttempt) -> None:
        """Raise if an attempt is over."""
        if attempt <= self._over:
            raise AbortedError(f"attempt {attempt.attempt} of epoch {attempt.epoch} was given up")

    def wait(
        self, attempt: EpochAttempt, level: int, senders: Collection[int], peers: Mapping[int, Peer]
    ) -> list[ShuffleBlock]:
        """The blocks that some slots have made at a level. Waits for all of them."""
        found: list[ShuffleBlock] = []
        with self._changed:
            for sender in senders:
                key = (attempt, level, sender)
                while True:
                    self.check(attempt)
                    bundle = self._bundles.get(key)
                    if bundle is None:
                        self._changed.wait()
                        continue
                    header, blocks = self._bundles.pop(key)
                    self._bytes -= header.size
                    if header.sender_incarnation == peers[sender].incarnation:  # else it was fenced
                        found += blocks
                        break
        return found


def _attempt_of(header: BundleHeader) -> EpochAttempt:
    return EpochAttempt(header.term, header.attempt, header.epoch)
