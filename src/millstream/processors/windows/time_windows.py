"""An aggregation by time windows: tumbling, hopping or unlimited.

Rows without a key are left out, and do not move the operator's stream time. Those without a value are
aggregated, unless the aggregation has no use for them. A row is folded into each of its windows that has not
closed: the batch becomes one with a row per window, whose keys are those of cells, and the fold is that of
`KeyedAggregation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.batch import Batch, concatenate
from millstream.processors.columns.column import are_many
from millstream.processors.table import drop_null_keys, drop_nulls
from millstream.processors.windows.expansion import Expansion, expand
from millstream.processors.windows.on_close import CloseRule
from millstream.processors.windows.windowed_table import START, WindowedTable
from millstream.windows import TimeWindows, UnlimitedWindows

__all__ = ["TimeWindowAggregation"]

_MOST_WINDOWS: Final = 500_000
"""So many rows may a batch have after each was put into its windows: larger ones are done in parts."""


class TimeWindowAggregation(WindowedTable):
    """Folds each row into the cells of its key and windows, in order."""

    def __init__(
        self,
        store: str,
        windows: TimeWindows | UnlimitedWindows,
        aggregation: Aggregation,
        *,
        caching: bool,
        send_old: bool,
        on_close: bool,
        after_idle_ms: int | None = None,
    ) -> None:
        closes: CloseRule | None = None
        if on_close:
            assert isinstance(windows, TimeWindows)  # an unlimited window never closes
            closes = CloseRule(windows.size_ms, windows.grace_ms, windows.advance_ms, after_idle_ms)
        super().__init__(store, aggregation, closes, caching=caching, send_old=send_old)
        self.windows = windows

    def process(self, batch: Batch) -> Batch | None:
        """See `Operator.process`."""
        batch = self.without_nulls(batch)
        combines = self.caching and self.aggregation.combiner is not None
        if combines and are_many(len(batch) * self._per_row) and self._fold_columns(batch):
            return None
        return self.fold_in_rows(batch)

    def without_nulls(self, batch: Batch) -> Batch:
        """Leave rows out that the aggregation has no use for."""
        drop = drop_nulls if self.aggregation.skips_nulls else drop_null_keys
        return drop(self.context, batch)

    def fold_in_rows(self, batch: Batch) -> Batch | None:
        """Fold rows without nulls as Python objects."""
        emitted = [done for part in self.parts(batch) if (done := self._process(part)) is not None]
        return concatenate(emitted) if emitted else None

    @property
    def _per_row(self) -> int:
        """How many windows a row belongs to, at most."""
        if not isinstance(self.windows, TimeWindows):
            return 1
        return -(-self.windows.size_ms // self.windows.advance_ms)

    def _fold_columns(self, batch: Batch) -> bool:
        """See `KeyedAggregation._fold_columns`."""
        from millstream.processors.windows.window_columns import fold_in_windows  # noqa: PLC0415 - imports Polars

        return fold_in_windows(self, batch, self.windows)

    def parts(self, batch: Batch) -> Iterator[Batch]:
        """The batch in parts whose rows, times their windows, still fit into memory."""
        rows = max(1, _MOST_WINDOWS // self._per_row)
        if len(batch) <= rows:
            yield from (batch,) if len(batch) else ()
            return
        for start in range(0, len(batch), rows):
            yield batch.take(range(start, min(start + rows, len(batch))))

    def _process(self, batch: Batch) -> Batch | None:
        data, batch = self.with_key_bytes(batch, self.store.key_serde)
        times = self.context.times
        found = expand(batch.timestamps, self.windows, times.observed)
        if len(found.late):
            self.context.late(batch, found.late)
        emitted = self._fold(batch, data, found)
        times.observed = found.stream_times.largest(times.observed)
        return emitted

    def _fold(self, batch: Batch, data: list[bytes], found: Expansion) -> Batch | None:
        rows, starts = found.rows.rows(), found.starts.rows()
        cells = [data[row] + start for row, start in zip(rows, map(START.pack, starts), strict=True)]
        expanded = batch.expand(found.rows, None, batch.values.take(found.rows))
        if self.caching and self.aggregation.combiner is not None:
            by_cell = expanded.with_columns(cells, expanded.values)
            if self._fold_groups(by_cell):
                return None
            self.context.fell_back("partials", len(by_cell))
        updates, expanded, changed = self.folded(cells, expanded.in_rows(), rows)
        failed = [rows[row] for row in updates.failed]
        return self.emit(batch, expanded, updates, changed, found.stream_times, failed)
