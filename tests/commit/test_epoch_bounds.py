"""Cuts against the plain merge: always the partition whose next record is the oldest."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import cast

from millstream import StreamsBuilder, serdes
from millstream.commit.epoch_bounds import Ranges, align, meeting_partitions, quota
from millstream.log.api import Log, TopicPartition
from millstream.types import Offset, Partition


class Times:
    """A log that knows timestamps and sizes only."""

    def __init__(self, columns: list[list[int]], sizes: list[list[int]]) -> None:
        self.columns = columns
        self.sizes = sizes

    def end_within(self, place: TopicPartition, start: int, end: int, max_bytes: int) -> int:
        column = self.sizes[place.partition]
        fitting = (stop for stop in range(end, start, -1) if sum(column[start:stop]) <= max_bytes)
        return next(fitting, start + 1)

    def max_timestamp(self, place: TopicPartition, start: int, end: int) -> int | None:
        return max(self.columns[place.partition][start:end], default=None)

    def offset_for_time(self, place: TopicPartition, timestamp: int, start: int) -> int | None:
        column = self.columns[place.partition]
        return next((offset for offset in range(start, len(column)) if column[offset] >= timestamp), None)


def _place(number: int) -> TopicPartition:
    return TopicPartition("t", Partition(number))


def _merge(columns: list[list[int]], starts: list[int]) -> Iterator[tuple[int, int]]:
    """Partition and offset of each record, always the smallest head, ties to the lower partition."""
    heads = list(starts)
    while True:
        waiting = [(columns[p][heads[p]], p) for p in range(len(columns)) if heads[p] < len(columns[p])]
        if not waiting:
            return
        _, partition = min(waiting)
        yield partition, heads[partition]
        heads[partition] += 1


def _epochs(
    columns: list[list[int]], sizes: list[list[int]], max_records: int, max_bytes: int
) -> Iterator[list[int]]:
    log, starts = cast("Log", Times(columns, sizes)), [0] * len(columns)
    while any(start < len(column) for start, column in zip(starts, columns, strict=True)):
        ranges: Ranges = {}
        for p, start in enumerate(starts):
            limits = Offset(start), Offset(len(columns[p]))
            ranges[_place(p)] = limits[0], quota(log, _place(p), *limits, max_records, max_bytes), limits[1]
        ends = align(log, ranges, [list(ranges)])
        following = [int(ends[_place(p)]) for p in range(len(columns))]
        assert following != starts, "a cut admitted nothing"
        for p, (start, end) in enumerate(zip(starts, following, strict=True)):
            assert end - start <= max_records
            assert end - start <= 1 or sum(sizes[p][start:end]) <= max_bytes
        starts = following
        yield starts


def test_every_cut_is_a_prefix_of_the_merge_and_within_the_quota() -> None:
    for seed in range(2_000):
        rng = random.Random(seed)
        columns = [
            [rng.randint(0, rng.choice([0, 3, 30])) for _ in range(rng.randint(0, 12))]
            for _ in range(rng.randint(1, 4))
        ]
        order = list(_merge(columns, [0] * len(columns)))
        sizes = [[rng.choice([0, 1, 9, 40]) for _ in column] for column in columns]
        for ends in _epochs(columns, sizes, rng.randint(1, 5), rng.choice([1, 10, 30, 1_000])):
            admitted = {(p, offset) for p, end in enumerate(ends) for offset in range(end)}
            assert admitted == set(order[: len(admitted)]), f"seed {seed}"


def test_only_partitions_whose_records_can_meet_are_aligned() -> None:
    builder = StreamsBuilder()
    builder.stream("a", key=serdes.string).merge(builder.stream("b", key=serdes.string)).to("out")
    grouped = builder.stream("c", key=serdes.string).group_by(lambda key, value: value)
    grouped.count(store="counts")
    plan = builder.build().plan()
    counts = plan.partitions({"a": 2, "b": 2, "c": 2})
    groups = meeting_partitions(plan, counts, ["a", "b", "c"])
    assert sorted(sorted(str(place) for place in group) for group in groups) == [
        ["a-0", "b-0"],
        ["a-1", "b-1"],
        ["c-0", "c-1"],
    ]


def test_partitions_that_meet_behind_a_repartition_stand_in_the_order_of_their_tasks() -> None:
    """So do the rows that come out of it: of the same time, those of the first task come first."""
    builder = StreamsBuilder()
    merged = builder.stream("b", key=serdes.string).merge(builder.stream("a", key=serdes.string))
    merged.group_by(lambda key, value: value).count(store="counts")
    plan = builder.build().plan()
    (group,) = meeting_partitions(plan, plan.partitions({"a": 2, "b": 2}), ["a", "b"])
    assert [str(place) for place in group] == ["a-0", "b-0", "a-1", "b-1"]
