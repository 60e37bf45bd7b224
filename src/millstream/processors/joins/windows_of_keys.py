"""The rows of two window stores that a batch may be joined with, in memory, and the batch's own among them.

The rows of a store that belong to the batch's keys are read at once, in the stretch of time that any row of
the batch asks for. Rows of the batch are added as they come and written once, at the end. What has expired is
not seen, by the rule of the store itself: its time is the latest that was put into it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from millstream.serdes import deserialize_column
from millstream.state.stores.cell_store import Frozen
from millstream.state.stores.window import WindowStore

__all__ = ["NO_ROWS", "EncodedRows", "KeyRows", "SideRows", "between", "partners_in_rows"]

KeyRows: TypeAlias = tuple[list[int], list[Any]]
"""The rows of one key: their times, ascending, and their values, those of one time as they were put.

Values that a user's function could change in place are `Frozen`.
"""
NO_ROWS: Final[KeyRows] = ([], [])


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """The rows of a batch as stores keep them; None for those without a key or value, which are not kept."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    ports: Sequence[int]
    timestamps: Sequence[int]

    def of_port(self, port: int) -> list[tuple[bytes, int, bytes]]:
        """Keys, times and values of one port."""
        return [
            (key, time, value)
            for key, time, value, its in zip(self.keys, self.timestamps, self.values, self.ports, strict=True)
            if its == port and key is not None and value is not None
        ]


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
        self.time = store.observed_time
        """The store's own time: the latest that was put."""
        self.keys: list[bytes] = []
        self.times: list[int] = []
        self.values: list[Any] = []
        """What was read: those of a key by time, the values as they are kept."""
        self._exact: frozenset[type] = getattr(store.value_serde, "exact_types", frozenset())
        self._by_key: dict[bytes, KeyRows] | None = None

    def load(self, keys: Iterable[bytes], first: int, last: int) -> None:
        """Read the rows of some keys between two times, both inclusive."""
        encoded: list[bytes] = []
        for key, time, _, data in self.store.encoded_rows(keys, max(first, 0), last):
            self.keys.append(key)
            self.times.append(time)
            encoded.append(data)
        serde = self.store.value_serde
        self.values = deserialize_column(serde, encoded) if self._exact else list(map(Frozen, encoded))

    @property
    def by_key(self) -> dict[bytes, KeyRows]:
        """The rows of each key."""
        if self._by_key is None:
            self._by_key = {}
            for key, time, value in zip(self.keys, self.times, self.values, strict=True):
                of_key = self._by_key.get(key)
                if of_key is None:
                    self._by_key[key] = ([time], [value])
                else:
                    of_key[0].append(time)
                    of_key[1].append(value)
        return self._by_key

    @property
    def gone_until(self) -> int:
        """Rows of this time and before are not seen any more."""
        return self.time - self.store.retention_ms

    def kept(self, value: Any, data: bytes | None) -> Any:
        """A value as it is kept in memory: itself if nobody can change it, else its bytes."""
        return value if data is None or type(value) in self._exact else Frozen(data)

    def put(self, key: bytes, time: int, value: Any) -> None:
        """Add a row of the batch, with its value as it is kept, behind all of its time."""
        if time > self.time:  # noqa: PLR1730 - a call of max for each row takes longer
            self.time = time
        of_key = self.by_key.get(key)
        if of_key is None:
            self.by_key[key] = ([time], [value])
            return
        times, values = of_key
        if time >= times[-1]:
            times.append(time)
            values.append(value)
        else:
            place = bisect_right(times, time)
            times.insert(place, time)
            values.insert(place, value)

    def thawed(self, values: list[Any]) -> list[Any]:
        """Values as a reader of the store gets them: objects that nobody else holds."""
        if Frozen not in set(map(type, values)):
            return values
        decode = self.store.value_serde.deserialize
        return [decode(value.data) if type(value) is Frozen else value for value in values]


def partners_in_rows(
    encoded: EncodedRows,
    kept: Sequence[Any],
    sides: tuple[SideRows, SideRows],
    ranges: Sequence[tuple[int, int]],
) -> Iterator[KeyRows]:
    """The partners of each row, one row after the other: of those that came before it, by time.

    `kept` are the values of the rows as they are kept, `ranges` how much earlier and later than a row of each
    port its partners may be.
    """
    rows = zip(encoded.ports, encoded.timestamps, encoded.keys, kept, strict=True)
    for port, time, key, value in rows:
        if key is None:
            yield NO_ROWS
            continue
        other = sides[1 - port]
        found = other.by_key.get(key, NO_ROWS)
        times, values = found
        if times:
            before, after = ranges[port]
            first, last = max(time - before, other.gone_until + 1), max(time + after, 0)
            if times[0] < first or times[-1] > last:
                low, high = between(times, first, last)
                found = (times[low:high], values[low:high])
        yield found
        sides[port].put(key, time, value)
