"""The last offset of each key, for whole blocks at once, against a dictionary."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.log.blocks import decode_block, decode_header, encode_blocks, record_batch
from millstream.log.embedded import compaction
from millstream.log.embedded.compaction import LastOffsets

KEYS = st.lists(st.one_of(st.none(), st.sampled_from([b"", b"a", b"ab", b"b" * 12, b"b" * 13, b"c" * 40])))
REAL = compaction._hashes


def all_the_same(keys: pl.Series, seed: int) -> pl.Series:
    return pl.repeat(seed, len(keys), dtype=pl.UInt64, eager=True)


def two_large_ones(keys: pl.Series, seed: int) -> pl.Series:
    return REAL(keys, seed) % 2 + (1 << 63) + 5


def at_first(hashes: Callable[[pl.Series, int], pl.Series]) -> Callable[[pl.Series, int], pl.Series]:
    return lambda keys, seed: hashes(keys, seed) if seed < 3 else REAL(keys, seed)


@pytest.mark.parametrize("hashes", [REAL, at_first(all_the_same), at_first(two_large_ones)])
def test_it_knows_what_a_dictionary_knows(
    monkeypatch: pytest.MonkeyPatch, hashes: Callable[[pl.Series, int], pl.Series]
) -> None:
    monkeypatch.setattr(compaction, "_hashes", hashes)

    @given(blocks=st.lists(KEYS, max_size=6), asked=KEYS, most_new=st.integers(1, 20))
    @settings(deadline=None)
    def compare(blocks: list[list[bytes | None]], asked: list[bytes | None], most_new: int) -> None:
        monkeypatch.setattr(compaction, "_MOST_NEW", most_new)
        last, expected = LastOffsets(), dict[bytes, int]()
        offset = 0
        for keys in blocks:
            offsets = range(offset, offset + len(keys))
            last.add(pa.array(keys, pa.binary()), pa.array(offsets, pa.int64()))
            expected |= {key: at for key, at in zip(keys, offsets, strict=True) if key is not None}
            offset += len(keys)
        places = range(len(asked))
        found = last.replaces(pl.Series(asked, dtype=pl.Binary), pl.Series(places, dtype=pl.Int64))
        assert found.to_list() == [
            key is not None and expected.get(key, -1) > at for key, at in zip(asked, places, strict=True)
        ]
        assert {key: last.of(key) for key in expected} == expected
        assert len(last) == len(expected)
        assert last.has_at_least(len(expected))
        assert not last.has_at_least(len(expected) + 1)

    compare()


def test_keys_do_not_hold_the_values_of_their_blocks() -> None:
    chunks, _ = encode_blocks(record_batch([b"k" * 20] * 3, [bytes(1000)] * 3, [1] * 3), 0)
    block = bytearray(b"".join(chunks))
    records = decode_block(decode_header(bytes(block), "here"), memoryview(block), "here")
    last = LastOffsets()
    last.add(records.column(0), pa.array([0, 1, 2]))
    del records
    block.clear()  # a BufferError if anybody still looks at it
    assert last.of(b"k" * 20) == 2
