"""The embedded log: topics in a folder, for one machine or a shared file system.

Layout::

    millstream-data/                    the root; mode 0700
      millstream-log                    marks the folder as a log: format and id
      topics/
        lock                            held while a topic is created or gets more partitions
        word-counts/
          topic                         its configuration
          0/                            partition 0
            00000000000000000000.segment  index entries, and the blocks of appended records
            00000000000000004096.segment  the next one (see segment.py)
            end                         the watermark: up to where the partition is acknowledged
            lock                        held by the one process that appends just now
      sealed/...                        files that tasks seal; entries point into them (any path will do)

Any number of processes may append, publish and read at once. What is acknowledged is durable; what is read
is acknowledged. Every structure carries a checksum: damage is an error that names file and place. Objects of
this class hold no descriptors between calls, may be shared by threads, and may be pickled to other
processes.

Why it is built like this: docs/design/0002-embedded-log.md.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from millstream.clock import now_ms
from millstream.durable import (
    OS_FILES,
    FileLayer,
    FrameKind,
    check_private_folder,
    check_storage,
    ensure_private_folder,
    publish_exclusive,
    read_bounded,
    sync_folder,
)
from millstream.log.api import (
    AppendResult,
    Beyond,
    Compacted,
    Expired,
    LogRecordBatch,
    LogWatch,
    PartitionDescription,
    Publication,
    PublishResult,
    SealedLog,
    SealedRange,
    TopicConfig,
    TopicDescription,
    TopicPartition,
    UpTo,
)
from millstream.log.embedded.compaction import MIN_DIRTY_RATIO, Compaction
from millstream.log.embedded.file_watch import FileWatch
from millstream.log.embedded.high_watermark import NAME as WATERMARK
from millstream.log.embedded.index import PartitionInfo
from millstream.log.embedded.index_memory import IndexMemory
from millstream.log.embedded.log_cleaner import LogCleaner
from millstream.log.embedded.partition import Limits, PartitionFiles
from millstream.log.embedded.reader import PartitionReader
from millstream.log.embedded.sealed import check_sealed
from millstream.log.embedded.together import write_together
from millstream.log.embedded.topics import Topic, TopicFolder, check_topic
from millstream.log.errors import NoSuchLogError, UnknownTopicError
from millstream.throttler import maybe_throttle
from millstream.types import Offset, Partition

MARKER: Final = "millstream-log"
TOPICS: Final = "topics"
_MARKER: Final = FrameKind(b"MSLG", version=1, max_bytes=4096)
_FIRST_WAIT_S: Final = 0.001
_LONGEST_WAIT_S: Final = 0.02


class _Marker(msgspec.Struct, frozen=True):
    id: str


class FileLog(SealedLog):
    """A log in a folder.

    >>> import tempfile
    >>> from millstream.log import record_batch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = FileLog(folder)
    ...     log.create_topic("lines")
    ...     lines = TopicPartition("lines", Partition(0))
    ...     _ = log.append(lines, record_batch([None, None], [b"to the", b"river"], [5, 6]))
    ...     [value for batch in log.read(lines, Offset(0)) for value in batch.values()]
    [b'to the', b'river']
    """

    def __init__(
        self,
        root: str | Path,
        *,
        files: FileLayer = OS_FILES,
        limits: Limits | None = None,
        now_ms: Callable[[], int] = now_ms,
    ) -> None:
        self.root = Path(root)
        self._files = files
        self._limits = limits or Limits()
        self._now_ms = now_ms
        self._topics = TopicFolder(self.root / TOPICS, files, self._limits.lock_timeout_ms)
        self._found: dict[str, Topic] = {}
        self._partitions: dict[TopicPartition, PartitionFiles] = {}
        self._memory = IndexMemory()
        self._synced: set[str] = set()
        self._is_checked = False
        self._mutex = threading.Lock()

    @property
    def address(self) -> str:
        """What `millstream.log.open_log` finds this log by, in any process."""
        return f"file:{self.root.resolve()}"

    def __reduce__(self) -> tuple[Callable[[], FileLog], tuple[()]]:
        made = partial(type(self), self.root, files=self._files, limits=self._limits, now_ms=self._now_ms)
        return made, ()

    # Topics -------------------------------------------------------------------------------------------

    def create_topic(self, topic: str, config: TopicConfig | None = None) -> None:
        """Create a topic (and, before the first one, the log itself)."""
        check_topic(topic, config or TopicConfig())  # before a folder is made for it
        self._ensure_log()
        self._topics.create(topic, config or TopicConfig())

    def topics(self) -> list[str]:
        self._check_log()
        return self._topics.names()

    def add_partitions(self, topic: str, partitions: int) -> None:
        self._check_log()
        self._topics.add_partitions(topic, partitions)

    def alter_topic(self, topic: str, change: Callable[[TopicConfig], TopicConfig]) -> TopicConfig:
        """Give a topic another retention or compaction: from what it has to what it gets.

        Records that are there already are treated so from the next maintenance on.
        """
        self._check_log()
        return self._topics.alter(topic, change)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and its records. Whoever still reads it is told that there is no such topic."""
        self._check_log()
        self._topics.delete(topic)
        with self._mutex:
            self._found.pop(topic, None)
            for place in [place for place in self._partitions if place.topic == topic]:
                self._memory.released(self._partitions.pop(place))
            self._synced.discard(topic)

    def config(self, topic: str) -> TopicConfig:
        return self._topic_now(topic).config()

    def describe(self, topic: str) -> TopicDescription:
        config = self.config(topic)
        places = [TopicPartition(topic, Partition(number)) for number in range(config.partitions)]
        now = [PartitionDescription(place.partition, *self._partition(place).bounds()) for place in places]
        return TopicDescription(topic, config, tuple(now))

    # Writing ------------------------------------------------------------------------------------------

    def append(self, topic_partition: TopicPartition, records: pa.RecordBatch) -> AppendResult:
        return self.append_all({topic_partition: records})[topic_partition]

    def append_all(
        self, batches: Mapping[TopicPartition, pa.RecordBatch]
    ) -> dict[TopicPartition, AppendResult]:
        writing = {
            place: partial(self._writable(place).begin_append, batches[place])
            for place in sorted(batches)
            if batches[place].num_rows
        }
        done = write_together(writing, self._files)
        return {
            place: done[place][0] if place in done else AppendResult(self.latest(place), 0)
            for place in sorted(batches)
        }

    def publish_sealed(self, topic_partition: TopicPartition, sealed: SealedRange) -> PublishResult:
        return self.publish_all([(topic_partition, sealed)])[0]

    def publish_all(self, ranges: Iterable[tuple[TopicPartition, SealedRange]]) -> list[PublishResult]:
        """Publish several ranges; each is checked against its file before anything is published.

        A crash in the middle leaves some partitions published and others not; doing it again completes it.
        """
        wanted = list(ranges)
        check_sealed(self.root, [sealed for _, sealed in wanted], self._files)
        by_partition: dict[TopicPartition, list[SealedRange]] = {}
        for place, sealed in wanted:
            by_partition.setdefault(place, []).append(sealed)
        writing = {
            place: partial(self._writable(place).begin_publish, by_partition[place])
            for place in sorted(by_partition)
        }
        done = write_together(writing, self._files)
        results = {place: iter(one) for place, one in done.items()}
        return [next(results[place]) for place, _ in wanted]

    def delete_before(self, topic_partition: TopicPartition, offset: Offset) -> None:
        """Remove the records before ``offset`` for good. Reading them is an error from then on."""
        self._writable(topic_partition).delete_before(offset)

    # Reading ------------------------------------------------------------------------------------------

    def earliest(self, topic_partition: TopicPartition) -> Offset:
        return self._partition(topic_partition).bounds()[0]

    def latest(self, topic_partition: TopicPartition) -> Offset:
        return self._partition(topic_partition).bounds()[1]

    def read(
        self, topic_partition: TopicPartition, start: Offset, end: Offset | None = None
    ) -> Iterator[LogRecordBatch]:
        return self._reader(topic_partition).read(start, end)

    def offset_for_time(
        self, topic_partition: TopicPartition, timestamp: int, start: Offset | None = None
    ) -> Offset | None:
        return self._reader(topic_partition).offset_for_time(timestamp, start)

    def max_timestamp(self, topic_partition: TopicPartition, start: Offset, end: Offset) -> int | None:
        return self._reader(topic_partition).max_timestamp(start, end)

    def append_time(self, topic_partition: TopicPartition, offset: Offset) -> int:
        return self._reader(topic_partition).append_time(offset)

    def end_within(
        self, topic_partition: TopicPartition, start: Offset, end: Offset, max_bytes: int
    ) -> Offset:
        return self._reader(topic_partition).end_within(start, end, max_bytes)

    def compacted(self, topic_partition: TopicPartition) -> Compacted:
        return self._partition(topic_partition).compacted()

    def wait(self, positions: Mapping[TopicPartition, Offset], timeout_ms: int) -> bool:
        deadline = time.monotonic() + timeout_ms / 1000
        pause = _FIRST_WAIT_S
        while not any(self.latest(where) > position for where, position in positions.items()):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(pause * 2, _LONGEST_WAIT_S)
        return True

    def watch(self, topic_partitions: Sequence[TopicPartition]) -> LogWatch | None:
        if self._files is not OS_FILES:  # somebody else stands in for the operating system
            return None
        marks = {place: self._partition(place).info.folder / WATERMARK for place in topic_partitions}
        return FileWatch.of(marks)

    def follow(
        self, topic_partition: TopicPartition, start: Offset, *, idle_timeout_ms: int | None = None
    ) -> Iterator[LogRecordBatch]:
        """Yield records from ``start`` on, for ever; end after ``idle_timeout_ms`` without a new one."""
        position = start
        while True:
            for batch in self.read(topic_partition, position):
                yield batch
                position = batch.next_offset
            slice_ms = 1000 if idle_timeout_ms is None else idle_timeout_ms
            if not self.wait({topic_partition: position}, slice_ms) and idle_timeout_ms is not None:
                return

    # What the commit and the collector ask --------------------------------------------------------------

    def publications(self, topic_partition: TopicPartition) -> Mapping[tuple[str, str], Publication]:
        with self._partition(topic_partition).index() as index:
            return dict(index.publications)

    def references(self, topics: Sequence[str] | None = None) -> Mapping[str, Mapping[TopicPartition, int]]:
        found: dict[str, dict[TopicPartition, int]] = {}
        for topic in self.topics() if topics is None else topics:
            for number in range(self.config(topic).partitions):
                place = TopicPartition(topic, Partition(number))
                for entry in self._reader(place).all_entries():
                    if entry.file is not None:
                        held = found.setdefault(entry.file, {})
                        held[place] = held.get(place, 0) + entry.length
                maybe_throttle()
        return found

    # What keeps topics small ----------------------------------------------------------------------------

    def raw_size(self, topic_partition: TopicPartition) -> int:
        return self._reader(topic_partition).raw_size()

    def retain(self, topic_partition: TopicPartition, spare: Offset | None = None) -> Offset:
        """Let whole segments go, oldest first, and never the one that is written to; see SealedLog."""
        config = self.config(topic_partition.topic)
        partition = self._writable(topic_partition)
        start = partition.retention_start(config)
        start = start if spare is None else min(start, spare)
        if start > partition.bounds()[0]:
            partition.delete_before(start)
        return partition.bounds()[0]

    def rewrite(
        self,
        topic_partition: TopicPartition,
        *,
        min_entries: int = 256,
        up_to: UpTo = None,
        min_dirty_ratio: float = MIN_DIRTY_RATIO,
        expired: Expired | None = None,
        beyond: Beyond = "merge",
    ) -> bool:
        """Merge small files of a partition and, if its topic is compacted, leave out what is replaced.

        ``up_to`` bounds the compaction: nobody needs the topic as it was at an earlier offset. ``expired``
        says what else is gone, ``beyond`` what to do with files behind the bound. Returns whether anything
        was done.
        """
        config = self.config(topic_partition.topic)
        partition = self._writable(topic_partition)

        def compaction() -> Compaction | None:
            if not config.is_compacted:
                return None
            end = up_to() if callable(up_to) else up_to
            bound = partition.bounds()[1] if end is None else end
            return Compaction(bound, self._now_ms() - config.delete_retention_ms, min_dirty_ratio, expired)

        return LogCleaner(partition, config).run(min_entries=min_entries, ask=compaction, beyond=beyond)

    def wait_for_log_cleaner(self, topic_partition: TopicPartition, timeout_ms: int) -> None:
        LogCleaner(self._writable(topic_partition), TopicConfig()).wait_until_idle(timeout_ms)

    # ----------------------------------------------------------------------------------------------------

    def _partition(self, topic_partition: TopicPartition) -> PartitionFiles:
        with self._mutex:
            found = self._partitions.get(topic_partition)
        if found is not None:
            return found
        topic = self._found.get(topic_partition.topic) or self._topic_now(topic_partition.topic)
        if topic_partition.partition >= topic.partitions:
            topic = self._topic_now(topic_partition.topic)  # it may have been given more
        if not 0 <= topic_partition.partition < topic.partitions:
            raise UnknownTopicError(
                f"Topic {topic.name!r} has no partition {topic_partition.partition}. Remedy: choose 0 to "
                f"{topic.partitions - 1}."
            )
        folder = self._topics.path(topic.name) / str(topic_partition.partition)
        info = PartitionInfo(self.root, folder, topic_partition, topic.id, topic.timestamp_type)
        made = PartitionFiles(
            info, files=self._files, limits=self._limits, now_ms=self._now_ms, memory=self._memory
        )
        with self._mutex:
            return self._partitions.setdefault(topic_partition, made)

    def _writable(self, topic_partition: TopicPartition) -> PartitionFiles:
        """Return a partition whose names are durable up to the root.

        Whoever created the topic may have died before its last sync; we are about to promise that what is in
        it lasts. Once per topic and process.
        """
        partition = self._partition(topic_partition)
        if topic_partition.topic not in self._synced:
            self._sync_root()
            sync_folder(self.root / TOPICS, files=self._files)
            self._synced.add(topic_partition.topic)
        return partition

    def _sync_root(self) -> None:
        with suppress(PermissionError):  # a parent that may be passed through but not read
            sync_folder(self.root.parent, files=self._files)
        sync_folder(self.root, files=self._files)

    def _reader(self, topic_partition: TopicPartition) -> PartitionReader:
        return PartitionReader(self._partition(topic_partition))

    def _topic_now(self, name: str) -> Topic:
        """Return the topic as its file has it: another process may have added partitions."""
        self._check_log()
        topic = self._found[name] = self._topics.find(name)
        return topic

    def _ensure_log(self) -> None:
        """Make the folder a log, if it is not one yet."""
        ensure_private_folder(self.root / TOPICS, files=self._files)
        check_private_folder(self.root)
        if not (self.root / MARKER).exists():
            check_storage(self.root, files=self._files)
            marker = _MARKER.encode(_Marker(uuid.uuid4().hex))
            with suppress(FileExistsError):  # another process was faster
                publish_exclusive(self.root / MARKER, [marker], files=self._files)
        self._sync_root()
        self._check_log()

    def _check_log(self) -> None:
        """Refuse a folder that is not a log, or not ours alone."""
        if self._is_checked:
            return
        path = self.root / MARKER
        if not path.exists():
            raise NoSuchLogError(
                f"There is no log in {self.root}. Likely cause: a typing error, another working folder, or "
                "no topic has been created yet. Remedy: create one (millstream topics create NAME), or name "
                "the folder."
            )
        check_private_folder(self.root)
        _MARKER.decode(read_bounded(path, _MARKER.max_bytes, files=self._files), _Marker, str(path))
        self._is_checked = True
