"""Reading one partition: by offset and by time, without locks and without copying.

The index says which blocks are needed; they are read through a window of a MB and handed out as Arrow
batches, small ones joined so that a caller never pays per entry. Questions of time are answered from the
index and the block headers as far as they go; at most two blocks are opened. What was asked for is checked
before the first batch: a range that is gone, or not there yet, is an error. Blocks that were compressed when
they were rewritten are the exception: they are copied, and count as many bytes as they take then.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Concatenate, Final, NamedTuple, ParamSpec, TypeVar

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from millstream.log.api import LogRecordBatch, TimestampType
from millstream.log.blocks import (
    BLOCK_HEADER_BYTES,
    SCHEMA,
    BlockHeader,
    decode_header,
    decode_rows,
    rows_within,
)
from millstream.log.embedded.partition import PartitionFiles
from millstream.log.embedded.segment import Entry, Located, ReadBuffer, block_headers
from millstream.log.errors import DamagedLogError, OffsetOutOfRangeError
from millstream.types import Offset

_SMALL_ROWS: Final = 4096
_SMALL_BYTES: Final = 256 << 10
_JOINED_ROWS: Final = 32_768
_JOINED_BYTES: Final = 4 << 20

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class _GoneError(Exception):
    """A file that the index named is gone: somebody rewrote the segment, or retention removed it."""

    path: Path


class Stored(NamedTuple):
    """Records of a block: from an offset on, or, where compaction left gaps, with an offset each."""

    records: pa.RecordBatch
    base_offset: int
    sparse_offsets: pa.Array | None
    append_time: int
    next_offset: int
    """Where the block ends."""

    def offset_of(self, row: int) -> Offset:
        """Return the offset of a record."""
        if self.sparse_offsets is not None:
            return Offset(self.sparse_offsets[row].as_py())
        return Offset(self.base_offset + row)

    def offsets(self) -> pa.Array:
        """Return the offset of each record."""
        if self.sparse_offsets is not None:
            return self.sparse_offsets
        return pl.int_range(self.base_offset, self.base_offset + self.records.num_rows, eager=True).to_arrow()


def joined(parts: Sequence[Stored]) -> Stored:
    """Records of blocks that stand one behind the other, as those of one block of the last one's time."""
    first, last = parts[0], parts[-1]
    if len(parts) == 1:
        return first
    records = pa.concat_batches([part.records for part in parts])
    offsets: pa.Array | None = None
    if any(part.sparse_offsets is not None for part in parts):
        offsets = pa.concat_arrays([part.offsets() for part in parts])
    return Stored(records, first.base_offset, offsets, last.append_time, last.next_offset)


class _Block(NamedTuple):
    """A block and where it is; its body has not been read."""

    base_offset: int
    header: BlockHeader
    entry: Entry
    window: ReadBuffer
    position: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.header.span

    def part(self, start: int, end: int) -> Stored:
        """Return those records that are in a range of offsets."""
        block = self.window.get(self.position, self.header.length)
        rows = decode_rows(self.header, block, self.window.at(self.position))
        records, first, offsets = rows.records, self.base_offset, None
        if rows.offset_deltas is not None:
            offsets = pc.add(rows.offset_deltas.cast(pa.int64()), self.base_offset)
            inside = pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end))
            records, offsets = records.filter(inside), offsets.filter(inside)
        elif self.base_offset < start or self.next_offset > end:
            first = max(start, self.base_offset)
            records = records.slice(first - self.base_offset, min(end, self.next_offset) - first)
        return Stored(records, first, offsets, self.entry.append_time, self.next_offset)


class _Found(NamedTuple):
    """The entries that hold a range up to ``end``, each with the file of its blocks."""

    end: Offset
    entries: list[tuple[Path, Located]]
    tail: ReadBuffer | None
    """What was read to find them: the blocks of the last ones may be in it."""

    def only_block(self) -> _Block | None:
        """The block of the range, if it was read already: who follows a partition finds it so."""
        if self.tail is None or len(self.entries) != 1:
            return None
        tail, (path, (entry, start, _)) = self.tail, self.entries[0]
        if tail.path is not path or not tail.holds(start, start + entry.length):
            return None
        header = decode_header(tail.get(start, BLOCK_HEADER_BYTES), tail.at(start))
        if (header.length, header.raw_length, header.span) != (entry.length, entry.raw_bytes, entry.count):
            return None  # several; or something is wrong, and whoever reads them one by one says what
        return _Block(entry.base_offset, header, entry, tail, start)


