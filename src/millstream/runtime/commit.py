"""The driver's part of the commit: steps 1, 2, 7, 8 and 9.

The manifest is the only truth. What it names is durable before it is written; what it does not name is
never read; what it names is published, in epoch order and exactly once, before the next one is written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millstream import failpoints
from millstream.errors import MillstreamError
from millstream.log.api import SealedLog, SealedRange, Stamp, TopicConfig, TopicPartition
from millstream.log.errors import InvalidPublicationError, OffsetOutOfRangeError
from millstream.offset_reset import OffsetReset, reset_time
from millstream.runtime.application_folder import ApplicationFolder
from millstream.runtime.cuts import Ranges, align, meeting_partitions, quota, without
from millstream.runtime.epoch import Cut, EpochJob, Misplaced, PlannedTask, TaskReport
from millstream.runtime.lease import Lease, acquire
from millstream.runtime.manifest import LostManifestError, Manifest, ManifestChain, Section
from millstream.runtime.plan_changes import incompatible_changes
from millstream.runtime.recent_epochs import RecentEpochs
from millstream.runtime.reports import (
    EpochMismatchError,
    MisplacedError,
    advanced,
    all_present,
    check_consumed_is_named,
    entries_after,
    merged_types,
    origins_of,
)
from millstream.runtime.reused_sources import being_rewritten, check_retention, reused_sources
from millstream.runtime.upkeep import Upkeep, UpkeepReport
from millstream.state.changelog import changelog_topic
from millstream.topology.plan import Plan, SubTopology
from millstream.types import Epoch, Offset, Partition

__all__ = ["Driver", "EpochMismatchError", "MisplacedError", "PlanChangedError", "PlanNotSupportedError"]

_LOGGER = logging.getLogger("millstream")
_SETTLE_MS: Final = 1_000
"""How long an epoch waits in all for others who compact topics; what they are still at is read later."""


class PlanNotSupportedError(MillstreamError):
    """The topology needs something that epochs can't do yet."""


class ForeignChangelogError(MillstreamError):
    """A changelog holds rows that the application did not write."""


class PlanChangedError(MillstreamError):
    """The program was changed in a way that the committed state does not fit."""


@dataclass(frozen=True, slots=True)
class DriverSettings:
    """What a driver needs to know besides the plan."""

    max_records: int = 100_000
    """How many records of each partition an epoch takes at most."""
    max_bytes: int = 64 << 20
    """How many bytes of each partition an epoch takes at most, unless a single record has more."""
    lease_ttl_ms: int = 30_000
    default_partitions: int = 1
    """Partitions of an output topic that does not exist yet."""
    offset_reset: OffsetReset = "earliest"
    """Where a source that was never read begins, unless it says so itself."""
    retained_manifests: int = 100
    """How many epochs a store may be behind at most, and still be known as one of this history."""
    spare_bytes: int = 4 << 20
    """What the epochs that are kept may take where state is small: see `millstream.runtime.recent_epochs`."""


