"""The order in which a task takes its records, and what it knows of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from millstream.processors.columns.column import Column
from millstream.record import RecordMetadata
from millstream.task.inputs import TaskInput
from millstream.task.records import DecodedPart, RawBatch


def part(topic: str, timestamps: Sequence[int], *, offset: int = 0, source: str = "source") -> DecodedPart:
    rows = range(len(timestamps))
    keys = [f"{topic}{row}" for row in rows]
    raw = RawBatch(
        topic,
        0,
        [offset + row for row in rows],
        [key.encode() for key in keys],
        [b""] * len(rows),
        timestamps,
    )
    return DecodedPart(raw, source, rows, Column(keys), Column(rows), None, Column(timestamps))


def keys_in_order(*parts: DecodedPart) -> list[str]:
    batches = TaskInput(parts, -1).batches(0, sum(len(one.rows) for one in parts), ordered=False)
    assert len(batches) <= 1
    return [key for batch in batches.values() for key in batch.keys]


def test_the_partition_whose_next_record_is_the_oldest_comes_first() -> None:
    assert keys_in_order(part("a", [1, 4, 5]), part("b", [2, 3, 9])) == ["a0", "b0", "b1", "a1", "a2", "b2"]


def test_records_of_a_partition_are_never_reordered() -> None:
    assert keys_in_order(part("a", [5, 1, 6]), part("b", [4, 5])) == ["b0", "a0", "a1", "b1", "a2"]


def test_of_equally_old_records_the_first_partition_comes_first() -> None:
    assert keys_in_order(part("a", [7]), part("b", [7])) == ["a0", "b0"]


def by_queue(parts: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """One record at a time, always from the part whose head is the oldest."""
    heads = [0] * len(parts)
    order = []
    while any(head < len(one) for head, one in zip(heads, parts, strict=True)):
        waiting = [number for number, one in enumerate(parts) if heads[number] < len(one)]
        chosen = min(waiting, key=lambda number: parts[number][heads[number]])
        order.append((chosen, heads[chosen]))
        heads[chosen] += 1
    return order


@given(st.lists(st.lists(st.integers(0, 8), max_size=8), min_size=1, max_size=4))
def test_sorting_by_the_running_maximum_is_the_same_as_a_queue_of_heads(parts: list[list[int]]) -> None:
    names = "abcd"
    decoded = [part(name, times) for name, times in zip(names, parts, strict=False)]
    assert keys_in_order(*decoded) == [f"{names[number]}{row}" for number, row in by_queue(parts)]


def test_stream_time_is_the_largest_timestamp_so_far_and_never_goes_back() -> None:
    task_input = TaskInput([part("a", [3, 9, 4])], 5)
    assert task_input.stream_times == [5, 9, 9]


def test_a_row_knows_where_it_was_read() -> None:
    task_input = TaskInput([part("a", [5]), part("b", [4, 6], offset=40)], -1)
    assert [task_input.metadata(row) for row in range(3)] == [
        RecordMetadata("b", 0, 40),
        RecordMetadata("a", 0, 0),
        RecordMetadata("b", 0, 41),
    ]


def test_rows_go_to_their_own_source() -> None:
    task_input = TaskInput([part("a", [1, 3], source="left"), part("b", [2], source="right")], -1)
    batches = task_input.batches(0, 3, ordered=True)
    assert {name: batch.keys for name, batch in batches.items()} == {"left": ["a0", "a1"], "right": ["b0"]}
    assert {name: batch.order for name, batch in batches.items()} == {
        "left": [(0,), (2,)],
        "right": [(1,)],
    }


def test_a_slice_of_the_order_has_only_its_rows() -> None:
    batches = TaskInput([part("a", [1, 2, 3])], -1).batches(1, 2, ordered=False)
    assert batches["source"].keys == ["a1"]
    assert list(batches["source"].origins) == [1]


def test_columns_of_one_source_stay_in_arrow_beside_another_source_in_python() -> None:
    left = replace(part("a", [1, 3], source="left"), values=Column.of_series(pl.Series([1.5, 2.5])))
    batches = TaskInput([left, part("b", [2, 4], source="right")], -1).batches(0, 4, ordered=True)
    found = {source: (batch.values.in_arrow, list(batch.values)) for source, batch in batches.items()}
    assert found == {"left": (True, [1.5, 2.5]), "right": (False, [0, 1])}
    assert {source: batch.order for source, batch in batches.items()} == {
        "left": [(0,), (2,)],
        "right": [(1,), (3,)],
    }


def test_several_partitions_of_one_of_several_sources_are_merged() -> None:
    parts = [part("a", [1, 6]), part("b", [2, 5], source="other"), part("c", [3, 4])]
    batches = TaskInput(parts, -1).batches(1, 6, ordered=False)
    assert {source: list(batch.keys) for source, batch in batches.items()} == {
        "source": ["c0", "c1", "a1"],
        "other": ["b0", "b1"],
    }
