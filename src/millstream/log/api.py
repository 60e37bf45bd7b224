"""What a log is: topics with partitions of records, by offset and by time.

A log keeps, per partition, a row of records with offsets 0, 1, 2, ... It promises: what was acknowledged is
durable and keeps its offset for ever; a range of offsets reads the same every time; a range that is gone is
an error and never an empty answer. It knows bytes, not values, and nothing of applications.

Records travel as Arrow record batches (:data:`~millstream.log.blocks.SCHEMA`), never one by one. The embedded
log (:mod:`millstream.log.embedded.file_log`) is a :class:`SealedLog`; Kafka can implement :class:`Log`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

import msgspec
import pyarrow as pa

from millstream.record import Headers
from millstream.types import Epoch, Offset, Partition

Expired: TypeAlias = Callable[[bytes], tuple[bytes, bytes] | None]
"""From the value of the last record with an empty key: from which key (inclusive) to which one (exclusive)
records are gone. Where such records tell what has expired, nobody writes a tombstone for each."""

UpTo: TypeAlias = Offset | Callable[[], Offset | None] | None
"""How far a partition may be compacted, or whom to ask when it begins; None: as far as it goes."""
Beyond: TypeAlias = Literal["merge", "leave"]
"""Of rows in sealed files that can't be compacted yet: merge them into a segment; or leave them, if the files
stay anyway and the rows can soon be compacted."""


class TopicPartition(NamedTuple):
    """One partition of a topic.

    >>> str(TopicPartition("orders", Partition(3)))
    'orders-3'
    """

    topic: str
    partition: Partition

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TimestampType(enum.Enum):
    """Whose clock gives a record its timestamp."""

    CREATE_TIME = "create-time"
    """The producer's."""
    LOG_APPEND_TIME = "append-time"
    """The log's, when the record is appended or published; never goes back within a partition."""


