"""Rows on their way through a repartition: one opaque piece of bytes per sender and slot.

A block has the rows of one sender for all partitions that one slot reads, partition after partition, and says
beside the bytes how many each of them gets. So a repartition costs as much as there are rows, senders and
receivers, not as there are pairs of them. The bytes are a row of log blocks, so the engine that moves them
sees no record. They carry no attempt: a task that runs twice sends equal bytes, and a receiver may take
either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from millstream.log.blocks import Records, decode_blocks, encode_blocks
from millstream.log.few_records import FewRecords
from millstream.processors.columns.column import Column, are_few
from millstream.task.records import OutputBatch, RawBatch, joined, records_of_batches
from millstream.task.routing import partitions_of
from millstream.types import Attempt, Partition

__all__ = ["ConsumedBlock", "Route", "SentBlock", "Shuffle", "ShuffleBlock", "one_slot", "rows_for"]

Route: TypeAlias = Callable[[str, int], Sequence[int]]
"""The slot that reads each partition of a repartition, given its topic and the number of its partitions."""

MAX_JOINED_BYTES: Final = 1 << 30
"""Rows of more than that stay in pieces: one array of Arrow's has 2 GiB at most."""

InferredTypes: TypeAlias = tuple[tuple[str, str, str], ...]
Counts: TypeAlias = tuple[tuple[Partition, int], ...]


class SentBlock(NamedTuple):
    """What a task sent through a repartition to one slot: enough to know it again."""

    topic: str
    digest: str
    partitions: tuple[Partition, ...]
    """Those that get rows."""


class ConsumedBlock(NamedTuple):
    """A block from which a task took its rows."""

    topic: str
    sender: str
    digest: str


@dataclass(frozen=True)
class ShuffleBlock:
    """Rows of one sender for the partitions of a repartition that one slot reads."""

    topic: str
    slot: int
    """Where they go."""
    sender: str
    attempt: Attempt
    payload: bytes
    counts: Counts
    """How many rows each partition gets, in the order in which they stand; those without are left out."""
    inferred_types: InferredTypes
    """What the sender's automatic serdes know: the receiver could not read the rows without."""

    def __reduce__(self) -> tuple[type[ShuffleBlock], tuple[Any, ...]]:
        """Without what was computed: whoever receives it computes it from the bytes at hand."""
        fields = (self.topic, self.slot, self.sender, self.attempt, self.payload, self.counts)
        return ShuffleBlock, (*fields, self.inferred_types)

    @cached_property
    def digest(self) -> str:
        """Enough to know the rows again, and whose they are."""
        # Nobody keeps it, and processors have instructions for this one.
        digest = hashlib.sha256(self.payload)
        digest.update(msgspec.msgpack.encode(self.counts))
        return digest.hexdigest()

    @cached_property
    def order(self) -> tuple[str, tuple[int, ...]]:
        """By topic, then by sender: the order in which rows get their offsets."""
        return self.topic, tuple(map(int, self.sender.split("_")))

    def sent(self) -> SentBlock:
        """The block as its sender reports it."""
        return SentBlock(self.topic, self.digest, tuple(partition for partition, _ in self.counts))

    @cached_property
    def consumed(self) -> ConsumedBlock:
        """The block as those report it who took their rows from it."""
        return ConsumedBlock(self.topic, self.sender, self.digest)

    def count(self, partition: Partition) -> int:
        """How many rows a partition gets."""
        return self._places[partition][1]

    def rows(self, partition: Partition) -> list[pa.RecordBatch]:
        """The rows of a partition, as views of the bytes."""
        start, count = self._places[partition]
        end, found, first = start + count, [], 0
        for part in self._parts:
            last = first + part.num_rows
            if first < end and start < last:
                found.append(part.slice(max(0, start - first), min(end, last) - max(start, first)))
            first = last
        return found

    @cached_property
    def _places(self) -> dict[Partition, tuple[int, int]]:
        starts = accumulate((count for _, count in self.counts), initial=0)
        return {
            partition: (start, count) for start, (partition, count) in zip(starts, self.counts, strict=False)
        }

    @cached_property
    def _parts(self) -> list[pa.RecordBatch]:
        where = f"the rows that task {self.sender} sent to {self.topic}"
        return list(decode_blocks(memoryview(self.payload), where))


def one_slot(_topic: str, partitions: int) -> Sequence[int]:
    """Everything goes to the same slot."""
    return [0] * partitions


