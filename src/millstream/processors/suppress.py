"""`KTable.suppress`: updates of a table wait in a buffer, the last one of each row in the place of the first.

An update leaves when the operator's own stream time has come far enough. Its old value is what was sent of
the row last, so whoever is behind takes back exactly what was added.

A batch is worked on in memory: what waits of its rows is read once, what leaves is read from the front of the
buffer as far as the batch takes it, and what stays is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from heapq import heapify, heappop, heappush
from math import inf, isinf
from typing import Any

from millstream.errors import ProcessingError
from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.processors.idle_clock import IdleClock
from millstream.processors.operator import Operator, OperatorContext, collect, rest
from millstream.processors.operator_times import UNKNOWN_TIME
from millstream.processors.table import olds_of
from millstream.serdes import ColumnError, deserialize_column
from millstream.state.stores.encoded_buffer import EncodedBuffer, EncodedRecord
from millstream.suppressed import Suppressed

__all__ = ["Suppress"]


class Suppress(Operator):
    """Holds updates back for `duration_ms` of its own stream time, or as long as there is room for them."""

    def __init__(self, store: str, suppressed: Suppressed, *, duration_ms: int, send_old: bool) -> None:
        self.store_name = store
        self.suppressed = suppressed
        self.duration_ms = duration_ms
        self.send_old = send_old
        self.until_window_closes = suppressed.limit_ms is None
        self._max_records = _or_infinite(suppressed.max_records)
        self._max_bytes = _or_infinite(suppressed.max_bytes)
        is_bounded = not (isinf(self._max_records) and isinf(self._max_bytes))
        self._emits_early = is_bounded and suppressed.when_full == "emit-early"

    def open(self, context: OperatorContext) -> None:
        """See `Operator.open`."""
        super().open(context)
        self.buffer: EncodedBuffer[Any] = context.store(self.store_name)
        self._clock = IdleClock(context, self.suppressed.after_idle_ms)

    def process(self, batch: Batch) -> Batch | None:
        """See `Operator.process`."""
        self._clock.records_came()
        updates, batch = self._encoded(self._without_late(batch.in_rows()))
        if not updates:
            return None
        times, left = self.context.times, list[tuple[int, EncodedRecord]]()
        last = max(times.observed, *(update.timestamp for update in updates))
        waiting = _Waiting(self.buffer, updates, None if self._emits_early else last - self.duration_ms)

        def is_full() -> bool:
            return waiting.records > self._max_records or waiting.num_bytes > self._max_bytes

        for row, update in enumerate(updates):
            times.observed = max(times.observed, update.timestamp)
            waiting.put(update)
            left += [(row, one) for one in waiting.leave_until(times.observed - self.duration_ms)]
            if is_full():
                if not self._emits_early:
                    raise self._no_room(waiting)
                left += [(row, one) for one in waiting.leave_while(is_full)]
        waiting.save()
        return self._emitted(batch, left)

    def flush(self) -> Batch | None:
        """See `Operator.flush`: windows close by the clock, if no records came."""
        tick = self._clock.moves(is_open=len(self.buffer) > 0)
        if tick is None:
            return None
        times = self.context.times
        times.emitted = times.observed - self.duration_ms
        left = list(self.buffer.waiting(times.emitted))
        self.buffer.write(left, ())
        return self._emitted(tick, [(0, record) for record in left])

    @property
    def waits_for_clock(self) -> bool:
        """See `Operator.waits_for_clock`."""
        return self.suppressed.after_idle_ms is not None and len(self.buffer) > 0

    def _without_late(self, batch: Batch) -> Batch:
        """The rows without those of windows that the clock has closed."""
        closed = self.context.times.emitted
        if closed == UNKNOWN_TIME:
            return batch
        late = [row for row, key in enumerate(batch.keys) if key.window.end <= closed]
        if not late:
            return batch
        self.context.late(batch, late)
        return batch.take([row for row, key in enumerate(batch.keys) if key.window.end > closed])

    def _emitted(self, batch: Batch, left: list[tuple[int, EncodedRecord]]) -> Batch | None:
        """What has left the buffer, each caused by a row of the batch."""
        if self.until_window_closes:
            # A row that nobody has heard of needs no tombstone.
            left = [
                (row, record)
                for row, record in left
                if record.value is not None or (self.send_old and record.old_value is not None)
            ]
        if not left:
            return None
        rows, records = [row for row, _ in left], [record for _, record in left]
        keys = deserialize_column(self.buffer.key_serde, [record.key for record in records])
        values, olds = (
            deserialize_column(self.buffer.value_serde, column)
            for column in ([record.value for record in records], [record.old_value for record in records])
        )
        headers = [record.headers for record in records]
        return replace(
            batch.expand(rows, keys, values),
            timestamps=Column([record.timestamp for record in records]),
            headers=headers if any(headers) else None,
            olds=Column(olds) if self.send_old else None,
        )

    def _encoded(self, batch: Batch) -> tuple[list[EncodedRecord], Batch]:
        """The updates as the buffer keeps them, and their rows; those that can't be kept are left out."""
        buffer, timestamps = self.buffer, batch.timestamps.rows()
        times = [key.window.end for key in batch.keys] if self.until_window_closes else timestamps
        headers = batch.headers if batch.headers is not None else [()] * len(batch)
        columns = (batch.keys, batch.values, timestamps, times, headers, olds_of(batch))
        try:
            return buffer.encode(*columns), batch
        except ColumnError:
            pass  # go through them one by one: there may be several
        return collect(
            self.context,
            batch,
            lambda start: map(buffer.encode_one, *(rest(column, start) for column in columns)),
        )

    def _no_room(self, waiting: _Waiting) -> ProcessingError:
        bounds = {"max_records": self.suppressed.max_records, "max_bytes": self.suppressed.max_bytes}
        given = ", ".join(f"{name}={bound}" for name, bound in bounds.items() if bound is not None)
        return ProcessingError(
            f"suppress() at operator {self.context.node!r} of task {self.context.task_id} is full: it holds "
            f"{waiting.records} updates back, {waiting.num_bytes} bytes in all; its bound is {given}. Likely "
            "cause: more rows are open at a time than expected, or stream time stands still. Remedy: raise "
            "the bound, or leave it out: the buffer is in a store, not in memory"
        )


