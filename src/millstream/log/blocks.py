"""Blocks: how records stand in files.

A block is a header of 64 bytes and an Arrow IPC record batch, padded to a multiple of 64 so that the next
block's columns are aligned. The same bytes stand in the log's segments and in the sealed files of tasks,
which is why publishing copies nothing::

    magic (4) | version (1) | flags (1) | zero (2) | rows (4) | body length (4) | min timestamp (8)
    | max timestamp (8) | append time (8) | row of the first max (4) | span (4) | raw body length (4)
    | zero (4) | CRC of the body (4) | CRC of the header (4) | body | zeros

The header answers questions of time without touching the body. The schema is fixed and not written; a block
whose records have no headers leaves that column out (flag 1). Every length is bounded before it is believed.

A block covers as many offsets as it has rows, unless compaction removed some: then it says how many it covers
(its span) and has a column with the offset delta of each row: its offset less that of the block (flag 2).

A block that is rewritten may have its body compressed as a whole, with zstd (flag 4, version 2). Then the
header says how long it was (raw body length, else zero), and the checksum is that of the bytes as they stand
in the file.
What is appended or sealed is never compressed: it is read without a copy.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from millstream.durable import Chunk, FormatVersionError, checksum
from millstream.errors import InvalidTimestampError
from millstream.log.errors import DamagedLogError, RecordTooLargeError
from millstream.log.few_records import FEW_ROWS, FewRecords
from millstream.record import Headers

HEADERS_TYPE: Final = pa.list_(
    pa.struct([pa.field("key", pa.utf8(), nullable=False), ("value", pa.binary())])
)
SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        pa.field("timestamp", pa.int64(), nullable=False),
        ("headers", HEADERS_TYPE),
    ]
)
"""The columns of every batch of records in a log."""
_PLAIN: Final = pa.schema(list(SCHEMA)[:3])
_HEADERS: Final = SCHEMA.field("headers")
_OFFSET_DELTA: Final = pa.field("offset_delta", pa.uint32(), nullable=False)

MAX_RECORD_BYTES: Final = 16 << 20
"""The bound of one record's key, value and headers together."""
MAX_BLOCK_BYTES: Final = 64 << 20
"""The bound of a block's body, compressed or not; what claims more is damaged."""
TARGET_BLOCK_BYTES: Final = 4 << 20
"""Larger batches are cut into blocks of about this size."""
MAX_BLOCK_ROWS: Final = 100_000
MAX_SPAN: Final = (1 << 32) - 1
"""How many offsets a block can cover."""

_HEADER: Final = struct.Struct("<4sBB2xIIqqqIII4xI")
_CHECKSUM: Final = struct.Struct("<I")
BLOCK_HEADER_BYTES: Final = 64
_MAGIC: Final = b"MSBK"
_VERSIONS: Final = (1, 2)
"""The second is that of compressed blocks."""
_CODEC: Final = "zstd"
_LEVEL: Final = 1
"""The fastest; higher ones take little more off."""
_WORTH_IT: Final = 0.97
"""What is left by compression must be no more than this part, or the body is left as it is: it is then read
without a copy."""
_NO_HEADERS: Final = 1
_SPARSE: Final = 2
_COMPRESSED: Final = 4
_ALIGNMENT: Final = 64
_TIMESTAMP_BYTES: Final = 8


Records: TypeAlias = pa.RecordBatch | FewRecords
"""What blocks are made of."""


class BlockHeader(NamedTuple):
    """What a block says about itself."""

    rows: int
    body_length: int
    min_timestamp: int
    max_timestamp: int
    append_time: int
    max_at: int
    """The row at which the timestamp first reaches its maximum."""
    has_headers: bool
    body_checksum: int
    span: int
    """How many offsets the block covers."""
    is_sparse: bool = False
    """Whether rows are missing among them."""
    raw_body_length: int = 0
    """The length of the body before it was compressed; 0 if it is not."""

    @property
    def length(self) -> int:
        """The length of the whole block in the file."""
        return BLOCK_HEADER_BYTES + _padded(self.body_length)

    @property
    def raw_length(self) -> int:
        """The length that the whole block has when it is not compressed: what it takes in memory."""
        return BLOCK_HEADER_BYTES + _padded(self.raw_body_length or self.body_length)


