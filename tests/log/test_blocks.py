"""Blocks: round trips, bounds, and damage."""

from __future__ import annotations

import random
import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.durable import FormatVersionError, checksum
from millstream.log.blocks import (
    BLOCK_HEADER_BYTES,
    MAX_BLOCK_BYTES,
    MAX_RECORD_BYTES,
    SCHEMA,
    decode_block,
    decode_header,
    encode_blocks,
    record_batch,
)
from millstream.log.errors import DamagedLogError, RecordTooLargeError
from millstream.record import Headers

ROW = st.tuples(
    st.none() | st.binary(max_size=12),
    st.none() | st.binary(max_size=40),
    st.integers(0, 2**62),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple),
)
Row = tuple[bytes | None, bytes | None, int, Headers]


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    keys, values, times, headers = zip(*rows, strict=True)
    return record_batch(list(keys), list(values), list(times), list(headers))


def one_block(records: pa.RecordBatch, *, compress: bool = False) -> bytes:
    chunks, headers = encode_blocks(records, 77, compress=compress)
    assert len(headers) == 1
    return b"".join(chunks)


def decoded(block: bytes) -> pa.RecordBatch:
    return decode_block(decode_header(block, "here"), block, "here")


@settings(deadline=None, max_examples=60)
@given(st.lists(ROW, min_size=1, max_size=20), st.booleans())
def test_records_come_back_as_they_were(rows: list[Row], compress: bool) -> None:
    records = batch_of(rows)
    block = one_block(records, compress=compress)
    header = decode_header(block, "here")
    times = [row[2] for row in rows]
    assert decoded(block).equals(records)
    assert decoded(block).schema == SCHEMA
    assert (header.rows, header.append_time, header.length) == (len(rows), 77, len(block))
    assert (header.min_timestamp, header.max_timestamp) == (min(times), max(times))
    assert header.max_at == times.index(max(times))
    assert header.raw_length == len(one_block(records)) >= len(block)
    assert len(block) % 64 == 0


def test_a_column_may_be_an_arrow_array_of_a_fitting_type() -> None:
    records = record_batch(pa.array(["k"]), pa.array([b"v"], pa.large_binary()), pa.array([5]))
    assert records.to_pylist() == [{"key": b"k", "value": b"v", "timestamp": 5, "headers": None}]


@pytest.mark.parametrize("compress", [False, True])
def test_every_cut_is_damage(compress: bool) -> None:
    block = one_block(record_batch([b"k"] * 3, [b"v"] * 3, [1, 2, 3]), compress=compress)
    body = decode_header(block, "here").body_length
    for length in range(BLOCK_HEADER_BYTES + body):
        with pytest.raises(DamagedLogError, match="The block at here is damaged: it ends after"):
            decoded(block[:length])


@pytest.mark.parametrize("compress", [False, True])
def test_every_flipped_bit_is_damage_or_in_the_padding(compress: bool) -> None:
    records = record_batch([b"k"] * 3, [b"v"] * 3, [1, 2, 3])
    block = one_block(records, compress=compress)
    end = BLOCK_HEADER_BYTES + decode_header(block, "here").body_length
    for bit in range(8 * len(block)):
        broken = bytearray(block)
        broken[bit // 8] ^= 1 << bit % 8
        if bit // 8 < end:
            with pytest.raises(DamagedLogError, match="The block at here is damaged"):
                decoded(bytes(broken))
        else:
            assert decoded(bytes(broken)).equals(records)


def with_header_field(block: bytes, position: int, packed: bytes) -> bytes:
    broken = bytearray(block)
    broken[position : position + len(packed)] = packed
    broken[60:64] = struct.pack("<I", checksum(bytes(broken[:60])))
    return bytes(broken)


def test_an_intact_header_with_impossible_content_is_refused() -> None:
    block = one_block(record_batch([b"k"], [b"v"], [1]))
    with pytest.raises(FormatVersionError, match="format version 3, but this Millstream reads"):
        decoded(with_header_field(block, 4, b"\x03"))
    with pytest.raises(DamagedLogError, match=f"claims {MAX_BLOCK_BYTES + 1} bytes; the bound is"):
        decoded(with_header_field(block, 12, struct.pack("<I", MAX_BLOCK_BYTES + 1)))
    with pytest.raises(DamagedLogError, match="it has 1 records and claims 2"):
        decoded(with_header_field(block, 8, struct.pack("<I", 2)))


def test_a_large_batch_becomes_several_blocks() -> None:
    rng = random.Random(3)
    values = [rng.randbytes(rng.choice((10, 2_000_000))) for _ in range(60)]
    records = record_batch([None] * 60, values, range(60))
    chunks, headers = encode_blocks(records, 0)
    assert len(headers) > 5
    data, position, parts = b"".join(chunks), 0, []
    for header in headers:
        block = data[position : position + header.length]
        parts.append(decoded(block))
        position += header.length
    assert position == len(data)
    assert pa.concat_batches(parts).equals(records)


def test_a_record_over_the_bound_is_refused_with_its_place() -> None:
    large = bytes(MAX_RECORD_BYTES)
    encode_blocks(record_batch([None], [large], [1]), 0)
    with pytest.raises(
        RecordTooLargeError, match="Record 1 of the batch has 16777217 bytes; the bound is 16777216"
    ):
        encode_blocks(record_batch([None, b"k"], [b"", large], [1, 2]), 0)
    with pytest.raises(RecordTooLargeError, match="Record 0"):
        encode_blocks(record_batch([None], [None], [1], [(("h", large),)]), 0)
