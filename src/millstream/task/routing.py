"""Which partition each output row goes to: the user's choice, else Kafka's default by the key's bytes.

A row without a key goes to the partition of its task's own number, so that a replay repeats the choice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import polars as pl

from millstream.log.partitioner import partition_for_key, partitions_for_keys
from millstream.processors.columns.column import Column, are_few
from millstream.task.records import OutputBatch, RawBatch
from millstream.types import Partition

__all__ = ["by_partition", "partitions_of"]


def by_partition(batch: OutputBatch, count: int, task_partition: int) -> Iterator[tuple[Partition, RawBatch]]:
    """The rows of a batch for each of a topic's `count` partitions, in order."""
    if not len(batch):
        return
    numbers = partitions_of(batch, count, task_partition)
    columns = (batch.keys, batch.values, batch.timestamps)
    headers = batch.headers
    if not numbers.is_sorted():
        order = numbers.places_in_order()
        numbers = numbers.take(order)
        columns = (batch.keys.take(order), batch.values.take(order), batch.timestamps.take(order))
        headers = None if headers is None else [headers[row] for row in order]
    for partition, start, end in _runs(numbers.rows()):
        keys, values, timestamps = (column.at(range(start, end)) for column in columns)
        own = None if headers is None else headers[start:end]
        yield (
            Partition(partition),
            RawBatch(batch.topic, partition, range(end - start), keys, values, timestamps, own),
        )


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Equal numbers that stand together: which, from where to where."""
    start = 0
    while start < len(numbers):
        end = bisect_right(numbers, numbers[start], start)
        yield numbers[start], start, end
        start = end


def partitions_of(batch: OutputBatch, count: int, task_partition: int) -> Column:
    """The partition of each row of a batch, of a topic that has `count` of them."""
    if count == 1:
        return Column([0] * len(batch))
    no_key = task_partition % count
    if are_few(len(batch)):  # a column's hash takes milliseconds, however short it is
        by_key = Column([no_key if key is None else partition_for_key(key, count) for key in batch.keys])
    else:
        keys = batch.keys.series(pl.Binary())
        by_key = Column.of_series(partitions_for_keys(keys, count, null_keys_to=no_key))
    if batch.partitions is None:
        return by_key
    return Column([key if own is None else own for own, key in zip(batch.partitions, by_key, strict=True)])
