"""Rewriting: how a partition stays small while others append to it and read it.

Segments that are no longer written to are rewritten, one or several into one:

- **Merging** brings rows that lie in sealed files, and small segments, together into one file. Nothing else
  changes: the same records have the same offsets. The sealed files can then be collected.
- **Compaction** also leaves out records that a later one with the same key replaces, and in time the
  tombstones. Offsets stay; there are gaps.

What is worth a rewrite goes by the bytes that blocks take uncompressed: else state that compresses well would
seem small beside what is new. How large a file becomes goes by the bytes in the file. How a new segment
replaces others while they are read: docs/design/0002-embedded-log.md.

What compaction promises: whoever reads from any offset on, up to ``Compacted.to`` or further, and keeps the
last value per key, has what the whole topic would have given; if it begins with a copy that it made before,
that copy must have got to ``Compacted.deletes_gone_to``. Whoever follows a changelog checks both.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from millstream.durable import Chunk, LockTimeoutError, disk_errors_named, held_lock, opened, write_all
from millstream.log.api import Beyond, TopicConfig
from millstream.log.blocks import MAX_SPAN, encode_blocks, encode_sparse_block, summary
from millstream.log.embedded.compaction import (
    MAX_KEYS,
    Compaction,
    KeepAll,
    KeepLast,
    Kept,
    LastOffsets,
    Rule,
)
from millstream.log.embedded.index import SegmentIndex
from millstream.log.embedded.partition import PartitionFiles
from millstream.log.embedded.reader import PartitionReader, Stored, joined
from millstream.log.embedded.segment import ENTRY, HEADER, Entry, SegmentName
from millstream.throttler import maybe_throttle

LOCK: Final = "maintenance"
_UNFINISHED: Final = "unfinished"
"""The name under which a segment is rewritten. There is one at a time, by the lock."""
SMALL_BYTES: Final = 1 << 20
"""Segments below this size are worth a copy without their sealed files, though they are compacted later."""
TINY_BYTES: Final = 64 << 10
"""Segments below this size are always worth joining: to open one more file takes as long as to copy it."""
MANY_SEGMENTS: Final = 32
"""So many closed segments that can't be compacted are joined all the same."""
_SEGMENTS_OF_RETENTION: Final = 8
"""Into so many segments at least the bytes are cut that a topic retains: only whole ones are let go."""
BLOCK_ROWS: Final = 50_000
BLOCK_BYTES: Final = 4 << 20
_JOINED_BYTES: Final = 256 << 10
"""Blocks are looked at together until they have so many bytes."""
_BUCKET_MS: Final = 3_600_000
"""Tombstones go by the time of their entry, so while they stay, each hour has entries of its own."""


