"""`VersionHistory`: what a versioned store answered at each row of a batch. See `processors.table_history`.

Of a key, a versioned store is a map from times to values: a version is valid from its time up to the next
one. So what it was at a row are the versions from before the pass, and those that rows up to it have written.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from millstream.processors.batch import OrderKey
from millstream.state.stores.cell_store import Cell, Frozen
from millstream.state.stores.versioned import VersionedKeyValueStore

__all__ = ["VersionHistory"]

Versioned = VersionedKeyValueStore[Any, Any]


class VersionHistory:
    """The versions that one pass has written to one store."""

    __slots__ = ("_before", "_observed", "_orders", "_puts")

    def __init__(self) -> None:
        self._before: dict[bytes, dict[int, bytes | None]] = {}
        self._puts: dict[bytes, list[tuple[OrderKey, int, bytes | None]]] = {}
        self._orders: list[OrderKey] = []
        self._observed: list[int] = []
        """The store's stream time after each of the orders; the first is that before the pass."""

    def begin_pass(self) -> None:
        """Another batch comes, or the commit: the store is what it is."""
        for known in (self._before, self._puts, self._orders, self._observed):
            known.clear()

    def before(self, store: Versioned, keys: Iterable[bytes]) -> None:
        """Versions of these keys are about to be written."""
        if not self._observed:
            self._observed.append(store.observed_time)
        self._before.update(store.timelines({key for key in keys if key not in self._before}))

    def add(
        self,
        keys: Sequence[bytes],
        orders: Sequence[OrderKey],
        times: Sequence[int],
        data: Iterable[bytes | None],
    ) -> None:
        """Rows at these places have written these versions, in ascending order."""
        for key, order, time, value in zip(keys, orders, times, data, strict=True):
            self._puts.setdefault(key, []).append((order, time, value))
            self._orders.append(order)
            self._observed.append(max(self._observed[-1], time))

    def as_of(
        self,
        store: Versioned,
        keys: Sequence[bytes | None],
        orders: Sequence[OrderKey] | None,
        times: Sequence[int],
    ) -> list[Cell]:
        """The cells of keys at times, as of places in the order, which ascend; without places, as of now."""
        known = self._before if orders is not None else {}
        before = store.timelines({key for key in keys if key is not None and key not in known})
        lines = {
            key: _Timeline(
                known.get(key, before.get(key, {})), self._puts.get(key, ()) if key in known else ()
            )
            for key in keys
            if key is not None
        }
        cells: list[Cell] = []
        for row, (key, time) in enumerate(zip(keys, times, strict=True)):
            if key is None:
                cells.append(None)
                continue
            observed = store.observed_time
            if orders is not None:
                lines[key].advance(orders[row])
                if self._observed:
                    observed = self._observed[bisect_right(self._orders, orders[row])]
            cells.append(lines[key].at(time, observed - store.retention_ms))
        return cells


class _Timeline:
    """The versions of one key, as rows write them."""

    __slots__ = ("_done", "_puts", "_starts", "_values")

    def __init__(
        self,
        values: Mapping[int, bytes | None],
        puts: Sequence[tuple[OrderKey, int, bytes | None]],
    ) -> None:
        self._values = dict(values)
        self._starts = sorted(values)
        self._puts = puts
        self._done = 0

    def advance(self, order: OrderKey) -> None:
        """Take in what was written up to a place."""
        while self._done < len(self._puts) and self._puts[self._done][0] <= order:
            _, time, value = self._puts[self._done]
            if time not in self._values:
                insort(self._starts, time)
            self._values[time] = value
            self._done += 1

    def at(self, time: int, horizon: int) -> Cell:
        """What was valid at a time. Of times before the horizon only the latest version is known."""
        place = bisect_right(self._starts, time)
        if place == 0 or (time < horizon and place < len(self._starts)):
            return None
        start = self._starts[place - 1]
        value = self._values[start]
        return None if value is None else (Frozen(value), start)