def _again_if_replaced(
    ask: Callable[Concatenate[PartitionReader, P], T],
) -> Callable[Concatenate[PartitionReader, P], T]:
    """Let a question be asked again if a file was replaced meanwhile."""

    @wraps(ask)
    def asked(reader: PartitionReader, /, *args: P.args, **options: P.kwargs) -> T:
        missing: Path | None = None
        while True:
            try:
                return ask(reader, *args, **options)
            except _GoneError as gone:
                if gone.path == missing:
                    raise reader.missing(gone.path) from None
                missing = gone.path

    return asked


class PartitionReader:
    """Reads one partition."""

    def __init__(self, partition: PartitionFiles) -> None:
        self._partition = partition
        self._topic_partition = partition.info.topic_partition
        self.is_append_time = partition.info.timestamp_type is TimestampType.LOG_APPEND_TIME

    def read(self, start: Offset, end: Offset | None) -> Iterator[LogRecordBatch]:
        """Return the records of a range, in batches. The range is checked now, the files are read later."""
        return self._batches(start, self._asked(start, end))

    @_again_if_replaced
    def offset_for_time(self, timestamp: int, start: Offset | None) -> Offset | None:
        """Return the first offset from ``start`` on whose timestamp is not below ``timestamp``."""
        earliest, latest = self._partition.bounds()
        start = earliest if start is None else start
        self._checked(start, latest)
        candidates = [
            item for item in self._find(start, latest).entries if item[1].entry.max_timestamp >= timestamp
        ]
        with closing(self._blocks(candidates, start, latest)) as blocks:
            for block in blocks:
                if block.header.max_timestamp < timestamp and not self.is_append_time:
                    continue
                part = block.part(start, latest)
                if not part.records.num_rows:
                    continue
                if self.is_append_time:
                    return part.offset_of(0)
                row = pc.index(pc.greater_equal(part.records.column(2), timestamp), True).as_py()
                if row >= 0:
                    return part.offset_of(row)
        return None

    @_again_if_replaced
    def max_timestamp(self, start: Offset, end: Offset) -> int | None:
        """Return the largest timestamp in a range; ``None`` if it is empty."""
        highest = -1
        in_part: list[tuple[Path, Located]] = []
        for path, located in self._find(start, end, is_checked=False, up_to=end).entries:
            entry = located.entry
            if self.is_append_time or (start <= entry.base_offset and entry.next_offset <= end):
                highest = max(highest, entry.max_timestamp)
            else:
                in_part.append((path, located))
        for block in self._blocks(in_part, start, end):
            if block.header.max_timestamp > highest:
                highest = max(highest, _max_within(block, start, end))
        return highest if highest >= 0 else None

    @_again_if_replaced
    def append_time(self, offset: Offset) -> int:
        """Return when a record was appended or published."""
        located = self._partition.known(offset)
        if located is None:
            located = self._find(offset, Offset(offset + 1), is_checked=False).entries[0][1]
        return located.entry.append_time

    @_again_if_replaced
    def end_within(self, start: Offset, end: Offset, max_bytes: int) -> Offset:
        """Return an offset beyond ``start`` such that the records up to it fit, or are a single one.

        Whole entries, then whole blocks of the first that does not fit; if not even one block does, records.
        """
        left, reached = max_bytes, start
        for item in self._find(start, end, is_checked=False, up_to=end).entries:
            entry = item[1].entry
            if entry.raw_bytes > left:
                break
            left -= entry.raw_bytes
            reached = Offset(min(end, entry.next_offset))
        else:
            return reached
        with closing(self._blocks([item], reached, end)) as blocks:
            for block in blocks:
                if block.header.raw_length > left:
                    return reached if reached > start else self._end_within_block(block, start, end, left)
                left -= block.header.raw_length
                reached = Offset(min(end, block.next_offset))
        return reached

    def _end_within_block(self, block: _Block, start: Offset, end: Offset, left: int) -> Offset:
        part = block.part(start, end)
        rows = rows_within(part.records, left) if part.records.num_rows else 0
        if rows == part.records.num_rows:
            return Offset(min(end, block.next_offset))
        return part.offset_of(rows)

    def stored(self, start: int, end: int) -> Iterator[Stored]:
        """Give records block by block, as they are stored, for whoever rewrites them."""
        for block in self._blocks(self._find(start, end).entries, start, end):
            yield block.part(start, end)

    @_again_if_replaced
    def all_entries(self) -> list[Entry]:
        """Return the entries from the partition's first offset on."""
        return [located.entry for _, located in self._find(*self._partition.bounds()).entries]

    @_again_if_replaced
    def raw_size(self) -> int:
        """Return how many bytes the records from the partition's first offset on take uncompressed."""
        size = 0
        with self._partition.index() as index, _gone_if_missing():
            assert index.mark is not None
            start, end = index.mark.start_offset, index.mark.next_offset
            for segment in index.segments(start):
                if segment.base >= start:
                    size += segment.raw_bytes
                else:
                    size += sum(located.entry.raw_bytes for located in segment.between(start, end))
        return size

    def _checked(self, start: int, end: int | None) -> Offset:
        return self._within(*self._partition.bounds(), start, end)

    def _within(self, earliest: int, latest: int, start: int, end: int | None) -> Offset:
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
                f"read from {earliest} on; an application does so under another app_id, with state that "
                "begins anew (offset_reset='earliest'). Give the topic a longer retention."
            )
        raise OffsetOutOfRangeError(
            f"The offsets {start} to {end} of {self._topic_partition} are not all there: it ends at "
            f"{latest}. Likely cause: the topic was deleted and made anew, or restored from an older "
            f"backup. Remedy: begin at an offset from {earliest} to {latest}."
        )

    @_again_if_replaced
    def _asked(self, start: Offset, end: Offset | None) -> _Found:
        return self._find(start, end, is_checked=False)

    def _batches(self, start: Offset, found: _Found) -> Iterator[LogRecordBatch]:
        """Read on behind the last batch if a file was replaced meanwhile."""
        only = found.only_block()
        if only is not None:
            part = self._timed(only.part(start, found.end))
            yield self._batch(start, Offset(min(found.end, part.next_offset)), [part])
            return
        position, end = start, found.end
        missing: Path | None = None
        latest: _Found | None = found
        while position < end:
            try:
                latest = latest or self._find(position, end)
                for batch in self._joined(position, latest):
                    yield batch
                    position = batch.next_offset
            except _GoneError as gone:
                if gone.path == missing:
                    raise self.missing(gone.path, position) from None
                missing, latest = gone.path, None

    def _joined(self, start: Offset, found: _Found) -> Iterator[LogRecordBatch]:
        parts: list[Stored] = []
        rows = size = 0
        base = reached = start
        end = found.end
        for block in self._blocks(found.entries, start, end, found.tail):
            part = self._timed(block.part(start, end))
            is_large = part.records.num_rows > _SMALL_ROWS or block.header.raw_length > _SMALL_BYTES
            if parts and (is_large or rows >= _JOINED_ROWS or size >= _JOINED_BYTES):
                yield self._batch(base, reached, parts)
                parts, base, rows, size = [], reached, 0, 0
            parts.append(part)
            reached = Offset(min(end, part.next_offset))
            rows += part.records.num_rows
            size += block.header.raw_length
        if parts:
            yield self._batch(base, reached, parts)

    def _batch(self, base: Offset, end: Offset, parts: list[Stored]) -> LogRecordBatch:
        stored = joined(parts)
        if stored.sparse_offsets is None:
            return LogRecordBatch(self._topic_partition, base, stored.records)
        return LogRecordBatch(self._topic_partition, base, stored.records, stored.sparse_offsets, end)

    def _timed(self, part: Stored) -> Stored:
        """Return the records with the topic's kind of timestamp."""
        if not self.is_append_time:
            return part
        records = part.records
        times = pa.repeat(pa.scalar(part.append_time, pa.int64()), records.num_rows)
        columns = [records.column(0), records.column(1), times, records.column(3)]
        return part._replace(records=pa.RecordBatch.from_arrays(columns, schema=SCHEMA))

    def missing(self, path: Path, start: Offset | None = None) -> Exception:
        """Return the error for a file that is gone, though nobody replaced it."""
        if start is not None:
            self._checked(start, None)  # gone by retention while we read: then this says so
        return DamagedLogError(
            f"{path} is missing, but {self._topic_partition} still needs it. Likely cause: it was deleted by "
            "hand. Remedy: restore it from a backup."
        )

    def _find(
        self, start: int, end: int | None, *, is_checked: bool = True, up_to: int | None = None
    ) -> _Found:
        """Find the entries that hold a range.

        A range that is not checked yet is checked against the same look at the partition: as of now or, with
        ``up_to``, a look that has seen that offset.
        """
        entries: list[tuple[Path, Located]] = []
        if start == end and is_checked:
            return _Found(Offset(start), entries, None)
        root = self._partition.info.root
        with self._partition.index(up_to) as index:
            tail = index.tail
            mark = index.mark
            assert mark is not None
            if not is_checked or end is None:
                end = self._within(mark.start_offset, mark.next_offset, start, end)
                if start == end:
                    return _Found(Offset(end), entries, None)
            try:
                for segment in index.segments(start):
                    for located in segment.between(start, end):
                        file = located.entry.file
                        path = segment.path if file is None else sealed_path(root, file)
                        entries.append((path, located))
                    if segment.next_offset >= end:
                        break
            except FileNotFoundError as error:
                raise _GoneError(Path(error.filename)) from None
        if not entries or entries[0][1].entry.base_offset > start or entries[-1][1].entry.next_offset < end:
            self._checked(start, end)  # gone by retention since we looked: then this says so
            raise DamagedLogError(
                f"No segment of {self._topic_partition} holds the offsets {start} to {end}. Likely cause: a "
                "file was deleted by hand. Remedy: restore it from a backup."
            )
        return _Found(Offset(end), entries, tail)

    def _blocks(
        self, entries: list[tuple[Path, Located]], start: int, end: int, tail: ReadBuffer | None = None
    ) -> Generator[_Block, None, None]:
        """Yield the blocks that hold a range, with one open file at a time, unless the ``tail`` has them."""
        for path, of_file in _by_file(entries):
            last = max(located.data_start + located.entry.length for located in of_file)
            if tail is not None and tail.path is path and tail.holds(of_file[0].data_start, last):
                yield from _blocks_of(tail, of_file, start, end)
                continue
            try:
                window = ReadBuffer(path, self._partition.files, end=last)
            except FileNotFoundError as error:
                raise _GoneError(Path(error.filename)) from None
            with window:
                yield from _blocks_of(window, of_file, start, end)


def _by_file(entries: Sequence[tuple[Path, Located]]) -> Iterator[tuple[Path, list[Located]]]:
    """Entries that stand one behind the other and have their blocks in the same file, together."""
    together: list[Located] = []
    before: Path | None = None
    for path, located in entries:
        if before is not None and path != before:
            yield before, together
            together = []
        before = path
        together.append(located)
    if before is not None:
        yield before, together


def _blocks_of(window: ReadBuffer, entries: Sequence[Located], start: int, end: int) -> Iterator[_Block]:
    for located in entries:
        for position, header, base in block_headers(window, located):
            if base < end and base + header.span > start:
                yield _Block(base, header, located.entry, window, position)


@contextmanager
def _gone_if_missing() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise _GoneError(Path(error.filename)) from None


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
    """Return the largest timestamp of those records of a block that are in the range; -1 if there is none."""
    header = block.header
    if not header.is_sparse and start <= block.base_offset + header.max_at < end:
        return header.max_timestamp
    records = block.part(start, end).records
    return int(pc.max(records.column(2)).as_py()) if records.num_rows else -1