class Rows(NamedTuple):
    """The records of a block, and the offset of each less that of the block."""

    records: pa.RecordBatch
    offset_deltas: pa.Array | None
    """``None``: one after the other."""


def record_batch(
    keys: Sequence[bytes | None] | pa.Array,
    values: Sequence[bytes | None] | pa.Array,
    timestamps: Sequence[int] | pa.Array,
    headers: Sequence[Headers] | pa.Array | None = None,
) -> pa.RecordBatch:
    """Make a batch with the log's columns out of columns of Python values or Arrow arrays.

    >>> record_batch([b"k"], [None], [5], [(("trace", b"7"),)]).to_pylist()
    [{'key': b'k', 'value': None, 'timestamp': 5, 'headers': [{'key': 'trace', 'value': b'7'}]}]
    """
    if headers is not None and not isinstance(headers, pa.Array):
        headers = [[{"key": key, "value": value} for key, value in row] or None for row in headers]
    columns = [
        _column(keys, pa.binary()),
        _column(values, pa.binary()),
        _column(timestamps, pa.int64()),
        _no_headers(len(timestamps)) if headers is None else _column(headers, HEADERS_TYPE),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def records_of(
    keys: Sequence[bytes | None] | pa.Array,
    values: Sequence[bytes | None] | pa.Array,
    timestamps: Sequence[int] | pa.Array,
    headers: Sequence[Headers] | None = None,
) -> Records:
    """The same for whoever only wants blocks of it: a few Python values stay what they are.

    >>> few, many = (make([b"k"], [b"v"], [5]) for make in (records_of, record_batch))
    >>> b"".join(encode_blocks(few, 7)[0]) == b"".join(encode_blocks(many, 7)[0])
    True
    """
    are_lists = all(isinstance(column, list) for column in (keys, values, timestamps))
    if are_lists and headers is None and 0 < len(timestamps) <= FEW_ROWS:
        return FewRecords(keys, values, timestamps)
    return record_batch(keys, values, timestamps, headers)


def encode_blocks(
    records: Records, append_time: int, *, compress: bool = False
) -> tuple[list[Chunk], list[BlockHeader]]:
    """Return the bytes of the blocks that hold ``records``, in pieces, and their headers."""
    if isinstance(records, FewRecords):
        found = None if compress else _encode_few(records, append_time)
        if found is not None:
            return found
        records = record_batch(records.keys, records.values, records.timestamps)
    chunks: list[Chunk] = []
    headers: list[BlockHeader] = []
    times = _checked(records)
    for part in _parts(records):
        header, body = _encode(part, append_time, times if part is records else None, compress=compress)
        chunks += _chunks(header, body)
        headers.append(header)
    return chunks, headers


def encode_sparse_block(
    records: pa.RecordBatch, offset_deltas: pa.Array, span: int, append_time: int, *, compress: bool = False
) -> tuple[list[Chunk], BlockHeader]:
    """Return the bytes of one block that covers ``span`` offsets and has records at some of them."""
    deltas = offset_deltas.cast(pa.uint32())
    header, body = _encode(records, append_time, None, deltas, span, compress=compress)
    return _chunks(header, body), header


def _chunks(header: BlockHeader, body: pa.Buffer | bytes) -> list[Chunk]:
    return [_pack(header), memoryview(body), bytes(_padded(header.body_length) - header.body_length)]


def decode_header(data: bytes | memoryview, where: object) -> BlockHeader:
    """Return the header at the start of ``data``."""
    if len(data) < BLOCK_HEADER_BYTES:
        raise _damaged(where, f"it ends after {len(data)} of {BLOCK_HEADER_BYTES} header bytes")
    view = memoryview(data)[:BLOCK_HEADER_BYTES]
    fields = _HEADER.unpack_from(view)
    magic, version, flags, rows, length, low, high, appended, max_at, span, raw_length, crc = fields
    if magic != _MAGIC:
        raise _damaged(where, f"it begins with {magic!r}, not with {_MAGIC!r}")
    (expected,) = _CHECKSUM.unpack_from(view, _HEADER.size)
    if checksum(view[: _HEADER.size]) != expected:
        raise _damaged(where, "the checksum of its header does not match")
    if version not in _VERSIONS:
        raise FormatVersionError(
            f"The block at {where} has format version {version}, but this Millstream reads versions "
            f"{_VERSIONS[0]} to {_VERSIONS[-1]}. Likely cause: another release wrote it. Remedy: use that "
            "release to read it."
        )
    if length > MAX_BLOCK_BYTES:
        raise _damaged(where, f"it claims {length} bytes; the bound is {MAX_BLOCK_BYTES}")
    if raw_length > MAX_BLOCK_BYTES:
        raise _damaged(where, f"it claims {raw_length} uncompressed bytes; the bound is {MAX_BLOCK_BYTES}")
    is_compressed = bool(flags & _COMPRESSED)
    if is_compressed != bool(raw_length):
        kind = "compressed" if is_compressed else "not compressed"
        raise _damaged(where, f"it claims {raw_length} uncompressed bytes, but is {kind}")
    is_sparse = bool(flags & _SPARSE)
    if (rows > span) if is_sparse else span:
        raise _damaged(where, f"it claims {rows} records and covers {span} offsets")
    has_headers = not flags & _NO_HEADERS
    span = span if is_sparse else rows
    return BlockHeader(
        rows, length, low, high, appended, max_at, has_headers, crc, span, is_sparse, raw_length
    )


def decode_blocks(data: memoryview, where: object, position: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield the records of blocks that stand one after the other; see decode_block."""
    while position < len(data):
        place = f"{where} at byte {position}"
        header = decode_header(data[position:], place)
        yield decode_block(header, data[position:], place)
        position += header.length


def decode_block(header: BlockHeader, block: bytes | memoryview, where: object) -> pa.RecordBatch:
    """Return the records of a whole block (header included); without copying, if it is not compressed."""
    return decode_rows(header, block, where).records


def decode_rows(header: BlockHeader, block: bytes | memoryview, where: object) -> Rows:
    """Return the records of a whole block (header included) and their offset deltas; see decode_block."""
    body = memoryview(block)[BLOCK_HEADER_BYTES : BLOCK_HEADER_BYTES + header.body_length]
    if len(body) < header.body_length:
        raise _damaged(where, f"it ends after {len(body)} of {header.body_length} bytes")
    if checksum(body) != header.body_checksum:
        raise _damaged(where, "the checksum of its records does not match")
    schema = SCHEMA if header.has_headers else _PLAIN
    if header.is_sparse:
        schema = schema.append(_OFFSET_DELTA)
    try:
        raw = pa.py_buffer(body)
        if header.raw_body_length:  # so many bytes are allocated: decode_header has bounded the number
            raw = pa.Codec(_CODEC).decompress(raw, header.raw_body_length)
        found = pa.ipc.read_record_batch(raw, schema)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(where, f"its records can't be read ({error})") from error
    if found.num_rows != header.rows:
        raise _damaged(where, f"it has {found.num_rows} records and claims {header.rows}")
    offset_deltas = None
    if header.is_sparse:
        offset_deltas = found.column(found.num_columns - 1)
        found = found.remove_column(found.num_columns - 1)
    if not header.has_headers:
        found = found.append_column(_HEADERS, _no_headers(header.rows))
    return Rows(found, offset_deltas)


def _column(values: Sequence[Any] | pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values if values.type == kind else values.cast(kind)
    return pa.array(values, kind)


def _no_headers(rows: int) -> pa.Array:
    return _few_nulls(rows) if rows <= FEW_ROWS else pa.nulls(rows, HEADERS_TYPE)


@cache
def _few_nulls(rows: int) -> pa.Array:
    return pa.nulls(rows, HEADERS_TYPE)


def _checked(records: pa.RecordBatch) -> _Times:
    """Refuse records that a log does not take; return their times."""
    if records.schema != SCHEMA:
        raise TypeError(
            f"A batch with the columns ({', '.join(map(str, records.schema))}) can't be appended. Remedy: "
            "make it with millstream.log.record_batch(keys, values, timestamps, headers)."
        )
    if records.column(2).null_count:
        raise InvalidTimestampError(
            "A record has no timestamp. Remedy: give it milliseconds since 1970 before it is appended."
        )
    times = _times_of(records.column(2))
    if records.num_rows and times.lowest < 0:
        raise InvalidTimestampError(
            f"A record's timestamp is {times.lowest}, but timestamps are milliseconds since 1970 and never "
            "negative. Remedy: give the record a valid time before it is appended."
        )
    return times


def _parts(records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch into blocks of a few MB."""
    if 0 < records.num_rows <= MAX_BLOCK_ROWS and _is_small(records):
        yield records
        return
    sizes = _row_sizes(records)
    rows = min(MAX_BLOCK_ROWS, max(1, records.num_rows * TARGET_BLOCK_BYTES // max(1, sum_of(sizes))))
    for start in range(0, records.num_rows, rows):
        part = records.slice(start, rows)
        # Rows of uneven size: a part that is far over the mark is cut again, down to single records.
        if part.num_rows > 1 and sum_of(sizes.slice(start, rows)) > MAX_BLOCK_BYTES // 2:
            yield from _parts(part)
        else:
            yield part


def _is_small(records: pa.RecordBatch) -> bool:
    """Whether a batch surely fits into a block: to measure each row would cost more than to write them."""
    has_headers = records.column(3).null_count < records.num_rows
    if has_headers:
        return False
    # The second is exact for a slice, too; for what is no slice the first says the same in a fraction.
    return records.get_total_buffer_size() <= TARGET_BLOCK_BYTES or int(records.nbytes) <= TARGET_BLOCK_BYTES


def _row_sizes(records: pa.RecordBatch) -> pa.Array:
    """Return the bytes of each record's key, value and headers; refuse a record over the bound."""
    lengths = [pc.fill_null(pc.binary_length(records.column(i)), 0) for i in (0, 1)]
    sizes = pc.add(lengths[0].cast(pa.int64()), lengths[1].cast(pa.int64()))
    headers = records.column(3)
    if headers.null_count < len(headers):
        extra = [
            sum(len(header["key"]) * 4 + len(header["value"] or b"") + 16 for header in row or ())
            for row in headers.to_pylist()
        ]
        sizes = pc.add(sizes, pa.array(extra, pa.int64()))
    largest = pc.max(sizes).as_py() or 0
    if largest > MAX_RECORD_BYTES:
        raise RecordTooLargeError(
            f"Record {pc.index(sizes, largest).as_py()} of the batch has {largest} bytes; the bound is "
            f"{MAX_RECORD_BYTES}. Remedy: keep large objects elsewhere and send their address."
        )
    return sizes


def rows_within(records: pa.RecordBatch, max_bytes: int) -> int:
    """Return how many records from the first on fit into ``max_bytes``: at least one.

    >>> rows_within(record_batch([None] * 3, [b"x" * 12] * 3, [1, 2, 3]), 40)
    2
    """
    sizes = pc.cumulative_sum(pc.add(_row_sizes(records), _TIMESTAMP_BYTES))
    return max(1, sum_of(pc.less_equal(sizes, max_bytes).cast(pa.int64())))


def sum_of(column: pa.Array) -> int:
    """Return the sum of a column of integers; 0 if it is empty."""
    return int(pc.sum(column).as_py() or 0)


def _encode(
    records: pa.RecordBatch,
    append_time: int,
    times: _Times | None = None,
    offset_deltas: pa.Array | None = None,
    span: int = 0,
    *,
    compress: bool,
) -> tuple[BlockHeader, pa.Buffer]:
    has_headers = records.column(3).null_count < records.num_rows
    written = records if has_headers else records.select([0, 1, 2])
    if offset_deltas is not None:
        written = written.append_column(_OFFSET_DELTA, offset_deltas)
    body = raw = written.serialize()
    if compress:
        shorter = pa.Codec(_CODEC, _LEVEL).compress(raw)
        body = shorter if shorter.size <= _WORTH_IT * raw.size else raw
    lowest, highest, highest_at = _times_of(records.column(2)) if times is None else times
    header = BlockHeader(
        rows=records.num_rows,
        body_length=body.size,
        min_timestamp=lowest,
        max_timestamp=highest,
        append_time=append_time,
        max_at=highest_at,
        has_headers=has_headers,
        body_checksum=checksum(memoryview(body)),
        span=records.num_rows if offset_deltas is None else span,
        is_sparse=offset_deltas is not None,
        raw_body_length=0 if body is raw else raw.size,
    )
    return header, body


class _Times(NamedTuple):
    """The smallest and the largest timestamp of some records, and the first row with it."""

    lowest: int = -1
    highest: int = -1
    highest_at: int = 0


def _encode_few(records: FewRecords, append_time: int) -> tuple[list[Chunk], list[BlockHeader]] | None:
    """Return the one block of a few records; None if they are large, or may not be taken."""
    try:
        body, times = records.body(), _few_times(records.timestamps)
    except (TypeError, struct.error):
        return None
    if len(body) > TARGET_BLOCK_BYTES or times.lowest < 0:
        return None
    rows = len(records)
    crc = checksum(body)
    header = BlockHeader(rows, len(body), *times[:2], append_time, times[2], False, crc, rows)
    return _chunks(header, body), [header]


def _times_of(timestamps: pa.Array) -> _Times:
    """Return the times of a block; those by default if it has no records.

    A few are looked at one by one, many by NumPy: each call of Arrow's or NumPy's has a fixed price.
    """
    if not len(timestamps):
        return _Times()
    if len(timestamps) <= FEW_ROWS:
        return _few_times(timestamps.to_pylist())
    times = timestamps.to_numpy()
    at = int(times.argmax())
    return _Times(int(times.min()), int(times[at]), at)


def _few_times(timestamps: Sequence[int]) -> _Times:
    highest = max(timestamps)
    return _Times(min(timestamps), highest, timestamps.index(highest))


def _pack(header: BlockHeader) -> bytes:
    flags = 0 if header.has_headers else _NO_HEADERS
    flags |= _SPARSE if header.is_sparse else 0
    flags |= _COMPRESSED if header.raw_body_length else 0
    packed = _HEADER.pack(
        _MAGIC,
        _VERSIONS[1] if header.raw_body_length else _VERSIONS[0],
        flags,
        header.rows,
        header.body_length,
        header.min_timestamp,
        header.max_timestamp,
        header.append_time,
        header.max_at,
        header.span if header.is_sparse else 0,
        header.raw_body_length,
        header.body_checksum,
    )
    return packed + _CHECKSUM.pack(checksum(packed))


def _padded(length: int) -> int:
    return -(-length // _ALIGNMENT) * _ALIGNMENT


def summary(headers: Sequence[BlockHeader]) -> tuple[int, int, int]:
    """Return the number of offsets, the smallest and the largest timestamp of some blocks."""
    if len(headers) == 1:
        return headers[0].span, headers[0].min_timestamp, headers[0].max_timestamp
    return (
        sum(block.span for block in headers),
        min(block.min_timestamp for block in headers),
        max(block.max_timestamp for block in headers),
    )


def _damaged(where: object, how: str) -> DamagedLogError:
    return DamagedLogError(
        f"The block at {where} is damaged: {how}. Likely cause: a fault of the disk, or another program "
        "wrote into the file. Remedy: restore the file from a backup; records before and after it can still "
        "be read."
    )
