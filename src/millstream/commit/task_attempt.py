"""One attempt of a task in an epoch: steps 3 to 6 of the commit. Runs wherever the engine puts it.

Nothing that a task does before the coordinator has committed can be seen by anybody: it writes one file under
a name that only it has, and answers. A task that is started twice, or wakes up late, does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec

from millstream import failpoints
from millstream.commit.epoch_job import EpochJob, PlannedTask, TaskReport, WrongInstance
from millstream.commit.global_stores import GlobalStores
from millstream.commit.manifest import TaskEntry
from millstream.commit.sealed_file import NO_FILE, SealedContent, SealedFile, write_sealed
from millstream.commit.source_changelog import check_nothing_skipped, check_timestamps
from millstream.commit.store_opening import opened_stores
from millstream.commit.worker import Worker
from millstream.log.api import Log, TopicPartition
from millstream.log.blocks import Records
from millstream.state.backends.api import NO_STATE, Backend
from millstream.state.changelog.follow import CountedRestores
from millstream.state.changelog.rows import changelog_records, changelog_topic
from millstream.state.errors import TaskLockedError
from millstream.state.local.open_stores import Sealed
from millstream.state.local.task_stores import positions_on_disk
from millstream.state.stores.factory import open_store
from millstream.state.stores.overlay import CommittedReader
from millstream.state.stores.size_after import size_after
from millstream.state.stores.store import StateStore
from millstream.task.metrics import Metrics
from millstream.task.records import OutputBatch, RawBatch, joined, records_of_batches
from millstream.task.routing import by_partition
from millstream.task.serde_book import SerdeBook
from millstream.task.shuffle_block import ConsumedBlock, Route, Shuffle, ShuffleBlock, one_slot, rows_for
from millstream.task.stage_timer import StageTimer
from millstream.task.task import Task, TaskEnvironment, TaskResult, TaskState
from millstream.topology.plan import SubTopology
from millstream.types import Attempt, Offset, Partition, Version

_RowsByPlace: TypeAlias = dict[tuple[str, Partition], list[RawBatch]]


def run_task(
    worker: Worker,
    job: EpochJob,
    planned: PlannedTask,
    blocks: Sequence[ShuffleBlock],
    attempt: Attempt,
    route: Route = one_slot,
) -> tuple[TaskReport | WrongInstance, list[ShuffleBlock]]:
    """Run one task of an epoch. `blocks` have rows for it; `route` says which slot reads what it sends.

    3. Open the stores at the version that the head names; on the wrong instance and cold: say so.
    4. Process against overlays.
    5. Seal: all outputs and changelog rows in one file, durable before anybody hears of it.
    6. Report.
    """
    stages = StageTimer()
    run = _TaskAttempt.of(worker, job, planned, blocks, attempt)
    sub, entry = run.sub, run.entry
    raws = run.raws()
    stages.ended("read")
    if not raws and not (job.tick and sub.may_schedule):
        return _idle(run), []
    # 3.
    check_timestamps(sub, worker.config)
    elsewhere = _wrong_instance(run)
    if elsewhere is not None:
        return elsewhere, []
    counted = CountedRestores(worker.listener)
    with opened_stores(worker, sub, planned, entry, listener=counted) as backends:
        restored = counted.records
        failpoints.hit("commit.opened")
        stages.ended("open stores")
        # 4.
        book = _book(job, blocks)
        metrics = Metrics()
        readers = _readers(worker, sub, planned, backends)
        with _global_stores(run, book) as global_stores:
            result = _process(run, raws, _stores(sub, readers, book), book, metrics, global_stores)
        check_nothing_skipped(sub, worker.log, planned.task_id, metrics)
        worker.metrics.merge(metrics)
        sizes = (size_after(reader, result.changelogs[name]) for name, reader in readers.items())
        state_size = sum(sizes, NO_STATE)
        stages.ended("process")
        failpoints.hit("commit.processed")
    # 5.
    published, repartitioned = _routed(run, result)
    file = _seal(run, result, published)
    _keep_changes(run, file, result)
    stages.ended("seal")
    failpoints.hit("commit.sealed")
    # 6.
    inferred_types = tuple((name, part, kind) for (name, part), kind in sorted(book.inferred_types().items()))
    shuffle = Shuffle(planned.task_id, attempt, planned.partition, route, inferred_types)
    out = [
        block
        for topic, outputs in sorted(repartitioned.items())
        for block in shuffle.blocks(topic, outputs, job.partitions_of(topic))
    ]
    stages.ended("pack")
    report = TaskReport(
        task_id=planned.task_id,
        attempt=attempt,
        instance=worker.directory.instance_id,
        sealed=file,
        state=result.state,
        changelog_counts={
            name: len(result.changelogs[name]) for name, spec in sub.stores.items() if spec.has_changelog
        },
        repartitioned=run.repartitioned(),
        sent=tuple(block.sent() for block in out),
        consumed=run.consumed(),
        inferred_types=inferred_types,
        records=sum(len(raw) for raw in raws),
        commit_requested=result.commit_requested,
        counters=metrics.of_task(planned.task_id),
        wants_wall_clock=result.wants_wall_clock,
        state_size=state_size,
        stages=stages.seconds,
        restored=restored,
    )
    failpoints.hit("commit.reported")
    return report, out


@dataclass(frozen=True, slots=True)
class _TaskAttempt:
    """One attempt of a task. Its records come from its partitions of the cut, and from repartitions."""

    worker: Worker
    job: EpochJob
    planned: PlannedTask
    sub: SubTopology
    entry: TaskEntry | None
    """The task as the head names it."""
    blocks: Sequence[ShuffleBlock]
    """By topic and sender."""
    attempt: Attempt

    @classmethod
    def of(
        cls,
        worker: Worker,
        job: EpochJob,
        planned: PlannedTask,
        blocks: Sequence[ShuffleBlock],
        attempt: Attempt,
    ) -> _TaskAttempt:
        sub, entry = worker.subtopology(planned.subtopology), job.entries.get(planned.task_id)
        ordered = sorted(blocks, key=attrgetter("order"))
        return cls(worker, job, planned, sub, entry, ordered, attempt)

    def raws(self) -> list[RawBatch]:
        """All records of the epoch, per partition or sender, those without records left out."""
        return [raw for raw in (*self._from_log(), *self._from_shuffle()) if len(raw)]

    def repartitioned(self) -> dict[tuple[str, Partition], int]:
        """How many rows came through each repartition so far, this epoch included."""
        counts = self._repartitioned_before()
        for block in self.blocks:
            place = (block.topic, self.planned.partition)
            counts[place] = counts.get(place, 0) + block.count(self.planned.partition)
        return counts

    def consumed(self) -> tuple[ConsumedBlock, ...]:
        """From which blocks rows were taken, as computed here: not as the senders said."""
        return tuple(block.consumed for block in self.blocks)

    def _from_log(self) -> Iterator[RawBatch]:
        mine = self.planned.partition
        for topic, partitions in sorted(self.job.cut.items()):
            if self.sub.source_of(topic) is not None:
                for partition in sorted(partitions) if self.sub.is_global else {mine} & partitions.keys():
                    start, end = partitions[partition]
                    yield read_range(self.worker.log, TopicPartition(topic, partition), start, end)

    def _from_shuffle(self) -> Iterator[RawBatch]:
        offsets, mine = self._repartitioned_before(), self.planned.partition
        for topic, blocks in groupby(self.blocks, attrgetter("topic")):
            yield rows_for(topic, mine, list(blocks), offsets.get((topic, mine), 0))

    def _repartitioned_before(self) -> dict[tuple[str, Partition], int]:
        rows = () if self.entry is None else self.entry.repartitioned
        return {(topic, partition): count for topic, partition, count in rows}


def read_range(log: Log, place: TopicPartition, start: Offset, end: Offset) -> RawBatch:
    """Records of a partition from `start` to `end` as columns of bytes."""
    parts = [RawBatch.of_batch(batch) for batch in (log.read(place, start, end) if start < end else ())]
    return joined(place.topic, place.partition, parts)


def _book(job: EpochJob, blocks: Sequence[ShuffleBlock]) -> SerdeBook:
    """The serdes as the head and the senders know them."""
    book = SerdeBook()
    for inferred_types in (job.inferred_types, *dict.fromkeys(block.inferred_types for block in blocks)):
        book.restore({(name, part): kind for name, part, kind in inferred_types})  # type: ignore[misc]
    return book


def _readers(
    worker: Worker, sub: SubTopology, planned: PlannedTask, backends: Mapping[str, Backend]
) -> Mapping[str, CommittedReader]:
    """The open stores of a task as its epoch reads them: with what is hot in memory, if they stay open."""
    if worker.open_stores is None or not sub.stores or sub.is_global:
        return backends
    return worker.open_stores.readers(planned.task_id)


def _stores(
    sub: SubTopology, backends: Mapping[str, CommittedReader], book: SerdeBook
) -> dict[str, StateStore[Any]]:
    return {
        name: open_store(
            spec,
            backends[name],
            book.bound(spec.serdes_of, "key", spec.key),
            book.bound(spec.serdes_of, "value", spec.value),
        )
        for name, spec in sub.stores.items()
    }


def _global_stores(
    run: _TaskAttempt, book: SerdeBook
) -> AbstractContextManager[Mapping[str, StateStore[Any]]]:
    """What a task may read besides its own stores: all global ones. That of a global store reads its own.

    What happens on the way is counted, and written down, by the task of the global store alone.
    """
    global_subs = () if run.sub.is_global else run.worker.plan.global_subtopologies
    if not global_subs:
        return nullcontext({})

    def opened(sub: SubTopology, resources: ExitStack) -> dict[str, StateStore[Any]]:
        planned = PlannedTask(sub.task_id(0), sub.number, Partition(0), sub.level)
        other = _TaskAttempt.of(run.worker, run.job, planned, (), run.attempt)
        backends = resources.enter_context(opened_stores(run.worker, sub, planned, other.entry))
        stores = _stores(sub, backends, book)
        raws = other.raws()
        if raws:
            _process(other, raws, stores, book, Metrics(), {})
        return stores

    return GlobalStores(global_subs, opened)


def _process(
    run: _TaskAttempt,
    raws: Sequence[RawBatch],
    stores: Mapping[str, StateStore[Any]],
    book: SerdeBook,
    metrics: Metrics,
    global_stores: Mapping[str, StateStore[Any]],
) -> TaskResult:
    worker, job, sub = run.worker, run.job, run.sub
    environment = TaskEnvironment(
        application_id=job.application_id,
        config=worker.config,
        book=book,
        metrics=metrics,
        stores=stores,
        global_stores=global_stores,
        clock=lambda: job.clock_ms,
        partitions_of=job.partitions_of,
        is_internal=worker.plan.repartition_topics.__contains__,
        caught_up=run.planned.caught_up,
    )
    task = Task(sub, run.planned.partition, environment, _state(run.entry))
    try:
        if raws:
            task.process(raws)
        if job.tick:
            task.punctuate()
        return task.seal()
    finally:
        task.close()


def _routed(run: _TaskAttempt, result: TaskResult) -> tuple[_RowsByPlace, dict[str, list[OutputBatch]]]:
    """The outputs: what is published, by topic and partition, and what goes through repartitions."""
    published: _RowsByPlace = {}
    repartitioned: dict[str, list[OutputBatch]] = {}
    for output in result.outputs:
        if output.topic in run.worker.plan.repartition_topics:
            repartitioned.setdefault(output.topic, []).append(output)
            continue
        count = run.job.partitions_of(output.topic)
        for partition, rows in by_partition(output, count, run.planned.partition):
            published.setdefault((output.topic, partition), []).append(rows)
    return published, repartitioned


def _wrong_instance(run: _TaskAttempt) -> WrongInstance | None:
    """What to say if the task is expected elsewhere, and would have to read too much to run here."""
    worker, planned = run.worker, run.planned
    here = worker.directory.instance_id
    expected = planned.expected_instance
    if expected is None or expected == here or run.entry is None or not run.sub.stores:
        return None
    directory = worker.directory.task(worker.storage.application_id, planned.task_id)
    try:
        here_now = positions_on_disk(
            directory,
            run.sub.stores,
            worker.backend,
            rocksdb_config_setter=worker.config.rocksdb_config_setter,
        )
    except TaskLockedError:  # by the cleaner, or a zombie: whoever opens the stores waits for it
        return None
    missing = sum(
        max(0, run.entry.changelogs.get(name, 0) - position.offset) for name, position in here_now.items()
    )
    is_cold = any(position.version <= 0 for position in here_now.values())
    if is_cold or missing > worker.config.acceptable_recovery_lag:
        return WrongInstance(planned.task_id, here, expected)
    return None


def _seal(
    run: _TaskAttempt, result: TaskResult, outputs: Mapping[tuple[str, Partition], Sequence[RawBatch]]
) -> SealedFile:
    job, planned, storage = run.job, run.planned, run.worker.storage
    published: dict[tuple[str, Partition], Records] = {
        place: records_of_batches(parts) for place, parts in outputs.items()
    }
    local: dict[str, Records] = {}
    for name, spec in run.sub.stores.items():
        if not result.changelogs[name] or spec.source_topic is not None:
            continue
        rows = changelog_records(result.changelogs[name], spec.kind, result.state.stream_time)
        if spec.logging:
            published[changelog_topic(job.application_id, name), planned.partition] = rows
        else:
            local[name] = rows
    if not published and not local and not run.sub.stores:
        return NO_FILE
    failpoints.hit("commit.sealing")
    path = storage.sealed_file(job.epoch, planned.task_id, planned.level, job.term, run.attempt)
    content = SealedContent(planned.task_id, job.epoch, published, local, job.clock_ms)
    if run.worker.seals is None:
        return write_sealed(storage, path, content)
    is_read_again = not all(spec.logging for spec in run.sub.stores.values())
    return run.worker.seals.seal(path, content, is_read_again=is_read_again)


def _keep_changes(run: _TaskAttempt, file: SealedFile, result: TaskResult) -> None:
    """What the epoch changes in stores that stay open, until it is committed or given up."""
    open_stores, entry = run.worker.open_stores, run.entry
    if open_stores is None or not run.sub.stores or run.sub.is_global:
        return
    before = (Version(entry.version), entry.digest) if entry else (Version(0), "")
    made = Sealed(Version(run.job.epoch), file.digest, before, result.changelogs)
    open_stores.sealed(run.planned.task_id, made)


def _idle(run: _TaskAttempt) -> TaskReport:
    return TaskReport(
        task_id=run.planned.task_id,
        attempt=run.attempt,
        instance=run.worker.directory.instance_id,
        sealed=None,
        state=_state(run.entry),
        changelog_counts={},
        repartitioned=run.repartitioned(),
        sent=(),
        consumed=run.consumed(),
        inferred_types=run.job.inferred_types,
        records=0,
        commit_requested=False,
    )


def _state(entry: TaskEntry | None) -> TaskState:
    if entry is None:
        return TaskState()
    return TaskState(
        entry.stream_time,
        {(topic, partition): time for topic, partition, time in entry.partition_times},
        {(node, number): due for node, number, due in entry.punctuations},
        {} if entry.operator_times is msgspec.UNSET else entry.operator_times,
    )