class LogCleaner:
    """Rewrites the segments of one partition."""

    def __init__(self, partition: PartitionFiles, config: TopicConfig) -> None:
        self._partition = partition
        self._reader = PartitionReader(partition)
        self._files = partition.files
        self._target_bytes = partition.limits.segment_bytes
        if config.retention_bytes is not None:
            self._target_bytes = min(self._target_bytes, config.retention_bytes // _SEGMENTS_OF_RETENTION)
        self._compress = config.is_compacted
        self._shared_before = 0

    def run(self, *, min_entries: int, ask: Callable[[], Compaction | None], beyond: Beyond) -> bool:
        """Rewrite what is worth it; return whether anything was.

        The active segment is closed first if it has ``min_entries`` entries. If somebody else is at it,
        nothing is done. What may be left out is asked when nobody else can be at it any more: see
        :meth:`wait_until_idle`.
        """
        try:
            with held_lock(self._partition.info.folder / LOCK, timeout_ms=0):
                compaction = ask()
                self._shared_before = sys.maxsize if compaction is None else compaction.tombstones_before
                self._partition.prepare_rewrite(min_entries)
                is_compacted = compaction is not None and self._compact(compaction, beyond)
                up_to = sys.maxsize if compaction is None else compaction.up_to
                return self._merge(up_to, beyond) or is_compacted
        except LockTimeoutError:
            return False

    def wait_until_idle(self, timeout_ms: int) -> None:
        """Wait until nobody is at it: whoever begins after that asks anew what may be left out."""
        with held_lock(self._partition.info.folder / LOCK, timeout_ms=timeout_ms):
            pass

    # What is worth it ---------------------------------------------------------------------------------

    def _closed(self) -> list[SegmentIndex]:
        with self._partition.index() as index:
            return index.closed_segments()

    def _merge(self, up_to: int, beyond: Beyond) -> bool:
        """Join segments; those that can't be compacted yet stay for themselves.

        Else each would grow together with newer ones for ever, and never end before the bound. But if there
        are many, the bound does not move, because somebody who needs it stands still.
        """
        closed = self._closed()
        before = [segment for segment in closed if segment.next_offset <= up_to]
        groups = _mergeable(before, self._target_bytes)
        behind = [segment for segment in closed if segment.next_offset > up_to]
        if len(behind) > MANY_SEGMENTS:
            groups += _mergeable(behind, self._target_bytes)
        else:
            groups += [[segment] for segment in behind if self._is_worth_a_copy(segment, up_to, beyond)]
        for group in groups:
            self._rewrite(group, KeepAll(), beyond)
        return bool(groups)

    def _is_worth_a_copy(self, segment: SegmentIndex, up_to: int, beyond: Beyond) -> bool:
        """Whether to merge a segment now that is to be compacted later."""
        if beyond == "merge":
            return _has_sealed_rows(segment)
        return segment.bytes <= SMALL_BYTES and _has_sealed_rows(segment, up_to)

    def _compact(self, compaction: Compaction, beyond: Beyond) -> bool:
        """Compact what is worth it; return whether anything was."""
        segments = [(segment, _reach(segment, compaction.up_to)) for segment in self._closed()]
        segments = [(segment, reach) for segment, reach in segments if reach > segment.base]
        size = sum(_raw_bytes(segment, segment.base, reach) for segment, reach in segments)
        dirty = sum(_raw_bytes(segment, segment.dirty_from, reach) for segment, reach in segments)
        if not dirty or dirty < compaction.min_dirty_ratio * size:
            return False
        covered, last, compacted_to = self._one_pass(segments)
        dropped = self._dropped(compaction, last)
        rule = KeepLast(last, compacted_to, compaction.tombstones_before, dropped)
        groups = _grouped(covered, lambda group, next_one: _bytes([*group, next_one]) <= self._target_bytes)
        for group in groups:  # oldest first: a tombstone goes last
            self._rewrite(group, rule, beyond)
        return True

    def _one_pass(
        self, segments: Iterable[tuple[SegmentIndex, int]]
    ) -> tuple[list[SegmentIndex], LastOffsets, int]:
        """Return the segments that one pass covers, what is new in them, and how far they reach."""
        covered: list[SegmentIndex] = []
        last = LastOffsets()
        is_new = False
        compacted_to = 0
        for segment, reach in segments:
            if last.has_at_least(MAX_KEYS):
                break
            start = segment.base if is_new else segment.dirty_from
            if start < reach:
                is_new = True
                for stored in self._stored(start, reach):
                    last.add(stored.records.column(0), stored.offsets())
            covered.append(segment)
            compacted_to = reach
        return covered, last, compacted_to

    def _dropped(self, compaction: Compaction, last: LastOffsets) -> tuple[bytes, bytes] | None:
        at = None if compaction.expired is None else last.of(b"")
        if compaction.expired is None or at is None:
            return None
        note = next(self._reader.stored(at, at + 1)).records.column(1)[0].as_py()
        return None if note is None else compaction.expired(note)

    # One new segment ----------------------------------------------------------------------------------

    def _rewrite(self, group: Sequence[SegmentIndex], rule: Rule, beyond: Beyond) -> None:
        """Write the records of some segments into one, and let it take their place.

        1. Write it under a temporary name, and sync it. It is held in memory before: its header says what was
           left out.
        2. Let it replace them.
        """
        generation = 1 + max(segment.name.generation for segment in group)
        name = SegmentName(group[0].base, group[-1].next_offset, generation)
        path = self._partition.info.folder / name.file_name
        temporary = path.with_name(_UNFINISHED)
        # 1
        headers = [segment.header for segment in group]
        clean_to = min(name.end, rule.compacted_to) if rule.compacted_to else _clean_to(group)
        writer = _Writer(
            name.base, clean_to, is_append_time=self._reader.is_append_time, compress=self._compress
        )
        behind = [at.entry for at in group[-1].entries if at.entry.base_offset >= rule.up_to]
        body = list(self._entries(name, rule, behind, beyond, writer))
        header = replace(
            headers[0],
            publications={},
            compacted_to=max(rule.compacted_to, *(header.compacted_to for header in headers)),
            deletes_gone_to=max(writer.deletes_gone_to, *(header.deletes_gone_to for header in headers)),
            clean_to=clean_to,
        )
        with disk_errors_named(path):
            if temporary.exists():
                self._files.unlink(temporary)  # somebody died over it
            with opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, files=self._files) as fd:
                write_all(fd, [HEADER.encode(header), *body], 0, files=self._files)
                self._files.fsync(fd)
        # 2
        self._partition.replace_segments(temporary, name)

    def _entries(
        self, name: SegmentName, rule: Rule, behind: Iterable[Entry], beyond: Beyond, writer: _Writer
    ) -> Iterator[Chunk]:
        """Give the records that are kept, in entries of one block each, and those behind the rule's bound.

        Entries behind it are in the new segment because others before it were in the old one. They are left
        as they are: their rows are in sealed files that are kept as long as these can't be compacted.
        """
        yield from self._rewritten(writer, name.base, min(name.end, rule.up_to), rule)
        for entry in behind:
            if entry.file is not None and beyond == "leave":
                yield from writer.entry()
                yield ENTRY.encode(entry)
                writer.start(entry.next_offset)
            else:
                yield from self._rewritten(writer, entry.base_offset, entry.next_offset, KeepAll())
        yield from writer.entry()

    def _rewritten(self, writer: _Writer, start: int, end: int, rule: Rule) -> Iterator[Chunk]:
        for stored in self._stored(start, end, writer.clean_to):
            kept = rule.kept(stored)
            bucket = self._bucket(stored.append_time)
            if not writer.has_room(kept, stored, bucket):
                yield from writer.entry()
            writer.add(kept, stored, bucket)

    def _stored(self, start: int, end: int, clean_to: int = sys.maxsize) -> Iterator[Stored]:
        """Give the records of a range, many small blocks of one bucket together.

        What is done for a block takes far longer than what is done for its rows. What was compacted up to
        ``clean_to`` is not joined with what comes behind it.
        """
        parts: list[Stored] = []
        size = 0
        for stored in self._reader.stored(start, end):
            added = stored.records.nbytes
            if parts and (
                size + added > _JOINED_BYTES
                or stored.next_offset - parts[0].base_offset > MAX_SPAN
                or parts[0].base_offset < clean_to <= parts[-1].next_offset
                or self._bucket(parts[-1].append_time) != self._bucket(stored.append_time)
            ):
                yield joined(parts)
                parts, size = [], 0
            parts.append(stored)
            size += added
            maybe_throttle()
        if parts:
            yield joined(parts)

    def _bucket(self, append_time: int) -> int:
        """Records of one bucket may share an entry, which has one append time."""
        if self._reader.is_append_time:
            return append_time
        return -1 if append_time < self._shared_before else append_time // _BUCKET_MS


