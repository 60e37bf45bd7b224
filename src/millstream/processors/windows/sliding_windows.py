"""An aggregation by sliding windows: one for each set of records that are at most a time difference apart.

Rows without a key or value are left out, and do not move the operator's stream time. A record at `t` is in
all windows that contain `t`. Two windows are made for it, unless they are there: the one that ends with it,
out of what is there before it; and the one that begins right behind it, as soon as it has a record. The
earliest records, for which the first of these would begin before time 0, share the window that begins there.

The windows of all keys of a batch are read at once, worked on in memory and written once. What the store
would have let go of in the meantime is not seen: it may expire while records of its time still come.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field
from typing import Any

from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.processors.operator import each_row
from millstream.processors.table import Updates, drop_nulls
from millstream.processors.windows.on_close import CloseRule
from millstream.processors.windows.windowed_table import START, WindowedTable
from millstream.state.stores.cell_store import Cell
from millstream.windows import SlidingWindows

__all__ = ["SlidingWindowAggregation"]


class SlidingWindowAggregation(WindowedTable):
    """Folds each row into the windows that it is in, and makes those that begin or end with it."""

    def __init__(
        self,
        store: str,
        windows: SlidingWindows,
        aggregation: Aggregation,
        *,
        caching: bool,
        send_old: bool,
        on_close: bool,
        after_idle_ms: int | None = None,
    ) -> None:
        # Both ends are inclusive: a window takes records at the very time of its end and grace.
        rule = CloseRule(windows.difference_ms, windows.grace_ms + 1, after_idle_ms=after_idle_ms)
        closes = rule if on_close else None
        super().__init__(store, aggregation, closes, caching=caching, send_old=send_old)
        self.windows = windows

    def process(self, batch: Batch) -> Batch | None:
        """See `Operator.process`."""
        batch = drop_nulls(self.context, batch)
        if not len(batch):
            return None
        data, batch = self.with_key_bytes(batch, self.store.key_serde)
        rows = _SlidingRows(self, batch, data)
        each_row(self.context, batch, rows.fold)
        if rows.late:
            self.context.late(batch, rows.late)
        updates = rows.updates
        expanded = batch.expand(updates.rows, None, batch.values.take(Column(updates.rows)))
        updates.rows = list(range(len(updates.rows)))
        times = self.context.times
        stream_times = batch.timestamps.running_maximum(times.observed)
        failed = sorted(set(range(len(batch))).difference(rows.done))
        emitted = self.emit(batch, expanded, updates, rows.cells, stream_times, failed)
        times.observed = stream_times.largest(times.observed)
        return emitted


@dataclass(slots=True)
class _KeyWindows:
    """The windows of one key, by their starts."""

    starts: list[int] = field(default_factory=list)
    """Ascending."""
    cells: dict[int, tuple[Any, int]] = field(default_factory=dict)

    def between(self, first: int, last: int) -> list[int]:
        """The starts of windows between two times, both inclusive."""
        return self.starts[bisect_left(self.starts, first) : bisect_right(self.starts, last)]

    def put(self, start: int, cell: Cell) -> None:
        """Set a window; None removes it."""
        if cell is None:
            if self.cells.pop(start, None) is not None:
                self.starts.remove(start)
            return
        if start not in self.cells:
            insort(self.starts, start)
        self.cells[start] = cell


class _SlidingRows:
    """A batch on its way into the windows."""

    def __init__(self, table: SlidingWindowAggregation, batch: Batch, data: list[bytes]) -> None:
        self.updates = Updates()
        self.cells: dict[bytes, Cell] = {}
        """What is to be written."""
        self.late: list[int] = []
        self.done: list[int] = []
        """Rows on which nothing failed."""
        self._table = table
        self._batch = batch
        self._data = data
        self._difference = table.windows.difference_ms
        self._fold = table.aggregation.fold
        self._observed = table.context.times.observed
        self._store_time = table.store.observed_time
        first = max(0, batch.timestamps.smallest(0) - 2 * self._difference)
        found = table.store.cells_of(set(data), first, batch.timestamps.largest(0) + 1)
        self._keys = {key: _KeyWindows() for key in data}
        for key, cells in found.items():
            self._keys[key] = _KeyWindows(sorted(cells), cells)

    def fold(self, row: int) -> None:
        """Fold one row, or raise what the user's function raised: what was done before stays."""
        timestamp = self._batch.timestamps[row]
        self._observed = max(self._observed, timestamp)
        if timestamp + self._difference < self._observed - self._table.windows.grace_ms:
            self.late.append(row)
        elif timestamp < self._difference:
            self._fold_early(row, timestamp, self._keys[self._data[row]])
        else:
            self._fold_usual(row, timestamp, self._keys[self._data[row]])
        self.done.append(row)

    def _fold_usual(self, row: int, timestamp: int, windows: _KeyWindows) -> None:
        """From the latest window on: all that contain the record, and one before it at most."""
        left: Cell = None
        right: Cell = None
        previous: int | None = None
        has_left = has_right = False
        seen: set[int] = set()
        for start in reversed(self._visible(windows, timestamp - 2 * self._difference, timestamp + 1)):
            seen.add(start)
            cell, end = windows.cells[start], start + self._difference
            if start == timestamp + 1:
                has_right = True
            elif end > timestamp:
                right = cell if right is None else right
                self._update(row, windows, start, cell)
            elif end == timestamp:
                has_left = True
                self._update(row, windows, start, cell)
                if cell[1] >= timestamp:
                    return  # a record at this very time has made all windows already
                previous = cell[1]
            else:
                left, previous = cell, cell[1]
                break
        if previous is not None and previous + 1 not in seen and previous + 1 + self._difference >= timestamp:
            self._update(row, windows, previous + 1, None)
        if not has_left:
            is_empty = previous is None or previous < timestamp - self._difference
            self._update(row, windows, timestamp - self._difference, None if is_empty else left, is_new=True)
        if not has_right:
            self._begin_behind(row, windows, timestamp, right)

    def _fold_early(self, row: int, timestamp: int, windows: _KeyWindows) -> None:
        """A record before the first difference is over: the window at time 0 is that of all of them."""
        first: Cell = None
        right: Cell = None
        previous: int | None = None
        found = self._visible(windows, 0, timestamp + 1)
        for start in found:
            cell = windows.cells[start]
            if start == 0:
                first = cell
                previous = cell[1] if cell[1] < timestamp else None
            elif start <= timestamp:
                right = cell
                self._update(row, windows, start, cell)
        if right is None:
            right = first  # nothing before the record, then, if there is something behind it
        if timestamp + 1 not in found:
            self._begin_behind(row, windows, timestamp, right)
        if previous is not None and previous + 1 not in found:
            self._update(row, windows, previous + 1, None)
        self._update(row, windows, 0, first)

    def _visible(self, windows: _KeyWindows, first: int, last: int) -> list[int]:
        return windows.between(max(first, self._table.store.gone_until(self._store_time) + 1), last)

    def _update(
        self, row: int, windows: _KeyWindows, start: int, cell: Cell, *, is_new: bool = False
    ) -> None:
        """Fold the record into a window that has the value of a cell, or into a new one made of it."""
        if start + self._difference < self._observed - self._table.windows.grace_ms:
            self.late.append(row)
            return
        table, timestamp = self._table, self._batch.timestamps[row]
        so_far = table.current(cell)
        old = table.current(cell) if table.send_old and not is_new else None
        new = self._fold(self._batch.keys[row], self._batch.values[row], so_far)
        time = timestamp if cell is None or is_new else max(timestamp, cell[1])
        self._put(row, windows, start, new, old, table.cell_of(new, time), time)

    def _begin_behind(self, row: int, windows: _KeyWindows, timestamp: int, cell: Cell) -> None:
        """Make the window that begins right behind the record, if there is a record in it."""
        if cell is not None and cell[1] > timestamp:
            self._put(row, windows, timestamp + 1, self._table.current(cell), None, cell, cell[1])

    def _put(
        self, row: int, windows: _KeyWindows, start: int, new: Any, old: Any, cell: Cell, time: int
    ) -> None:
        key = self._data[row] + START.pack(start)
        windows.put(start, cell)
        self.cells[key] = cell
        self._store_time = max(self._store_time, start)
        self.updates.add(row, key, new, old, time)
