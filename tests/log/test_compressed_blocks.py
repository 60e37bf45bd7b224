"""Compressed blocks: what their bytes mean, and what is damage."""

from __future__ import annotations

import random
import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.durable import checksum
from millstream.log.blocks import (
    BLOCK_HEADER_BYTES,
    MAX_BLOCK_BYTES,
    Rows,
    decode_header,
    decode_rows,
    encode_blocks,
    encode_sparse_block,
    record_batch,
)
from millstream.log.errors import DamagedLogError

RECORDS = record_batch([b"k%02d" % i for i in range(12)], [b"value"] * 12, range(100, 112))
PLACES = pa.array(range(0, 24, 2), pa.uint32())
HEADER = bytes.fromhex(
    "4d53424b"  # magic
    "02070000"  # version 2; no headers, sparse, compressed; zero
    "0c000000"  # 12 rows
    "0e010000"  # 270 bytes of body
    "6400000000000000"  # timestamps from 100
    "6f00000000000000"  # to 111
    "4d00000000000000"  # appended at 77
    "0b000000"  # row 11 has the largest timestamp
    "18000000"  # 24 offsets
    "a8020000"  # 680 bytes of raw body
    "00000000"  # zero
    "1174a503"  # checksum of the body
    "a3a265d9"  # checksum of the header
)
BODY = bytes.fromhex(
    "28b52ffd60a801250800a20e272c706bd21afcffc7fe9fabaa58ff9f0fe8bfa5f24bf35455417e1ad5bfa11bbf80b8ad469ffe6d"
    "92a4351bb514b75404be22e80037d63863cf37c61777b6b8624e0a0e8767a24373cc1bce7005839425d374365d841d65a7b183b0"
    "7bb0cbd839d861ec263bb34b38c20f2e78e594804f1eb9ae0b32eae6e7a7448f999b9b0ba999d203ffb8340a5d2fa590ce2fa1c8"
    "af6b5472d2722518425555550536206093a4cd03f396c595cc7a6e663ff36942c61b6d94f1461b64dcd0c69291b9e80ff7c0123b"
    "fa88c49ddedd55227ed3b380b9dedce2f921e1a7ecf430190b121b3b7d6c807c83040f982d77e0039638c6071ed8802586f18107"
    "cc6271e18bd9790cb80b"
)
BLOCK = HEADER + BODY + bytes(-len(BODY) % 64)
"""As it was written once: what is stored must be read for ever, whatever zstd makes of the records today."""

_LENGTH_AT = 12
_RAW_LENGTH_AT = 48
_CHECKSUM_AT = 56


def decoded(block: bytes) -> Rows:
    return decode_rows(decode_header(block, "here"), block, "here")


def block_of(body: bytes, raw_length: int) -> bytes:
    """The block with another body, all checksums in order."""
    header = bytearray(HEADER)
    header[_LENGTH_AT : _LENGTH_AT + 4] = struct.pack("<I", len(body))
    header[_RAW_LENGTH_AT : _RAW_LENGTH_AT + 4] = struct.pack("<I", raw_length)
    header[_CHECKSUM_AT : _CHECKSUM_AT + 4] = struct.pack("<I", checksum(body))
    return with_checksum(header) + body + bytes(-len(body) % 64)


def with_checksum(header: bytearray) -> bytes:
    header[60:] = struct.pack("<I", checksum(bytes(header[:60])))
    return bytes(header)


def test_bytes_that_were_stored_are_read() -> None:
    header = decode_header(BLOCK, "here")
    assert (header.length, header.raw_length) == (len(BLOCK), 64 + 704)
    assert decoded(BLOCK).records.equals(RECORDS)
    assert PLACES.equals(decoded(BLOCK).offset_deltas)


def test_the_header_is_written_like_that() -> None:
    chunks, header = encode_sparse_block(RECORDS, PLACES, 24, 77, compress=True)
    expected = bytearray(HEADER)
    expected[_LENGTH_AT : _LENGTH_AT + 4] = struct.pack("<I", header.body_length)
    expected[_CHECKSUM_AT : _CHECKSUM_AT + 4] = struct.pack("<I", header.body_checksum)
    block = b"".join(chunks)
    assert block[:BLOCK_HEADER_BYTES] == with_checksum(expected)
    assert decode_header(block, "here") == header
    assert len(block) == header.length < header.raw_length


@settings(deadline=None, max_examples=30)
@given(st.lists(st.none() | st.binary(max_size=300), min_size=1, max_size=30), st.integers(1, 7))
def test_rows_with_places_come_back_as_they_were(values: list[bytes | None], step: int) -> None:
    records = record_batch([b"k"] * len(values), values, range(len(values)))
    places = pa.array(range(0, len(values) * step, step), pa.uint32())
    chunks, _ = encode_sparse_block(records, places, len(values) * step, 77, compress=True)
    found = decoded(b"".join(chunks))
    assert found.records.equals(records)
    assert places.equals(found.offset_deltas)


def test_what_can_not_be_compressed_is_stored_as_it_is() -> None:
    values = [random.Random(4).randbytes(100_000)]
    records = record_batch([None], values, [1])
    assert b"".join(encode_blocks(records, 77, compress=True)[0]) == b"".join(encode_blocks(records, 77)[0])


def test_nothing_is_compressed_unless_it_is_asked_for() -> None:
    _, (header,) = encode_blocks(RECORDS, 77)
    _, sparse = encode_sparse_block(RECORDS, PLACES, 24, 77)
    assert (header.raw_body_length, sparse.raw_body_length) == (0, 0)


@pytest.mark.parametrize("raw_length", [1, 679, 681, 680 + 64, MAX_BLOCK_BYTES])
def test_another_length_than_it_has_uncompressed_is_damage(raw_length: int) -> None:
    assert decoded(block_of(BODY, 680)).records.equals(RECORDS)
    with pytest.raises(DamagedLogError, match="The block at here is damaged: its records can't be read"):
        decoded(block_of(BODY, raw_length))


def test_a_length_beyond_the_bound_is_refused_before_anything_is_allocated() -> None:
    for raw_length in (MAX_BLOCK_BYTES + 1, 2**32 - 1):
        with pytest.raises(DamagedLogError, match=f"claims {raw_length} uncompressed bytes; the bound is"):
            decode_header(block_of(BODY, raw_length), "here")


def test_flag_and_length_must_agree() -> None:
    with pytest.raises(DamagedLogError, match="it claims 0 uncompressed bytes, but is compressed"):
        decode_header(block_of(BODY, 0), "here")
    header = bytearray(HEADER)
    header[5] = 3
    with pytest.raises(DamagedLogError, match="it claims 680 uncompressed bytes, but is not compressed"):
        decode_header(with_checksum(header), "here")


@pytest.mark.parametrize("body", [b"", b"no zstd" * 30, BODY[:-1], BODY[:100], BODY + b"more"])
def test_a_body_that_does_not_decompress_is_damage(body: bytes) -> None:
    """Even if the checksum is right, because somebody wrote it like that."""
    with pytest.raises(DamagedLogError, match="The block at here is damaged: its records can't be read"):
        decoded(block_of(body, 680))


def test_a_body_that_decompresses_to_something_else_is_damage() -> None:
    body = pa.Codec("zstd").compress(b"no Arrow" * 85).to_pybytes()
    with pytest.raises(DamagedLogError, match="The block at here is damaged: its records can't be read"):
        decoded(block_of(body, 680))