class _Writer:
    """Collects records for the next entry."""

    def __init__(self, base: int, clean_to: int, *, is_append_time: bool, compress: bool) -> None:
        self.clean_to = clean_to
        self._is_append_time = is_append_time
        self._compress = compress
        self.deletes_gone_to = 0
        """The offset behind the last tombstone that was left out of the segment; 0: none."""
        self.start(base)

    def start(self, base: int) -> None:
        """Begin an entry at an offset."""
        self._base = self._reached = base
        self._parts: list[tuple[pa.RecordBatch, pa.Array]] = []
        self._rows = self._bytes = self._append_time = 0
        self._bucket: int | None = None

    def has_room(self, kept: Kept, stored: Stored, bucket: int) -> bool:
        """Whether the records fit into the entry, in size and time, and their offset deltas into four bytes.

        What is compacted and what is not have entries of their own: by these dirty bytes are counted.
        """
        if self._base < self.clean_to <= self._reached or self._bucket not in (None, bucket):
            return False
        is_small = (
            self._rows + kept.records.num_rows <= BLOCK_ROWS
            and self._bytes + kept.records.nbytes <= BLOCK_BYTES
        )
        return (is_small or not self._rows) and stored.next_offset - self._base <= MAX_SPAN

    def add(self, kept: Kept, stored: Stored, bucket: int) -> None:
        """Take in what is kept of a block, and cover its offsets."""
        self._parts.append((kept.records, kept.offsets))
        self._rows += kept.records.num_rows
        self._bytes += kept.records.nbytes
        self._append_time = stored.append_time
        self._bucket = bucket
        self._reached = stored.next_offset
        self.deletes_gone_to = max(self.deletes_gone_to, kept.deletes_gone_to)

    def entry(self) -> Iterator[Chunk]:
        """Give the entry and its blocks, and begin the next one."""
        span = self._reached - self._base
        if not span:
            return
        records = pa.concat_batches([part for part, _ in self._parts])
        chunks: list[Chunk]
        if records.num_rows == span:
            chunks, headers = encode_blocks(records, self._append_time, compress=self._compress)
        else:
            deltas = pc.subtract(pa.concat_arrays([offsets for _, offsets in self._parts]), self._base)
            chunks, header = encode_sparse_block(
                records, deltas, span, self._append_time, compress=self._compress
            )
            headers = [header]
        length = sum(header.length for header in headers)
        raw_length = sum(header.raw_length for header in headers)
        count, low, high = summary(headers)
        if self._is_append_time:
            low = high = self._append_time
        raw = raw_length if raw_length > length else 0
        yield ENTRY.encode(Entry(self._base, count, None, 0, length, low, high, self._append_time, None, raw))
        yield from chunks
        self.start(self._reached)


