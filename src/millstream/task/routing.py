"""Which partition each output row goes to: the user's choice, else Kafka's default by the key's bytes.

A row without a key goes to the partition of its task's own number, so that a replay repeats the choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millstream.log.partitioner import partition_for_key, partitions_for_keys
from millstream.processors.columns.column import Column, are_few
from millstream.task.records import OutputBatch, RawBatch
from millstream.types import Partition

__all__ = ["by_partition"]


def by_partition(batch: OutputBatch, count: int, task_partition: int) -> Iterator[tuple[Partition, RawBatch]]:
    """The rows of a batch for each of a topic's `count` partitions, in order."""
    for partition, rows in _rows_by_partition(batch, count, task_partition):
        whole = len(rows) == len(batch)
        columns = (batch.keys, batch.values, batch.timestamps)
        keys, values, timestamps = columns if whole else (column.take(rows) for column in columns)
        headers = None if batch.headers is None else [batch.headers[row] for row in rows]
        yield (
            Partition(partition),
            RawBatch(batch.topic, partition, range(len(rows)), keys, values, timestamps, headers),
        )


def _rows_by_partition(batch: OutputBatch, count: int, task_partition: int) -> Iterator[tuple[int, Column]]:
    if batch.keys.in_arrow and batch.partitions is None and not are_few(len(batch)):
        # A batch that stands in columns is dealt out without a Python object per row.
        chosen = partitions_for_keys(batch.keys.series(), count, null_keys_to=task_partition % count)
        for partition in chosen.unique().sort().to_list():
            yield partition, Column.of_series((chosen == partition).arg_true())
        return
    rows: dict[int, list[int]] = {}
    for row, partition in enumerate(_partitions(batch, count, task_partition)):
        rows.setdefault(partition, []).append(row)
    for partition, taken in sorted(rows.items()):
        yield partition, Column(taken)


def _partitions(batch: OutputBatch, count: int, task_partition: int) -> Sequence[int]:
    if count == 1:
        return [0] * len(batch)
    no_key = task_partition % count
    if are_few(len(batch)):  # a column's hash takes milliseconds, however short it is
        by_key = [no_key if key is None else partition_for_key(key, count) for key in batch.keys]
    else:
        by_key = partitions_for_keys(batch.keys.rows(), count, null_keys_to=no_key).to_list()
    if batch.partitions is None:
        return by_key
    return [key if own is None else own for own, key in zip(batch.partitions, by_key, strict=True)]
