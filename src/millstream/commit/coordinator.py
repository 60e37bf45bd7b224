"""The coordinator's part of the commit: steps 1, 2, 7 and 8 of :mod:`millstream.commit.epoch`.

The manifest is the only truth. What it names is durable before it is written; what it does not name is
never read; what it names is published, in epoch order and exactly once, before the next one is written.

Beside this file: the topics that an application needs (:mod:`.application_topics`), the records that an epoch
reads (:mod:`.source_offsets`), and what is refused (:mod:`.checks`, :mod:`.plan_changes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from millstream import failpoints
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.application_topics import ApplicationTopics
from millstream.commit.caught_up import tasks_behind
from millstream.commit.checks import check_changelogs
from millstream.commit.epoch_job import EpochJob, PlannedTask, TaskReport, WrongInstance
from millstream.commit.lease import Lease, Owner, acquire
from millstream.commit.manifest import Manifest, ManifestChain, TaskEntry
from millstream.commit.manifest_retention import ManifestRetention
from millstream.commit.plan_changes import check_plan
from millstream.commit.planned_tasks import SubTopologyTasks, all_tasks, needed_tasks
from millstream.commit.publisher import Publisher
from millstream.commit.reports import (
    EpochMismatchError,
    WrongInstanceError,
    advanced,
    by_task,
    check_consumed_is_named,
    entries_after,
    merged_types,
)
from millstream.commit.source_offsets import SourceOffsets
from millstream.commit.source_times import ReadTimes, TimestampPlanner
from millstream.commit.task_idling import TaskIdling
from millstream.errors import MillstreamError
from millstream.log.api import Log, TopicPartition
from millstream.offset_reset import OffsetReset
from millstream.threads import end_threads
from millstream.timestamps import TimestampExtractor, fail_on_invalid_timestamp
from millstream.topology.plan import Plan
from millstream.topology.stored_types import stored_types
from millstream.types import Epoch, Partition

_FOLDERS: Final = 16
"""For so many epochs folders are made at once."""


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """What a coordinator needs to know besides the plan."""

    max_records: int = 100_000
    """How many records of each partition an epoch takes at most."""
    max_bytes: int = 64 << 20
    """How many bytes of each partition an epoch takes at most, unless a single record has more."""
    lease_ttl_ms: int = 30_000
    default_partitions: int = 1
    """Partitions of an output topic that does not exist yet."""
    offset_reset: OffsetReset = "earliest"
    """Where a source that was never read begins, unless it says so itself."""
    timestamp_extractor: TimestampExtractor = fail_on_invalid_timestamp
    """Of sources that have none of their own."""
    max_task_idle_ms: int = 0
    """How long records wait for a partition that has none, if they could meet its own: see `.task_idling`."""
    retained_manifests: int = 100
    """How many epochs a store may be behind at most, and still be known as one of this history."""
    spare_bytes: int = 64 << 10
    """What epochs that are kept may take where state is small, per partition of a changelog: maintenance
    costs something for each, however little there is. See `millstream.commit.manifest_retention`."""


class CommitCoordinator:
    """Commits epochs of one application. The engine runs the tasks in between."""

    def __init__(
        self,
        storage: ApplicationStorage,
        log: Log,
        publisher: Publisher,
        plan: Plan,
        *,
        clock: Callable[[], int],
        settings: CoordinatorSettings | None = None,
        read_times: ReadTimes | None = None,
    ) -> None:
        self.storage = storage
        self._log = log
        self._publisher = publisher
        self.plan = plan
        self._types = stored_types(plan)
        self._clock = clock
        self._settings = settings if settings is not None else CoordinatorSettings()
        self._chain = ManifestChain(storage)
        self._lease: Lease | None = None
        self._head: Manifest | None = None
        self._published = Epoch(0)
        self._settling: Callable[[], None] | None = None
        """Waits for what was begun when the head was published, and has to end before the next commit."""
        self._unwitnessed: Manifest | None = None
        """The head, while its witness is still to be written."""
        self._has_folders_to = Epoch(0)
        """The last epoch whose folder was made ahead of it."""
        self._topics = ApplicationTopics(
            storage.application_id, log, plan, default_partitions=self._settings.default_partitions
        )
        self._sources = SourceOffsets(
            log,
            plan,
            self._topics,
            clock=clock,
            max_records=self._settings.max_records,
            max_bytes=self._settings.max_bytes,
            offset_reset=self._settings.offset_reset,
            timestamps=TimestampPlanner(plan, self._settings.timestamp_extractor, read_times),
            idling=TaskIdling(self._settings.max_task_idle_ms),
        )
        self.retention = ManifestRetention(
            most=self._settings.retained_manifests,
            spare_bytes=self._settings.spare_bytes,
            changelogs=self._changelogs(),
            changelog_sizes=self._changelog_sizes,
        )

    @property
    def head(self) -> Manifest:
        """The last commit."""
        assert self._head is not None  # open() comes first
        return self._head

    @property
    def lease(self) -> Lease:
        """The coordinator's lease."""
        assert self._lease is not None  # open() comes first
        return self._lease

    @property
    def owner(self) -> Owner | None:
        """Who this coordinator is, as the lease names it; None if it was never opened."""
        return None if self._lease is None else self._lease.owner

    @property
    def counts(self) -> dict[str, int]:
        """Partitions of every topic, repartitions included."""
        return self._topics.counts

    @property
    def has_backlog(self) -> bool:
        """The last cut left records behind that were there already.

        Also if there was no epoch: somebody else is at the topics, and the next one waits for them again.
        """
        return self._sources.has_backlog

    @property
    def is_idling(self) -> bool:
        """The last cut left records out that wait for a partition that has none: see `.task_idling`."""
        return self._sources.is_idling

    @property
    def may_plan_for_long(self) -> bool:
        """Planning an epoch may take more than a look at topics."""
        return self._sources.may_take_long

    @property
    def is_told_of_records(self) -> bool:
        """The log tells when records come: there is no need to plan epochs only to look for them."""
        return self._sources.are_told

    def wait_for_records(self, timeout_s: float) -> bool:
        """Wait until records may have come; False if none came in time, or the log does not tell of them."""
        return self._sources.wait(timeout_s)

    @property
    def tasks(self) -> list[SubTopologyTasks]:
        """All tasks of the application, whether an epoch needs them or not."""
        return all_tasks(self.plan, self.counts)

    def lag(self) -> dict[str, int]:
        """Per source topic, how many records are in the log and not committed yet."""
        return self._sources.lag(self.head)

    def loading(self) -> dict[TopicPartition, tuple[int, int]]:
        """Per partition of a global topic, how many records of those before the start are committed."""
        return self._sources.loading(self.head)

    def newest_append_time(self, job: EpochJob) -> int | None:
        """When the newest record of an epoch came into the log; None if it has none."""
        return self._sources.newest_append_time(job.cut)

    # Step 1 -------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Take the application over.

        1. Take the lease; read the head. A head that was committed but not published is published.
           Then commit an empty epoch: a coordinator of an earlier term that wakes up finds its place taken.
           One that was just committing when the lease changed hands may come first: its epoch counts.
        """
        if not self.storage.path.exists():  # an application that can't begin leaves nothing behind
            self._topics.check()
            self._sources.first_positions(None)
        self.storage.ensure()
        self._lease = acquire(self.storage, clock=self._clock, ttl_ms=self._settings.lease_ttl_ms)
        try:
            while not self._fenced():
                pass  # at most once: nobody else gets past `lease.verify` any more
        except Exception:
            self.close()
            raise
        self._sources.begin_loading(self.head)
        failpoints.hit("commit.fenced")
        self.storage.remove_unfinished()  # nobody of an earlier term can finish it any more
        self.publish(self.head)
        self._settle()

    def _fenced(self) -> bool:
        """Commit the empty epoch behind the head; False if somebody else was there first."""
        head = self._chain.head()
        try:
            check_plan(self.storage.application_id, self.plan, self._types, head)
            self._publisher.check_head(head)
            self._topics.create(head)
            failpoints.hit("commit.leased")
            self._chain.complete_head(head)
            self._head, self._unwitnessed = head, None
            self.retention.resume(self._chain.not_maintained())
            if head is not None:
                self.publish(head)
            positions = self._sources.first_positions(head)
            fence = structs.replace(self._next(head, self._clock()), positions=positions)
            self._commit(fence, () if head is None else head.tasks)
        except Exception:
            # Whatever it is: it may only look wrong, because somebody else went on meanwhile.
            self.lease.verify()
            if self._chain.head() == head:
                raise
            return False
        return True

    def close(self) -> None:
        """Let the lease go."""
        with suppress(OSError, MillstreamError):  # whoever comes next completes the head
            self._settle()
        self._sources.close()
        end_threads()
        if self._lease is not None:
            self._lease.release()

    def resume(self) -> None:
        """Step 1 of every epoch: renew the lease, and publish the head if that failed after the commit."""
        self.lease.renew_if_due()
        if self._published != self.head.epoch:
            self.publish(self.head)  # for want of space perhaps

    def verify(self) -> None:
        """Raise if another coordinator has taken over."""
        self.lease.verify()

    # Step 2 -------------------------------------------------------------------------------------------

    def plan_epoch(
        self, *, tick: bool = False, instances: Mapping[str, str] | None = None
    ) -> EpochJob | None:
        """Choose what the next epoch reads; None if there is nothing to do.

        2. The cut begins where the head ends. All tasks that may get records are planned (`.planned_tasks`),
           and get a folder to seal in. `instances` are those that hold the tasks' state, as far as it is
           known. What global topics had at the start comes first, alone: until then nothing else is read, and
           no clock ticks.
        """
        if self._topics.have_grown():
            self._topics.create(self.head)
        now_ms = self._clock()
        is_loading = self._sources.is_loading(self.head)
        tick = tick and not is_loading
        cut = self._sources.cut(self.head, now_ms)
        if not tick and not any(start < end for parts in cut.values() for start, end in parts.values()):
            return None
        homes = instances or {}
        are_behind = tasks_behind(self.plan, self.counts, self._sources.left_behind)
        every = self.tasks
        tasks = tuple(
            some.task(
                partition,
                home=homes.get(task_id := some.sub.task_id(partition)),
                caught_up=not is_loading and task_id not in are_behind,
                has_input=partition in with_input,
            )
            for some, planned, with_input in needed_tasks(self.plan, every, cut, tick=tick)
            for partition in planned
        )
        job = EpochJob(
            application_id=self.storage.application_id,
            epoch=Epoch(self.head.epoch + 1),
            term=self.lease.term,
            clock_ms=now_ms,
            tick=tick,
            cut=cut,
            tasks=tasks,
            entries=self._entries_of(tasks),
            inferred_types=self.head.inferred_types,
            partition_counts=dict(self.counts),
            default_partitions=self._settings.default_partitions,
            compacted=self._sources.compacted_where_stores_begin(cut, self.head),
            enforced=self._sources.enforced,
            task_counts={some.sub.number: some.count for some in every},
            global_topics=frozenset(topic for topic in cut if self.plan.fills_global_store(topic)),
            global_tasks=frozenset(sub.task_id(0) for sub in self.plan.global_subtopologies),
        )
        if self._has_folders_to < job.epoch:
            self._make_folders(job.epoch)
        failpoints.hit("commit.planned")
        return job

    def plan_again(self, job: EpochJob, error: Exception, tries: int) -> EpochJob:
        """The same epoch once more, anywhere after two wrong instances: the right one may be gone."""
        if tries > 1 and isinstance(error, WrongInstanceError):
            return replace(job, tasks=tuple(replace(task, expected_instance=None) for task in job.tasks))
        return job

    # Step 7 -------------------------------------------------------------------------------------------

    def commit(self, job: EpochJob, reports: Sequence[TaskReport | WrongInstance]) -> Manifest:
        """Check that all reports agree, and write the manifest.

        7. Every planned task has reported once; what each consumed is what the named senders sent; then
           the manifest is written. This is the commit. If an earlier try has failed only after that, for
           want of space perhaps, its manifest stands.
        """
        if self.head.epoch == job.epoch and self.head.term == job.term:
            self._chain.complete_head(self.head)
            return self.head
        done = by_task(job, reports)
        check_consumed_is_named(self.plan, job, done)
        failpoints.hit("commit.checked")
        entries = entries_after(self.plan, job, done)
        manifest = structs.replace(
            self._next(self.head, job.clock_ms),
            epoch=job.epoch,
            term=job.term,
            positions=advanced(self.head.positions, job),
            tasks={**self.head.tasks, **entries},
            sealed=tuple(sorted(entries)),
            inferred_types=merged_types(job, done.values()),
            oldest=max(self.head.oldest, self.retention.oldest_with(job.epoch, entries.values())),
        )
        self._commit(manifest, manifest.sealed)
        return self.head

    def _commit(self, manifest: Manifest, writers: Iterable[str]) -> None:
        self._settle()
        if self._head is not None and self._published != self._head.epoch:
            raise EpochMismatchError(
                f"epoch {manifest.epoch} can't be committed before epoch {self._head.epoch} is published"
            )
        check_changelogs(self.storage.application_id, self._log, self.plan, self._head, writers)
        self.lease.verify()
        # The epoch is committed by the manifest alone: what fails from here on does not undo it.
        self._head = self._chain.place(manifest)
        self._unwitnessed = self._head
        self.retention.committed(self._head)

    # Step 8 -------------------------------------------------------------------------------------------

    def publish(self, manifest: Manifest) -> None:
        """Show what the manifest names.

        8. Exactly once, however often this is called: see :mod:`.publisher`. The witness is written, and
           folders for later epochs made, beside whatever comes next: the next manifest waits for it.
        """
        sections = [one for task_id in manifest.sealed for one in manifest.tasks[task_id].sections]
        self._topics.create_missing({section.topic for section in sections})
        try:
            self._publisher.publish(manifest)
        except Exception:
            # Another coordinator may have done it since, and its files, or our unfinished ones, are gone.
            self.lease.verify()
            raise
        self._published = manifest.epoch
        failpoints.hit("commit.published")
        self._settling = self.storage.files.begin([self._write_witness, self._make_folders_ahead])

    # Inside -------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Make sure that the head has its witness."""
        wait, self._settling = self._settling, None
        try:
            if wait is not None:
                wait()
            self._write_witness()
        except Exception:
            self.lease.verify()
            raise

    def _write_witness(self) -> None:
        if self._unwitnessed is not None:
            self._chain.witness(self._unwitnessed)
            self._unwitnessed = None

    def _make_folders_ahead(self) -> None:
        """What fails here is tried again by the epoch that needs it."""
        if self._has_folders_to < self.head.epoch + _FOLDERS // 2:
            with suppress(OSError, MillstreamError):
                self._make_folders(Epoch(self.head.epoch + 1))

    def _make_folders(self, first: Epoch) -> None:
        self.storage.ensure_epochs(first, _FOLDERS)
        self._has_folders_to = Epoch(first + _FOLDERS - 1)

    def _changelog_sizes(self) -> list[int] | None:
        """How much state there is; None if some of it is in sealed files only, which must not go early."""
        if not all(spec.logging for sub in self.plan.all_subtopologies for spec in sub.stores.values()):
            return None
        return [
            self._log.raw_size(TopicPartition(topic, Partition(number)))
            for topic in self._changelogs()
            for number in range(self.counts[topic])
        ]

    def _entries_of(self, tasks: Iterable[PlannedTask]) -> dict[str, TaskEntry]:
        """What the head says of some tasks, and of those of global stores: every task may read these."""
        ids = [task.task_id for task in tasks]
        ids += [sub.task_id(0) for sub in self.plan.global_subtopologies]
        return {task_id: self.head.tasks[task_id] for task_id in ids if task_id in self.head.tasks}

    def _changelogs(self) -> set[str]:
        return set(self.plan.changelog_topics(self.storage.application_id).values())

    def _next(self, head: Manifest | None, clock_ms: int) -> Manifest:
        """An epoch behind the head in which nothing has happened."""
        return Manifest(
            application_id=self.storage.application_id,
            epoch=Epoch(1 if head is None else head.epoch + 1),
            term=self.lease.term,
            parent="" if head is None else head.digest(),
            fingerprint=self.plan.fingerprint,
            clock_ms=clock_ms,
            positions=() if head is None else head.positions,
            tasks={} if head is None else head.tasks,
            sealed=(),
            inferred_types=() if head is None else head.inferred_types,
            plan=self.plan.summary,
            repartitions=self._topics.repartitions(),
            types=self._types,
            oldest=1 if head is None else head.oldest,
        )
