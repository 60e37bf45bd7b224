"""The timestamps by which epochs are cut, where they are not the ones that stand in the log.

With an extractor that gives a record another time than its own, nobody knows the order of a task before its
records were decoded. So the records that an epoch may take are decoded once to plan it, where tasks run
(:func:`read_times`), and once more by their task. The coordinator remembers the times of what it did not
take, so a record is shown to the extractor once for planning, however many epochs it waits.

`ExtractedTimes` answers the two questions that a cut asks (:mod:`millstream.commit.epoch_bounds`) from them,
and for all other partitions from the log's own index.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from millstream.commit.manifest import Manifest
from millstream.commit.task_attempt import read_range
from millstream.commit.worker import Worker
from millstream.log.api import Log, TopicPartition
from millstream.task.serde_book import SerdeBook
from millstream.task.source_times import NO_TIME, source_times
from millstream.timestamps import (
    TimestampExtractor,
    fail_on_invalid_timestamp,
    skip_invalid_timestamp,
    wall_clock_timestamp,
)
from millstream.topology.nodes import SourceNode
from millstream.topology.plan import Plan
from millstream.types import Offset

__all__ = ["ExtractedTimes", "ReadTimes", "TimesRequest", "TimestampPlanner", "read_times"]


@dataclass(frozen=True, slots=True)
class TimesRequest:
    """Whose timestamps are wanted. Travels to other processes."""

    place: TopicPartition
    start: Offset
    end: Offset
    partition_time: int
    """The largest timestamp of the partition before `start`."""
    clock_ms: int
    inferred_types: tuple[tuple[str, str, str], ...]


ReadTimes = Callable[[Sequence[TimesRequest]], Sequence["array[int]"]]
"""Per request, the timestamp of each offset; -1 where there is no record, or one that is left out."""


def read_times(worker: Worker, request: TimesRequest) -> array[int]:
    """Read and decode a range of a partition, and extract the timestamps of its records."""
    place, start, end = request.place, request.start, request.end
    source = _source_of(worker.plan, place.topic)
    book = SerdeBook()
    book.restore({(name, part): kind for name, part, kind in request.inferred_types})  # type: ignore[misc]
    raw = read_range(worker.log, place, start, end)
    found = source_times(
        source,
        source.timestamp_extractor or worker.config.timestamp_extractor,
        book,
        raw,
        request.partition_time,
        request.clock_ms,
    )
    if len(found) == end - start:
        return array("q", found)
    times = array("q", [NO_TIME]) * (end - start)
    for offset, time in zip(raw.offsets, found, strict=True):
        times[offset - start] = time
    return times


class TimestampPlanner:
    """Knows which partitions have other timestamps than those in the log, and remembers them."""

    def __init__(self, plan: Plan, default: TimestampExtractor, read: ReadTimes | None) -> None:
        self._plan = plan
        self._default = default
        self._read = read
        self._known: dict[TopicPartition, _KnownTimes] = {}

    @property
    def are_extracted(self) -> bool:
        """Whether records may have to be read for their timestamps before an epoch is planned."""
        sources = (source for sub in self._plan.all_subtopologies for source in sub.sources)
        return any((source.timestamp_extractor or self._default) not in _IN_THE_LOG for source in sources)

    def is_wall_clock(self, place: TopicPartition) -> bool:
        """Whether its records get the time of the epoch that reads them."""
        return self._extractor(place) is wall_clock_timestamp

    def is_extracted(self, place: TopicPartition) -> bool:
        """Whether only the extractor knows the timestamps of its records."""
        return self._extractor(place) not in _IN_THE_LOG

    def times(
        self,
        log: Log,
        wanted: Mapping[TopicPartition, tuple[Offset, Offset]],
        head: Manifest,
        clock_ms: int,
    ) -> ExtractedTimes:
        """The timestamps of some ranges, each from the partition's position on."""
        requests = [
            request
            for place, (start, end) in wanted.items()
            if (request := self._request(place, start, end, head, clock_ms)) is not None
        ]
        if requests:
            assert self._read is not None  # whoever plans epochs with extractors has somebody to run them
            for request, times in zip(requests, self._read(requests), strict=True):
                self._known[request.place].add(times)
        return ExtractedTimes(
            log, {place: self._known[place].between(start, end) for place, (start, end) in wanted.items()}
        )

    def _request(
        self, place: TopicPartition, start: Offset, end: Offset, head: Manifest, clock_ms: int
    ) -> TimesRequest | None:
        """What is not known yet of a range."""
        known = self._known.get(place)
        if known is None or not known.start <= start <= known.end:
            known = self._known[place] = _KnownTimes(start, self._partition_time(place, head))
        known.forget_before(start)
        if known.end >= end:
            return None
        return TimesRequest(place, known.end, end, known.partition_time, clock_ms, head.inferred_types)

    def _extractor(self, place: TopicPartition) -> TimestampExtractor:
        found: TimestampExtractor = _source_of(self._plan, place.topic).timestamp_extractor or self._default
        return found

    def _partition_time(self, place: TopicPartition, head: Manifest) -> int:
        """The partition's time as of the head, of the task that reads it."""
        entries = (
            head.tasks.get(sub.task_id(place.partition))
            for sub in self._plan.all_subtopologies
            if sub.source_of(place.topic) is not None
        )
        return max(
            (
                time
                for entry in entries
                if entry is not None
                for topic, number, time in entry.partition_times
                if (topic, number) == (place.topic, place.partition)
            ),
            default=NO_TIME,
        )


