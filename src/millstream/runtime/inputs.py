"""What a task works on in an epoch: records decoded, timestamped and put into the task's order.

The order: within a partition by offset; across partitions always the partition whose next record is
the oldest. Sorting by the running maximum of the timestamp within each partition gives exactly that, so
the order depends on the records alone and a replay repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from millstream.errors import InvalidTimestampError, ProcessingError
from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.record import Headers, RecordMetadata
from millstream.runtime.column_edges import MergedColumns, largest, running_maximum
from millstream.runtime.records import RawBatch


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


@dataclass(frozen=True, slots=True)
class DecodedPart:
    """The usable records of one partition: rows of a raw batch, decoded."""

    raw: RawBatch
    source: str
    rows: Sequence[int]
    """Which records of the raw batch these are: bad ones are left out."""
    keys: Sequence[Any]
    values: Sequence[Any]
    olds: Sequence[Any] | None
    timestamps: Sequence[int]


class TaskInput:
    """All records of an epoch, in the task's order. Row numbers of it are the origins of batches."""

    def __init__(self, parts: Sequence[DecodedPart], stream_time: int) -> None:
        self._parts = parts
        # One partition needs no merging: its rows are the task's rows.
        self._merged = MergedColumns.of(parts) if len(parts) > 1 else None
        self._places = None if len(parts) == 1 or self._merged is not None else _merge_order(parts)
        self.timestamps: Sequence[int]
        if self._merged is not None:
            self.timestamps = self._merged.timestamps
        elif self._places is None:
            self.timestamps = parts[0].timestamps
        else:
            self.timestamps = [parts[part].timestamps[row] for part, row in self._places]
        self._start_time = stream_time
        self._stream_times: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def stream_times(self) -> Sequence[int]:
        """The task's stream time as of each row."""
        if self._stream_times is None and isinstance(self.timestamps, Column):
            self._stream_times = running_maximum(self.timestamps, self._start_time)
        elif self._stream_times is None:
            self._stream_times = list(accumulate(self.timestamps, max, initial=self._start_time))[1:]
        return self._stream_times

    def stream_time_after(self, end: int) -> int:
        """The task's stream time when the rows before `end` are done; the whole column is not needed."""
        times = self._stream_times
        if times is not None:
            return int(times.item(end - 1)) if isinstance(times, Column) else times[end - 1]
        return max(largest(self.timestamps if end == len(self) else self.timestamps[:end]), self._start_time)

    def metadata(self, origin: int) -> RecordMetadata:
        """Topic, partition and offset of a row."""
        raw, row = self.raw_record(origin)
        return RecordMetadata(raw.topic, raw.partition, raw.offsets[row])

    def raw_record(self, origin: int) -> tuple[RawBatch, int]:
        """The bytes behind a row."""
        if self._merged is not None:
            part, row = self._merged.place(origin)
        else:
            part, row = (0, origin) if self._places is None else self._places[origin]
        return self._parts[part].raw, self._parts[part].rows[row]

    def batches(self, start: int, end: int, *, ordered: bool) -> dict[str, Batch]:
        """Rows from `start` to `end` by source node."""
        if self._merged is not None:
            return self._merged.batches(start, end, ordered=ordered)
        if self._places is None:
            part = self._parts[0]
            return {part.source: _slice(part, start, end, ordered=ordered)}
        rows: dict[str, list[int]] = {}
        for origin in range(start, end):
            rows.setdefault(self._parts[self._places[origin][0]].source, []).append(origin)
        return {source: self._batch(origins, ordered=ordered) for source, origins in rows.items()}

    def _batch(self, origins: Sequence[int], *, ordered: bool) -> Batch:
        assert self._places is not None  # one partition is sliced
        places = [self._places[origin] for origin in origins]
        parts = self._parts
        headers = [parts[part].raw.headers_of(parts[part].rows[row]) for part, row in places]
        with_olds = parts[places[0][0]].olds is not None
        return Batch(
            keys=[parts[part].keys[row] for part, row in places],
            values=[parts[part].values[row] for part, row in places],
            timestamps=[parts[part].timestamps[row] for part, row in places],
            headers=headers if any(headers) else None,
            origins=origins,
            olds=[parts[part].olds[row] for part, row in places] if with_olds else None,  # type: ignore[index]
            order=[(origin,) for origin in origins] if ordered else None,
        )


def _slice(part: DecodedPart, start: int, end: int, *, ordered: bool) -> Batch:
    """Consecutive rows of one partition: whole columns, or pieces of them."""
    raw, rows = part.raw, part.rows[start:end]
    headers = None if raw.headers is None else [raw.headers[row] for row in rows]
    return Batch(
        keys=part.keys[start:end],
        values=part.values[start:end],
        timestamps=part.timestamps[start:end],
        headers=headers if headers is not None and any(headers) else None,
        origins=range(start, end),
        olds=None if part.olds is None else part.olds[start:end],
        order=[(origin,) for origin in range(start, end)] if ordered else None,
    )


def _merge_order(parts: Sequence[DecodedPart]) -> list[tuple[int, int]]:
    """Where each row of the task's order stands: (part, row)."""
    places = [
        (time, part, row)
        for part, decoded in enumerate(parts)
        for row, time in enumerate(accumulate(decoded.timestamps, max))
    ]
    return [(part, row) for _, part, row in sorted(places)]


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
