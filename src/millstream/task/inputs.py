"""What a task works on in an epoch: records decoded, timestamped and put into the task's order.

The order: within a partition by offset; across partitions, and across the senders of a repartition, always
the one whose next record is the oldest. Sorting by the running maximum of the timestamp within each of them
gives exactly that, so the order depends on the records alone and a replay repeats it. Of equal times, rows
that the task's own earlier step sent (see `topology.steps`) come before others; changes of tables of which
the task has copies come before all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import polars as pl

from millstream.errors import InvalidTimestampError, ProcessingError
from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.record import MAX_TIME, Headers, RecordMetadata
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
    wall_clock_ms: int
    """The clock of the epoch that reads it."""


class TaskInput:
    """All records of an epoch, in the task's order. Row numbers of it are the origins of batches."""

    def __init__(self, parts: Sequence[DecodedPart], stream_time: int) -> None:
        self._order: Column | None = None
        if len(parts) != 1 or parts[0].raw.runs:  # else the rows of the one partition are the task's
            parts = sorted(parts, key=lambda part: (not part.comes_first, not part.wins_ties))  # stable
            self._order = Column.of(_merge_order(parts))
        self._parts = parts
        self._starts = [0, *accumulate(len(part.rows) for part in parts)]
        self._sources = list({part.source: part for part in parts})
        self._keys = self._by_source([part.keys for part in parts])
        self._values = self._by_source([part.values for part in parts])
        self.timestamps = self._merged([part.timestamps for part in parts])
        self._changing = {part.source for part in parts if part.olds is not None}
        """Sources whose records bring the values that they replace."""
        self._olds = self._all_olds() if self._changing else None
        self._headers = self._all_headers()
        self._start_time = stream_time
        self._stream_times: Column | None = None

    def __len__(self) -> int:
        return len(self.timestamps)

    def left_columns(self) -> Iterator[tuple[str, int]]:
        """Sources, and how many rows of theirs stood in columns but are merged as Python objects."""
        for part in self._parts if self._order is not None else ():
            pairs = ((part.keys, self._keys[part.source]), (part.values, self._values[part.source]))
            if any(own.in_arrow and not merged.in_arrow for own, merged in pairs):
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
        place = origin if self._order is None else self._order[origin]
        part = bisect_right(self._starts, place) - 1
        return self._parts[part].raw, self._parts[part].rows[place - self._starts[part]]

    def batches(self, start: int, end: int, *, ordered: bool) -> dict[str, Batch]:
        """Rows from `start` to `end` by source node."""
        if len(self._sources) == 1:
            return {self._sources[0]: self._batch(self._sources[0], range(start, end), ordered=ordered)}
        found = self._source_numbers[start:end].places()
        by_source = {self._sources[number]: rows.shifted(start) for number, rows in found.items()}
        return {source: self._batch(source, rows, ordered=ordered) for source, rows in by_source.items()}

    @cached_property
    def _source_numbers(self) -> Column:
        """From which of several sources each row is."""
        return self._numbers([[self._sources.index(part.source)] * len(part.rows) for part in self._parts])

    @cached_property
    def _places_in_source(self) -> Column:
        """Where each row stands among those of its source, of several."""
        ends = dict.fromkeys(self._sources, 0)
        places: list[Sequence[int]] = []
        for part in self._parts:
            start = ends[part.source]
            ends[part.source] = start + len(part.rows)
            places.append(range(start, ends[part.source]))
        return self._numbers(places)

    def _numbers(self, of_parts: Sequence[Sequence[int]]) -> Column:
        """Numbers of the rows of each part, in the task's order."""
        numbers = list(map(Column, of_parts))
        if self._order is not None and self._order.in_arrow:
            numbers = [column.moved_to_arrow(pl.Int64()) for column in numbers]
        return self._merged(numbers)

    def _batch(self, source: str, rows: Sequence[int], *, ordered: bool) -> Batch:
        """Some rows of one source."""
        headers = None if self._headers is None else [self._headers[row] for row in rows]
        places = rows if len(self._sources) == 1 else self._places_in_source.at(rows)
        return Batch(
            keys=self._keys[source].at(places),
            values=self._values[source].at(places),
            timestamps=self.timestamps.at(rows),
            headers=headers if headers is not None and any(headers) else None,
            origins=rows,
            olds=self._olds.at(rows) if self._olds is not None and source in self._changing else None,
            order=[(row,) for row in rows] if ordered else None,
        )

    def _merged(self, columns: Sequence[Column]) -> Column:
        """A column of each part as one, in the task's order."""
        return columns[0] if self._order is None else Column.concat(columns).take(self._order)

    def _by_source(self, columns: Sequence[Column]) -> dict[str, Column]:
        """A column of each part as one for each source, whose types may differ.

        That of a single source is in the task's order, others are as their parts stand.
        """
        if len(self._sources) == 1:
            return {self._sources[0]: self._merged(columns)}
        found: dict[str, list[Column]] = {source: [] for source in self._sources}
        for part, column in zip(self._parts, columns, strict=True):
            found[part.source].append(column)
        return {source: Column.concat(own) for source, own in found.items()}

    def _all_olds(self) -> Column:
        return self._merged([part.olds or Column([None] * len(part.rows)) for part in self._parts])

    def _all_headers(self) -> Column | None:
        if not any(part.raw.headers for part in self._parts):
            return None
        return self._merged([Column([part.raw.headers_of(row) for row in part.rows]) for part in self._parts])


def _merge_order(parts: Sequence[DecodedPart]) -> Sequence[int]:
    """Where each row of the task's order stands, if all parts stand one after the other."""
    first = [part for part in parts if part.comes_first]
    if first and len(first) < len(parts):
        before = sum(len(part.rows) for part in first)
        behind = _merge_order(parts[len(first) :])
        return [*_merge_order(first), *(place + before for place in behind)]
    # A stable sort: rows of a part stand in order already, and of equal times the first part's come first.
    return Column.concat([part.largest_times() for part in parts]).places_in_order()


def extract_timestamps(
    raw: RawBatch,
    rows: Sequence[int],
    keys: Sequence[Any],
    values: Sequence[Any],
    extractor: Callable[[Any, int], int],
    partition_time: int,
    wall_clock_ms: int,
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
            wall_clock_ms,
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
    if abs(timestamp) > MAX_TIME:
        raise InvalidTimestampError(
            f"{place}: the timestamp extractor answered {timestamp}, which does not fit: the largest "
            f"timestamp is {MAX_TIME} (2**63 - 1). Likely cause: a unit other than milliseconds since 1970. "
            "Remedy: return milliseconds"
        )
    return timestamp
