"""Which partition each output row goes to: the user's choice, else Kafka's default by the key's bytes.

A row without a key goes to the partition of its task's own number, so that a replay repeats the choice.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from millstream.log.partitioner import partition_for_key, partitions_for_keys
from millstream.processors.columns.column import Column, are_few
from millstream.task.records import OutputBatch, RawBatch
from millstream.types import Partition

__all__ = ["by_partition"]


def by_partition(batch: OutputBatch, count: int, task_partition: int) -> Iterator[tuple[Partition, RawBatch]]:
    """The rows of a batch for each of a topic's `count` partitions, in order."""
    if count == 1:
        dealt = {0: Column(range(len(batch)))} if len(batch) else {}
    else:
        dealt = _partitions(batch, count, task_partition % count).places()
    for partition, rows in sorted(dealt.items()):
        whole = len(rows) == len(batch)
        columns = (batch.keys, batch.values, batch.timestamps)
        keys, values, timestamps = columns if whole else (column.take(rows) for column in columns)
        headers = None if batch.headers is None else [batch.headers[row] for row in rows]
        yield (
            Partition(partition),
            RawBatch(batch.topic, partition, range(len(rows)), keys, values, timestamps, headers),
        )


def _partitions(batch: OutputBatch, count: int, no_key: int) -> Column:
    if are_few(len(batch)):  # a column's hash takes milliseconds, however short it is
        by_key = Column([no_key if key is None else partition_for_key(key, count) for key in batch.keys])
    else:
        keys = batch.keys.series(pl.Binary())
        by_key = Column.of_series(partitions_for_keys(keys, count, null_keys_to=no_key))
    if batch.partitions is None:
        return by_key
    return Column([key if own is None else own for own, key in zip(batch.partitions, by_key, strict=True)])
