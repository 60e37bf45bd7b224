"""The index of one partition in memory: which offsets are where.

It follows the files and never leads them: :meth:`PartitionIndex.refresh` reads the watermark and whatever
entries lie below it that are not known yet. So it takes no lock between processes, and several processes see
the same. Old segments are loaded when asked for, and a bounded number of them is kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millstream.durable import FileLayer
from millstream.log.api import Publication, TimestampType, TopicPartition
from millstream.log.embedded.high_watermark import Watermark
from millstream.log.embedded.segment import (
    Located,
    ReadBuffer,
    SegmentName,
    parse_segment_name,
    read_header,
    scan,
)
from millstream.log.errors import DamagedLogError
from millstream.types import Epoch, Offset

_KEPT_SEGMENTS: Final = 16


def current_segments(folder: Path) -> list[SegmentName]:
    """Return the segments in a folder, in order, without those that a rewritten one replaces."""
    return _sorted_out(folder)[0]


def replaced_segments(folder: Path) -> list[SegmentName]:
    """Return the segments that a rewritten one replaces: they can go."""
    return _sorted_out(folder)[1]


def _sorted_out(folder: Path) -> tuple[list[SegmentName], list[SegmentName]]:
    found = [name for path in folder.iterdir() if (name := parse_segment_name(path.name)) is not None]
    rewritten = [name for name in found if name.generation]
    current: list[SegmentName] = []
    replaced: list[SegmentName] = []
    for name in sorted(found):
        (replaced if any(other.replaces(name) for other in rewritten) else current).append(name)
    return current, replaced


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Where a partition is, and what it belongs to."""

    root: Path
    """The log's folder, below which sealed files are."""
    folder: Path
    topic_partition: TopicPartition
    topic_id: str
    timestamp_type: TimestampType


class SegmentIndex:
    """The entries of one segment, as far as they have been read."""

    def __init__(self, info: PartitionInfo, name: SegmentName, files: FileLayer) -> None:
        self.name = name
        self.path = info.folder / name.file_name
        self._files = files
        self.header, self.end = read_header(self.path, files)
        self._header_end = self.end
        self.base = self.next_offset = name.base
        self.count = 0
        """How many entries it has."""
        self._held: list[Located] = []
        self._held_from = self.base
        """The entries from this offset on are in memory."""
        self.bytes = self.raw_bytes = 0
        """The length of the blocks as they stand in files, wherever they are, and uncompressed."""
        self.max_timestamp = -1
        header, partition = self.header, info.topic_partition.partition
        if (header.topic_id, header.partition, header.base_offset) != (info.topic_id, partition, name.base):
            raise DamagedLogError(
                f"{self.path} belongs to partition {header.partition} of a topic with id {header.topic_id}, "
                f"from offset {header.base_offset}; expected are partition {partition}, id {info.topic_id} "
                f"and offset {name.base}. Likely cause: a file was copied from elsewhere. Remedy: put the "
                "right file back."
            )

    def extend(self, end: int | None = None) -> tuple[list[Located], ReadBuffer]:
        """Read the entries up to byte ``end`` (default: the file's end); return the new ones.

        And what was read last: their blocks may be in it.
        """
        with ReadBuffer(self.path, self._files, end=end) as window:
            size = window.size(at_least=end or 0)
            new = list(scan(window, self.end, size if end is None else end, self.next_offset))
        self.add(new)
        return new, window

    def add(self, new: Sequence[Located]) -> None:
        """Know of entries behind the last one."""
        self._held += new
        self.count += len(new)
        for located in new:
            self.end, self.next_offset = located.end, located.entry.next_offset
            self.bytes += located.entry.length
            self.raw_bytes += located.entry.raw_bytes
            self.max_timestamp = max(self.max_timestamp, located.entry.max_timestamp)

    @property
    def dirty_from(self) -> int:
        """Where that begins which was never compacted; the end if there is nothing of it."""
        return max(self.base, self.header.clean_to)

    @property
    def entries(self) -> list[Located]:
        """All entries, as far as they have been read."""
        return self._entries_from(self.base)

    @property
    def held(self) -> int:
        """How many entries are in memory."""
        return len(self._held)

    def between(self, start: int, end: int) -> list[Located]:
        """Return the entries that hold any offset of the range."""
        entries = self._entries_from(start)
        if entries and entries[-1].entry.base_offset <= start < self.next_offset:
            return entries[-1:]  # who follows a partition asks for the last one
        first = max(0, bisect_right(entries, start, key=lambda at: at.entry.base_offset) - 1)
        last = bisect_right(entries, end - 1, key=lambda at: at.entry.base_offset)
        return [located for located in entries[first:last] if located.entry.next_offset > start]

    def known(self, offset: int) -> Located | None:
        """Return the entry that holds an offset, if it is in memory."""
        if not self._held_from <= offset < self.next_offset:
            return None
        return self._held[bisect_right(self._held, offset, key=lambda at: at.entry.base_offset) - 1]

    def forget_entries(self) -> None:
        """Hold no entry in memory but those that are read from now on."""
        self._held, self._held_from = [], self.next_offset

    def _entries_from(self, start: int) -> list[Located]:
        """The entries in memory, after those from an offset on were read again if they were forgotten."""
        if start < self._held_from:
            with ReadBuffer(self.path, self._files, end=self.end) as window:
                self._held = list(scan(window, self._header_end, self.end, self.base))
            self._held_from = self.base
        return self._held


