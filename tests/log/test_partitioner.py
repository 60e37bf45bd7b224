"""Keys go where Kafka's default partitioner puts them."""

from __future__ import annotations

import random

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.log.partitioner import murmur2, murmur2_column, partition_for_key, partitions_for_keys

# From org.apache.kafka.common.utils.UtilsTest.testMurmur2, as Java's signed int.
KAFKA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "signed"), KAFKA_VECTORS.items())
def test_the_hash_is_kafka_s(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32


def test_the_partition_is_the_positive_hash_modulo_their_number() -> None:
    for key, signed in KAFKA_VECTORS.items():
        assert partition_for_key(key, 7) == (signed & 0x7FFFFFFF) % 7


def test_a_column_is_hashed_as_its_keys() -> None:
    keys = list(KAFKA_VECTORS)
    assert murmur2_column(pl.Series(keys)).to_list() == [murmur2(key) for key in keys]


def test_a_column_may_be_of_arrow_or_polars() -> None:
    keys = [b"21", None, b"abc"]
    expected = [partition_for_key(b"21", 5), 4, partition_for_key(b"abc", 5)]
    for column in (keys, pl.Series(keys), pa.array(keys), pa.array(keys, pa.large_binary())):
        assert partitions_for_keys(column, 5, null_keys_to=4).to_list() == expected


@settings(deadline=None, max_examples=100)
@given(st.lists(st.none() | st.binary(max_size=30), max_size=30), st.integers(1, 50))
def test_a_column_goes_where_its_keys_go(keys: list[bytes | None], partitions: int) -> None:
    expected = [
        partitions - 1 if key is None else partition_for_key(key, partitions) if partitions > 1 else 0
        for key in keys
    ]
    assert partitions_for_keys(keys, partitions, null_keys_to=partitions - 1).to_list() == expected


def test_a_few_long_keys_among_many_short_ones_are_hashed_right() -> None:
    rng = random.Random(1)
    keys = [rng.randbytes(rng.randrange(1, 9)) for _ in range(2_000)]
    keys += [rng.randbytes(rng.randrange(200, 400)) for _ in range(200)]
    keys += [rng.randbytes(20_000) for _ in range(5)]
    rng.shuffle(keys)
    assert murmur2_column(pl.Series(keys)).to_list() == [murmur2(key) for key in keys]


@pytest.mark.parametrize(
    "lengths", [*([length] for length in range(1, 14)), [64], [3, 8], [1, 2, 12, 33], [0, 5]]
)
def test_keys_of_few_lengths_are_hashed_as_any_other(lengths: list[int]) -> None:
    rng = random.Random(1)
    keys = [rng.randbytes(rng.choice(lengths)) for _ in range(500)]
    expected = [murmur2(key) for key in keys]
    assert murmur2_column(pl.Series(keys)).to_list() == expected
    assert murmur2_column(pl.Series(keys)[100:300]).to_list() == expected[100:300]
    from_arrow = pl.Series(pa.array(keys, pa.binary())[7:400])
    assert murmur2_column(from_arrow).to_list() == expected[7:400]
