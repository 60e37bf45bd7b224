"""The rows of two window stores that a batch may be joined with, in memory, and the batch's own among them.

The rows of a store that belong to the batch's keys are read at once, in the stretch of time that any row of
the batch asks for. Rows of the batch are added as they come and written once, at the end. What has expired is
not seen, by the rule of the store itself: its time is the latest that was put into it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from millstream.serdes import deserialize_column
from millstream.state.stores.cell_store import Frozen
from millstream.state.stores.window import WindowStore

__all__ = ["KeyRows", "SideRows"]


@dataclass(slots=True)
class KeyRows:
    """The rows of one key: their times, ascending, and their values, in the order in which they were put."""

    times: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    """Those that a user's function could change in place are `Frozen`."""

    def add(self, time: int, value: Any) -> None:
        """Put one more row behind all of its time."""
        times = self.times
        if not times or time >= times[-1]:
            times.append(time)
            self.values.append(value)
        else:
            place = bisect_right(times, time)
            times.insert(place, time)
            self.values.insert(place, value)

    def between(self, first: int, last: int) -> tuple[int, int]:
        """Where the rows between two times are, both inclusive: from a place to another, exclusive."""
        low = bisect_left(self.times, first)
        return low, bisect_right(self.times, last, low)


class SideRows:
    """The rows of one store."""

    def __init__(self, store: WindowStore[Any, Any]) -> None:
        self._store = store
        self._exact: frozenset[type] = getattr(store.value_serde, "exact_types", frozenset())
        self.by_key: dict[bytes, KeyRows] = {}
        self.time = store.observed_time
        """The store's own time: the latest that was put."""
        self._written: list[tuple[bytes, int, bytes]] = []

    def load(self, keys: Iterable[bytes], first: int, last: int) -> None:
        """Read the rows of some keys between two times, both inclusive."""
        rows = list(self._store.encoded_rows(keys, max(first, 0), last))
        encoded = [data for _, _, _, data in rows]
        serde = self._store.value_serde
        values: Iterable[Any] = deserialize_column(serde, encoded) if self._exact else map(Frozen, encoded)
        by_key = self.by_key
        for (key, time, _, _), value in zip(rows, values, strict=True):
            of_key = by_key.get(key)
            if of_key is None:
                of_key = by_key[key] = KeyRows()
            of_key.times.append(time)
            of_key.values.append(value)

    @property
    def gone_until(self) -> int:
        """Rows of this time and before are not seen any more."""
        return self.time - self._store.retention_ms

    def put(self, key: bytes, time: int, value: Any, data: bytes) -> None:
        """Add a row of the batch."""
        self.time = max(self.time, time)
        kept = value if type(value) in self._exact else Frozen(data)
        of_key = self.by_key.get(key)
        if of_key is None:
            of_key = self.by_key[key] = KeyRows()
        of_key.add(time, kept)
        self._written.append((key, time, data))

    def save(self) -> None:
        """Write what the batch has added."""
        if self._written:
            self._store.put_encoded(self._written)

    def thawed(self, values: list[Any]) -> list[Any]:
        """Values as a reader of the store gets them: objects that nobody else holds."""
        if Frozen not in set(map(type, values)):
            return values
        decode = self._store.value_serde.deserialize
        return [decode(value.data) if type(value) is Frozen else value for value in values]
