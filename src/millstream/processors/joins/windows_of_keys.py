"""The rows of two window stores that a batch may be joined with, in memory, and the batch's own among them.

The rows of a store that belong to the batch's keys are read at once, in the stretch of time that any row of
the batch asks for. Rows of the batch are added as they come and written once, at the end. What has expired is
not seen, by the rule of the store itself: its time is the latest that was put into it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Any, TypeAlias

from millstream.serdes import deserialize_column
from millstream.state.stores.cell_store import Frozen
from millstream.state.stores.window import WindowStore

__all__ = ["KeyRows", "SideRows", "add_row", "between"]

KeyRows: TypeAlias = tuple[list[int], list[Any]]
"""The rows of one key: their times, ascending, and their values, those of one time as they were put.

Values that a user's function could change in place are `Frozen`.
"""


def add_row(rows: KeyRows, time: int, value: Any) -> None:
    """Put one more row behind all of its time.

    >>> rows = ([1, 5], ["a", "b"])
    >>> add_row(rows, 1, "c")
    >>> rows
    ([1, 1, 5], ['a', 'c', 'b'])
    """
    times, values = rows
    place = bisect_right(times, time)
    times.insert(place, time)
    values.insert(place, value)


def between(times: list[int], first: int, last: int) -> tuple[int, int]:
    """Where the rows between two times are, both inclusive: from a place to another, exclusive.

    >>> between([1, 3, 3, 8], 2, 7)
    (1, 3)
    """
    low = bisect_left(times, first)
    return low, bisect_right(times, last, low)


class SideRows:
    """The rows of one store."""

    def __init__(self, store: WindowStore[Any, Any]) -> None:
        self.store = store
        self.by_key: dict[bytes, KeyRows] = {}
        self.time = store.observed_time
        """The store's own time: the latest that was put."""
        self._exact: frozenset[type] = getattr(store.value_serde, "exact_types", frozenset())

    def load(self, keys: Iterable[bytes], first: int, last: int) -> None:
        """Read the rows of some keys between two times, both inclusive."""
        rows = list(self.store.encoded_rows(keys, max(first, 0), last))
        encoded = [row[3] for row in rows]
        serde = self.store.value_serde
        values: Iterable[Any] = deserialize_column(serde, encoded) if self._exact else map(Frozen, encoded)
        by_key = self.by_key
        for (key, time, _, _), value in zip(rows, values, strict=True):
            of_key = by_key.get(key)
            if of_key is None:
                by_key[key] = ([time], [value])
            else:
                of_key[0].append(time)
                of_key[1].append(value)

    @property
    def gone_until(self) -> int:
        """Rows of this time and before are not seen any more."""
        return self.time - self.store.retention_ms

    def kept(self, value: Any, data: bytes | None) -> Any:
        """A value as it is kept in memory: itself if nobody can change it, else its bytes."""
        return value if data is None or type(value) in self._exact else Frozen(data)

    def put(self, key: bytes, time: int, value: Any) -> None:
        """Add a row of the batch, with its value as it is kept."""
        self.time = max(self.time, time)
        of_key = self.by_key.get(key)
        if of_key is None:
            self.by_key[key] = ([time], [value])
        else:
            add_row(of_key, time, value)

    def thawed(self, values: list[Any]) -> list[Any]:
        """Values as a reader of the store gets them: objects that nobody else holds."""
        if Frozen not in set(map(type, values)):
            return values
        decode = self.store.value_serde.deserialize
        return [decode(value.data) if type(value) is Frozen else value for value in values]
