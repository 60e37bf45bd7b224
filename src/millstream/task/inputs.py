"""What a task works on in an epoch: records decoded, timestamped and put into the task's order.

The order: within a partition by offset; across partitions always the partition whose next record is
the oldest. Sorting by the running maximum of the timestamp within each partition gives exactly that, so
the order depends on the records alone and a replay repeats it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from typing import Any

from millstream.errors import InvalidTimestampError, ProcessingError
from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.record import Headers, RecordMetadata
from millstream.task.column_codec import MergedColumns
from millstream.task.records import DecodedPart, RawBatch


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    """What a timestamp extractor is shown."""

    topic: str
    partition: int
    offset: int
    key: Any
    value: Any
    timestamp: int
    headers: Headers


class TaskInput:
    """All records of an epoch, in the task's order. Row numbers of it are the origins of batches."""

    def __init__(self, parts: Sequence[DecodedPart], stream_time: int) -> None:
        self._parts = parts
        # One partition needs no merging: its rows are the task's rows.
        self._merged = MergedColumns.of(parts) if len(parts) > 1 else None
        self._order = None if len(parts) == 1 or self._merged is not None else _merge_order(parts)
        self._starts = [0, *accumulate(len(part.rows) for part in parts)]
        self.timestamps: Column
        if self._merged is not None:
            self.timestamps = self._merged.timestamps
        elif self._order is None:
            self.timestamps = parts[0].timestamps
        else:
            self.timestamps = self._in_order.timestamps
        self._start_time = stream_time
        self._stream_times: Column | None = None

    def __len__(self) -> int:
        return len(self.timestamps)

    def left_columns(self) -> Iterator[tuple[str, int]]:
        """Sources, and how many rows of theirs stood in columns but are merged as Python objects."""
        for part in self._parts if self._order is not None else ():
            if part.keys.in_arrow and part.values.in_arrow:
                yield part.source, len(part.rows)

    @property
    def stream_times(self) -> Column:
        """The task's stream time as of each row."""
        if self._stream_times is None:
            self._stream_times = self.timestamps.running_maximum(self._start_time)
        return self._stream_times

    def stream_time_after(self, end: int) -> int:
        """The task's stream time when the rows before `end` are done; the whole column is not needed."""
        if self._stream_times is not None:
            return int(self._stream_times.item(end - 1))
        seen = self.timestamps if end == len(self) else self.timestamps[:end]
        return max(seen.largest(self._start_time), self._start_time)

    def metadata(self, origin: int) -> RecordMetadata:
        """Topic, partition and offset of a row."""
        raw, row = self.raw_record(origin)
        return RecordMetadata(raw.topic, raw.partition, raw.offsets[row])

    def raw_record(self, origin: int) -> tuple[RawBatch, int]:
        """The bytes behind a row."""
        if self._merged is not None:
            part, row = self._merged.place(origin)
        else:
            place = origin if self._order is None else self._order[origin]
            part = bisect_right(self._starts, place) - 1
            row = place - self._starts[part]
        return self._parts[part].raw, self._parts[part].rows[row]

    def batches(self, start: int, end: int, *, ordered: bool) -> dict[str, Batch]:
        """Rows from `start` to `end` by source node."""
        if self._merged is not None:
            return self._merged.batches(start, end, ordered=ordered)
        if self._order is None:
            part = self._parts[0]
            return {part.source: _slice(part, start, end, ordered=ordered)}
        merged = self._in_order
        if len(set(merged.sources)) == 1:
            rows = range(start, end)
            return {merged.sources[0]: merged.batch(rows, ordered=ordered)} if start < end else {}
        by_source: dict[str, list[int]] = {}
        for origin in range(start, end):
            by_source.setdefault(merged.sources[origin], []).append(origin)
        return {source: merged.batch(rows, ordered=ordered) for source, rows in by_source.items()}

    @cached_property
    def _in_order(self) -> _MergedRows:
        """The rows of all parts, put into the task's order once."""
        assert self._order is not None  # one partition is sliced
        return _MergedRows.of(self._parts, self._order)


