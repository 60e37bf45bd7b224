"""Records at the edges of a task, where they are still, or again, bytes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise

import numpy as np
import pyarrow as pa

from millstream.log.api import LogRecordBatch, TopicPartition
from millstream.log.blocks import Records, records_of
from millstream.processors.columns.column import Column
from millstream.record import Headers
from millstream.types import Offset, Partition


@dataclass(frozen=True, slots=True, init=False)
class RawBatch:
    """Consecutive records of one topic partition."""

    topic: str
    partition: int
    offsets: Sequence[int]
    keys: Column
    values: Column
    timestamps: Column
    headers: Sequence[Headers] | None = None
    runs: Sequence[int] = ()
    """How many of them each sender has, if they came from several through a repartition."""

    def __init__(
        self,
        topic: str,
        partition: int,
        offsets: Sequence[int],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None = None,
        runs: Sequence[int] = (),
    ) -> None:
        put = object.__setattr__
        put(self, "topic", topic)
        put(self, "partition", partition)
        put(self, "offsets", offsets)
        put(self, "keys", Column.of(keys))
        put(self, "values", Column.of(values))
        put(self, "timestamps", Column.of(timestamps))
        put(self, "headers", headers)
        put(self, "runs", runs)

    @classmethod
    def of(
        cls, topic: str, partition: int, first_offset: int, rows: pa.RecordBatch, runs: Sequence[int] = ()
    ) -> RawBatch:
        """Rows with consecutive offsets as columns of bytes."""
        place = TopicPartition(topic, Partition(partition))
        return cls.of_batch(LogRecordBatch(place, Offset(first_offset), rows), runs)

    @classmethod
    def of_batch(cls, batch: LogRecordBatch, runs: Sequence[int] = ()) -> RawBatch:
        """A batch of the log as columns of bytes, which stay where they are until somebody looks."""
        has_headers = batch.records.column(3).null_count < len(batch)
        return cls(
            batch.topic_partition.topic,
            batch.topic_partition.partition,
            batch.offsets(),
            Column.of_arrow(batch.records.column(0)),
            Column.of_arrow(batch.records.column(1)),
            Column.of_arrow(batch.records.column(2)),
            batch.headers() if has_headers else None,
            runs,
        )

    def __len__(self) -> int:
        return len(self.offsets)

    def row_of_sender(self, row: int) -> int:
        """Which row of its sender's a row is."""
        if not self.runs:
            return row
        starts = [0, *accumulate(self.runs)]
        return row - starts[bisect_right(starts, row) - 1]

    def headers_of(self, row: int) -> Headers:
        """The headers of one record."""
        return self.headers[row] if self.headers is not None else ()


@dataclass(frozen=True, slots=True)
class DecodedPart:
    """The usable records of one partition: rows of a raw batch, decoded."""

    raw: RawBatch
    source: str
    rows: Sequence[int]
    """Which records of the raw batch these are: bad ones are left out."""
    keys: Column
    values: Column
    olds: Column | None
    timestamps: Column
    comes_first: bool = False
    """They come before those of all other partitions, whatever their time."""
    wins_ties: bool = False
    """They come before those of other partitions that have the same time."""

    def largest_times(self) -> Column:
        """The largest timestamp up to each of them, of its sender's."""
        if not self.raw.runs:
            return self.timestamps.running_maximum(-1)
        ends = list(accumulate(self.raw.runs))
        if len(self.rows) < len(self.raw):
            ends = [bisect_left(self.rows, end) for end in ends]
        times = np.asarray(self.timestamps.arrow(), np.int64)
        largest = np.concatenate(
            [np.maximum.accumulate(times[start:end]) for start, end in pairwise([0, *ends])]
        )
        return Column.of_arrow(pa.array(np.maximum(largest, -1)))

    def take(self, rows: Column) -> DecodedPart:
        """Some of them, in the given order."""
        return DecodedPart(
            self.raw,
            self.source,
            [self.rows[row] for row in rows],
            self.keys.take(rows),
            self.values.take(rows),
            None if self.olds is None else self.olds.take(rows),
            self.timestamps.take(rows),
            self.comes_first,
            self.wins_ties,
        )


@dataclass(frozen=True, slots=True)
class OutputBatch:
    """Records for one topic, in the order in which they are to be written."""

    topic: str
    keys: Column
    values: Column
    timestamps: Column
    headers: Sequence[Headers] | None
    partitions: Sequence[int | None] | None
    """The partition that a partitioner of the user's own chose; None where the key decides."""

    def __len__(self) -> int:
        return len(self.keys)

    def headers_of(self, row: int) -> Headers:
        """The headers of one record."""
        return self.headers[row] if self.headers is not None else ()


def joined(
    topic: str,
    partition: int,
    parts: Sequence[RawBatch],
    first_offset: int | None = None,
    runs: Sequence[int] = (),
) -> RawBatch:
    """Batches of one partition as one, with their own offsets or others from `first_offset` on."""
    if first_offset is None:
        offsets = _offsets(parts)
    else:
        offsets = range(first_offset, first_offset + sum(len(part) for part in parts))
    if len(parts) == 1 and parts[0].offsets == offsets:
        return parts[0]
    return RawBatch(
        topic=topic,
        partition=partition,
        offsets=offsets,
        keys=Column.concat([part.keys for part in parts]),
        values=Column.concat([part.values for part in parts]),
        timestamps=Column.concat([part.timestamps for part in parts]),
        headers=_headers(parts),
        runs=runs,
    )


def records_of_batches(parts: Sequence[RawBatch | OutputBatch]) -> Records:
    """Batches as records of the log."""
    return records_of(
        Column.concat([part.keys for part in parts]).arrow(),
        Column.concat([part.values for part in parts]).arrow(),
        Column.concat([part.timestamps for part in parts]).arrow(),
        _headers(parts),
    )


def _headers(parts: Sequence[RawBatch | OutputBatch]) -> list[Headers] | None:
    if all(part.headers is None for part in parts):
        return None
    return list(chain.from_iterable(part.headers or [()] * len(part) for part in parts))


def _offsets(parts: Sequence[RawBatch]) -> Sequence[int]:
    """Offsets of batches in their order: a range, unless compaction left gaps."""
    filled = [part.offsets for part in parts if len(part)]
    if not filled:
        return range(0)
    whole = range(filled[0][0], filled[-1][-1] + 1)
    return whole if len(whole) == sum(map(len, filled)) else list(chain.from_iterable(filled))
