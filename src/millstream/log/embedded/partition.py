"""One partition of the embedded log: append, publish, and the view that readers take.

Appending, for one or many entries at once:

1. Take the partition's lock (between processes and threads) and learn what others wrote meanwhile; bring the
   partition into order if a writer died.
2. Write the entries behind the watermark.
3. Sync: one durable write, however many records.
4. Move the watermark. This is the acknowledgement; readers see the records from here on.

A crash before 4 leaves nothing that a reader has seen. Reading takes no lock
(:mod:`millstream.log.embedded.reader`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, Generic, TypeVar

import pyarrow as pa
from msgspec.structs import replace as replace_fields

from millstream import failpoints
from millstream.durable import (
    Chunk,
    FileLayer,
    disk_errors_named,
    held_lock,
    opened,
    publish_by_link,
    publish_exclusive,
    sync_folder,
    write_all,
)
from millstream.errors import MillstreamError
from millstream.log.api import (
    AppendResult,
    Compacted,
    Publication,
    PublishResult,
    SealedRange,
    TimestampType,
    TopicConfig,
)
from millstream.log.blocks import encode_blocks, summary
from millstream.log.embedded.high_watermark import NAME as WATERMARK
from millstream.log.embedded.high_watermark import (
    Watermark,
    read_watermark,
    read_watermark_file,
    write_watermark,
    write_watermark_file,
)
from millstream.log.embedded.index import PartitionIndex, PartitionInfo, current_segments, replaced_segments
from millstream.log.embedded.index_memory import IndexMemory
from millstream.log.embedded.recovery import is_unclean, recover
from millstream.log.embedded.segment import (
    ENTRY,
    HEADER,
    MAX_ENTRY_DATA_BYTES,
    Entry,
    Located,
    SegmentHeader,
    SegmentName,
    located_behind,
    read_header,
    sealed_entry,
    segment_name,
)
from millstream.log.errors import DamagedLogError, OffsetOutOfRangeError, RecordTooLargeError
from millstream.types import Offset

R = TypeVar("R")

LOCK: Final = "lock"


@dataclass(frozen=True, slots=True)
class Limits:
    """When a segment is full, and how long a writer waits for another one."""

    segment_bytes: int = 64 << 20
    segment_entries: int = 4096
    lock_timeout_ms: int = 30_000


def _nothing() -> None: ...


@dataclass(frozen=True, slots=True)
class PendingEntries(Generic[R]):
    """Entries that are written at the end of a partition, and that nobody sees yet."""

    results: Sequence[R]
    sync: Callable[[], None] = _nothing
    """Step 3 of appending: make them durable, or cut them off. In any thread."""
    acknowledge: Callable[[], None] = _nothing
    """Step 4: move the watermark over them."""
    fd: int | None = None
    """Of the file that they are in; None if there are none."""


class _PartitionLock(held_lock):
    """The lock of a partition, whose folder must be there."""

    __slots__ = ("_info",)

    def __init__(self, info: PartitionInfo, path: Path, timeout_ms: int) -> None:
        super().__init__(path, timeout_ms=timeout_ms)
        self._info = info

    def __enter__(self) -> None:
        try:
            super().__enter__()
        except FileNotFoundError:
            raise DamagedLogError(
                f"{self._info.folder} is missing, but topic {self._info.topic_partition.topic!r} exists. "
                "Likely cause: it was deleted by hand. Remedy: restore the folder from a backup."
            ) from None


class PartitionFiles:
    """The files of one partition. Safe to share between threads."""

    def __init__(
        self,
        info: PartitionInfo,
        *,
        files: FileLayer,
        limits: Limits,
        now_ms: Callable[[], int],
        memory: IndexMemory,
    ) -> None:
        self.info = info
        self.files = files
        self.limits = limits
        self._now_ms = now_ms
        self._memory = memory
        self._index = PartitionIndex(info, files)
        self._mutex = threading.RLock()
        self._lock_path = info.folder / LOCK
        self._watermark_path = info.folder / WATERMARK
        self._compacted: tuple[tuple[SegmentName, ...], Compacted] = (), Compacted(Offset(0), Offset(0))

    @contextmanager
    def index(self) -> Iterator[PartitionIndex]:
        """Give the index as it is now, for the length of a ``with`` block. It must not leave the block."""
        with self._mutex:
            mark = read_watermark_file(self._watermark_path, self.files)
            if mark is None or (self._index.mark is None and self._needs_recovery(mark)):
                with self._locked():
                    mark = recover(self.info.folder, self.files)
            self._refresh_index(mark)
            try:
                yield self._index
            finally:
                self._memory.used(self, self._index.held)

    def known(self, offset: Offset) -> Located | None:
        """Return the entry of an offset that was asked for just now; None if nothing is known of it."""
        with self._mutex:
            return self._index.known(offset)

    def forget_entries(self) -> bool:
        """Hold no index entries in memory, unless somebody is at them just now; return whether."""
        if not self._mutex.acquire(blocking=False):
            return False
        try:
            self._index.forget_entries()
        finally:
            self._mutex.release()
        return True

    def bounds(self) -> tuple[Offset, Offset]:
        """Return the first offset and the next one."""
        mark = None if self._index.mark is None else read_watermark_file(self._watermark_path, self.files)
        if mark is None:  # the first look; or it is damaged
            with self.index() as index:
                mark = index.mark
                assert mark is not None
        return Offset(mark.start_offset), Offset(mark.next_offset)

    @contextmanager
    def appending(self, records: pa.RecordBatch) -> Iterator[PendingEntries[AppendResult]]:
        """Append records at the end, all or nothing.

        They are written now; whoever appends syncs and acknowledges them within the ``with`` block.
        """
        if not records.num_rows:
            yield PendingEntries([AppendResult(self.bounds()[1], 0)])
            return
        now = self._now_ms()
        chunks, headers = encode_blocks(records, now)
        length = sum(header.length for header in headers)
        if length > MAX_ENTRY_DATA_BYTES:
            raise RecordTooLargeError(
                f"A batch of {records.num_rows} records for {self.info.topic_partition} has {length} "
                f"bytes; the bound is {MAX_ENTRY_DATA_BYTES}. Remedy: append it in several parts."
            )
        count, low, high = summary(headers)
        with self._writing() as mark:
            entry = Entry(mark.next_offset, count, None, 0, length, low, high, now, None)
            results = [AppendResult(Offset(mark.next_offset), count)]
            with self._written(mark, [(entry, chunks)], results) as pending:
                yield pending

    @contextmanager
    def publishing(self, ranges: Sequence[SealedRange]) -> Iterator[PendingEntries[PublishResult]]:
        """Give sealed rows the next offsets, without copying; skip what is there already.

        They are written now; whoever publishes syncs and acknowledges them within the ``with`` block. The
        lock is held from the look at the last epoch to the acknowledgement: a publisher that slept in between
        does not exist.
        """
        now = self._now_ms()
        results: list[PublishResult] = []
        entries: list[tuple[Entry, list[Chunk]]] = []
        with self._writing() as mark:
            known = self._index.publications
            made: dict[tuple[str, str], Publication] = {}
            offset = Offset(mark.next_offset)
            for sealed in ranges:
                stamp = sealed.stamp
                by = (stamp.publisher, stamp.task)
                last = made.get(by) or known.get(by)
                if last is not None and last.epoch >= stamp.epoch:
                    at = last.base_offset if last.epoch == stamp.epoch else None
                    results.append(PublishResult(False, at))
                    continue
                entries.append((sealed_entry(sealed, offset, now), []))
                made[by] = Publication(stamp.epoch, offset, sealed.count)
                results.append(PublishResult(True, offset))
                offset = Offset(offset + sealed.count)
            if entries:
                with self._written(mark, entries, results) as pending:
                    yield pending
            else:
                yield PendingEntries(results)

    def delete_before(self, offset: Offset) -> None:
        """Let the partition begin at ``offset``.

        1. If nothing shall be left, start a new segment, so that the old one can go.
        2. Move the start, durably: from here on, what is before it is an error to read.
        3. Delete the segments that lie before it as a whole.
        """
        folder = self.info.folder
        with self._writing() as seen:
            if not seen.start_offset <= offset <= seen.next_offset:
                raise OffsetOutOfRangeError(
                    f"{self.info.topic_partition} has the offsets {seen.start_offset} to "
                    f"{seen.next_offset}; it can't be made to begin at {offset}. Remedy: name an offset in "
                    "that range."
                )
            # 1
            is_last = offset == seen.next_offset and self._index.active.count
            mark = self._roll(seen) if is_last else seen
            # 2
            write_watermark(folder, mark._replace(start_offset=offset), self.files, durably=True)
            failpoints.hit("log.start_moved")
            # 3
            self._remove_replaced()
            for name, following in pairwise(current_segments(folder)):
                if following.base <= offset:
                    self.files.unlink(folder / name.file_name)
            sync_folder(folder, files=self.files)

    def retention_start(self, config: TopicConfig) -> Offset:
        """Return the offset from which on the topic's retention by time and by size keeps the partition.

        As in Kafka a segment goes by size only if what is left without it is still that size.
        """
        with self.index() as index:
            assert index.mark is not None
            start = index.mark.start_offset
            closed = index.closed_segments(start)
            sizes = [segment.bytes for segment in (*closed, index.active)]
        now = self._now_ms()
        for number, segment in enumerate(closed):
            is_old = config.retention_ms is not None and segment.max_timestamp < now - config.retention_ms
            left = sum(sizes[number + 1 :])
            is_over = config.retention_bytes is not None and left >= config.retention_bytes
            if not (is_old or is_over):
                break
            start = segment.next_offset
        return Offset(start)

    def compacted(self) -> Compacted:
        """Return what the headers of rewritten segments say."""
        folder = self.info.folder
        names = tuple(name for name in current_segments(folder) if name.generation)
        if self._compacted[0] != names:
            try:
                headers = [read_header(folder / name.file_name, self.files)[0] for name in names]
            except FileNotFoundError:
                return self.compacted()  # replaced by another one just now
            to = max((header.compacted_to for header in headers), default=0)
            gone = max((header.deletes_gone_to for header in headers), default=0)
            self._compacted = names, Compacted(Offset(to), Offset(gone))
        return self._compacted[1]

    def prepare_rewrite(self, min_entries: int) -> None:
        """Delete what a rewriter left that died; start a new segment if the active one has so many entries.

        Only segments that are no longer written to can be rewritten.
        """
        with self._writing() as mark:
            self._remove_replaced()
            if self._index.active.count >= min_entries:
                self._roll(mark)

    def replace_segments(self, temporary: Path, name: SegmentName) -> None:
        """Let a rewritten segment replace those whose offsets it covers.

        1. Sync the watermark: after a power cut it must not point into a segment that is gone.
        2. Give the new one its name, durably: from here on it counts. Who had opened the old ones reads on.
        3. Delete what it replaces. A crash before the end leaves files that nobody reads.
        """
        with self._writing() as mark:
            # 1
            write_watermark(self.info.folder, mark, self.files, durably=True)
            # 2
            publish_by_link(temporary, self.info.folder / name.file_name, files=self.files)
            failpoints.hit("log.rewritten_named")
            # 3
            self._remove_replaced()

    def _remove_replaced(self) -> None:
        """Delete segments that a rewritten one replaces. Before any other: they must not count again."""
        folder = self.info.folder
        replaced = replaced_segments(folder)
        for name in replaced:
            self.files.unlink(folder / name.file_name)
        if replaced:
            failpoints.hit("log.replaced_removed")
            sync_folder(folder, files=self.files)

    @contextmanager
    def _writing(self) -> Iterator[Watermark]:
        """Hold the lock with everything known and in order; give the watermark. Step 1 of appending."""
        with self._mutex, self._locked():
            failpoints.hit("log.locked")
            mark = read_watermark_file(self._watermark_path, self.files)
            if mark is None or self._needs_recovery(mark):
                mark = recover(self.info.folder, self.files)
            self._refresh_index(mark)
            yield mark
            self._memory.used(self, self._index.held)

    def _locked(self) -> _PartitionLock:
        return _PartitionLock(self.info, self._lock_path, self.limits.lock_timeout_ms)

    def _needs_recovery(self, mark: Watermark) -> bool:
        return is_unclean(self.info.folder, mark, first_look=self._index.mark is None)

    def _refresh_index(self, mark: Watermark) -> None:
        try:
            self._index.refresh(mark)
        except FileNotFoundError:
            # Others rolled on and deleted that segment after we read the watermark.
            self._index.refresh(read_watermark(self.info.folder, self.files) or mark)

    @contextmanager
    def _written(
        self, mark: Watermark, entries: list[tuple[Entry, list[Chunk]]], results: Sequence[R]
    ) -> Iterator[PendingEntries[R]]:
        """Step 2 of appending: write. What is to be done about it comes within the ``with`` block."""
        if self._is_full():
            mark = self._roll(mark)
        chunks: list[Chunk] = []
        written: list[Located] = []
        end = mark.length
        for entry, blocks in entries:
            timed = self._timed(entry)
            frame = ENTRY.encode(timed)
            written.append(located := located_behind(timed, end + len(frame)))
            end = located.end
            chunks += [frame, *blocks]
        path = self._index.active.path
        moved = mark._replace(length=end, next_offset=entries[-1][0].next_offset)

        def sync() -> None:
            try:
                with disk_errors_named(path):
                    self.files.fsync(fd)
            except (OSError, MillstreamError):
                self._truncate_tail(fd, mark)
                raise
            failpoints.hit("log.frame_synced")

        def acknowledge() -> None:
            with disk_errors_named(path):
                self._acknowledge(fd, mark, moved)
            self._index.appended(written, moved)
            failpoints.hit("log.watermark_written")

        with disk_errors_named(path), opened(path, os.O_RDWR, files=self.files) as fd:
            # 2
            try:
                write_all(fd, chunks, mark.length, files=self.files)
            except OSError:
                self._truncate_tail(fd, mark)
                raise
            failpoints.hit("log.frame_written")
            yield PendingEntries(results, sync, acknowledge, fd)

    def _acknowledge(self, fd: int, mark: Watermark, moved: Watermark) -> None:
        """Move the watermark. If that fails, what its file holds decides: what it covers must stay."""
        folder = self.info.folder
        try:
            write_watermark_file(self._watermark_path, moved, self.files)
        except OSError:
            with suppress(OSError):
                found = read_watermark(folder, self.files)
                if found == moved:
                    return
                if found != mark:
                    write_watermark(folder, mark, self.files)  # half written; if this fails, nothing is cut
                self._truncate_tail(fd, mark)
            raise

    def _truncate_tail(self, fd: int, mark: Watermark) -> None:
        """Cut off what nobody has seen, so that the caller may try again without a duplicate."""
        with suppress(OSError):
            self.files.truncate(fd, mark.length)
            self.files.fsync(fd)

    def _timed(self, entry: Entry) -> Entry:
        """Return the entry with an append time that does not go back, and with the topic's kind of time."""
        append_time = max(entry.append_time, self._index.append_time)
        if self.info.timestamp_type is TimestampType.CREATE_TIME:
            return replace_fields(entry, append_time=append_time)
        return replace_fields(
            entry, append_time=append_time, min_timestamp=append_time, max_timestamp=append_time
        )

    def _is_full(self) -> bool:
        active = self._index.active
        return active.count >= self.limits.segment_entries or (
            active.end >= self.limits.segment_bytes and bool(active.count)
        )

    def _roll(self, mark: Watermark) -> Watermark:
        """Start a new segment: create it with all that must outlive the old one, then move the watermark."""
        info, index = self.info, self._index
        publications: dict[str, dict[str, Publication]] = {}
        for (publisher, task), done in index.publications.items():
            publications.setdefault(publisher, {})[task] = done
        header = SegmentHeader(
            info.topic_id, info.topic_partition.partition, mark.next_offset, index.append_time, publications
        )
        path = info.folder / segment_name(mark.next_offset)
        length = publish_exclusive(path, [HEADER.encode(header)], files=self.files)
        failpoints.hit("log.segment_created")
        mark = mark._replace(segment_base=mark.next_offset, length=length)
        write_watermark(info.folder, mark, self.files)
        index.refresh(mark)
        return mark
