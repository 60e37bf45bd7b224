"""Segments: the files that a partition's index and its appended records stand in.

A segment is a header frame, then entries. An entry is a frame that says which offsets it covers and where
their blocks are: right behind it (appended records) or in a sealed file (published rows)::

    00000000000000004096.segment:  header | entry | blocks | entry | entry | blocks | ...

Segments that are no longer written to may be rewritten (:mod:`millstream.log.embedded.log_cleaner`): the
records of one or several, in a file whose name says which offsets it covers and how often they were
rewritten. It counts as soon as it has its name; what it replaces is deleted after that::

    00000000000000000000 - (00000000000000004096.2).segment

The header repeats what must outlive earlier segments: the last epoch of every publisher and the last append
time. Offsets go on without a gap from segment to segment, so one that lost its end is noticed. Frames and
blocks carry checksums; where the valid part ends is the watermark's business, not a segment's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

import msgspec

from millstream.durable import FRAME_HEADER_BYTES, DamagedFileError, FileLayer, FrameKind
from millstream.log.api import Publication, SealedRange
from millstream.log.blocks import BLOCK_HEADER_BYTES, BlockHeader, decode_header
from millstream.log.errors import DamagedLogError

HEADER: Final = FrameKind(b"MSSG", version=1, max_bytes=16 << 20)
ENTRY: Final = FrameKind(b"MSEN", version=1, max_bytes=64 << 10)
MAX_ENTRY_DATA_BYTES: Final = 1 << 30
"""The bound of the blocks that one entry covers."""

_SUFFIX: Final = ".segment"
_DIGITS: Final = 20
_NAME: Final = re.compile(rf"(\d{{{_DIGITS}}})(?:-(\d{{{_DIGITS}}})\.(\d{{1,9}}))?\{_SUFFIX}")


class SegmentHeader(msgspec.Struct, frozen=True):
    """The first record of a segment."""

    topic_id: str
    partition: int
    base_offset: int
    append_time: int
    publications: dict[str, dict[str, Publication]]
    """Publisher -> task -> its last publication."""
    compacted_to: int = 0
    """Records were left out that others replace, up to this offset: who reads on to it misses nothing."""
    deletes_gone_to: int = 0
    """Old tombstones before this offset were left out: who has read less far begins anew."""
    clean_to: int = 0
    """Of this segment, what is before this offset was compacted; the rest is still to be."""


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Which offsets, and where their blocks are. On disk: a JSON array in this order.

    A process may hold hundreds of thousands, which are part of no cycle: garbage collections pass them over.
    """

    base_offset: int
    count: int
    file: str | None
    """The sealed file, relative to the log's root; ``None``: the blocks follow this entry."""
    start: int
    """Where the blocks begin in the sealed file; 0 for blocks that follow."""
    length: int
    min_timestamp: int
    max_timestamp: int
    append_time: int
    stamp: tuple[str, str, int] | None
    raw_length: int = 0
    """What the blocks take uncompressed; 0, or missing in older files: as much as in the file."""

    @property
    def raw_bytes(self) -> int:
        """What the blocks take in memory."""
        return self.raw_length or self.length

    @property
    def next_offset(self) -> int:
        """The offset after the last record of the entry."""
        return self.base_offset + self.count


def sealed_entry(
    sealed: SealedRange, base_offset: int, min_timestamp: int, max_timestamp: int, append_time: int
) -> Entry:
    """Return the entry of rows that stand in a sealed file."""
    by = sealed.stamp
    return Entry(
        base_offset,
        sealed.count,
        sealed.file,
        sealed.start,
        sealed.length,
        min_timestamp,
        max_timestamp,
        append_time,
        (by.publisher, by.task, by.epoch),
    )


class Located(NamedTuple):
    """An entry and where things are: the file of its blocks, their place, and where the entry ends."""

    entry: Entry
    data_start: int
    end: int


def located_behind(entry: Entry, frame_end: int) -> Located:
    """Where the blocks of an entry are whose own bytes end here."""
    if entry.file is None:
        return Located(entry, frame_end, frame_end + entry.length)
    return Located(entry, entry.start, frame_end)


class SegmentName(NamedTuple):
    """What a segment's file name says: its first offset and, if it was rewritten, its end and how often."""

    base: int
    end: int = 0
    """The offset behind the last one; 0 for a segment that is as it was written."""
    generation: int = 0

    @property
    def file_name(self) -> str:
        """The name of the file.

        >>> SegmentName(4096).file_name
        '00000000000000004096.segment'
        >>> SegmentName(0, 4096, 2).file_name
        '00000000000000000000-00000000000000004096.2.segment'
        """
        if not self.generation:
            return f"{self.base:0{_DIGITS}d}{_SUFFIX}"
        return f"{self.base:0{_DIGITS}d}-{self.end:0{_DIGITS}d}.{self.generation}{_SUFFIX}"

    def replaces(self, other: SegmentName) -> bool:
        """Whether the other one's records are in this one, too."""
        return self.generation > other.generation and self.base <= other.base < self.end


def segment_name(base_offset: int) -> str:
    """Return the file name of the segment that begins at an offset, as it is first written."""
    return f"{base_offset:020d}{_SUFFIX}"


