"""What aggregations into windows of one size have in common: the keys of their table, and when it emits."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.aggregations.keyed import KeyedAggregation
from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.processors.idle_clock import IdleClock
from millstream.processors.operator import OperatorContext
from millstream.processors.operator_times import UNKNOWN_TIME
from millstream.processors.table import Updates
from millstream.processors.windows.key_columns import windowed_keys
from millstream.processors.windows.on_close import ClosedWindows, CloseRule
from millstream.record import Windowed
from millstream.serdes import Serde
from millstream.serdes import bytes as raw_bytes
from millstream.state.stores.cell_store import Cell
from millstream.state.stores.window import TimestampedWindowStore

__all__ = ["START", "WindowedTable"]

START: Final = struct.Struct(">q")
"""A cell's key is the key's bytes and the start of the window."""


class WindowedTable(KeyedAggregation):
    """An aggregation whose cells belong to a key and a window. Its batches have the keys alone."""

    store: TimestampedWindowStore[Any]

    def __init__(
        self,
        store: str,
        aggregation: Aggregation,
        closes: CloseRule | None,
        *,
        caching: bool,
        send_old: bool,
    ) -> None:
        """`closes` says when windows close, if that is when they are emitted."""
        super().__init__(store, aggregation, caching=caching, send_old=send_old)
        self._closes = closes

    def open(self, context: OperatorContext) -> None:
        """See `Operator.open`."""
        super().open(context)
        self._clock = IdleClock(context, None if self._closes is None else self._closes.after_idle_ms)

    def flush(self) -> Batch | None:
        """See `Operator.flush`: windows close by the clock, if no records came."""
        tick = self._clock.moves(is_open=self.waits_for_clock)
        if tick is None or self._closes is None:
            return super().flush()
        rows = range(len(tick))
        closed = ClosedWindows(self.store, self._closes, self.context.times, rows, tick.timestamps)
        return self._shown(closed.emitted(tick, {}))

    @property
    def waits_for_clock(self) -> bool:
        """See `Operator.waits_for_clock`."""
        return self._clock.waits

    @property
    def group_serde(self) -> Serde[Any]:
        """See `KeyedAggregation.group_serde`: rows are grouped by the keys of their cells."""
        return raw_bytes

    def table_keys(self, cells: Sequence[bytes], keys: Column) -> Column:
        """See `TableOperator.table_keys`."""
        del keys
        return windowed_keys(self.store.cell_key_serde, cells)

    def write(self, batch: Batch, updates: Updates, cells: Mapping[bytes, Cell]) -> Batch | None:
        """See `TableOperator.write`."""
        if self.caching:  # keys are made of those of the cells, when the updates go on
            return super().write(batch, updates, cells)
        changed = batch.take(updates.rows)
        keys = list(map(Windowed, changed.keys, map(self.store.window_of, updates.key_bytes)))
        updates.rows = list(range(len(keys)))
        return super().write(changed.with_columns(keys, changed.values), updates, cells)

    def emit(
        self,
        batch: Batch,
        expanded: Batch,
        updates: Updates,
        cells: Mapping[bytes, Cell],
        stream_times: Column,
        failed: Sequence[int],
    ) -> Batch | None:
        """Write updates, and hand on what is emitted now: the updates, or the windows that have closed.

        The updates' rows are those of `expanded`, which has a row of the batch for each of its windows. The
        stream times are the operator's after each row of the batch. A row that failed closes nothing.
        """
        if self._closes is None:
            return self.write(expanded, updates, cells)
        self._clock.records_came(self._closes.all_closed_at(batch.timestamps.largest(UNKNOWN_TIME)))
        rows = sorted(set(range(len(batch))).difference(failed)) if failed else range(len(batch))
        closed = ClosedWindows(self.store, self._closes, self.context.times, rows, stream_times)
        self.save(expanded, updates, cells)
        written = {cell: cells[cell] for cell in updates.key_bytes}
        return self._shown(closed.emitted(batch, written))