class _Waiting:
    """What waits while a batch is at work: the buffer as it would be if each row had been written to it."""

    def __init__(
        self, buffer: EncodedBuffer[Any], updates: Iterable[EncodedRecord], horizon: int | None
    ) -> None:
        """Up to `horizon` records may leave; None if any may."""
        self._buffer = buffer
        self.records = len(buffer)
        self.num_bytes = buffer.num_bytes
        self._horizon = horizon
        self._stored = buffer.load({update.key for update in updates})
        """Those of the batch's keys that waited before."""
        self._waiting = dict(self._stored)
        """The batch's keys as of now."""
        self._order = [(one.row, one.key) for one in self._stored.values() if self._may_leave(one)]
        """Those of them that may leave, as a heap."""
        heapify(self._order)
        self._others = (one for one in buffer.waiting(horizon) if one.key not in self._stored)
        self._next_other = next(self._others, None)
        self._left: list[EncodedRecord] = []
        """Other keys, which have left."""

    def put(self, update: EncodedRecord) -> None:
        """Let an update wait, in the place of the one that waits already."""
        before = self._waiting.get(update.key)
        if before is not None:
            update = update._replace(time=before.time, old_value=before.old_value)
            self.num_bytes -= before.num_bytes
        else:
            self.records += 1
            if self._may_leave(update):
                heappush(self._order, (update.row, update.key))
        self.num_bytes += update.num_bytes
        self._waiting[update.key] = update

    def leave_until(self, time: int) -> Iterator[EncodedRecord]:
        """Take out what waits for a time up to this one, in order."""
        while (first := self._first()) is not None and first.time <= time:
            yield self._take(first)

    def leave_while(self, too_many: Callable[[], bool]) -> Iterator[EncodedRecord]:
        """Take out what has waited longest, as long as there is too much."""
        while too_many() and (first := self._first()) is not None:
            yield self._take(first)

    def save(self) -> None:
        """Write what the batch has changed."""
        self._buffer.write([*self._stored.values(), *self._left], self._waiting.values())

    def _may_leave(self, record: EncodedRecord) -> bool:
        return self._horizon is None or record.time <= self._horizon

    def _first(self) -> EncodedRecord | None:
        if not self._order:
            return self._next_other
        row, key = self._order[0]
        if self._next_other is None or row < self._next_other.row:
            return self._waiting[key]
        return self._next_other

    def _take(self, first: EncodedRecord) -> EncodedRecord:
        self.records -= 1
        self.num_bytes -= first.num_bytes
        if first is self._next_other:
            self._left.append(first)
            self._next_other = next(self._others, None)
        else:
            heappop(self._order)
            del self._waiting[first.key]
        return first


def _or_infinite(bound: int | None) -> float:
    return inf if bound is None else bound
