"""The engine of Spark jobs: one per epoch, tasks in the slots that hold their state."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from py4j.protocol import Py4JError
from pyspark import SparkContext

from millstream.commit.epoch_job import EpochJob, PlannedTask, TaskReport, WrongInstance
from millstream.commit.manifest import TaskEntry
from millstream.commit.source_times import TimesRequest, read_times
from millstream.engine.api import DurableEpoch, Engine, TaskWork
from millstream.engine.program import Program
from millstream.engine.spark.attached import RUN_AGAIN, AttachedSpark
from millstream.engine.spark.homes import follow_reports
from millstream.engine.spark.job import enter_job_group, job_group, run_epoch_job
from millstream.engine.spark.placed_slots import PlacedSlots
from millstream.engine.spark.stage_function import MakeWorker
from millstream.errors import MillstreamError

T = TypeVar("T")

_POOL: Final = "millstream-background"


class SparkEngine(Engine):
    """Runs tasks as Spark jobs. If `spark` is None, it makes a session and ends it."""

    def __init__(self, program: Program, spark: Any) -> None:
        self._program = program
        self._application_id = program.application_id
        self._spark = AttachedSpark(program, spark)
        self._background = f"millstream-{program.application_id}-background"
        self._instances: dict[str, str] = {}
        self._slots: PlacedSlots | None = None
        self._make_worker: Any = None

    @property
    def instances(self) -> Mapping[str, str]:
        return self._instances

    @property
    def make_worker(self) -> MakeWorker:
        """Makes the worker of this application in any process of it."""
        return self._running()[2]

    def check(self) -> None:
        self._spark.check()

    def expect_records(self, count: int) -> None:
        self._spark.expect_records(count)

    def open(self) -> None:
        """Get Spark ready: session, slots, warm workers."""
        self._instances.clear()  # what was known in an earlier term may be wrong
        try:
            if self._spark.attach() or self._slots is None:
                context = self._spark.context
                self._make_worker = self._spark.broadcast()
                enter_job_group(context, self._application_id, "warm-up")
                self._slots = PlacedSlots(context, self._make_worker, self._application_id)
        except Exception as error:
            failure = self._spark.failure_of_start(error)
            if failure is error:
                raise
            raise failure from None

    def run_tasks(self, job: EpochJob) -> list[TaskReport | WrongInstance]:
        context, slots, make_worker = self._running()
        placed, assignment = slots.place(job, self._instances)
        return run_epoch_job(context, slots.slots, placed, assignment, make_worker)

    def read_times(self, requests: Sequence[TimesRequest]) -> list[array[int]]:
        """A small job, a task per partition, wherever there is room: it needs no state."""
        context, _, make_worker = self._running()
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
        self._spark.check_goes_on(what, error, tries)
        self._running()[1].distrust()

    def apply(self, epoch: DurableEpoch) -> None:
        """Stores follow the commit when they are opened next: a job of its own would cost more."""
        intended = self._running()[1].intended(epoch.job.tasks)
        follow_reports(self._application_id, self._instances, epoch.reports, intended)

    def prepare(self) -> None:
        self._spark.attach()

    def run_background(self, work: TaskWork[T], job: EpochJob, planned: PlannedTask, entry: TaskEntry) -> T:
        """A job with a single task: background work never takes more than one core from the epochs."""
        context, slots, make_worker = self._running()
        del job
        slot = slots.slot_of(planned)
        context.setLocalProperty("spark.scheduler.pool", _POOL)
        context.setJobGroup(self._background, f"{work.__name__}, task {planned.task_id}")
        done: list[T] = context.runJob(slots.slots.rows, _Work(work, planned, entry, make_worker), [slot])
        return done[0]

    def cancel_background(self) -> None:
        with suppress(Py4JError, OSError):  # Spark may be gone
            self._running()[0].cancelJobGroup(self._background)

    def cancel(self) -> bool:
        """Whoever waits for a job is in the middle of a call to the JVM: that has to end by itself."""
        return self._spark.cancel_jobs(job_group(self._application_id))

    def close(self) -> None:
        """Let go of the slots, and end the Spark that was made here."""
        slots, self._slots = self._slots, None
        if slots is not None and self._spark.is_alive():
            slots.release()
            self._make_worker.release()
        self._spark.detach()

    def _running(self) -> tuple[SparkContext, PlacedSlots, Any]:
        assert self._slots is not None  # open() comes first
        return self._spark.context, self._slots, self._make_worker


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
class _ReadTimes:
    """Extracts timestamps, as a worker does it; an error that would come again is not raised but told."""

    make_worker: MakeWorker

    def __call__(self, request: TimesRequest) -> array[int] | MillstreamError:
        try:
            return read_times(self.make_worker(), request)
        except MillstreamError as error:
            return error