# Which segments become one ----------------------------------------------------------------------------


def _has_sealed_rows(segment: SegmentIndex, up_to: int = sys.maxsize) -> bool:
    """Whether entries that end before an offset have their rows in sealed files."""
    return any(at.entry.file is not None and at.entry.next_offset <= up_to for at in segment.entries)


def _reach(segment: SegmentIndex, up_to: int) -> int:
    """How far entries go that end before an offset."""
    ends = (at.entry.next_offset for at in segment.entries)
    return max((end for end in ends if end <= up_to), default=0)


def _raw_bytes(segment: SegmentIndex, start: int, end: int) -> int:
    """What the blocks of those entries that begin there take uncompressed."""
    return sum(at.entry.raw_bytes for at in segment.entries if start <= at.entry.base_offset < end)


def _mergeable(segments: Sequence[SegmentIndex], target_bytes: int) -> list[list[SegmentIndex]]:
    """Return neighbours to be merged, the newest first.

    A segment joins newer ones only if it is not much larger than they are together, or very small. So a
    record is rewritten a logarithmic number of times, not once for every segment that comes after it: one may
    be closed for each row that a partition gets now and then (:mod:`millstream.maintenance.collection`).
    """

    def joins(newer: Sequence[SegmentIndex], segment: SegmentIndex) -> bool:
        raw_bytes = sum(other.raw_bytes for other in newer)
        is_small = segment.bytes <= TINY_BYTES or segment.raw_bytes <= 2 * raw_bytes
        return is_small and _bytes([*newer, segment]) <= target_bytes

    groups = [group[::-1] for group in _grouped(reversed(segments), joins)]
    return [group for group in groups if len(group) > 1 or _has_sealed_rows(group[0])]


def _grouped(
    segments: Iterable[SegmentIndex], joins: Callable[[Sequence[SegmentIndex], SegmentIndex], bool]
) -> list[list[SegmentIndex]]:
    groups: list[list[SegmentIndex]] = []
    for segment in segments:
        if groups and joins(groups[-1], segment):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def _bytes(segments: Iterable[SegmentIndex]) -> int:
    return sum(segment.bytes for segment in segments)


def _clean_to(group: Sequence[SegmentIndex]) -> int:
    """How far what is joined was compacted: to the first of them that is not clean, and so far in that."""
    return next(
        (segment.dirty_from for segment in group if segment.dirty_from < segment.next_offset),
        group[-1].next_offset,
    )