DELETE_RETENTION_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """What a topic is created with. Partitions may be added, retention and compaction be changed later."""

    partitions: int = 1
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    retention_ms: int | None = None
    """Records go when all of their segment are older than this; ``None``: they stay."""
    retention_bytes: int | None = None
    """The oldest segments of a partition go when it is larger than this; ``None``: it may grow."""
    is_compacted: bool = False
    """Keep the last record of each key, and in time nothing of a key that was deleted."""
    delete_retention_ms: int = DELETE_RETENTION_MS
    """How long a tombstone stays in a compacted topic at least, for readers that are behind."""


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition as it is now: its first offset and the one that the next record will get."""

    partition: Partition
    earliest: Offset
    latest: Offset


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as it is now."""

    name: str
    config: TopicConfig
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True)
class LogRecordBatch:
    """Records of one partition, all that it has from ``base_offset`` up to before ``next_offset``.

    Their offsets are consecutive, but where compaction removed some. ``records`` has the columns of
    :data:`~millstream.log.blocks.SCHEMA`. Turn whole columns into Python lists with :meth:`keys` and its
    siblings; asking per record would cost more than everything else.
    """

    topic_partition: TopicPartition
    base_offset: Offset
    records: pa.RecordBatch
    sparse_offsets: pa.Array | None = None
    """Each record's offset; ``None``: consecutive."""
    end: Offset | None = None
    """Where the batch ends, if that is not behind its last record."""

    def __len__(self) -> int:
        return int(self.records.num_rows)

    @property
    def next_offset(self) -> Offset:
        """The offset from which on to read what follows."""
        return Offset(self.base_offset + len(self)) if self.end is None else self.end

    def offsets(self) -> Sequence[int]:
        """Return the offset of each record."""
        if self.sparse_offsets is None:
            return range(self.base_offset, self.base_offset + len(self))
        column: list[int] = self.sparse_offsets.to_pylist()
        return column

    def head(self, count: int) -> LogRecordBatch:
        """Return the first records."""
        if count >= len(self):
            return self
        records, offsets = self.records.slice(0, count), self.sparse_offsets
        if offsets is None:
            return LogRecordBatch(self.topic_partition, self.base_offset, records)
        end = Offset(offsets[count].as_py())
        return LogRecordBatch(self.topic_partition, self.base_offset, records, offsets.slice(0, count), end)

    def keys(self) -> list[bytes | None]:
        """Return the keys."""
        column: list[bytes | None] = self.records.column(0).to_pylist()
        return column

    def values(self) -> list[bytes | None]:
        """Return the values; ``None`` is a tombstone."""
        column: list[bytes | None] = self.records.column(1).to_pylist()
        return column

    def timestamps(self) -> list[int]:
        """Return the timestamps in milliseconds."""
        column: list[int] = self.records.column(2).to_pylist()
        return column

    def headers(self) -> list[Headers]:
        """Return each record's headers; without any, an empty tuple."""
        column = self.records.column(3)
        if column.null_count == len(column):
            return [()] * len(column)
        return [
            () if row is None else tuple((header["key"], header["value"]) for header in row)
            for row in column.to_pylist()
        ]


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Where appended records are now."""

    base_offset: Offset
    count: int

    @property
    def next_offset(self) -> Offset:
        """The offset after the last of them."""
        return Offset(self.base_offset + self.count)


@dataclass(frozen=True, slots=True, order=True)
class Stamp:
    """Who publishes, and which of its epochs.

    One task publishes at most once per epoch into a partition. A task that seals several files in an epoch
    must therefore use a task name for each of them (``"1_3.s2"``).
    """

    publisher: str
    task: str
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class SealedRange:
    """Whole blocks in a file that exists already and will never change.

    ``file`` is relative to the log's root, with ``/`` between its parts.
    """

    file: str
    start: int
    length: int
    count: int
    min_timestamp: int
    max_timestamp: int
    stamp: Stamp


class Publication(msgspec.Struct, frozen=True, array_like=True):
    """The last that a task published into a partition. In segments it stands as an array."""

    epoch: Epoch
    base_offset: Offset
    count: int


@dataclass(frozen=True, slots=True)
class PublishResult:
    """What became of a range: published now, or already there (or overtaken) and left alone.

    ``base_offset`` is where the range is; ``None`` if a later epoch of the same task is there.
    """

    published: bool
    base_offset: Offset | None


@dataclass(frozen=True, slots=True)
class Compacted:
    """What compaction has done to a partition. Both are 0 if nothing."""

    to: Offset
    """Who reads up to here or further misses nothing but what later records replaced."""
    deletes_gone_to: Offset
    """Tombstones before this offset may be gone: a copy that stands before it must begin anew."""


class Log(Protocol):
    """Topics that can be appended to and read. Every method may raise a LogError."""

    def create_topic(self, topic: str, config: TopicConfig = ...) -> None:
        """Create a topic, all of it or nothing; TopicExistsError if it is there."""

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Let a topic have so many partitions in all, all of the new ones at once; never fewer than now."""

    def config(self, topic: str) -> TopicConfig:
        """Return what the topic was created with, and the partitions that it has now."""

    def describe(self, topic: str) -> TopicDescription:
        """Return the topic as it is now."""

    def append(self, topic_partition: TopicPartition, records: pa.RecordBatch) -> AppendResult:
        """Append records at the end, all or nothing. Durable when it returns."""

    def append_all(
        self, batches: Mapping[TopicPartition, pa.RecordBatch]
    ) -> Mapping[TopicPartition, AppendResult]:
        """Append to several partitions, each all or nothing, and show the records of all of them together.

        If some fail, the others have been appended to.
        """

    def earliest(self, topic_partition: TopicPartition) -> Offset:
        """Return the first offset that can be read (or, of an empty partition, the next one)."""

    def latest(self, topic_partition: TopicPartition) -> Offset:
        """Return the offset that the next record will get."""

    def read(
        self, topic_partition: TopicPartition, start: Offset, end: Offset | None = None
    ) -> Iterator[LogRecordBatch]:
        """Yield the records from ``start`` up to before ``end`` (default: the end of now), in order.

        Of a compacted topic, those that later ones replaced may be missing; the last batch still ends at
        ``end``.

        The range must be there: OffsetOutOfRangeError comes before the first batch.
        """

    def offset_for_time(
        self, topic_partition: TopicPartition, timestamp: int, start: Offset | None = None
    ) -> Offset | None:
        """Return the first offset from ``start`` on (default: earliest) whose timestamp is not below."""

    def max_timestamp(self, topic_partition: TopicPartition, start: Offset, end: Offset) -> int | None:
        """Return the largest timestamp in the range; ``None`` if the range is empty.

        Like :meth:`end_within`, it may still answer for records that another process has removed just now.
        """

    def append_time(self, topic_partition: TopicPartition, offset: Offset) -> int:
        """Return when a record came into the log, by the log's clock, in milliseconds."""

    def end_within(
        self, topic_partition: TopicPartition, start: Offset, end: Offset, max_bytes: int
    ) -> Offset:
        """Return an offset up to ``end`` such that the records before it fit into ``max_bytes``.

        It need not be the furthest one, but it is always beyond ``start`` if ``end`` is: a record that alone
        is larger than ``max_bytes`` goes alone.
        """

    def compacted(self, topic_partition: TopicPartition) -> Compacted:
        """Return how far records were left out that later ones replace."""

    def wait_for_log_cleaner(self, topic_partition: TopicPartition, timeout_ms: int) -> None:
        """Wait until nobody rewrites a partition who asked how far it may be compacted before this call."""

    def raw_size(self, topic_partition: TopicPartition) -> int:
        """Return how many bytes the records of a partition take uncompressed, wherever they are."""

    def wait(self, positions: Mapping[TopicPartition, Offset], timeout_ms: int) -> bool:
        """Wait until any partition has a record at or after its position; False if none came in time."""

    def watch(self, topic_partitions: Sequence[TopicPartition]) -> LogWatch | None:
        """Be told from now on which partitions are written to; None if this log can't tell."""
        del topic_partitions
        return None


