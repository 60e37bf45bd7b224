"""Which partition an output row goes to."""

from __future__ import annotations

import pytest

from millstream.log.partitioner import partition_for_key
from millstream.processors.columns.column import Column
from millstream.task.records import OutputBatch
from millstream.task.routing import by_partition


def batch_of(
    count: int, *, keys: list[bytes | None] | None = None, own: list[int | None] | None = None
) -> OutputBatch:
    rows = range(count)
    return OutputBatch(
        "topic",
        Column([b"key %d" % row for row in rows] if keys is None else keys),
        Column([b"%d" % row for row in rows]),
        Column(list(rows)),
        None,
        own,
    )


@pytest.mark.parametrize("count", [0, 1, 500, 501, 2000])
def test_every_row_goes_to_the_partition_of_its_key_in_order(count: int) -> None:
    batch = batch_of(count)
    for partition, rows in by_partition(batch, 3, task_partition=0):
        expected = [
            row for row, key in enumerate(batch.keys) if partition_for_key(key or b"", 3) == partition
        ]
        assert list(rows.timestamps) == expected
        assert (rows.topic, rows.partition) == ("topic", partition)


@pytest.mark.parametrize("count", [10, 600])
def test_rows_without_a_key_go_to_the_partition_of_their_task(count: int) -> None:
    batch = batch_of(count, keys=[None] * count)
    assert [partition for partition, _ in by_partition(batch, 3, task_partition=5)] == [2]


def test_the_users_own_choice_comes_first() -> None:
    batch = batch_of(3, own=[2, None, 0])
    placed = [
        (row, partition)
        for partition, rows in by_partition(batch, 3, task_partition=0)
        for row in rows.timestamps
    ]
    assert sorted(placed) == [(0, 2), (1, partition_for_key(b"key 1", 3)), (2, 0)]


def test_a_topic_of_one_partition_takes_everything() -> None:
    assert [(partition, len(rows)) for partition, rows in by_partition(batch_of(5), 1, task_partition=7)] == [
        (0, 5)
    ]
