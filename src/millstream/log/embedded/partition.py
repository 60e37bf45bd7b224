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

from millstream import failpoints
from millstream.durable import (
    Chunk,
    FileLayer,
    access_denied,
    disk_errors_named,
    held_lock,
    publish_by_link,
    publish_exclusive,
    raise_named,
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
    read_open_watermark,
    read_watermark,
    read_watermark_file,
    write_open_watermark,
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
_JOINED_BYTES: Final = 64 << 10
"""So much is written with one system call."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a segment is full, and how long a writer waits for another one."""

    segment_bytes: int = 64 << 20
    segment_entries: int = 4096
    lock_timeout_ms: int = 30_000


class PendingEntries(Generic[R]):
    """Entries that are written at the end of a partition, and that nobody sees yet.

    The partition's lock is held until they are closed, in the thread that wrote them.
    """

    __slots__ = ("_mark", "_moved", "_partition", "_written", "fd", "results")

    def __init__(
        self,
        partition: PartitionFiles,
        results: Sequence[R],
        mark: Watermark,
        moved: Watermark,
        written: Sequence[Located],
        fd: int | None,
    ) -> None:
        self.results = results
        self.fd = fd
        """Of the file that they are in; None if there are none."""
        self._partition = partition
        self._mark = mark
        self._moved = moved
        self._written = written

    def sync(self) -> None:
        """Step 3 of appending: make them durable, or cut them off. In any thread."""
        if self.fd is not None:
            self._partition.sync_entries(self.fd, self._mark)

    def acknowledge(self) -> None:
        """Step 4: move the watermark over them."""
        if self.fd is not None:
            self._partition.acknowledge_entries(self.fd, self._mark, self._moved, self._written)

    def close(self) -> None:
        """Let the lock go."""
        try:
            if self.fd is not None:
                self._partition.files.close(self.fd)
        finally:
            self._partition.end_writing()


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


class _IndexLook:
    """A look at the index of a partition, for the length of a ``with`` block."""

    __slots__ = ("_partition", "_up_to")

    def __init__(self, partition: PartitionFiles, up_to: int | None) -> None:
        self._partition = partition
        self._up_to = up_to

    def __enter__(self) -> PartitionIndex:
        return self._partition.begin_look(self._up_to)

    def __exit__(self, *_: object) -> None:
        self._partition.end_look()


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
        self._lock = _PartitionLock(info, info.folder / LOCK, limits.lock_timeout_ms)
        """Taken by whoever has the mutex."""
        self._place = f"{info.folder}/"
        self._watermark_path = info.folder / WATERMARK
        self._watermark_fd: int | None = None
        """Of whoever writes to the partition just now."""
        self._seen: Watermark | None = None
        """The watermark as it was read or written last."""
        self._compacted: tuple[tuple[SegmentName, ...], Compacted] = (), Compacted(Offset(0), Offset(0))

    def index(self, up_to: int | None = None) -> _IndexLook:
        """Give the index as it is now, for the length of a ``with`` block. It must not leave the block.

        With ``up_to``, as it was at the last look at the watermark, if that was behind this offset.
        """
        return _IndexLook(self, up_to)

    def begin_look(self, up_to: int | None) -> PartitionIndex:
        """Take the mutex and bring the index up to date. Whoever does ends the look."""
        self._mutex.acquire()
        try:
            mark = self._seen_behind(up_to)
            if mark is None:
                mark = read_watermark_file(self._watermark_path, self.files)
            if mark is None or (self._index.mark is None and self._needs_recovery(mark)):
                with self._lock:
                    mark = recover(self.info.folder, self.files)
            self._refresh_index(mark)
        except BaseException:
            self._mutex.release()
            raise
        return self._index

    def end_look(self) -> None:
        """Let the mutex go."""
        self._index.tail = None
        self._memory.used(self, self._index.held)
        self._mutex.release()

    def _seen_behind(self, up_to: int | None) -> Watermark | None:
        """A watermark behind an offset that need not be read again: the newest of those."""
        known, seen = self._index.mark, self._seen
        if up_to is None or known is None or seen is None:
            return None
        if known.next_offset >= up_to and known.start_offset >= seen.start_offset:
            return known
        # Others may have seen an older one since: the index never goes back.
        return seen if known.next_offset < up_to <= seen.next_offset else None

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
        self._seen = mark
        return Offset(mark.start_offset), Offset(mark.next_offset)

    def begin_append(self, records: pa.RecordBatch) -> PendingEntries[AppendResult]:
        """Write records at the end, all or nothing. Whoever does syncs, acknowledges and closes them."""
        now = self._now_ms()
        chunks, headers = encode_blocks(records, now)
        length = sum(header.length for header in headers)
        if length > MAX_ENTRY_DATA_BYTES:
            raise RecordTooLargeError(
                f"A batch of {records.num_rows} records for {self.info.topic_partition} has {length} "
                f"bytes; the bound is {MAX_ENTRY_DATA_BYTES}. Remedy: append it in several parts."
            )
        mark = self._begin_writing()
        try:
            results = [AppendResult(Offset(mark.next_offset), records.num_rows)]
            entries: list[tuple[Entry, list[Chunk]]] = []
            if headers:
                count, low, high = summary(headers)
                times = self._times(now, low, high)
                entries.append((Entry(mark.next_offset, count, None, 0, length, *times, None), chunks))
            return self._write(mark, entries, results)
        except BaseException:
            self.end_writing()
            raise

    def begin_publish(self, ranges: Sequence[SealedRange]) -> PendingEntries[PublishResult]:
        """Give sealed rows the next offsets, without copying; skip what is there already.

        They are written now; whoever publishes syncs, acknowledges and closes them. The lock is held from the
        look at the last epoch to the acknowledgement: a publisher that slept in between does not exist.
        """
        now = self._now_ms()
        results: list[PublishResult] = []
        entries: list[tuple[Entry, list[Chunk]]] = []
        mark = self._begin_writing()
        try:
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
                times = self._times(now, sealed.min_timestamp, sealed.max_timestamp)
                entries.append((sealed_entry(sealed, offset, *times), []))
                made[by] = Publication(stamp.epoch, offset, sealed.count)
                results.append(PublishResult(True, offset))
                offset = Offset(offset + sealed.count)
            return self._write(mark, entries, results)
        except BaseException:
            self.end_writing()
            raise

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
            self._seen = None
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
        mark = self._begin_writing()
        try:
            yield mark
        finally:
            self.end_writing()

    def _begin_writing(self) -> Watermark:
        """Step 1 of appending. An epoch may write into thousands of partitions: no generators here."""
        self._mutex.acquire()
        try:
            self._lock.__enter__()
        except BaseException:
            self._mutex.release()
            raise
        try:
            failpoints.hit("log.locked")
            mark = self._open_watermark()
            if mark is None or self._needs_recovery(mark):
                mark = recover(self.info.folder, self.files)
            self._refresh_index(mark)
        except BaseException:
            self.end_writing()
            raise
        return mark

    def _open_watermark(self) -> Watermark | None:
        """Read it, and keep it open until it is written, or the writing has ended."""
        try:
            self._watermark_fd = self.files.open(self._watermark_path, os.O_RDWR)
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise access_denied(self._watermark_path, error) from None
        return read_open_watermark(self._watermark_fd, self.files)

    def end_writing(self) -> None:
        """Let the lock and the mutex go."""
        self._index.tail = None
        fd, self._watermark_fd = self._watermark_fd, None
        try:
            if fd is not None:
                self.files.close(fd)
        finally:
            try:
                self._lock.__exit__()
            finally:
                self._memory.used(self, self._index.held)
                self._mutex.release()

    def _needs_recovery(self, mark: Watermark) -> bool:
        return is_unclean(self._place, mark, first_look=self._index.mark is None)

    def _refresh_index(self, mark: Watermark) -> None:
        try:
            self._index.refresh(mark)
        except FileNotFoundError:
            # Others rolled on and deleted that segment after we read the watermark.
            mark = read_watermark(self.info.folder, self.files) or mark
            self._index.refresh(mark)
        self._seen = mark

    def _write(
        self, mark: Watermark, entries: list[tuple[Entry, list[Chunk]]], results: Sequence[R]
    ) -> PendingEntries[R]:
        """Step 2 of appending: write."""
        if not entries:
            return PendingEntries(self, results, mark, mark, (), None)
        if self._is_full():
            mark = self._roll(mark)
        chunks: list[Chunk] = []
        written: list[Located] = []
        end = mark.length
        for entry, blocks in entries:
            frame = ENTRY.encode(entry)
            written.append(located := located_behind(entry, end + len(frame)))
            end = located.end
            chunks += [frame, *blocks]
        if end - mark.length <= _JOINED_BYTES:
            chunks = [b"".join(chunks)]
        moved = Watermark(mark.segment_base, end, entries[-1][0].next_offset, mark.start_offset)
        path = self._index.active.path
        try:
            fd = self.files.open(path, os.O_RDWR)
            try:
                # 2
                try:
                    write_all(fd, chunks, mark.length, files=self.files)
                except OSError:
                    self._truncate_tail(fd, mark)
                    raise
                failpoints.hit("log.frame_written")
            except BaseException:
                self.files.close(fd)
                raise
        except OSError as error:
            raise_named(path, error)
            raise
        return PendingEntries(self, results, mark, moved, written, fd)

    def sync_entries(self, fd: int, mark: Watermark) -> None:
        """Step 3: see PendingEntries."""
        try:
            with disk_errors_named(self._index.active.path):
                self.files.fsync(fd)
        except (OSError, MillstreamError):
            self._truncate_tail(fd, mark)
            raise
        failpoints.hit("log.frame_synced")

    def acknowledge_entries(
        self, fd: int, mark: Watermark, moved: Watermark, written: Sequence[Located]
    ) -> None:
        """Step 4: see PendingEntries."""
        try:
            self._acknowledge(fd, mark, moved)
        except OSError as error:
            raise_named(self._index.active.path, error)
            raise
        self._index.appended(written, moved)
        self._seen = moved
        failpoints.hit("log.watermark_written")

    def _acknowledge(self, fd: int, mark: Watermark, moved: Watermark) -> None:
        """Move the watermark. If that fails, what its file holds decides: what it covers must stay."""
        folder = self.info.folder
        try:
            watermark, self._watermark_fd = self._watermark_fd, None
            if watermark is None:  # it was missing when the lock was taken
                write_watermark_file(self._watermark_path, moved, self.files)
            else:
                try:
                    write_open_watermark(watermark, moved, self.files)
                finally:
                    self.files.close(watermark)  # here: network file systems tell of errors only then
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

    def _times(self, now: int, lowest: int, highest: int) -> tuple[int, int, int]:
        """The times of a new entry, of the topic's kind, and its append time, which does not go back."""
        append_time = max(now, self._index.append_time)
        if self.info.timestamp_type is TimestampType.CREATE_TIME:
            return lowest, highest, append_time
        return append_time, append_time, append_time

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
        self._seen = mark
        return mark
