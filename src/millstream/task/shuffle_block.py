"""Rows on their way through a repartition: one opaque piece of bytes per sender and receiver.

A block is a row of log blocks, so the engine that moves it sees no record. The rows carry no attempt: a
task that runs twice sends equal bytes, and a receiver may take either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from millstream.log.blocks import decode_blocks, encode_blocks
from millstream.task.records import RawBatch, joined, record_batch_of
from millstream.types import Attempt, Partition

__all__ = ["Sent", "ShuffleBlock", "shuffle_block_of"]


@dataclass(frozen=True, slots=True)
class Sent:
    """What a task sent through a repartition to one partition: enough to know it again."""

    digest: str
    count: int


@dataclass(frozen=True, slots=True)
class ShuffleBlock:
    """Rows of one sender for one partition of a repartition."""

    topic: str
    partition: Partition
    """Where they go."""
    sender: str
    attempt: Attempt
    payload: bytes
    count: int
    inferred_types: tuple[tuple[str, str, str], ...]
    """What the sender's automatic serdes know: the receiver could not read the rows without."""

    def sent(self) -> Sent:
        """Enough to know the rows again, computed from the bytes at hand."""
        # Nobody keeps it, and processors have instructions for this one.
        return Sent(hashlib.sha256(self.payload).hexdigest(), self.count)

    def rows(self, first_offset: int) -> RawBatch:
        """The rows, with offsets that go on from `first_offset`."""
        where = f"the rows that task {self.sender} sent to {self.topic}-{self.partition}"
        blocks = decode_blocks(memoryview(self.payload), where)
        parts = [RawBatch.of(self.topic, self.partition, 0, block) for block in blocks]
        return joined(self.topic, self.partition, parts, first_offset)


def shuffle_block_of(
    topic: str,
    partition: Partition,
    sender: str,
    attempt: Attempt,
    parts: Sequence[RawBatch],
    inferred_types: tuple[tuple[str, str, str], ...],
) -> ShuffleBlock:
    """Rows as a block."""
    count = sum(len(part) for part in parts)
    payload = b""
    if count:
        chunks, _ = encode_blocks(record_batch_of(parts), 0)
        payload = b"".join(chunks)
    return ShuffleBlock(topic, partition, sender, attempt, payload, count, inferred_types)