def parse_segment_name(name: str) -> SegmentName | None:
    """Return what a file name says; ``None`` if it is not a segment's.

    >>> parse_segment_name("00000000000000004096.segment")
    SegmentName(base=4096, end=0, generation=0)
    >>> parse_segment_name("lock")
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    base, end, generation = match.groups()
    return SegmentName(int(base), int(end or 0), int(generation or 0))


class FilePosition(NamedTuple):
    """A byte of a file, for messages: as text only if there is one."""

    position: int
    path: Path

    def __str__(self) -> str:
        return f"byte {self.position} of {self.path}"


class ReadBuffer:
    """An open file, read through a window: one system call per MB and not per frame.

    Whoever knows up to which byte it will read says so: then no more is asked for. What the window holds
    can still be had when the file is closed.
    """

    _BYTES: Final = 1 << 20

    def __init__(
        self, path: Path, files: FileLayer, *, window_bytes: int = _BYTES, end: int | None = None
    ) -> None:
        self.path = path
        self._files = files
        self._window_bytes = window_bytes
        self._end = end
        self._fd = files.open(path, os.O_RDONLY)
        self._data = memoryview(b"")
        self._start = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close(self._fd)

    def size(self, at_least: int = 0) -> int:
        """Return the file's length; an error if the file is shorter than what was acknowledged."""
        size = self._files.size(self._fd)
        if size < at_least:
            raise _cut_short(self.path, size, at_least)
        return size

    def at(self, position: int) -> FilePosition:
        """Name a position, for messages."""
        return FilePosition(position, self.path)

    def get(self, position: int, length: int) -> memoryview:
        """Return ``length`` bytes from ``position``; fewer only at the file's end."""
        offset = position - self._start
        if offset < 0 or offset + length > len(self._data):
            wanted = (
                self._window_bytes if self._end is None else min(self._window_bytes, self._end - position)
            )
            self._data = memoryview(self._files.pread(self._fd, max(length, wanted), position))
            self._start, offset = position, 0
        return self._data[offset : offset + length]

    def holds(self, start: int, end: int) -> bool:
        """Whether the window has these bytes."""
        return self._start <= start and end <= self._start + len(self._data)


def read_header(path: Path, files: FileLayer) -> tuple[SegmentHeader, int]:
    """Return a segment's header and where it ends."""
    where = f"the header of {path}"
    with ReadBuffer(path, files) as window:
        length = HEADER.payload_length(window.get(0, FRAME_HEADER_BYTES), where) + FRAME_HEADER_BYTES
        return HEADER.decode(window.get(0, length), SegmentHeader, where), length


class _EntryPosition(FilePosition):
    """Where an entry is."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"the entry at {super().__str__()}"


def scan(window: ReadBuffer, start: int, end: int, base_offset: int) -> Iterator[Located]:
    """Yield the entries between two positions of a segment; ``base_offset`` is what the first must have.

    Blocks are stepped over, not read. Raises a DamagedFileError or DamagedLogError at the first thing that
    is not as it should be; what was yielded before is good.
    """
    position = start
    while position < end:
        where = _EntryPosition(position, window.path)
        length = ENTRY.payload_length(window.get(position, min(FRAME_HEADER_BYTES, end - position)), where)
        frame = window.get(position, min(FRAME_HEADER_BYTES + length, end - position))
        entry = ENTRY.decode(frame, Entry, where)
        located = _located(entry, position + len(frame), where)
        if entry.base_offset != base_offset:
            raise DamagedLogError(
                f"{where} begins at offset {entry.base_offset}, but {base_offset} is next. Likely cause: a "
                "part of the file was lost or is from another file. Remedy: restore the file from a backup."
            )
        if located.end > end:
            raise _cut_short(window.path, end, located.end)
        yield located
        position, base_offset = located.end, entry.next_offset


def entries_behind(path: Path, start: int, files: FileLayer) -> Iterator[Entry]:
    """Yield the entries that stand whole behind a position, whatever lies between them."""
    with ReadBuffer(path, files) as window:
        rest = bytes(window.get(start, window.size() - start))
    position = rest.find(ENTRY.magic)
    while position >= 0:
        where = f"the entry at byte {start + position} of {path}"
        with suppress(DamagedFileError):
            yield ENTRY.parse(ENTRY.unwrap_at(rest, position, where)[0], Entry, where)
        position = rest.find(ENTRY.magic, position + 1)


def block_headers(window: ReadBuffer, located: Located) -> Iterator[tuple[int, BlockHeader, int]]:
    """Yield position, header and base offset of each block of an entry; check that they fill it."""
    position = located.data_start
    end = position + located.entry.length
    base = located.entry.base_offset
    raw = 0
    while position < end:
        header = decode_header(window.get(position, BLOCK_HEADER_BYTES), window.at(position))
        yield position, header, base
        position += header.length
        base += header.span
        raw += header.raw_length
    if (position, base, raw) != (end, located.entry.next_offset, located.entry.raw_bytes):
        raise DamagedLogError(
            f"The blocks at {window.at(located.data_start)} hold {base - located.entry.base_offset} "
            f"records, {raw} bytes uncompressed, and end at byte {position}; the index says "
            f"{located.entry.count} records, {located.entry.raw_bytes} bytes and byte {end}. Likely cause: "
            "the file was replaced. Remedy: restore it from a backup."
        )


def _cut_short(path: Path, size: int, expected: int) -> DamagedLogError:
    return DamagedLogError(
        f"{path} has {size} bytes, but {expected} were acknowledged. Likely cause: the file was cut, or "
        "copied while it was written. Remedy: restore it from a backup."
    )


def _located(entry: Entry, frame_end: int, where: object) -> Located:
    if entry.count < 1 or not 0 <= entry.length <= entry.raw_bytes <= MAX_ENTRY_DATA_BYTES:
        raise DamagedLogError(
            f"{where} claims {entry.count} records in {entry.length} bytes, {entry.raw_bytes} uncompressed. "
            "Likely cause: a fault of the disk. Remedy: restore the file from a backup."
        )
    return located_behind(entry, frame_end)
