"""A bound of what the indexes of all partitions of a log hold in memory, together.

One partition's index is small, ten thousand of them are not. Entries that were not asked for lately are
forgotten; what is known of a segment as a whole stays, so appending and publishing need no entry. Who asks
for one later reads its segment again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, Protocol

__all__ = ["MAX_ENTRIES", "IndexMemory"]

MAX_ENTRIES: Final = 200_000
"""About 150 MB."""


class HoldsEntries(Protocol):
    """The index of a partition."""

    def forget_entries(self) -> bool:
        """Forget them, unless somebody is at them just now."""


class IndexMemory:
    """Lets those forget their entries that were asked longest ago."""

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self._lock = threading.Lock()
        self._held: OrderedDict[HoldsEntries, int] = OrderedDict()
        self._total = 0

    @property
    def entries(self) -> int:
        """How many are held."""
        return self._total

    def used(self, partition: HoldsEntries, entries: int) -> None:
        """Note that a partition was used, and holds so many now. The caller is at them: it forgets none."""
        with self._lock:
            self._total += entries - self._held.pop(partition, 0)
            self._held[partition] = entries
            busy: dict[HoldsEntries, int] = {}
            while self._total > self._max_entries and (other := next(iter(self._held))) is not partition:
                held = self._held.pop(other)
                if other.forget_entries():
                    self._total -= held
                else:
                    busy[other] = held
            self._held.update(busy)

    def released(self, partition: HoldsEntries) -> None:
        """Note that a partition is used no more."""
        with self._lock:
            self._total -= self._held.pop(partition, 0)