@dataclass(frozen=True, slots=True)
class Shuffle:
    """What a task sends through repartitions in an epoch."""

    sender: str
    attempt: Attempt
    task_partition: int
    route: Route
    inferred_types: InferredTypes

    def blocks(self, topic: str, outputs: Sequence[OutputBatch], partitions: int) -> list[ShuffleBlock]:
        """The rows for a repartition as one block for each slot that gets any."""
        outputs = [output for output in outputs if len(output)]
        if not outputs:
            return []
        rows = records_of_batches(outputs)
        numbers = Column.concat([partitions_of(one, partitions, self.task_partition) for one in outputs])
        slots = self.route(topic, partitions)
        deal = _deal_few if are_few(len(numbers)) else _deal_many
        return [
            self._block(topic, slot, rows if counts[0][1] == len(rows) else _chosen(rows, chosen), counts)
            for slot, counts, chosen in deal(numbers, slots)
        ]

    def _block(self, topic: str, slot: int, rows: Records, counts: Counts) -> ShuffleBlock:
        payload = b"".join(encode_blocks(rows, 0)[0])
        return ShuffleBlock(topic, slot, self.sender, self.attempt, payload, counts, self.inferred_types)


def _deal_few(numbers: Column, slots: Sequence[int]) -> Iterator[tuple[int, Counts, Any]]:
    """Slots, how many rows each partition of theirs gets, and which; given the partition of each row."""
    by_slot: dict[int, dict[int, list[int]]] = {}
    for row, number in enumerate(numbers):
        by_slot.setdefault(slots[number], {}).setdefault(number, []).append(row)
    for slot, dealt in sorted(by_slot.items()):
        ordered = sorted(dealt.items())
        counts = tuple((Partition(number), len(rows)) for number, rows in ordered)
        yield slot, counts, [row for _, rows in ordered for row in rows]


def _deal_many(numbers: Column, slots: Sequence[int]) -> Iterator[tuple[int, Counts, Any]]:
    """The same, in columns."""
    partitions = np.asarray(numbers.arrow(), np.int64)
    places = np.asarray(slots, np.int64)[partitions] * len(slots) + partitions
    # Numbers of two bytes are sorted in a time that goes by their number alone.
    small = places.max() <= np.iinfo(np.uint16).max
    order = np.argsort(places.astype(np.uint16) if small else places, kind="stable")
    ordered = places[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    counts = np.diff(starts, append=len(ordered))
    dealt_out = zip(ordered[starts].tolist(), counts.tolist(), strict=True)
    start = 0
    for slot, dealt in groupby(dealt_out, lambda one: int(one[0] // len(slots))):
        of_slot = tuple((Partition(place % len(slots)), count) for place, count in dealt)
        end = start + sum(count for _, count in of_slot)
        yield slot, of_slot, order[start:end]
        start = end


def _chosen(rows: Records, chosen: Sequence[int]) -> Records:
    """Some rows, in the given order."""
    if isinstance(rows, FewRecords):
        return rows if len(rows) == 1 else rows.taken(chosen)
    return rows.take(pa.array(chosen))


def rows_for(topic: str, partition: Partition, blocks: Sequence[ShuffleBlock], first_offset: int) -> RawBatch:
    """The rows that all senders have for a partition, with offsets that go on from `first_offset`.

    They stand sender by sender, and a task takes them as if each sender were a partition
    (:mod:`millstream.task.inputs`): so it is told how many each has.
    """
    parts = [part for block in blocks for part in block.rows(partition)]
    runs = [block.count(partition) for block in blocks] if len(blocks) > 1 else ()
    if len(parts) > 1 and not _fit_into_an_array(blocks, parts):
        pieces = [RawBatch.of(topic, partition, 0, part) for part in parts]
        return joined(topic, partition, pieces, first_offset, runs)
    rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
    return RawBatch.of(topic, partition, first_offset, rows, runs)


def _fit_into_an_array(blocks: Sequence[ShuffleBlock], parts: Sequence[pa.RecordBatch]) -> bool:
    """Whether rows can be joined. They are asked for their size only if all of their blocks are too large."""
    return (
        sum(len(block.payload) for block in blocks) <= MAX_JOINED_BYTES
        or sum(part.nbytes for part in parts) <= MAX_JOINED_BYTES
    )