class ExtractedTimes:
    """Answers as a log does (see `Log.max_timestamp`, `Log.offset_for_time`), from extracted timestamps."""

    def __init__(self, log: Log, known: Mapping[TopicPartition, tuple[Offset, Sequence[int]]]) -> None:
        self._log = log
        self._known = known

    def max_timestamp(self, place: TopicPartition, start: Offset, end: Offset) -> int | None:
        """The largest timestamp in a range; None if there is none."""
        if place not in self._known:
            return self._log.max_timestamp(place, start, end)
        first, times = self._known[place]
        found = max(times[start - first : end - first], default=NO_TIME)
        return None if found == NO_TIME else found

    def offset_for_time(self, place: TopicPartition, timestamp: int, start: Offset) -> Offset | None:
        """The first offset from `start` on whose timestamp is not below."""
        if place not in self._known:
            return self._log.offset_for_time(place, timestamp, start)
        first, times = self._known[place]
        reached = (Offset(first + row) for row in range(start - first, len(times)) if times[row] >= timestamp)
        return next(reached, None)


class _KnownTimes:
    """The timestamps of a partition from an offset on."""

    def __init__(self, start: Offset, partition_time: int) -> None:
        self.start = start
        self.partition_time = partition_time
        """The partition's time at the end."""
        self._times: array[int] = array("q")

    @property
    def end(self) -> Offset:
        return Offset(self.start + len(self._times))

    def add(self, times: array[int]) -> None:
        self._times.extend(times)
        self.partition_time = max(self.partition_time, max(times, default=NO_TIME))

    def forget_before(self, start: Offset) -> None:
        del self._times[: start - self.start]
        self.start = start

    def between(self, start: Offset, end: Offset) -> tuple[Offset, Sequence[int]]:
        return start, self._times[start - self.start : end - self.start]


def _source_of(plan: Plan, topic: str) -> SourceNode:
    found = (source for sub in plan.all_subtopologies if (source := sub.source_of(topic)) is not None)
    return next(found)


_IN_THE_LOG = (fail_on_invalid_timestamp, skip_invalid_timestamp, wall_clock_timestamp)
"""Extractors whose answers the log's index knows, where negative ones count for nothing, or the clock."""
