"""`RecordCache`: the updates of a cached table that wait for the end of the epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from millstream.processors.batch import Batch

__all__ = ["PendingUpdates", "RecordCache"]

PendingUpdates: TypeAlias = tuple[Sequence[bytes], Batch]
"""One update per key: the keys of their cells, and their rows."""


class RecordCache:
    """One per store of a task, not per operator: those of a cogroup share a store, and flush as one."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: list[PendingUpdates] = []

    def hold(self, updates: PendingUpdates) -> None:
        """Hold updates back; those of keys that wait already take their place."""
        self._pending.append(updates)

    def take(self) -> list[PendingUpdates]:
        """All that was held back, in order."""
        pending, self._pending = self._pending, []
        return pending