class PartitionIndex:
    """Which offsets of one partition are where, up to the watermark seen last."""

    def __init__(self, info: PartitionInfo, files: FileLayer) -> None:
        self._info = info
        self._files = files
        self._active: SegmentIndex | None = None
        self._older: OrderedDict[SegmentName, SegmentIndex] = OrderedDict()
        self.mark: Watermark | None = None
        self.append_time = 0
        self.publications: dict[tuple[str, str], Publication] = {}
        self.tail: ReadBuffer | None = None
        """What the last refresh has read of the active segment, until whoever looks has ended."""

    @property
    def active(self) -> SegmentIndex:
        """The segment that is written to. Only after :meth:`refresh`."""
        assert self._active is not None
        return self._active

    def refresh(self, mark: Watermark) -> None:
        """Learn what lies below ``mark``, which was read from the file just now."""
        if mark == self.mark:
            return
        if self._active is None or self._active.base != mark.segment_base:
            self._open_active(mark.segment_base)
        new, self.tail = self.active.extend(mark.length)
        for located in new:
            self._add(located)
        if self.active.next_offset != mark.next_offset or self.active.end != mark.length:
            raise DamagedLogError(
                f"{self.active.path} ends at offset {self.active.next_offset}, but the watermark of "
                f"{self._info.topic_partition} says {mark.next_offset}. Likely cause: files of different "
                "times were put together. Remedy: restore the partition's folder as a whole from one backup."
            )
        self.mark = mark

    def appended(self, entries: Sequence[Located], mark: Watermark) -> None:
        """Know what was written here just now, behind all that was known."""
        self.active.add(entries)
        for located in entries:
            self._add(located)
        self.mark = mark

    def known(self, offset: int) -> Located | None:
        """Return the entry of an offset without a look at the files; None if it is not in memory."""
        return None if self._active is None else self._active.known(offset)

    def segments(self, start: int) -> Iterator[SegmentIndex]:
        """Yield the segments that hold offsets from ``start`` on, in order, the active one last."""
        if start >= self.active.base:
            yield self.active
            return
        names = current_segments(self._info.folder)
        names = names[max(0, bisect_right(names, start, key=lambda name: name.base) - 1) :]
        for name, following in zip(names, [*names[1:], None], strict=True):
            if name.base == self.active.base:
                yield self.active
                return
            yield self._load(name, -1 if following is None else following.base)

    @property
    def held(self) -> int:
        """How many entries are in memory."""
        active = 0 if self._active is None else self._active.held
        return active + sum(segment.held for segment in self._older.values()) if self._older else active

    def forget_entries(self) -> None:
        """Hold no entries in memory until somebody asks for them; what is known of segments stays."""
        for segment in (*self._older.values(), *filter(None, (self._active,))):
            segment.forget_entries()

    def closed_segments(self, start: int = 0) -> list[SegmentIndex]:
        """Return the segments from ``start`` on that are no longer written to."""
        return [segment for segment in self.segments(start) if segment is not self._active]

    def _open_active(self, base: int) -> None:
        active = self._active = SegmentIndex(self._info, SegmentName(base), self._files)
        self.append_time = active.header.append_time
        self.publications = {
            (publisher, task): done
            for publisher, tasks in active.header.publications.items()
            for task, done in tasks.items()
        }

    def _add(self, located: Located) -> None:
        entry = located.entry
        self.append_time = max(self.append_time, entry.append_time)
        if entry.stamp is not None:
            publisher, task, epoch = entry.stamp
            self.publications[publisher, task] = Publication(
                Epoch(epoch), Offset(entry.base_offset), entry.count
            )

    def _load(self, name: SegmentName, following: int) -> SegmentIndex:
        segment = self._older.get(name)
        if segment is None:
            segment = SegmentIndex(self._info, name, self._files)
            segment.extend()
            if segment.next_offset != following:
                raise DamagedLogError(
                    f"{segment.path} ends at offset {segment.next_offset}, but the next segment begins at "
                    f"{following}. Likely cause: a file was cut or deleted. Remedy: restore it from a backup."
                )
            self._older[name] = segment
            if len(self._older) > _KEPT_SEGMENTS:
                self._older.popitem(last=False)
        self._older.move_to_end(name)
        return segment
