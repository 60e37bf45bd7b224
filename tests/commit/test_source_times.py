"""Cuts along timestamps that an extractor gives: against the plain merge of what a task would see."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millstream import StreamsBuilder, serdes, timestamps
from millstream.commit.epoch_bounds import Ranges, align
from millstream.commit.manifest import Manifest
from millstream.commit.source_times import TimesRequest, TimestampPlanner
from millstream.log.api import Log, TopicPartition
from millstream.processors.batch import OrderKey
from millstream.task.records import RawBatch
from millstream.task.serde_book import SerdeBook
from millstream.task.source_times import source_times
from millstream.task.sources import SourceReader
from millstream.timestamps import TimestampExtractor
from millstream.topology.nodes import SourceNode
from millstream.topology.plan import Plan
from millstream.types import Offset, Partition

DROPPED = -1


@lru_cache
def _plan(*partitions: TimestampExtractor | None) -> Plan:
    """Topics of one partition that meet in one task, each with an extractor of its own."""
    builder = StreamsBuilder()
    streams = [
        builder.stream(f"t{number}", value=serdes.string, timestamp_extractor=extractor)
        for number, extractor in enumerate(partitions)
    ]
    reduce(lambda one, other: one.merge(other), streams).to("out")
    return builder.build().plan()


def _place(number: int) -> TopicPartition:
    return TopicPartition(f"t{number}", Partition(0))


def _own(record: Any, partition_time: int) -> int:
    del partition_time
    return int(record.value)


@dataclass
class Topics:
    """Records with the timestamps of the log and, where there is an extractor, its answers."""

    in_log: list[list[int]]
    extracted: list[list[int] | None]
    asked: dict[TopicPartition, int] = field(default_factory=dict)
    """Up to which offset timestamps were extracted."""

    def seen(self, number: int) -> list[int]:
        """What a task will see."""
        return self.extracted[number] or self.in_log[number]

    def max_timestamp(self, place: TopicPartition, start: int, end: int) -> int | None:
        found = max(self.in_log[int(place.topic[1:])][start:end], default=-1)
        return None if found < 0 else found

    def offset_for_time(self, place: TopicPartition, timestamp: int, start: int) -> int | None:
        column = self.in_log[int(place.topic[1:])]
        return next((offset for offset in range(start, len(column)) if column[offset] >= timestamp), None)

    def read(self, requests: Sequence[TimesRequest]) -> list[array[int]]:
        answers = []
        for request in requests:
            column = self.extracted[int(request.place.topic[1:])]
            assert column is not None
            assert self.asked.get(request.place, request.start) == request.start, (
                "a record was asked for twice"
            )
            assert request.partition_time == max(column[: request.start], default=-1)
            self.asked[request.place] = request.end
            answers.append(array("q", column[request.start : request.end]))
        return answers


def _random_topics(rng: random.Random) -> Topics:
    in_log: list[list[int]] = []
    extracted: list[list[int] | None] = []
    for _ in range(rng.randint(2, 4)):
        times = [rng.choice([DROPPED, *range(rng.choice([1, 3, 30]))]) for _ in range(rng.randint(0, 12))]
        if rng.random() < 0.6:
            in_log.append([rng.randint(0, 30) for _ in times])
            extracted.append(times)
        else:
            in_log.append(times)
            extracted.append(None)
    return Topics(in_log, extracted)


def _merge(columns: list[list[int]]) -> Iterator[tuple[int, int]]:
    """Partition and offset of each record that is not dropped: always the oldest head."""
    waiting = [[(offset, time) for offset, time in enumerate(column) if time >= 0] for column in columns]
    while any(waiting):
        _, partition = min((rest[0][1], number) for number, rest in enumerate(waiting) if rest)
        yield partition, waiting[partition].pop(0)[0]


def _head(partition_times: dict[str, int]) -> Manifest:
    entry = SimpleNamespace(partition_times=[(topic, 0, time) for topic, time in partition_times.items()])
    return cast("Manifest", SimpleNamespace(tasks={"0_0": entry}, inferred_types=()))


@pytest.mark.parametrize("with_restarts", [False, True])
def test_every_cut_is_a_prefix_of_what_the_task_sees(with_restarts: bool) -> None:
    for seed in range(1_000):
        rng = random.Random(seed)
        topics = _random_topics(rng)
        count = len(topics.in_log)
        order = list(_merge([topics.seen(number) for number in range(count)]))
        plan = _plan(
            *(timestamps.skip_invalid_timestamp if own is None else _own for own in topics.extracted)
        )
        planner = TimestampPlanner(plan, timestamps.fail_on_invalid_timestamp, topics.read)
        starts, quota = [0] * count, rng.randint(1, 5)
        while any(start < len(topics.in_log[p]) for p, start in enumerate(starts)):
            ranges: Ranges = {}
            for p, start in enumerate(starts):
                end = len(topics.in_log[p])
                ranges[_place(p)] = Offset(start), Offset(min(end, start + quota)), Offset(end)
            if with_restarts and rng.random() < 0.3:
                planner = TimestampPlanner(plan, timestamps.fail_on_invalid_timestamp, topics.read)
                topics.asked.clear()
            head = _head({f"t{p}": max(topics.seen(p)[:start], default=-1) for p, start in enumerate(starts)})
            wanted = {
                place: limits[:2]
                for place, limits in ranges.items()
                if planner.is_extracted(place) and limits[0] < limits[1]
            }
            ends = align(planner.times(cast("Log", topics), wanted, head, 0), ranges, [list(ranges)])
            following = [int(ends[_place(p)]) for p in range(count)]
            assert following != starts, f"seed {seed}: a cut admitted nothing"
            assert all(end - start <= quota for start, end in zip(starts, following, strict=True))
            starts = following
            admitted = {
                (p, offset)
                for p, end in enumerate(starts)
                for offset in range(end)
                if topics.seen(p)[offset] >= 0
            }
            assert admitted == set(order[: len(admitted)]), f"seed {seed}"


def test_partitions_with_the_time_of_reading_do_not_hold_each_other_up() -> None:
    """Nor do they let others run ahead of the clock."""
    topics = cast("Log", Topics([[0] * 9, [0] * 9, [*range(5), *range(50, 54)]], [None, None, None]))
    ranges: Ranges = {_place(p): (Offset(0), Offset(3), Offset(9)) for p in range(2)}
    ranges[_place(2)] = (Offset(0), Offset(9), Offset(9))
    read_at = {_place(0): 20, _place(1): 20}
    assert list(align(topics, ranges, [list(ranges)], read_at).values()) == [3, 3, 5]


def test_records_with_the_time_of_reading_wait_for_older_ones() -> None:
    topics = cast("Log", Topics([[0] * 9, [*range(9)]], [None, None]))
    ranges: Ranges = {
        _place(0): (Offset(0), Offset(9), Offset(9)),
        _place(1): (Offset(0), Offset(4), Offset(9)),
    }
    assert align(topics, ranges, [list(ranges)], {_place(0): 20}) == {_place(0): 0, _place(1): 4}


def _raw(values: Sequence[bytes], times: Sequence[int]) -> RawBatch:
    return RawBatch("in", 0, range(len(values)), [None] * len(values), values, times)


def test_the_times_of_planning_are_those_of_the_task_and_bad_records_have_none() -> None:
    def extract(record: Any, partition_time: int) -> int:
        answer: int = {1: 50, 2: partition_time + 1, 3: -7, 4: record.wall_clock_ms}[record.value]
        return answer

    node = SourceNode("source", ("in",), None, None, serdes.int64, None, None, "here")
    good = [serdes.int64.serialize(number) for number in (1, 2, 3, 4)]
    reader = SourceReader(node, SerdeBook(), extract, _no_failure, lambda *_: None, clock=lambda: 99)
    kept = reader.read(_raw(good, [5] * 4), 10)
    assert source_times(node, extract, SerdeBook(), _raw(good, [5] * 4), 10, 99) == [50, 51, -1, 99]
    assert list(kept.timestamps) == [50, 51, 99]

    bad = [good[0], b"short", serdes.int64.serialize(8), good[1]]
    assert source_times(node, extract, SerdeBook(), _raw(bad, [5] * 4), 10, 99) == [50, -1, -1, 51]
    one_word = lambda *_: "soon"  # noqa: E731 - an extractor
    assert source_times(node, cast("Any", one_word), SerdeBook(), _raw(good, [5] * 4), 10, 99) == [-1] * 4


def _no_failure(raw: RawBatch, row: int, error: Exception, order: OrderKey) -> None:
    raise AssertionError((raw, row, error, order))


@pytest.mark.parametrize(
    ("extractor", "extracted", "wall_clock"),
    [
        (timestamps.fail_on_invalid_timestamp, False, False),
        (timestamps.skip_invalid_timestamp, False, False),
        (timestamps.use_partition_time_on_invalid_timestamp, True, False),
        (timestamps.wall_clock_timestamp, False, True),
        (_own, True, False),
    ],
)
@pytest.mark.parametrize("of_source", [True, False])
def test_only_what_the_log_does_not_know_is_extracted(
    extractor: TimestampExtractor, extracted: bool, wall_clock: bool, of_source: bool
) -> None:
    default = timestamps.fail_on_invalid_timestamp if of_source else extractor
    planner = TimestampPlanner(_plan(extractor if of_source else None), default, None)
    assert planner.is_extracted(_place(0)) == extracted
    assert planner.is_wall_clock(_place(0)) == wall_clock