class LogWatch(Protocol):
    """Tells which partitions were written to, if not what: who is told has to look."""

    def changed(self) -> Collection[TopicPartition] | None:
        """The partitions that were written to since the last question; None if nobody can tell any more."""

    def wait(self, timeout_s: float) -> bool:
        """Wait until one was written to since the last question; False if none was in time."""

    def close(self) -> None:
        """Be told no more."""


class SealedLog(Log, Protocol):
    """A log that can take in rows which a task sealed in a file, without copying them."""

    def publish_sealed(self, topic_partition: TopicPartition, sealed: SealedRange) -> PublishResult:
        """Give the rows of a sealed file the next offsets, unless that epoch (or a later one) is there."""

    def publish_all(self, ranges: Iterable[tuple[TopicPartition, SealedRange]]) -> list[PublishResult]:
        """Publish several ranges with one durable write per partition; results in the order given."""

    def publications(self, topic_partition: TopicPartition) -> Mapping[tuple[str, str], Publication]:
        """Return the last publication of every (publisher, task)."""

    def references(self, topics: Sequence[str] | None = None) -> Mapping[str, Mapping[TopicPartition, int]]:
        """Return the sealed files that indexes still need, and how many bytes of them each partition has.

        Whoever deletes files must spare these.
        """

    def rewrite(
        self,
        topic_partition: TopicPartition,
        *,
        min_entries: int,
        up_to: UpTo = None,
        expired: Expired | None = None,
        beyond: Beyond = "merge",
    ) -> bool:
        """Bring rows of sealed files together; compact up to an offset, if the topic is compacted."""

    def retain(self, topic_partition: TopicPartition, spare: Offset | None = None) -> Offset:
        """Let go of what the topic's retention does not keep, but of nothing from ``spare`` on.

        Returns the first offset that is left.
        """