@dataclass(frozen=True, slots=True)
class _MergedRows:
    """Rows of several parts, in the task's order."""

    sources: Sequence[str]
    keys: Sequence[Any]
    values: Sequence[Any]
    timestamps: Column
    headers: Sequence[Headers] | None
    olds: Sequence[Any]
    sources_with_olds: frozenset[str]

    @classmethod
    def of(cls, parts: Sequence[DecodedPart], order: Sequence[int]) -> _MergedRows:
        """The parts, merged."""
        headers = None
        if any(part.raw.headers is not None for part in parts):
            headers = _picked([[part.raw.headers_of(row) for row in part.rows] for part in parts], order)
        return cls(
            sources=_picked([[part.source] * len(part.rows) for part in parts], order),
            keys=_picked([part.keys for part in parts], order),
            values=_picked([part.values for part in parts], order),
            timestamps=Column(_picked([part.timestamps for part in parts], order)),
            headers=headers,
            olds=_picked([part.olds or [None] * len(part.rows) for part in parts], order),
            sources_with_olds=frozenset(part.source for part in parts if part.olds is not None),
        )

    def batch(self, rows: Sequence[int], *, ordered: bool) -> Batch:
        """Some rows of one source."""
        headers = None if self.headers is None else _some(self.headers, rows)
        with_olds = self.sources[rows[0]] in self.sources_with_olds
        return Batch(
            keys=_some(self.keys, rows),
            values=_some(self.values, rows),
            timestamps=_some(self.timestamps, rows),
            headers=headers if headers is not None and any(headers) else None,
            origins=rows,
            olds=_some(self.olds, rows) if with_olds else None,
            order=[(row,) for row in rows] if ordered else None,
        )


def _picked(columns: Sequence[Sequence[Any]], places: Sequence[int]) -> list[Any]:
    """Entries of several columns that stand one after the other."""
    whole = list(chain.from_iterable(columns))
    return [whole[place] for place in places]


def _some(column: Sequence[Any], rows: Sequence[int]) -> Sequence[Any]:
    return column[rows.start : rows.stop] if isinstance(rows, range) else [column[row] for row in rows]


def _slice(part: DecodedPart, start: int, end: int, *, ordered: bool) -> Batch:
    """Consecutive rows of one partition: whole columns, or pieces of them."""
    raw, rows = part.raw, part.rows[start:end]
    headers = None if raw.headers is None else [raw.headers[row] for row in rows]
    if len(rows) < len(part.rows):
        part = part.cut(start, end)
    return Batch(
        keys=part.keys,
        values=part.values,
        timestamps=part.timestamps,
        headers=headers if headers is not None and any(headers) else None,
        origins=range(start, end),
        olds=part.olds,
        order=[(origin,) for origin in range(start, end)] if ordered else None,
    )


def _merge_order(parts: Sequence[DecodedPart]) -> list[int]:
    """Where each row of the task's order stands, if all parts stand one after the other."""
    times = list(chain.from_iterable(accumulate(part.timestamps, max) for part in parts))
    # A stable sort: rows of a part stand in order already, and of equal times the first part's come first.
    return sorted(range(len(times)), key=times.__getitem__)


def extract_timestamps(
    raw: RawBatch,
    rows: Sequence[int],
    keys: Sequence[Any],
    values: Sequence[Any],
    extractor: Callable[[Any, int], int],
    partition_time: int,
) -> list[int]:
    """Timestamps of decoded records by an extractor, which is told the partition's time so far."""
    extracted: list[int] = []
    for position, row in enumerate(rows):
        record = ConsumedRecord(
            raw.topic,
            raw.partition,
            raw.offsets[row],
            keys[position],
            values[position],
            raw.timestamps[row],
            raw.headers_of(row),
        )
        timestamp = _extracted(extractor, record, partition_time)
        partition_time = max(partition_time, timestamp)
        extracted.append(timestamp)
    return extracted


def _extracted(extractor: Callable[[Any, int], int], record: ConsumedRecord, partition_time: int) -> int:
    """An extractor's answer, checked; a failure names the record."""
    place = f"topic {record.topic!r}, partition {record.partition}, offset {record.offset}"
    try:
        timestamp = extractor(record, partition_time)
    except InvalidTimestampError as error:
        raise InvalidTimestampError(f"{place}: {error}") from error
    except Exception as error:
        raise ProcessingError(
            f"{place}: the timestamp extractor failed: {type(error).__name__}: {error}. Remedy: mend it, or "
            "answer a negative time for records to leave out"
        ) from error
    if type(timestamp) is not int:
        raise InvalidTimestampError(
            f"{place}: the timestamp extractor answered {timestamp!r}. Remedy: return milliseconds as an int"
        )
    return timestamp
