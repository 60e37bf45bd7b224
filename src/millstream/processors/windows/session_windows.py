"""An aggregation by session: records of a key that are at most a gap apart belong together.

Rows without a key are left out; those without a value are aggregated. A session that becomes part of a larger
one is gone: its tombstone comes before the larger one. The timestamp of either is the session's end.
A session closes when its end is further back than gap and grace: then it is emitted, if that is wanted on
close, and a record that would only belong to it is late.

The sessions of all keys of a batch are read at once, worked on in memory and written once. With caching,
large batches are done in columns where the aggregation has that form: see `session_columns`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.aggregations.keyed import KeyedAggregation
from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column, are_many
from millstream.processors.idle_clock import IdleClock
from millstream.processors.operator import OperatorContext
from millstream.processors.operator_times import UNKNOWN_TIME
from millstream.processors.table import Updates, drop_null_keys, drop_nulls
from millstream.processors.windows.session_rows import (
    CLOSING_ORDER,
    Merger,
    Session,
    SessionRows,
    SessionRules,
    Update,
)
from millstream.record import Window, Windowed
from millstream.serdes import ColumnError
from millstream.state.stores.cell_store import Cell, Frozen
from millstream.state.stores.session import SessionStore
from millstream.windows import SessionWindows

__all__ = ["SessionAggregation"]

_END_START: Final = struct.Struct(">qq")


class SessionAggregation(KeyedAggregation):
    """Folds each row into the sessions that it belongs to, which become one."""

    store: SessionStore[Any, Any]

    def __init__(
        self,
        store: str,
        windows: SessionWindows,
        aggregation: Aggregation,
        merger: Merger,
        *,
        caching: bool,
        send_old: bool,
        on_close: bool,
        after_idle_ms: int | None = None,
    ) -> None:
        super().__init__(store, aggregation, caching=caching and not on_close, send_old=send_old)
        self.windows = windows
        self.merger = merger
        self.on_close = on_close
        self.after_idle_ms = after_idle_ms
        self._gone: set[tuple[bytes, int, int]] = set()
        """Sessions whose tombstones wait for the flush."""

    def open(self, context: OperatorContext) -> None:
        """See `Operator.open`."""
        super().open(context)
        self.rules = SessionRules(
            self.windows,
            self.aggregation,
            self.merger,
            self.store.retention_ms,
            freeze=self.store.frozen,
            thaw=self.store.thawed,
        )
        self._clock = IdleClock(context, self.after_idle_ms)

    def process(self, batch: Batch) -> Batch | None:
        """See `Operator.process`."""
        drop = drop_nulls if self.aggregation.skips_nulls else drop_null_keys
        batch = drop(self.context, batch)
        combines = self.caching and self.aggregation.combiner is not None
        if combines and are_many(len(batch)) and self._fold_columns(batch):
            return None
        return self.fold_rows(batch) if len(batch) else None

    def fold_rows(self, batch: Batch) -> Batch | None:
        """Fold rows with keys as Python objects, one after the other."""
        keys, batch = self.with_key_bytes(batch, self.store.key_serde)
        done = self._folded(batch, keys, self.rules)
        last = done.last_updates()
        try:
            self.store.save(self._cells(last))
        except ColumnError:  # some value can't be kept: find the rows that made it, and do without them
            done = self._folded(batch, keys, replace(self.rules, freeze=self._encoded))
            last = done.last_updates()
            self.store.save(self._cells(last))
        self.store.advance(done.store_time)
        times = self.context.times
        times.observed, times.emitted = done.observed, done.emitted
        for row, error in done.failures:
            self.context.failed(batch, row, error)
        if done.late:
            self.context.late(batch, done.late)
        if self.on_close:
            self._clock.records_came(batch.timestamps.largest(UNKNOWN_TIME) + self.rules.open_ms + 1)
            return self._closed(batch, done.closed)
        if self.caching:
            self._hold(batch, last)
            return None
        return self._updated(batch, done.updates)

    def _fold_columns(self, batch: Batch) -> bool:
        """See `KeyedAggregation._fold_columns`."""
        from millstream.processors.windows.session_columns import fold_in_columns  # noqa: PLC0415 - imports Polars

        return fold_in_columns(self, batch)

    def flush(self) -> Batch | None:
        """See `Operator.flush`: on close, sessions also close by the clock, if no records came."""
        self._gone.clear()
        tick = self._clock.moves(is_open=self.waits_for_clock)
        if tick is None:
            return super().flush()
        times = self.context.times
        close_time = max(times.emitted, times.observed - self.rules.open_ms)
        ended = [
            Session(key, start, end, Frozen(data), was_stored=True)
            for key, end, start, data in self.store.ended(max(times.emitted, 0), close_time - 1)
        ]
        times.emitted = close_time
        return self._closed(tick, [(0, session) for session in sorted(ended, key=CLOSING_ORDER)])

    @property
    def waits_for_clock(self) -> bool:
        """See `Operator.waits_for_clock`."""
        return self._clock.waits

    def _folded(self, batch: Batch, keys: list[bytes], rules: SessionRules) -> SessionRows:
        times, gap = self.context.times, self.windows.gap_ms
        rows = SessionRows(rules, times.observed, self.store.observed_time, times.emitted, self._gone)
        rows.load(self.store.sessions_of(keys, batch.timestamps.smallest(0) - gap))
        if self.on_close:
            latest = batch.timestamps.largest(times.observed)
            ended = self.store.ended(max(times.emitted, 0), max(latest, times.observed) - rules.open_ms - 1)
            rows.fold_and_close(batch, keys, ended)
        else:
            rows.fold(batch, keys)
        return rows

    def _encoded(self, value: Any) -> Any:
        return None if value is None else Frozen(self.store.encode_value(value))

    def _cells(self, updates: Sequence[Update]) -> dict[bytes, Cell]:
        return {
            _cell_key(session): None if new is None else (session.value, session.end)
            for _, session, new, _ in updates
        }

    def _updated(self, batch: Batch, found: Sequence[Update]) -> Batch | None:
        """Without caching: every update goes on."""
        if not found:
            return None
        thawed = self.store.thawed
        olds = Column([thawed(old) for *_, old in found]) if self.send_old else None
        return self._shown(replace(self._rows_of(batch, found), headers=None, olds=olds))

    def _closed(self, batch: Batch, closed: Sequence[tuple[int, Session]]) -> Batch | None:
        """On close: every session goes on once, with the headers of the record that closed it."""
        if not closed:
            return None
        serde, thawed = self.store.key_serde, self.store.thawed
        keys = [_windowed(serde.deserialize(session.key), session) for _, session in closed]
        out = batch.expand([row for row, _ in closed], keys, [thawed(session.value) for _, session in closed])
        return self._shown(
            replace(
                out,
                timestamps=Column([session.end for _, session in closed]),
                olds=Column([None] * len(closed)) if self.send_old else None,
            )
        )

    def _hold(self, batch: Batch, last: Sequence[Update]) -> None:
        """With caching: the last update of each session waits for the end of the epoch."""
        if not last:
            return
        updates = Updates()
        for row, (_, session, new, _) in enumerate(last):
            value = None if new is None else session.value
            updates.add(row, _cell_key(session), value, None, session.end)
            if new is None:
                self._gone.add((session.key, session.start, session.end))
        self.hold_back(self._rows_of(batch, last), updates)

    def _rows_of(self, batch: Batch, found: Sequence[Update]) -> Batch:
        """A row for each update of a session, caused by a row of the batch, which has its key."""
        keys = [_windowed(batch.keys[row], session) for row, session, _, _ in found]
        out = batch.expand([row for row, *_ in found], keys, [new for _, _, new, _ in found])
        return replace(out, timestamps=Column([session.end for _, session, _, _ in found]))


def _windowed(key: Any, session: Session) -> Windowed[Any]:
    return Windowed(key, Window(session.start, session.end))


def _cell_key(session: Session) -> bytes:
    return session.key + _END_START.pack(session.end, session.start)
