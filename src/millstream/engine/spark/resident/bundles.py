"""Blocks on their way from one slot to another: all that one level of an epoch has for a slot, in one bundle.

A bundle travels as a stream of chunks of bounded size: the first has the directory of the blocks, the others
their bytes. The header in front announces the number of chunks and bytes, and the digest of the directory.
Both sides compute the digests of the blocks' own bytes, and the commit compares them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from millstream.errors import MillstreamError
from millstream.task.shuffle_block import ShuffleBlock
from millstream.types import Attempt, Epoch, Partition, Term

__all__ = ["MAX_BUNDLE_BYTES", "SCHEMA", "BadBundleError", "BundleHeader", "packed", "unpacked"]

MAX_BUNDLE_BYTES: Final = 4 << 30
CHUNK_BYTES: Final = 8 << 20
DIRECTORY_BYTES: Final = 256 << 20
"""Of the first chunk, which names all blocks, and how many rows each partition gets of them."""
SCHEMA: Final = pa.schema([("bytes", pa.large_binary())])


class BadBundleError(MillstreamError):
    """A bundle is not what its header says, or larger than allowed."""


class BundleHeader(msgspec.Struct, frozen=True, array_like=True):
    """Whose bundle it is, for whom, and how large."""

    term: Term
    epoch: Epoch
    attempt: Attempt
    level: int
    sender: int
    sender_incarnation: str
    receiver_incarnation: str
    chunks: int
    size: int
    """In bytes, of all chunks."""
    digest: str
    """Of the directory."""

    @classmethod
    def decoded(cls, data: bytes) -> BundleHeader:
        """A header as it came; refused if it is none, or announces too much."""
        try:
            header = msgspec.msgpack.decode(data, type=cls)
        except msgspec.DecodeError as error:
            raise BadBundleError(f"the header of a bundle can't be read: {error}") from error
        if not 0 < header.chunks <= header.size // CHUNK_BYTES + 2 or header.size > MAX_BUNDLE_BYTES:
            raise BadBundleError(
                f"a bundle of {header.size} bytes in {header.chunks} chunks is not allowed: at most "
                f"{MAX_BUNDLE_BYTES} bytes, in chunks of {CHUNK_BYTES}"
            )
        return header


class _Block(msgspec.Struct, frozen=True, array_like=True):
    topic: str
    slot: int
    sender: str
    attempt: Attempt
    counts: tuple[tuple[Partition, int], ...]
    types: int
    """Which of the bundle's tuples of inferred types: most blocks have the same."""
    length: int


class _Directory(msgspec.Struct, frozen=True, array_like=True):
    types: tuple[tuple[tuple[str, str, str], ...], ...]
    blocks: tuple[_Block, ...]


def packed(blocks: Sequence[ShuffleBlock]) -> tuple[list[pa.RecordBatch], int, str]:
    """Blocks as chunks, the number of their bytes, and the digest of their directory."""
    types = list(dict.fromkeys(block.inferred_types for block in blocks))
    number = {one: at for at, one in enumerate(types)}
    directory = msgspec.msgpack.encode(
        _Directory(
            tuple(types),
            tuple(
                _Block(
                    block.topic,
                    block.slot,
                    block.sender,
                    block.attempt,
                    block.counts,
                    number[block.inferred_types],
                    len(block.payload),
                )
                for block in blocks
            ),
        )
    )
    chunks = [_chunk(directory), *map(_chunk, _pieces(block.payload for block in blocks))]
    size = len(directory) + sum(len(block.payload) for block in blocks)
    return chunks, size, _digest(directory)


def unpacked(header: BundleHeader, chunks: Iterable[pa.RecordBatch]) -> list[ShuffleBlock]:
    """The blocks again. Chunks are counted while they come: whoever sends more than announced is refused."""
    parts: list[pa.Buffer] = []
    received = 0
    for chunk in chunks:
        data = chunk.column(0)[0].as_buffer() if len(chunk) == 1 and chunk.schema.equals(SCHEMA) else None
        received += 0 if data is None else data.size
        is_long = data is not None and data.size > (CHUNK_BYTES if parts else DIRECTORY_BYTES)
        if data is None or is_long or len(parts) >= header.chunks or received > header.size:
            raise BadBundleError(f"a bundle is larger than announced, {header.size} bytes, or malformed")
        parts.append(data)
    if len(parts) != header.chunks or received != header.size:
        raise BadBundleError(f"a bundle of {header.size} bytes came with {received}")
    directory = parts[0].to_pybytes()
    if _digest(directory) != header.digest:
        raise BadBundleError("the digest of a bundle does not match")
    try:
        known = msgspec.msgpack.decode(directory, type=_Directory)
        return list(_blocks(known, b"".join(memoryview(part) for part in parts[1:])))
    except (msgspec.DecodeError, IndexError) as error:
        raise BadBundleError(f"the directory of a bundle can't be read: {error}") from error


def _blocks(directory: _Directory, data: bytes) -> Iterator[ShuffleBlock]:
    start = 0
    for block in directory.blocks:
        end = start + block.length
        if block.length < 0 or end > len(data):
            raise BadBundleError("the directory of a bundle names more bytes than there are")
        yield ShuffleBlock(
            block.topic,
            block.slot,
            block.sender,
            block.attempt,
            data[start:end],
            block.counts,
            directory.types[block.types],
        )
        start = end


def _pieces(payloads: Iterable[bytes]) -> Iterator[bytes]:
    """All bytes, in pieces of the size of a chunk."""
    pending: list[memoryview] = []
    room = CHUNK_BYTES
    for payload in payloads:
        rest = memoryview(payload)
        while rest:
            pending.append(rest[:room])
            rest = rest[room:]
            room -= len(pending[-1])
            if not room:
                yield b"".join(pending)
                pending, room = [], CHUNK_BYTES
    if pending:
        yield b"".join(pending)


def _chunk(data: bytes) -> pa.RecordBatch:
    return pa.record_batch([pa.array([data], pa.large_binary())], schema=SCHEMA)


def _digest(directory: bytes) -> str:
    return hashlib.blake2b(directory, digest_size=16).hexdigest()
