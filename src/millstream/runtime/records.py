"""Records at the edges of a task, where they are still, or again, bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from millstream.log.api import LogRecordBatch, TopicPartition
from millstream.log.blocks import record_batch
from millstream.record import Headers
from millstream.types import Offset, Partition


@dataclass(frozen=True, slots=True)
class RawBatch:
    """Consecutive records of one topic partition."""

    topic: str
    partition: int
    offsets: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Sequence[int]
    headers: Sequence[Headers] | None = None

    @classmethod
    def of(cls, topic: str, partition: int, first_offset: int, rows: pa.RecordBatch) -> RawBatch:
        """Rows of the log as columns of bytes."""
        place = TopicPartition(topic, Partition(partition))
        batch = LogRecordBatch(place, Offset(first_offset), rows)
        has_headers = rows.column(3).null_count < len(batch)
        return cls(
            topic,
            partition,
            range(first_offset, first_offset + len(batch)),
            batch.keys(),
            batch.values(),
            batch.timestamps(),
            batch.headers() if has_headers else None,
        )

    def __len__(self) -> int:
        return len(self.offsets)

    def headers_of(self, row: int) -> Headers:
        """The headers of one record."""
        return self.headers[row] if self.headers is not None else ()


@dataclass(frozen=True, slots=True)
class OutputBatch:
    """Records for one topic, in the order in which they are to be written."""

    topic: str
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Sequence[int]
    headers: Sequence[Headers] | None
    partitions: Sequence[int | None] | None
    """The partition that a partitioner of the user's own chose; None where the key decides."""

    def __len__(self) -> int:
        return len(self.keys)

    def headers_of(self, row: int) -> Headers:
        """The headers of one record."""
        return self.headers[row] if self.headers is not None else ()


def joined(topic: str, partition: int, parts: Sequence[RawBatch], first_offset: int) -> RawBatch:
    """Batches of one partition as one, with offsets that go on from `first_offset`."""
    if len(parts) == 1 and parts[0].offsets == range(first_offset, first_offset + len(parts[0])):
        return parts[0]
    count = sum(len(part) for part in parts)
    return RawBatch(
        topic=topic,
        partition=partition,
        offsets=range(first_offset, first_offset + count),
        keys=list(chain.from_iterable(part.keys for part in parts)),
        values=list(chain.from_iterable(part.values for part in parts)),
        timestamps=list(chain.from_iterable(part.timestamps for part in parts)),
        headers=_headers(parts),
    )


def record_batch_of(parts: Sequence[RawBatch]) -> pa.RecordBatch:
    """Batches as rows of the log."""
    return record_batch(
        list(chain.from_iterable(part.keys for part in parts)),
        list(chain.from_iterable(part.values for part in parts)),
        list(chain.from_iterable(part.timestamps for part in parts)),
        _headers(parts),
    )


def _headers(parts: Sequence[RawBatch]) -> list[Headers] | None:
    if all(part.headers is None for part in parts):
        return None
    return list(chain.from_iterable(part.headers or [()] * len(part) for part in parts))
