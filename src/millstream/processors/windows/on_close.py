"""Windows that are emitted once, when they close.

A record that moves the operator's stream time closes windows, of whatever key: they come out in the order of
their starts, then of the bytes of their keys, each with the timestamp that is stored with it and with the
headers of the record that closed it. Up to when windows were emitted is kept with the operator's times.

A closed window is never changed again. So a batch is folded first; then all that it has closed is found by
one scan of the store, from where the last emission ended, and each window is given to the record that closed
it. That happens before the batch is written: however far time jumps, no window expires before it is emitted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.processors.operator_times import UNKNOWN_TIME, OperatorTimes
from millstream.serdes import deserialize_column
from millstream.state.stores.cell_store import Cell
from millstream.state.stores.window import TimestampedWindowStore

__all__ = ["CloseRule", "ClosedWindows"]

_START_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class CloseRule:
    """When windows close."""

    size_ms: int
    wait_ms: int
    """How far stream time must be behind the end of a window."""
    advance_ms: int = 1
    """They start at multiples of it."""
    after_idle_ms: int | None = None
    """After so long without a record the wall clock moves stream time on: see `idle_clock`."""

    def all_closed_at(self, timestamp: int) -> int:
        """The stream time at which all windows have closed that records up to this time have opened.

        >>> CloseRule(size_ms=10, wait_ms=2).all_closed_at(7)
        19
        """
        return timestamp + self.size_ms + self.wait_ms

    def closed_starts(self, emitted: int, observed: int) -> tuple[int, int] | None:
        """The first and last start of windows that have closed since those ending by `emitted` were emitted.

        >>> rule = CloseRule(size_ms=10, wait_ms=2, advance_ms=5)
        >>> rule.closed_starts(-1, 11), rule.closed_starts(-1, 12), rule.closed_starts(10, 19)
        (None, (0, 0), (5, 5))
        """
        first = max(0, emitted - self.size_ms + 1)
        last = observed - self.wait_ms - self.size_ms
        last -= last % self.advance_ms
        return (first, last) if first <= last else None


class ClosedWindows:
    """The windows that a batch closes: to be made when the batch was folded and not yet written."""

    def __init__(
        self,
        store: TimestampedWindowStore[Any],
        rule: CloseRule,
        times: OperatorTimes,
        rows: Sequence[int],
        stream_times: Column,
    ) -> None:
        """`rows` are those of the batch that may close windows, at the operator's stream time after each.

        The time up to which windows were emitted is moved on.
        """
        self._store = store
        self._rule = rule
        self._rows = rows
        self._times = stream_times.at(rows)
        observed = self._times.largest(UNKNOWN_TIME)
        self._starts = rule.closed_starts(times.emitted, observed)
        self._before = {} if self._starts is None else store.load_between(*self._starts)
        times.emitted = max(times.emitted, observed - rule.wait_ms)

    def emitted(self, batch: Batch, written: Mapping[bytes, Cell]) -> Batch | None:
        """What goes on: windows of the store, and those that the batch has just written in their place."""
        if self._starts is None:
            return None
        first, last = self._starts
        start_of = self._store.start_of
        closed = self._before | {
            cell: new for cell, new in written.items() if first <= start_of(cell) <= last
        }
        found = sorted(
            (start_of(cell), cell[:-_START_BYTES], cell, new)
            for cell, new in closed.items()
            if new is not None
        )
        if not found:
            return None
        starts, _, cells, news = zip(*found, strict=True)
        keys = deserialize_column(self._store.cell_key_serde, cells)
        times, delay = self._times.rows(), self._rule.size_ms + self._rule.wait_ms
        rows = [self._rows[bisect_left(times, start + delay)] for start in starts]
        values = [self._store.thawed(value) for value, _ in news]
        return replace(
            batch.expand(rows, keys, values), timestamps=Column([timestamp for _, timestamp in news])
        )
