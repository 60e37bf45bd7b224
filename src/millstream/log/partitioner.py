"""Which partition a key belongs to: as Kafka's default partitioner decides.

A key goes to murmur2(key bytes), made positive, modulo the number of partitions; so keys land where a Java
client puts them. Records without a key may go anywhere: all of one batch go to one partition, and the next
batch to another ("sticky"). The column form makes no Python object per key.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF
_FEW_ROWS: Final = 64
_LOOPED_ROWS: Final = 500
"""A loop over so many keys takes no longer than the expressions for a column, which have a fixed price."""
_SHORT_KEY_BYTES: Final = 64
_FEW_LENGTHS: Final = 4
_REMEMBERED_KEYS: Final = 16_384
"""A few megabytes at most."""


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit murmur2 of some bytes, unsigned.

    >>> murmur2(b"21") - 2**32  # Kafka's own test vector, as Java's signed int
    -973932308
    """
    h = _SEED ^ len(data)
    words, rest = divmod(len(data), 4)
    for word in struct.unpack_from(f"<{words}I", data):
        k = word * _M & _MASK
        h = (h * _M & _MASK) ^ ((k ^ (k >> 24)) * _M & _MASK)
    if rest:
        h = (h ^ int.from_bytes(data[-rest:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key.

    >>> partition_for_key(b"21", 4)
    0
    """
    return _remembered(key, partitions) if len(key) <= _SHORT_KEY_BYTES else _partition(key, partitions)


def _partition(key: bytes, partitions: int) -> int:
    return (murmur2(key) & _POSITIVE) % partitions


_remembered = lru_cache(_REMEMBERED_KEYS)(_partition)
"""The same keys come again, epoch after epoch, and nothing that is done to one takes as long as its hash."""


def partitions_for_keys(
    keys: Sequence[bytes | None] | pl.Series | pa.Array, partitions: int, *, null_keys_to: int
) -> pl.Series:
    """Return the partition of each key of a column; records without a key go to ``null_keys_to``.

    >>> partitions_for_keys([b"21", None], 4, null_keys_to=3).to_list()
    [0, 3]
    """
    column = keys if isinstance(keys, pl.Series) else pl.Series("key", keys, dtype=pl.Binary)
    if partitions == 1:
        return pl.repeat(0, len(column), dtype=pl.UInt32, eager=True)
    if len(column) <= _LOOPED_ROWS:
        places = [null_keys_to if key is None else partition_for_key(key, partitions) for key in column]
        return pl.Series("h", places, dtype=pl.UInt32)
    hashes = murmur2_column(column)
    return ((hashes & _POSITIVE) % partitions).fill_null(null_keys_to)


def murmur2_column(keys: pl.Series) -> pl.Series:
    """Return the murmur2 of each key of a binary column; of a null, null."""
    lengths = _few_lengths(keys)
    if len(lengths) == 1:
        return _hashed(keys, lengths[0])
    if lengths:
        sizes, row = keys.bin.size(), pl.int_range(len(keys), eager=True)
        parts = [(row.filter(sizes == one), _hashed(keys.filter(sizes == one), one)) for one in lengths]
        return pl.concat([pl.DataFrame({"row": rows, "h": part}) for rows, part in parts]).sort("row")["h"]
    frame = pl.DataFrame({"key": keys}).with_columns(n=pl.col("key").bin.size().cast(pl.UInt32))
    frame = frame.with_columns(h=pl.col("n") ^ _u32(_SEED), row=pl.int_range(pl.len()))
    done = []
    word = 0
    while len(frame):
        # Rows whose words are used up wait; once they are the majority, they leave.
        going_on = frame["n"] >= 4 * word + 4
        rows = going_on.sum()
        if 2 * rows <= len(frame):
            done.append(_finished(frame.filter(~going_on.fill_null(False))))
            frame = frame.filter(going_on)
            if rows <= _FEW_ROWS:
                done.append(_one_by_one(frame))
                break
        frame = _mix(frame, word)
        word += 1
    done = [part for part in done if len(part)]
    if len(done) == 1:
        return done[0]["h"]
    return pl.concat(done).sort("row")["h"] if done else pl.Series("h", [], dtype=pl.UInt32)


def _few_lengths(keys: pl.Series) -> list[int]:
    """The lengths of all keys if these are few and short, so that each of them is worth a pass of its own."""
    if len(keys) <= _FEW_ROWS or keys.null_count():
        return []
    lengths: list[int] = keys.bin.size().unique().to_list()
    return (
        lengths
        if len(lengths) <= _FEW_LENGTHS and 0 < min(lengths) <= max(lengths) <= _SHORT_KEY_BYTES
        else []
    )


def _hashed(keys: pl.Series, length: int) -> pl.Series:
    """Return the murmur2 of keys that all have one length: their bytes, one after the other, are words."""
    words, rest = divmod(length, 4)
    data = keys.rechunk().to_arrow().cast(pa.binary())
    if rest:
        data = pc.binary_join_element_wise(data, pa.scalar(bytes(4 - rest)), pa.scalar(b""))
    each = words + bool(rest)
    (start,) = struct.unpack_from("<i", data.buffers()[1], 4 * data.offset)
    buffers = [None, data.buffers()[2].slice(start)]
    column = pl.Series(pa.Array.from_buffers(pa.uint32(), each * len(keys), buffers))
    frame = pl.DataFrame({f"{word}": column.gather_every(each, word) for word in range(each)})
    frame = frame.with_columns(h=_u32(_SEED ^ length))
    h, k = pl.col("h"), pl.col("k")
    for word in range(words):
        frame = frame.with_columns(k=pl.col(f"{word}") * _u32(_M))
        frame = frame.with_columns(h=(h * _u32(_M)) ^ ((k ^ _shifted(k, 24)) * _u32(_M)))
    if rest:
        frame = frame.with_columns(h=(h ^ pl.col(f"{words}")) * _u32(_M))
    return _avalanche(frame)["h"]


def _mix(frame: pl.DataFrame, word: int) -> pl.DataFrame:
    """Mix the word with that number into the hash of those keys that have it."""
    h, k = pl.col("h"), pl.col("k")
    has_word = pl.col("n") >= 4 * word + 4
    four_bytes = pl.when(has_word).then(pl.col("key").bin.slice(4 * word, 4))
    frame = frame.with_columns(k=four_bytes.bin.reinterpret(dtype=pl.UInt32, endianness="little") * _u32(_M))
    frame = frame.with_columns(k=(k ^ _shifted(k, 24)) * _u32(_M))
    return frame.with_columns(h=pl.when(has_word).then((h * _u32(_M)) ^ k).otherwise(h))


def _finished(frame: pl.DataFrame) -> pl.DataFrame:
    """Mix in the last one to three bytes, then the final avalanche."""
    h, left = pl.col("h"), pl.col("n") % 4
    rest = sum((_byte(left, i) * _u32(256**i) for i in (1, 2)), start=_byte(left, 0))
    frame = frame.with_columns(h=pl.when(left > 0).then((h ^ rest) * _u32(_M)).otherwise(h))
    return _avalanche(frame).select("row", "h")


def _avalanche(frame: pl.DataFrame) -> pl.DataFrame:
    h = pl.col("h")
    frame = frame.with_columns(h=(h ^ _shifted(h, 13)) * _u32(_M))
    return frame.with_columns(h=h ^ _shifted(h, 15))


def _byte(left: pl.Expr, number: int) -> pl.Expr:
    """Return that byte of the part after the last whole word; 0 if the key has it not."""
    start = pl.col("n") - left + number
    byte = pl.when(left > number).then(pl.col("key").bin.slice(start, 1))
    return byte.bin.reinterpret(dtype=pl.UInt8).cast(pl.UInt32).fill_null(0)


def _one_by_one(frame: pl.DataFrame) -> pl.DataFrame:
    """Hash the few keys that are much longer than all others."""
    hashes = [murmur2(key) for key in frame["key"]]
    return frame.select("row", h=pl.Series("h", hashes, dtype=pl.UInt32))


def _shifted(expression: pl.Expr, bits: int) -> pl.Expr:
    return expression // _u32(1 << bits)


def _u32(number: int) -> pl.Expr:
    return pl.lit(number, dtype=pl.UInt32)