class Driver:
    """Commits epochs of one application. The engine runs the tasks in between."""

    def __init__(
        self,
        folder: ApplicationFolder,
        log: SealedLog,
        plan: Plan,
        *,
        clock: Callable[[], int],
        settings: DriverSettings | None = None,
        pinned: Callable[[], Container[int]] = tuple,
    ) -> None:
        self._folder = folder
        self._pinned = pinned
        self._log = log
        self._plan = plan
        self._clock = clock
        self._settings = settings if settings is not None else DriverSettings()
        self._chain = ManifestChain(folder)
        self._lease: Lease | None = None
        self._head: Manifest | None = None
        self._published = Epoch(0)
        self._first_offsets: dict[TopicPartition, Offset] = {}
        self._recent = RecentEpochs(
            most=self._settings.retained_manifests,
            spare_bytes=self._settings.spare_bytes,
            changelogs=self._changelogs(),
            state_bytes=self._changelog_bytes,
        )
        self.counts: dict[str, int] = {}
        """Partitions of every topic, repartitions included."""
        self.has_backlog = False
        """The last cut left records behind that were there already.

        Also if there was no epoch: somebody else is at the topics, and the next one waits for them again.
        """

    @property
    def head(self) -> Manifest:
        """The last commit."""
        assert self._head is not None  # open() comes first
        return self._head

    @property
    def lease(self) -> Lease:
        """The driver's lease."""
        assert self._lease is not None  # open() comes first
        return self._lease

    # Step 1 -------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Take the application over.

        1. Take the lease; read the head. A head that was committed but not published is published.
           Then commit an empty epoch: a driver of an earlier term that wakes up finds its place taken.
           One that was just committing when the lease changed hands may come first: its epoch counts.
        """
        self._check_runnable()
        self._folder.ensure()
        self._lease = acquire(self._folder, clock=self._clock, ttl_ms=self._settings.lease_ttl_ms)
        try:
            while not self._fenced():
                pass  # at most once: nobody else gets past `lease.verify` any more
        except Exception:
            self._lease.release()
            raise
        failpoints.hit("commit.fenced")
        self._folder.remove_unfinished()  # nobody of an earlier term can finish it any more
        self.publish(self.head)

    def _fenced(self) -> bool:
        """Commit the empty epoch behind the head; False if somebody else was there first."""
        head = self._chain.head()
        try:
            self._check_plan(head)
            self._check_publications(head)
            self._create_topics(head)
            failpoints.hit("commit.leased")
            self._chain.settle(head)
            self._head = head
            if head is not None:
                self._recent.resume(self._chain.there())
                self.publish(head)
            self._commit(self._fence(head), () if head is None else head.tasks)
        except Exception:
            # Whatever it is: it may only look wrong, because somebody else went on meanwhile.
            self.lease.verify()
            if self._chain.head() == head:
                raise
            return False
        return True

    def close(self) -> None:
        """Let the lease go."""
        if self._lease is not None:
            self._lease.release()

    # Step 2 -------------------------------------------------------------------------------------------

    def plan_epoch(
        self, *, tick: bool = False, instances: Mapping[str, str] | None = None
    ) -> EpochJob | None:
        """Choose what the next epoch reads; None if there is nothing to do.

        2. The cut begins where the head ends. All tasks that may get records are planned, and get a folder
           to seal in.
        """
        self.lease.renew_if_due()
        if self._published != self.head.epoch:
            self.publish(self.head)  # it failed after the commit, for want of space perhaps
        if self._topics_have_grown():
            self._create_topics(self.head)
        cut = self._cut()
        if not tick and not any(start < end for parts in cut.values() for start, end in parts.values()):
            return None
        homes = instances or {}
        tasks = tuple(
            PlannedTask(
                sub.task_id(number), sub.number, Partition(number), sub.level, homes.get(sub.task_id(number))
            )
            for level in self._plan.steps
            for sub in level
            for number in range(self._plan.task_count(sub, self.counts))
        )
        job = EpochJob(
            application_id=self._folder.application_id,
            epoch=Epoch(self.head.epoch + 1),
            term=self.lease.term,
            clock_ms=self._clock(),
            tick=tick,
            cut=cut,
            tasks=tasks,
            entries=dict(self.head.tasks),
            learned=self.head.learned,
            partition_counts=dict(self.counts),
            default_partitions=self._settings.default_partitions,
            compacted=self._compacted_where_stores_begin(cut),
        )
        self._folder.ensure_epoch(job.epoch)
        failpoints.hit("commit.planned")
        return job

    # Step 7 -------------------------------------------------------------------------------------------

    def commit(self, job: EpochJob, reports: Sequence[TaskReport | Misplaced]) -> Manifest:
        """Check that all reports agree, and write the manifest.

        7. Every planned task has reported once; what each consumed is what the named senders sent; then
           the manifest is written. This is the commit.
        """
        done = all_present(job, reports)
        check_consumed_is_named(self._plan, job, done)
        failpoints.hit("commit.checked")
        entries = entries_after(self._plan, job, done)
        manifest = Manifest(
            application_id=job.application_id,
            epoch=job.epoch,
            term=job.term,
            parent=self.head.digest(),
            fingerprint=self._plan.fingerprint,
            clock_ms=job.clock_ms,
            positions=advanced(self.head.positions, job),
            tasks={**self.head.tasks, **entries},
            sealed=tuple(sorted(entries)),
            learned=merged_types(job, done.values()),
            plan=self._plan.summary,
            repartitions=self._repartitions(),
            oldest=max(self.head.oldest, self._recent.oldest_with(job.epoch, entries.values())),
        )
        self._commit(manifest, manifest.sealed)
        return self.head

    def _commit(self, manifest: Manifest, writers: Iterable[str]) -> None:
        if self._head is not None and self._published != self._head.epoch:
            message = (
                f"epoch {manifest.epoch} can't be committed before epoch {self._head.epoch} is published"
            )
            raise EpochMismatchError(message)
        self._check_changelogs(writers)
        self.lease.verify()
        # The epoch is committed by the manifest alone: what fails from here on does not undo it.
        self._head = self._chain.place(manifest)
        self._recent.committed(self._head)
        self._chain.witness(self._head)

    # Step 8 -------------------------------------------------------------------------------------------

    def publish(self, manifest: Manifest) -> None:
        """Show what the manifest names.

        8. Topic indexes take the sealed rows in at the next offsets, exactly once, however often this is
           called: each entry carries (application, task, epoch).
        """
        ranges = [
            (TopicPartition(section.topic, section.partition), self._range(manifest, task_id, section))
            for task_id in manifest.sealed
            for section in manifest.tasks[task_id].sections
        ]
        self._create_missing({place.topic for place, _ in ranges})
        try:
            self._log.publish_all(ranges)
        except InvalidPublicationError:
            self.lease.verify()  # another driver has published it since, and tidied up
            raise
        self._published = manifest.epoch
        failpoints.hit("commit.published")

    # Step 9 -------------------------------------------------------------------------------------------

    def end(self, manifest: Manifest, listeners: Iterable[Callable[[Manifest], None]] = ()) -> None:
        """Tell listeners that the epoch is over.

        9. From here on the next one may be planned.
        """
        for listener in listeners:
            listener(manifest)
        failpoints.hit("commit.ended")

    # Step 10 ------------------------------------------------------------------------------------------

    @property
    def has_much_to_tend(self) -> bool:
        """Whether so much was sealed since the last time that it is worth tidying up now."""
        return self._recent.have_much

    def tend(self, *, min_entries: int | None = None) -> UpkeepReport:
        """Tidy up behind the head: see :mod:`millstream.runtime.upkeep`. May run beside the epochs."""
        head = self.head
        self.lease.verify()
        has_much = self._recent.have_much
        if has_much and min_entries is None:
            min_entries = 1
        upkeep = Upkeep(self._folder, self._log, self._plan, min_entries=min_entries)
        try:
            report = upkeep.run(head, self._pinned_epochs())
        except FileNotFoundError:
            self.lease.verify()  # another driver tidies up here by now
            raise
        self._recent.tended(self.head.epoch if has_much else None)
        return report

    # Inside -------------------------------------------------------------------------------------------

    def _pinned_epochs(self) -> Container[int] | None:
        try:
            return self._pinned()
        except (MillstreamError, OSError) as error:
            _LOGGER.warning("No manifest is removed: nobody knows which ones snapshots need. %s", error)
            return None

    def _changelog_bytes(self) -> int | None:
        """How much state there is; None if some of it is in sealed files only, which must not go early."""
        if not all(spec.logging for sub in self._plan.subtopologies for spec in sub.stores.values()):
            return None
        return sum(
            self._log.size(TopicPartition(topic, Partition(number)))
            for topic in self._changelogs()
            for number in range(self.counts[topic])
        )

    def _changelogs(self) -> set[str]:
        return {
            changelog_topic(self._folder.application_id, name)
            for sub in self._plan.subtopologies
            for name, spec in sub.stores.items()
            if spec.has_changelog
        }

    def _fence(self, head: Manifest | None) -> Manifest:
        return Manifest(
            application_id=self._folder.application_id,
            epoch=Epoch(1 if head is None else head.epoch + 1),
            term=self.lease.term,
            parent="" if head is None else head.digest(),
            fingerprint=self._plan.fingerprint,
            clock_ms=self._clock(),
            positions=self._first_positions(head),
            tasks={} if head is None else head.tasks,
            sealed=(),
            learned=() if head is None else head.learned,
            plan=self._plan.summary,
            repartitions=self._repartitions(),
            oldest=1 if head is None else head.oldest,
        )

    def _range(self, manifest: Manifest, task_id: str, section: Section) -> SealedRange:
        return SealedRange(
            file=manifest.tasks[task_id].file,
            start=section.start,
            length=section.length,
            count=section.count,
            min_timestamp=section.min_timestamp,
            max_timestamp=section.max_timestamp,
            stamp=Stamp(manifest.application_id, task_id, manifest.epoch),
        )

    def _cut(self) -> dict[str, dict[Partition, tuple[Offset, Offset]]]:
        ranges: Ranges = {}
        topics = self._source_topics()
        for topic in topics:
            for number in range(self.counts[topic]):
                place = TopicPartition(topic, Partition(number))
                start, latest = self._start(place), self._log.latest(place)
                if latest < start:
                    raise OffsetOutOfRangeError(
                        f"{place} ends at offset {latest}, but records up to {start} were committed by "
                        f"application {self._folder.application_id!r}. Likely cause: the topic was deleted "
                        "and created anew, or restored from an older backup than the application. Remedy: "
                        "restore both from the same backup, or start the application under another app_id."
                    )
                limits = self._settings.max_records, self._settings.max_bytes
                ranges[place] = (start, quota(self._log, place, start, latest, *limits), latest)
        groups = meeting_partitions(self._plan, self.counts, topics)
        ends = align(self._log, ranges, groups)
        # A compaction that has not seen a manifest of ours may go further than we can: not beside it.
        beginning = self._where_stores_begin({place: (ranges[place][0], end) for place, end in ends.items()})
        ends = without(being_rewritten(self._log, beginning, _SETTLE_MS), ends, ranges, groups)
        self.has_backlog = any(ends[place] < latest for place, (_, _, latest) in ranges.items())
        cut: dict[str, dict[Partition, tuple[Offset, Offset]]] = {}
        for place, (start, _, _) in ranges.items():
            cut.setdefault(place.topic, {})[place.partition] = (start, ends[place])
        return cut

    def _compacted_where_stores_begin(self, cut: Cut) -> dict[tuple[str, Partition], Offset]:
        """Asked before the records are read: what compaction takes away later, tasks may have seen."""
        ranges = {
            TopicPartition(topic, partition): limits
            for topic, parts in cut.items()
            for partition, limits in parts.items()
        }
        return {
            (place.topic, place.partition): self._log.compacted(place).to
            for place in self._where_stores_begin(ranges)
        }

    def _where_stores_begin(
        self, ranges: Mapping[TopicPartition, tuple[Offset, Offset]]
    ) -> list[TopicPartition]:
        """The partitions of which an epoch has the first records for a store that follows them."""
        reused = list(reused_sources(self._plan))
        return [
            place
            for place, (start, end) in ranges.items()
            if start < end
            and any(
                name not in origins_of(self.head.tasks.get(sub.task_id(place.partition)))
                for sub, name, topic in reused
                if topic == place.topic
            )
        ]

    def _start(self, place: TopicPartition) -> Offset:
        """Where the next epoch begins to read."""
        committed = self.head.position(place.topic, place.partition)
        if committed is not None:
            return committed
        if place not in self._first_offsets:
            # Chosen once: the end of a topic moves on while nothing of it is committed.
            self._first_offsets[place] = self._first_offset(place, self.head)
        return self._first_offsets[place]

    def _first_positions(self, head: Manifest | None) -> tuple[tuple[str, Partition, Offset], ...]:
        """The positions of the head, and where what was never read begins: chosen once for all restarts."""
        known = {} if head is None else {(topic, number): at for topic, number, at in head.positions}
        for topic in self._source_topics():
            for number in map(Partition, range(self.counts[topic])):
                if (topic, number) not in known:
                    known[topic, number] = self._first_offset(TopicPartition(topic, number), head)
        return tuple((topic, number, at) for (topic, number), at in sorted(known.items()))

    def lag(self) -> dict[str, int]:
        """Per source topic, how many records are in the log and not committed yet."""
        behind: dict[str, int] = {}
        for topic in self._source_topics():
            for number in range(self.counts[topic]):
                place = TopicPartition(topic, Partition(number))
                behind[topic] = behind.get(topic, 0) + self._log.latest(place) - self._start(place)
        return behind

    def newest_append_time(self, job: EpochJob) -> int | None:
        """When the newest record of an epoch came into the log; None if it has none."""
        times = [
            self._log.append_time(TopicPartition(topic, partition), Offset(end - 1))
            for topic, parts in job.cut.items()
            for partition, (start, end) in parts.items()
            if start < end
        ]
        return max(times, default=None)

    def _first_offset(self, place: TopicPartition, head: Manifest | None) -> Offset:
        if head is not None and head.partitions(place.topic):
            return self._log.earliest(place)  # added to a topic that is read already: all of it is new
        reset = self._settings.offset_reset
        for sub in self._plan.subtopologies:
            source = sub.source_of(place.topic)
            if source is not None and source.offset_reset is not None:
                reset = source.offset_reset
        if reset == "earliest":
            return self._log.earliest(place)
        if reset == "latest":
            return self._log.latest(place)
        found = self._log.offset_for_time(place, reset_time(reset, self._clock()))
        return self._log.latest(place) if found is None else found

    def _source_topics(self) -> list[str]:
        known = self._log.topics()
        return sorted(
            topic
            for topic in known
            if any(sub.source_of(topic) is not None for sub in self._plan.subtopologies)
        )

    def _topics_have_grown(self) -> bool:
        """Whether a pattern has a new topic, or a topic that we read or write has more partitions."""
        watched = {*self._source_topics(), *self._static_sinks()}
        return any(self.counts.get(topic) != self._log.config(topic).partitions for topic in watched)

    def _create_topics(self, head: Manifest | None) -> None:
        """Changelogs get one partition per task; what the program reads must be there already."""
        before = self.counts
        external = {topic: self._log.config(topic).partitions for topic in self._log.topics()}
        self.counts = self._plan.partitions(external, {} if head is None else head.repartitions)
        check_retention(self._plan, self._log)
        try:
            for sub in self._plan.subtopologies:
                for name in sub.stores:
                    self._check_spread(sub, name, head)
        except PlanChangedError:
            self.counts = before
            raise
        self._create_missing(self._static_sinks())

    def _static_sinks(self) -> set[str]:
        named = {
            sink.topic for sub in self._plan.subtopologies for sink in sub.sinks if sink.topic is not None
        }
        return named - set(self._plan.repartition_topics)

    def _repartitions(self) -> dict[str, int]:
        return {topic: self.counts[topic] for topic in self._plan.repartition_topics}

    def _check_spread(self, sub: SubTopology, store: str, head: Manifest | None) -> None:
        """Refuse if the keys of a store would no longer be where they are; else it has its changelog."""
        tasks = self._plan.task_count(sub, self.counts)
        if sub.stores[store].has_changelog:
            topic = changelog_topic(self._folder.application_id, store)
            self._create(topic, TopicConfig(tasks, is_compacted=True))
            spread = self.counts[topic]
        else:
            spread = self._tasks_before(sub, head) or tasks
        hashed = any(
            name in self._plan.repartition_topics for source in sub.sources for name in source.topics
        )
        if spread < tasks or (hashed and spread != tasks):
            raise PlanChangedError(
                f"Store {store!r} of application {self._folder.application_id!r} is spread over {spread} "
                f"partitions, but the topics that feed it now ask for {tasks}. Nothing was changed. Likely "
                "cause: a topic was given more partitions, or a new topic that fits a pattern has more than "
                "the others. State is kept by partition, and the keys of new records would be elsewhere than "
                "their state. Remedy: start the program under another app_id, so that it builds its state "
                f"anew; or let records come through a topic with {spread} partitions. A stream that is "
                "regrouped (group_by, repartition) in front of the store does not depend on its topic's "
                "partitions."
            )

    def _tasks_before(self, sub: SubTopology, head: Manifest | None) -> int:
        """How many tasks a sub-topology had at the head, as far as records have come."""
        if head is None:
            return 0
        known = {topic: head.partitions(topic) for topic in self._source_topics()} | dict(head.repartitions)
        return max((count for topic, count in known.items() if sub.source_of(topic) is not None), default=0)

    def _create_missing(self, topics: Iterable[str]) -> None:
        for topic in sorted(topics):
            if topic not in self.counts:
                self._create(topic, TopicConfig(self._settings.default_partitions))

    def _create(self, topic: str, config: TopicConfig) -> None:
        if topic not in self._log.topics():
            self._log.create_topic(topic, config)
        self.counts[topic] = self._log.config(topic).partitions

    def _check_runnable(self) -> None:
        for sub in self._plan.subtopologies:
            if sub.feeds_itself:
                raise PlanNotSupportedError(
                    f"Sub-topology {sub.number} feeds itself through a repartition (for example "
                    "stream.repartition().merge(stream)), which runs in the test driver but not yet in "
                    "epochs. Remedy: send the records through a topic with to() and stream()."
                )
        if self._plan.global_subtopologies:
            raise PlanNotSupportedError(
                "Global tables and stores run in the test driver but not yet in epochs. Remedy: read the "
                "topic as a table."
            )

    def _check_plan(self, head: Manifest | None) -> None:
        if head is None or head.fingerprint == self._plan.fingerprint:
            return
        changes = incompatible_changes(head.plan, self._plan.summary)
        if changes:
            raise PlanChangedError(
                f"Application {self._folder.application_id!r} has state that does not fit this program. "
                f"Since epoch {head.epoch} these have changed:\n"
                + "".join(f"  {change}\n" for change in changes)
                + "Nothing was touched. Likely cause: operators were removed or put in front of unnamed "
                "ones, whose numbered names have shifted, or build(optimization=...) was changed. Remedy: "
                "give stores the names they had (store=...), run the program as it was, or start this one "
                "under another app_id."
            )

    def _check_changelogs(self, task_ids: Iterable[str]) -> None:
        """A changelog ends where the head says: positions are counted, so a foreign row would shift them."""
        stores = {sub.number: sub.stores for sub in self._plan.subtopologies}
        for task_id in task_ids:
            number, partition = (int(part) for part in task_id.split("_"))
            entry = None if self._head is None else self._head.tasks.get(task_id)
            for name, spec in stores.get(number, {}).items():
                if not spec.has_changelog:
                    continue
                place = TopicPartition(
                    changelog_topic(self._folder.application_id, name), Partition(partition)
                )
                wanted = 0 if entry is None else entry.changelogs.get(name, 0)
                found = self._log.latest(place)
                if found != wanted:
                    raise ForeignChangelogError(
                        f"The changelog {place} of store {name!r} ends at offset {found}, but the last "
                        f"commit wrote it up to {wanted}. Nothing was committed. Likely cause: another "
                        "program, or another application whose names give the same topic, writes to it. "
                        "Remedy: give the store or the application another name, or restore the log."
                    )

    def _check_publications(self, head: Manifest | None) -> None:
        """A topic that shows an epoch above the head has seen a manifest that is gone."""
        last = 0 if head is None else head.epoch
        for topic in self._log.topics():
            for number in range(self._log.config(topic).partitions):
                found = self._log.publications(TopicPartition(topic, Partition(number)))
                for (publisher, task), publication in found.items():
                    if publisher == self._folder.application_id and publication.epoch > last:
                        raise LostManifestError(
                            f"Topic {topic!r} shows epoch {publication.epoch} of task {task}, but the last "
                            f"manifest of application {publisher!r} is {last}. Nothing was changed. "
                            "Likely cause: the application's folder was deleted, or restored from an older "
                            "backup than its topics. Remedy: restore both from the same backup, or start the "
                            "application under another app_id."
                        )
