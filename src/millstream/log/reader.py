"""Reading one partition: by offset and by time, without locks and without copying.

The index says which blocks are needed; they are read through a window of a MB and handed out as Arrow
batches, small ones joined so that a caller never pays per entry. Questions of time are answered from the
index and the block headers as far as they go; at most two blocks are opened. What was asked for is checked
before the first batch: a range that is gone, or not there yet, is an error.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.durable import FileLayer
from millstream.log.api import LogRecordBatch, TimestampType
from millstream.log.blocks import SCHEMA, BlockHeader, decode_block, rows_within
from millstream.log.errors import DamagedLogError, OffsetOutOfRangeError
from millstream.log.partition import PartitionFiles
from millstream.log.segment import Entry, Located, Window, block_headers
from millstream.types import Offset

__all__ = ["PartitionReader", "sealed_path"]

_SMALL_ROWS: Final = 4096
_SMALL_BYTES: Final = 256 << 10
_JOINED_ROWS: Final = 32_768
_JOINED_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class _Block:
    """A block and where it is; its body has not been read."""

    base_offset: int
    header: BlockHeader
    entry: Entry
    window: Window
    position: int
    path: Path

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.header.rows

    def records(self) -> pa.RecordBatch:
        where = f"byte {self.position} of {self.path}"
        return decode_block(self.header, self.window.get(self.position, self.header.length), where)


class PartitionReader:
    """Reads one partition of a log whose sealed files are below ``root``."""

    def __init__(self, partition: PartitionFiles, root: Path, files: FileLayer) -> None:
        self._partition = partition
        self._topic_partition = partition.place.topic_partition
        self._append_time = partition.place.timestamp_type is TimestampType.LOG_APPEND_TIME
        self._root = root
        self._files = files

    def read(self, start: Offset, end: Offset | None) -> Iterator[LogRecordBatch]:
        """Return the records of a range, in batches. The range is checked now, the files are read later."""
        end = self._checked(start, end)
        return self._batches(self._entries(start, end), start, end)

    def offset_for_time(self, timestamp: int, start: Offset | None) -> Offset | None:
        """Return the first offset from ``start`` on whose timestamp is not below ``timestamp``."""
        earliest, latest = self._partition.bounds()
        start = earliest if start is None else start
        self._checked(start, latest)
        candidates = [
            item for item in self._entries(start, latest) if item[1].entry.max_timestamp >= timestamp
        ]
        for block in self._blocks(candidates, start, latest):
            first = max(start - block.base_offset, 0)
            if self._append_time:
                return Offset(block.base_offset + first)
            if block.header.max_timestamp < timestamp:
                continue
            late = pc.greater_equal(block.records().column(2).slice(first), timestamp)
            row = pc.index(late, True).as_py()
            if row >= 0:
                return Offset(block.base_offset + first + row)
        return None

    def max_timestamp(self, start: Offset, end: Offset) -> int | None:
        """Return the largest timestamp in a range; ``None`` if it is empty."""
        self._checked(start, end)
        highest = -1
        in_part: list[tuple[Path, Located]] = []
        for path, located in self._entries(start, end):
            entry = located.entry
            if self._append_time or (start <= entry.base_offset and entry.next_offset <= end):
                highest = max(highest, entry.max_timestamp)
            else:
                in_part.append((path, located))
        for block in self._blocks(in_part, start, end):
            if block.header.max_timestamp > highest:
                highest = max(highest, _max_within(block, start, end))
        return highest if start < end else None

    def append_time(self, offset: Offset) -> int:
        """Return when a record was appended or published."""
        following = Offset(offset + 1)
        self._checked(offset, following)
        return self._entries(offset, following)[0][1].entry.append_time

    def end_within(self, start: Offset, end: Offset, max_bytes: int) -> Offset:
        """Return an offset beyond ``start`` such that the records up to it fit, or are a single one."""
        self._checked(start, end)
        left = max_bytes
        reached = start
        for item in self._entries(start, end):
            entry = item[1].entry
            if entry.length > left:
                return self._end_within_entry(item, reached, end, left, is_first=reached == start)
            left -= entry.length
            reached = Offset(min(end, entry.next_offset))
        return reached

    def _end_within_entry(
        self, item: tuple[Path, Located], start: Offset, end: Offset, left: int, *, is_first: bool
    ) -> Offset:
        """How far whole blocks of an entry reach; if not even the first one does, how far its records do."""
        reached = start
        with closing(self._blocks([item], start, end)) as blocks:
            for block in blocks:
                if block.header.length > left:
                    if is_first and reached == start:
                        first = max(start - block.base_offset, 0)
                        return Offset(min(end, start + rows_within(block.records().slice(first), left)))
                    break
                left -= block.header.length
                reached = Offset(min(end, block.next_offset))
        return reached

    def sealed_files(self) -> set[str]:
        """Return the sealed files that any entry points into, from the partition's first offset on."""
        earliest, latest = self._partition.bounds()
        entries = (located.entry for _, located in self._entries(earliest, latest))
        return {entry.file for entry in entries if entry.file is not None}

    def _checked(self, start: int, end: int | None) -> Offset:
        earliest, latest = self._partition.bounds()
        if end is None:
            end = max(start, latest)
        if earliest <= start <= end <= latest:
            return Offset(end)
        if start > end:
            raise OffsetOutOfRangeError(
                f"The range from {start} to {end} of {self._topic_partition} is backwards."
            )
        if start < earliest:
            raise OffsetOutOfRangeError(
                f"The offsets {start} to {min(end, earliest)} of {self._topic_partition} are gone: it "
                f"begins at {earliest}. Likely cause: retention removed them before they were read. Remedy: "
                f"begin at {earliest} and accept the loss, or restore from a savepoint; give the topic a "
                "longer retention."
            )
        raise OffsetOutOfRangeError(
            f"The offsets {start} to {end} of {self._topic_partition} are not all there: it ends at "
            f"{latest}. Likely cause: the topic was deleted and made anew, or restored from an older "
            f"backup. Remedy: begin at an offset from {earliest} to {latest}."
        )

    def _batches(self, entries: list[tuple[Path, Located]], start: int, end: int) -> Iterator[LogRecordBatch]:
        joined: list[pa.RecordBatch] = []
        rows = size = 0
        base = start
        for block in self._blocks(entries, start, end):
            records = self._cut(block, start, end)
            is_large = records.num_rows > _SMALL_ROWS or block.header.length > _SMALL_BYTES
            if joined and (is_large or rows >= _JOINED_ROWS or size >= _JOINED_BYTES):
                yield self._batch(base, joined)
                joined, base, rows, size = [], base + rows, 0, 0
            joined.append(records)
            rows += records.num_rows
            size += block.header.length
        if joined:
            yield self._batch(base, joined)

    def _batch(self, base: int, parts: list[pa.RecordBatch]) -> LogRecordBatch:
        records = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        return LogRecordBatch(self._topic_partition, Offset(base), records)

    def _cut(self, block: _Block, start: int, end: int) -> pa.RecordBatch:
        """Return those records of a block that are in the range, with the topic's kind of timestamp."""
        records = block.records()
        if self._append_time:
            times = pa.repeat(pa.scalar(block.entry.append_time, pa.int64()), records.num_rows)
            records = pa.RecordBatch.from_arrays(
                [records.column(0), records.column(1), times, records.column(3)], schema=SCHEMA
            )
        if block.base_offset >= start and block.next_offset <= end:
            return records
        first = max(start - block.base_offset, 0)
        return records.slice(first, min(end, block.next_offset) - block.base_offset - first)

    def _entries(self, start: int, end: int) -> list[tuple[Path, Located]]:
        """Return the entries that hold a range, each with the file of its blocks."""
        found: list[tuple[Path, Located]] = []
        if start == end:
            return found
        with self._partition.index() as index:
            for segment in index.segments(start):
                for located in segment.between(start, end):
                    file = located.entry.file
                    found.append((segment.path if file is None else sealed_path(self._root, file), located))
                if segment.next_offset >= end:
                    break
        if not found or found[0][1].entry.base_offset > start or found[-1][1].entry.next_offset < end:
            self._checked(start, end)  # gone by retention since we looked: then this says so
            raise DamagedLogError(
                f"No segment of {self._topic_partition} holds the offsets {start} to {end}. Likely cause: a "
                "file was deleted by hand. Remedy: restore it from a backup."
            )
        return found

    def _blocks(
        self, entries: list[tuple[Path, Located]], start: int, end: int
    ) -> Generator[_Block, None, None]:
        """Yield the blocks that hold a range, with one open file at a time."""
        with ExitStack() as stack:
            window: Window | None = None
            opened: Path | None = None
            for path, located in entries:
                if window is None or path != opened:
                    stack.close()
                    window = stack.enter_context(self._open(path, start))
                    opened = path
                for position, header, base in block_headers(window, path, located):
                    if base < end and base + header.rows > start:
                        yield _Block(base, header, located.entry, window, position, path)

    def _open(self, path: Path, start: int) -> Window:
        try:
            return Window(path, self._files)
        except FileNotFoundError:
            self._checked(start, None)  # gone by retention while we read: then this says so
            raise DamagedLogError(
                f"{path} is missing, but {self._topic_partition} still needs it. Likely cause: it was "
                "deleted by hand. Remedy: restore it from a backup."
            ) from None


def sealed_path(root: Path, file: str) -> Path:
    """Return where a sealed file is; refuse a name that leads out of the log's folder."""
    parts = file.split("/")
    if not file or any(part in ("", ".", "..") for part in parts):
        raise DamagedLogError(
            f"{file!r} is not the name of a file below the log's folder. Remedy: give a relative path with "
            "'/' between its parts."
        )
    return root.joinpath(*parts)


def _max_within(block: _Block, start: int, end: int) -> int:
    """Return the largest timestamp of those records of a block that are in the range."""
    if start <= block.base_offset + block.header.max_at < end:
        return block.header.max_timestamp
    first = max(start - block.base_offset, 0)
    last = min(end, block.next_offset) - block.base_offset
    return int(pc.max(block.records().column(2).slice(first, last - first)).as_py())
