"""`RecordCache`: the updates of a cached table that wait for the end of the epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from millstream.processors.batch import Batch, concatenate

__all__ = ["PendingUpdates", "RecordCache", "last_of_each"]

MOST_UPDATES: Final = 500_000
"""So many may wait before those that have been overtaken are let go of."""

PendingUpdates: TypeAlias = tuple[Sequence[bytes], Batch]
"""One update per key: the keys of their cells, and their rows."""


class RecordCache:
    """One per store of a task, not per operator: those of a cogroup share a store, and flush as one."""

    __slots__ = ("_limit", "_pending", "_rows")

    def __init__(self) -> None:
        self._pending: list[PendingUpdates] = []
        self._rows = 0
        self._limit = MOST_UPDATES

    def hold(self, updates: PendingUpdates) -> None:
        """Hold updates back; those of keys that wait already take their place."""
        self._pending.append(updates)
        self._rows += len(updates[0])
        if self._rows > self._limit:
            # Many keys were updated again and again. Twice as many may follow, so that this happens rarely.
            kept = last_of_each(self._pending)
            self._pending, self._rows = [kept], len(kept[0])
            self._limit = max(MOST_UPDATES, 2 * self._rows)

    def take(self) -> list[PendingUpdates]:
        """All that was held back, in order."""
        pending, self._pending = self._pending, []
        self._rows, self._limit = 0, MOST_UPDATES
        return pending


def last_of_each(updates: Sequence[PendingUpdates]) -> PendingUpdates:
    """The last update of each key, in the order of these last updates."""
    if len(updates) == 1:
        return updates[0]
    keys = [key for data, _ in updates for key in data]
    last = sorted(dict(zip(keys, range(len(keys)), strict=True)).values())
    return [keys[row] for row in last], concatenate([batch for _, batch in updates]).take(last)
