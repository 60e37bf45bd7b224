"""A stream-table join with a grace period: records wait, so that late updates of the table are seen.

A record waits in a buffer until stream time, as far as the join has seen it, is the grace period beyond it;
then it is joined with the row of the versioned table as it was at the record's time. Records leave by time,
then by the bytes of their keys, then as they came. One that is older than that on arrival is joined at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Any

from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.processors.joins.stream_table import StreamTableJoin, StreamTableJoiner
from millstream.processors.joins.table_view import TableView
from millstream.processors.operator import OperatorContext, collect, rest
from millstream.serdes import ColumnError, deserialize_column
from millstream.state.stores.encoded_buffer import EncodedBuffer, EncodedRecord

__all__ = ["StreamTableJoinWithGrace"]


class StreamTableJoinWithGrace(StreamTableJoin):
    """Joins each record when stream time is `grace_ms` beyond it."""

    def __init__(self, buffer: str, grace_ms: int, table: TableView, join: StreamTableJoiner) -> None:
        super().__init__(table, join, as_of_time=True)
        self.buffer_name = buffer
        self.grace_ms = grace_ms

    def open(self, context: OperatorContext) -> None:
        """See `Operator.open`."""
        super().open(context)
        self.buffer: EncodedBuffer[Any] = context.store(self.buffer_name)

    def process(self, batch: Batch) -> Batch | None:
        """See `Operator.process`."""
        records, batch = self._encoded(self.without_nulls(batch.in_rows()))
        if not len(batch):
            return None
        times = self.context.times
        stream_times = batch.timestamps.running_maximum(times.observed)
        times.observed = stream_times[len(batch) - 1]
        waiting = _Waiting(self.buffer, times.observed - self.grace_ms)
        left: list[tuple[int, EncodedRecord | None]] = []
        for row, (record, stream_time) in enumerate(zip(records, stream_times, strict=True)):
            closed = stream_time - self.grace_ms
            if record is None or record.time < closed:
                left.append((row, None))
            else:
                waiting.put(record)
            left += [(row, one) for one in waiting.leave_until(closed)]
        waiting.save()
        return self.joined(self._leaving(batch, left)) if left else None

    def _encoded(self, batch: Batch) -> tuple[Sequence[EncodedRecord | None], Batch]:
        """Records as the buffer keeps them, and their rows. None for one without a key: it does not wait."""
        buffer, timestamps = self.buffer, batch.timestamps.rows()
        headers = batch.headers if batch.headers is not None else [()] * len(batch)
        columns = (batch.keys, batch.values, timestamps, timestamps, headers, [None] * len(batch))
        if None not in batch.keys:
            try:
                return buffer.encode(*columns), batch
            except ColumnError:
                pass  # go through them one by one: there may be several

        def encode(key: Any, *others: Any) -> EncodedRecord | None:
            return None if key is None else buffer.encode_one(key, *others)

        return collect(
            self.context, batch, lambda start: map(encode, *(rest(column, start) for column in columns))
        )

    def _leaving(self, batch: Batch, left: Sequence[tuple[int, EncodedRecord | None]]) -> Batch:
        """The records to be joined, each caused by a row of the batch: what waited, or the row itself."""
        buffer, own = self.buffer, batch.take([row for row, _ in left])
        waited = [record for _, record in left if record is not None]
        keys = iter(deserialize_column(buffer.key_serde, [record.key for record in waited]))
        values = iter(deserialize_column(buffer.value_serde, [record.value for record in waited]))
        records = [record for _, record in left]
        headers = [
            own.headers_of(row) if record is None else record.headers for row, record in enumerate(records)
        ]
        out = batch.expand(
            [row for row, _ in left],
            [own.keys[row] if record is None else next(keys) for row, record in enumerate(records)],
            [own.values[row] if record is None else next(values) for row, record in enumerate(records)],
        )
        return replace(
            out,
            timestamps=Column(
                [own.timestamps[row] if one is None else one.timestamp for row, one in enumerate(records)]
            ),
            headers=headers if any(headers) else None,
        )


class _Waiting:
    """What waits while a batch is at work: the buffer as it would be if each row had been written to it."""

    def __init__(self, buffer: EncodedBuffer[Any], horizon: int) -> None:
        """Up to `horizon` records may leave."""
        self._buffer = buffer
        self._horizon = horizon
        self._stored = {record.row: record for record in buffer.waiting(horizon)}
        self._new: dict[bytes, EncodedRecord] = {}
        self._order = sorted(self._stored)
        heapify(self._order)
        self._left: list[EncodedRecord] = []
        """Those that had waited before the batch, and have left."""

    def put(self, record: EncodedRecord) -> None:
        """Let a record wait."""
        record = record._replace(number=self._buffer.next_number())
        self._new[record.row] = record
        if record.time <= self._horizon:
            heappush(self._order, record.row)

    def leave_until(self, time: int) -> Iterator[EncodedRecord]:
        """Take out what waits for a time up to this one, in order."""
        while self._order:
            row = self._order[0]
            record = self._new[row] if row in self._new else self._stored[row]
            if record.time > time:
                return
            heappop(self._order)
            if self._new.pop(row, None) is None:
                self._left.append(record)
            yield record

    def save(self) -> None:
        """Write what the batch has changed."""
        self._buffer.write(self._left, self._new.values())
