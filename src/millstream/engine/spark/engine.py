"""The engine of Spark jobs: one per epoch, tasks in the slots that hold their state."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from millstream.commit.epoch_job import EpochJob, PlannedTask, TaskReport, WrongInstance
from millstream.commit.manifest import Manifest, TaskEntry
from millstream.commit.source_times import TimesRequest, read_times
from millstream.commit.standby import StandbyPosition
from millstream.commit.standby_slice import follow_for
from millstream.engine.api import DurableEpoch, TaskWork
from millstream.engine.program import Program
from millstream.engine.spark.assigning_engine import AssigningEngine
from millstream.engine.spark.attached import RUN_AGAIN, AttachedSpark
from millstream.engine.spark.homes import follow_reports
from millstream.engine.spark.job import enter_job_group, job_group, run_epoch_job
from millstream.engine.spark.loss_watch import LossWatch
from millstream.engine.spark.placed_slots import PlacedSlots
from millstream.engine.spark.program_broadcast import WorkerBroadcast
from millstream.engine.spark.session import locality_wait_s
from millstream.engine.spark.stage_function import MakeWorker, PlacedEpoch
from millstream.engine.spark.standby_jobs import Slice, StandbyJobs, slice_seconds
from millstream.errors import MillstreamError
from millstream.maintenance.state_cleaner import cleaning_pause_s

T = TypeVar("T")

_POOL: Final = "millstream-background"
_OF_SPARK: Final = (Py4JError, PySparkException, OSError, AttributeError)
"""What calls to a Spark raise that may be gone. A context that was stopped has no object of the JVM."""
_TRIES_PER_RETRY: Final = 4
"""Epochs that are given up for a lost executor are as cheap as failed tasks, which Spark runs four times."""


class SparkEngine(AssigningEngine):
    """Runs tasks as Spark jobs. If `spark` is None, it makes a session and ends it."""

    def __init__(self, program: Program, spark: Any) -> None:
        super().__init__(program, applies_at_once=False)
        self._program = program
        self._application_id = program.application_id
        self._spark = AttachedSpark(program, spark)
        self._background = f"{job_group(program.application_id)}-background"
        self._standby_group = f"{job_group(program.application_id)}-standbys"
        self._instances: dict[str, str] = {}
        self._opened: _Opened | None = None
        self._next_cleaning = 0.0

    @property
    def instances(self) -> Mapping[str, str]:
        return self._instances

    @property
    def make_worker(self) -> MakeWorker:
        """Makes the worker of this application in any process of it."""
        return self._running().make_worker

    def check(self) -> None:
        self._spark.check()

    def expect_records(self, count: int) -> None:
        self._spark.expect_records(count)

    def open(self) -> None:
        """Get Spark ready: session, slots, warm workers."""
        self._instances.clear()  # what was known in an earlier term may be wrong
        try:
            if self._spark.attach() or self._opened is None:
                self._end_threads()
                self._opened = None
                context, make_worker = self._spark.context, self._spark.broadcast()
                enter_job_group(context, self._application_id, "warm-up")
                standbys = StandbyJobs(self._assigner, self._run_slice, self._cancel_slice)
                slots = PlacedSlots(context, make_worker, self._application_id, standbys.paused)
                losses = LossWatch(slots.has_lost_executor, self._give_up_epoch)
                self._opened = _Opened(context, make_worker, slots, standbys, losses)
            self._assigner.begin_term()
        except Exception as error:
            failure = self._spark.failure_of_start(error)
            if failure is error:
                raise
            raise failure from None

    def run_tasks(self, job: EpochJob) -> list[TaskReport | WrongInstance]:
        opened, assigner = self._running(), self._assigner
        slots = opened.slots
        with opened.standbys.epoch_at_work():
            assigner.note_tasks(job.tasks, job.entries)
            numbers = assigner.update(slots.live()).slots()
            now = slots.now
            partitions = {task.task_id: now.partitions[numbers[task.task_id]] for task in job.tasks}
            placed = PlacedEpoch(assigner.expecting(job), partitions, self._kept())
            # Without standbys others would have to restore what the lost executor's successor may still have.
            with opened.losses.epoch_at_work() if assigner.rules.standbys else nullcontext():
                return run_epoch_job(opened.context, now.slots, placed, opened.make_worker)

    def _kept(self) -> Mapping[str, frozenset[str]] | None:
        """What each instance has to keep, twice as often as it looks for what to delete; else None.

        It names all tasks, and an epoch is to cost what it reads.
        """
        now = time.monotonic()
        if now < self._next_cleaning:
            return None
        self._next_cleaning = now + cleaning_pause_s(self._program.config.state_cleanup_delay_ms) / 2
        return self._assigner.now.by_instance()

    def read_times(self, requests: Sequence[TimesRequest]) -> list[array[int]]:
        """A small job, a task per partition, wherever there is room: it needs no state."""
        opened = self._running()
        context, make_worker = opened.context, opened.make_worker
        what = f"Planning the next epoch of application {self._application_id!r}"
        tries = 0
        while True:
            try:
                enter_job_group(context, self._application_id, "timestamps of the next epoch")
                answers = context.parallelize(requests, len(requests)).map(_ReadTimes(make_worker)).collect()
                break
            except RUN_AGAIN as error:
                tries += 1
                self._spark.check_goes_on(what, error, tries)
        times: list[array[int]] = []
        for answer in answers:
            if isinstance(answer, MillstreamError):
                raise answer
            times.append(answer)
        return times

    def failed(self, job: EpochJob, error: Exception, tries: int) -> None:
        what = f"Epoch {job.epoch} of application {job.application_id!r}"
        if self._running().losses.has_given_up:
            tries = -(-tries // _TRIES_PER_RETRY)
        self._spark.check_goes_on(what, error, tries)
        self._running().slots.distrust()

    def apply(self, epoch: DurableEpoch) -> None:
        """Stores follow the commit when they are opened next: a job of its own would cost more."""
        intended = {task: placed.active.instance for task, placed in self._assigner.now.tasks.items()}
        follow_reports(self._application_id, self._instances, epoch.reports, intended)
        self._assigner.note_committed(epoch.manifest.sealed, epoch.manifest.tasks, epoch.reports)
        self._running().standbys.wake()

    def nothing_to_do(self, tasks: Iterable[PlannedTask], head: Manifest) -> None:
        """Look for executors that have come or gone. What is wrong with Spark is seen by the next epoch."""
        self._assigner.note_tasks(tasks, head.tasks)
        with suppress(*_OF_SPARK):
            self._assigner.update(self._running().slots.live())
        self._running().standbys.wake()

    def prepare(self) -> None:
        self._spark.attach()

    def run_background(self, work: TaskWork[T], job: EpochJob, planned: PlannedTask, entry: TaskEntry) -> T:
        """A job with a single task: background work never takes more than one core from the epochs."""
        del job
        placed = self._assigner.now.tasks.get(planned.task_id)
        what = f"{work.__name__}, task {planned.task_id}"
        run = _Work(work, planned, entry, self.make_worker)
        return self._run_beside(self._background, what, run, None if placed is None else placed.active.slot)

    def cancel_background(self) -> None:
        with suppress(*_OF_SPARK):
            self._running().context.cancelJobGroup(self._background)

    def _run_slice(self, chosen: Slice) -> dict[str, StandbyPosition]:
        opened = self._running()
        seconds = slice_seconds(locality_wait_s(opened.context))
        work = _Follow(chosen, seconds, opened.make_worker)
        return self._run_beside(self._standby_group, f"standbys on {chosen.instance}", work, chosen.slot)

    def _cancel_slice(self) -> None:
        with suppress(*_OF_SPARK):
            self._running().context.cancelJobGroup(self._standby_group)

    def _run_beside(self, group: str, what: str, work: Callable[[Any], list[T]], slot: int | None) -> T:
        """A job with a single task, in a slot, or anywhere if it is not there any more."""
        context, now = self._running().context, self._running().slots.now
        context.setLocalProperty("spark.scheduler.pool", _POOL)
        context.setJobGroup(group, what)
        partition = 0 if slot is None else now.partitions.get(slot, 0)
        done: list[T] = context.runJob(now.slots.rows, work, [partition])
        return done[0]

    def cancel(self) -> bool:
        """Whoever waits for a job is in the middle of a call to the JVM: that has to end by itself."""
        return self._spark.cancel_jobs(job_group(self._application_id))

    def close(self) -> None:
        """Let go of the slots, and end the Spark that was made here."""
        self._end_threads()
        opened, self._opened = self._opened, None
        if opened is not None and self._spark.is_alive():
            opened.slots.release()
            opened.make_worker.release()
        self._spark.detach()

    def _give_up_epoch(self) -> None:
        self._running().context.cancelJobGroup(job_group(self._application_id))

    def _end_threads(self) -> None:
        if self._opened is not None:
            self._opened.standbys.close()
            self._opened.losses.close()

    def _running(self) -> _Opened:
        assert self._opened is not None  # open() comes first
        return self._opened


@dataclass(frozen=True, slots=True)
class _Opened:
    """What goes with one Spark."""

    context: SparkContext
    make_worker: WorkerBroadcast
    slots: PlacedSlots
    standbys: StandbyJobs
    losses: LossWatch


@dataclass(frozen=True, slots=True)
class _Work(Generic[T]):
    """Background work of one task, as a worker does it."""

    work: TaskWork[T]
    planned: PlannedTask
    entry: TaskEntry
    make_worker: MakeWorker

    def __call__(self, rows: Any) -> list[T]:
        for _ in rows:
            pass
        return [self.work(self.make_worker(), self.planned, self.entry)]


@dataclass(frozen=True, slots=True)
class _Follow:
    """A slice of standby tasks, as a worker does it; on another instance than theirs it does nothing."""

    of: Slice
    seconds: float
    make_worker: MakeWorker

    def __call__(self, rows: Any) -> list[dict[str, StandbyPosition]]:
        for _ in rows:
            pass
        worker = self.make_worker()
        if worker.directory.instance_id != self.of.instance:
            return [{}]
        return [follow_for(worker, self.of.tasks, self.seconds)]


@dataclass(frozen=True, slots=True)
class _ReadTimes:
    """Extracts timestamps, as a worker does it; an error that would come again is not raised but told."""

    make_worker: MakeWorker

    def __call__(self, request: TimesRequest) -> array[int] | MillstreamError:
        try:
            return read_times(self.make_worker(), request)
        except MillstreamError as error:
            return error
