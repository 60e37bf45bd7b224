"""Which records of its source topics an epoch reads: from where, up to where, and what it leaves behind.

An epoch begins where the head ends. What was never read begins where the source or the settings say; that is
chosen once. How far it goes: see :mod:`millstream.commit.epoch_bounds`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from millstream.commit.application_topics import ApplicationTopics
from millstream.commit.end_offsets import EndOffsets
from millstream.commit.epoch_bounds import Ranges, align, behind, meeting_partitions, quota, without
from millstream.commit.epoch_job import Cut
from millstream.commit.manifest import Manifest
from millstream.commit.reports import origins_of
from millstream.commit.source_changelog import being_rewritten, reused_sources
from millstream.commit.source_times import TimestampPlanner
from millstream.commit.task_idling import TaskIdling
from millstream.log.api import Log, TopicPartition
from millstream.log.errors import OffsetOutOfRangeError
from millstream.offset_reset import OffsetReset, reset_time
from millstream.topology.plan import Plan
from millstream.types import Offset, Partition

_SETTLE_MS: Final = 1_000
"""How long an epoch waits in all for others who compact topics; what they are still at is read later."""


class SourceOffsets:
    """Chooses what the epochs of one application read."""

    def __init__(
        self,
        log: Log,
        plan: Plan,
        topics: ApplicationTopics,
        *,
        clock: Callable[[], int],
        max_records: int,
        max_bytes: int,
        offset_reset: OffsetReset,
        timestamps: TimestampPlanner,
        idling: TaskIdling,
    ) -> None:
        self._log = log
        self._plan = plan
        self._topics = topics
        self._clock = clock
        self._limits = max_records, max_bytes
        self._offset_reset = offset_reset
        self._timestamps = timestamps
        self._idling = idling
        self._first_offsets: dict[TopicPartition, Offset] = {}
        self.has_backlog = False
        """The last cut left records behind that were there already."""
        self.left_behind: frozenset[TopicPartition] = frozenset()
        """Partitions with records that the last cut leaves out for whatever reason."""
        self.is_idling = False
        """Records were left out by the last cut to wait for others: that is no backlog."""
        self.enforced = 0
        """Groups of which the last cut has records, though some of their partitions have none."""
        self._load: dict[TopicPartition, tuple[Offset, Offset]] = {}
        """Global topics: from where to where they are read first."""
        self._ends = EndOffsets(log)
        self._known_by: tuple[Sequence[str], Mapping[str, int]] = ((), {})
        self._known_places: tuple[Sequence[TopicPartition], Sequence[Sequence[TopicPartition]]] = ((), ())

    def cut(self, head: Manifest, now_ms: int) -> dict[str, dict[Partition, tuple[Offset, Offset]]]:
        """What the epoch behind the head reads, of every partition of every source."""
        is_loading = self.is_loading(head)
        topics = self._topics.sources()
        places, all_groups = self._places_of(topics)
        latest = self._ends.look(places)
        starts = {place: self._start(place, head) for place in places}
        if not self._ends.is_complete and starts == latest:
            latest = self._ends.look_at_all()  # for want of records there is time for it
        ranges: Ranges = {}
        ends: dict[TopicPartition, Offset] = {}
        for place, start in starts.items():
            ends[place] = start
            end = latest[place]
            if start == end:
                ranges[place] = (start, start, start)
                continue
            if end < start:
                raise OffsetOutOfRangeError(
                    f"{place} ends at offset {end}, but records up to {start} were committed by "
                    f"application {head.application_id!r}. Likely cause: the topic was deleted "
                    "and created anew, or restored from an older backup than the application. Remedy: "
                    "restore both from the same backup, or start the application under another app_id."
                )
            # All others wait, unread, for the global topics that are loaded.
            is_read = not is_loading or place in self._load
            ranges[place] = (
                start,
                quota(self._log, place, start, end, *self._limits) if is_read else start,
                end,
            )
        # Those that meet nobody with records have nothing to decide.
        groups = [
            group
            for group in all_groups
            if any(starts[place] != latest[place] for place in group)
            and (not is_loading or not self._load.keys().isdisjoint(group))
        ]
        idle = self._idling.waiting(ranges, groups, now_ms)
        going_on = [group for group in groups if idle.isdisjoint(group)]
        meeting = [place for group in groups for place in group]
        aligned = self._aligned({place: ranges[place] for place in meeting}, going_on, head, now_ms)
        ends.update(without(idle, aligned, ranges, groups))
        # A compaction that has not seen a manifest of ours may go further than we can: not beside it.
        beginning = self._where_stores_begin(
            {place: (ranges[place][0], ends[place]) for place in meeting}, head
        )
        rewritten = being_rewritten(self._log, beginning, _SETTLE_MS)
        ends.update(without(rewritten, {place: ends[place] for place in meeting}, ranges, groups))
        self.enforced = self._idling.enforced(ranges, going_on, rewritten)
        self.is_idling = bool(idle)
        self.has_backlog = is_loading or any(
            ends[place] < ranges[place][2] for group in going_on for place in group
        )
        self.left_behind = frozenset(place for place, end in ends.items() if end < ranges[place][2])
        cut: dict[str, dict[Partition, tuple[Offset, Offset]]] = {topic: {} for topic in topics}
        for place, end in ends.items():
            cut[place.topic][place.partition] = (starts[place], end)
        return cut

    @property
    def may_take_long(self) -> bool:
        """Whether a cut may have to read records, or to wait for a compaction."""
        return self._timestamps.are_extracted or any(True for _ in reused_sources(self._plan))

    def wait(self, timeout_s: float) -> bool:
        """Wait for records; False if none came in time, or nobody tells of them."""
        return self._ends.wait(timeout_s)

    @property
    def are_told(self) -> bool:
        """The log tells of new records, so nobody has to look for them all the time."""
        return self._ends.is_told

    def close(self) -> None:
        """Be told of records no more."""
        self._ends.close()

    def _places_of(
        self, topics: Sequence[str]
    ) -> tuple[Sequence[TopicPartition], Sequence[Sequence[TopicPartition]]]:
        """The partitions of some topics, and those that meet: the same until topics grow."""
        counts = self._topics.counts
        if self._known_by != (topics, counts):
            self._known_by = topics, dict(counts)
            self._known_places = (
                [TopicPartition(topic, Partition(at)) for topic in topics for at in range(counts[topic])],
                meeting_partitions(self._plan, counts, topics),
            )
        return self._known_places

    def begin_loading(self, head: Manifest) -> None:
        """Note where global topics end: up to there they are read before anything else, at every start."""
        self._load.clear()
        for topic in self._topics.sources():
            if any(sub.source_of(topic) is not None for sub in self._plan.global_subtopologies):
                for number in range(self._topics.counts[topic]):
                    place = TopicPartition(topic, Partition(number))
                    self._load[place] = self._start(place, head), self._log.latest(place)

    def is_loading(self, head: Manifest) -> bool:
        """Whether global topics have records from before the start that are not committed yet."""
        return any(self._start(place, head) < end for place, (_, end) in self._load.items())

    def loading(self, head: Manifest) -> dict[TopicPartition, tuple[int, int]]:
        """Per partition of a global topic, how many records of those before the start are loaded."""
        return {
            place: (min(self._start(place, head), end) - start, end - start)
            for place, (start, end) in self._load.items()
        }

    def _aligned(
        self, ranges: Ranges, groups: Sequence[Sequence[TopicPartition]], head: Manifest, now_ms: int
    ) -> dict[TopicPartition, Offset]:
        """Where the epoch ends; timestamps are extracted only where others have to be cut because of them."""
        meeting = [group for group in groups if len(group) > 1 and behind(ranges, group)]
        places = [place for group in meeting for place in group if ranges[place][0] < ranges[place][1]]
        wanted = {place: ranges[place][:2] for place in places if self._timestamps.is_extracted(place)}
        times = self._timestamps.times(self._log, wanted, head, now_ms)
        read_at = {place: now_ms for place in places if self._timestamps.is_wall_clock(place)}
        return align(times, ranges, meeting, read_at)

    def compacted_where_stores_begin(self, cut: Cut, head: Manifest) -> dict[tuple[str, Partition], Offset]:
        """Asked before the records are read: what compaction takes away later, tasks may have seen."""
        ranges = {
            TopicPartition(topic, partition): limits
            for topic, parts in cut.items()
            for partition, limits in parts.items()
        }
        return {
            (place.topic, place.partition): self._log.compacted(place).to
            for place in self._where_stores_begin(ranges, head)
        }

    def first_positions(self, head: Manifest | None) -> tuple[tuple[str, Partition, Offset], ...]:
        """The positions of the head, and where what was never read begins: chosen once for all restarts."""
        known = {} if head is None else {(topic, number): at for topic, number, at in head.positions}
        for topic in self._topics.sources():
            for number in map(Partition, range(self._topics.counts[topic])):
                if (topic, number) not in known:
                    known[topic, number] = self._first_offset(TopicPartition(topic, number), head)
        return tuple((topic, number, at) for (topic, number), at in sorted(known.items()))

    def lag(self, head: Manifest) -> dict[str, int]:
        """Per source topic, how many records are in the log and not committed yet."""
        behind: dict[str, int] = {}
        for topic in self._topics.sources():
            for number in range(self._topics.counts[topic]):
                place = TopicPartition(topic, Partition(number))
                behind[topic] = behind.get(topic, 0) + self._log.latest(place) - self._start(place, head)
        return behind

    def newest_append_time(self, cut: Cut) -> int | None:
        """When the newest record of a cut came into the log; None if it has none."""
        times = [
            self._log.append_time(TopicPartition(topic, partition), Offset(end - 1))
            for topic, parts in cut.items()
            for partition, (start, end) in parts.items()
            if start < end
        ]
        return max(times, default=None)

    def _where_stores_begin(
        self, ranges: Mapping[TopicPartition, tuple[Offset, Offset]], head: Manifest
    ) -> list[TopicPartition]:
        """The partitions of which an epoch has the first records for a store that follows them."""
        reused = list(reused_sources(self._plan))
        return [
            place
            for place, (start, end) in ranges.items()
            if start < end
            and any(
                name not in origins_of(head.tasks.get(sub.task_id(place.partition)))
                for sub, name, topic in reused
                if topic == place.topic
            )
        ]

    def _start(self, place: TopicPartition, head: Manifest) -> Offset:
        """Where the next epoch begins to read."""
        committed = head.position(place.topic, place.partition)
        if committed is not None:
            return committed
        if place not in self._first_offsets:
            # Chosen once: the end of a topic moves on while nothing of it is committed.
            self._first_offsets[place] = self._first_offset(place, head)
        return self._first_offsets[place]

    def _first_offset(self, place: TopicPartition, head: Manifest | None) -> Offset:
        if head is not None and head.partitions(place.topic):
            return self._log.earliest(place)  # added to a topic that is read already: all of it is new
        reset = self._offset_reset
        for sub in self._plan.all_subtopologies:
            source = sub.source_of(place.topic)
            if source is not None and sub.is_global:
                return self._log.earliest(place)  # it is a table: all of it
            if source is not None and source.offset_reset is not None:
                reset = source.offset_reset
        if reset == "earliest":
            return self._log.earliest(place)
        if reset == "latest":
            return self._log.latest(place)
        found = self._log.offset_for_time(place, reset_time(reset, self._clock()))
        return self._log.latest(place) if found is None else found
