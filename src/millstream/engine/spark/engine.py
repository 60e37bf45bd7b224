"""The Spark engine: one Spark job per epoch, tasks in the slots that hold their state."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from millstream.commit.epoch_job import EpochJob, PlannedTask, TaskReport, WrongInstance
from millstream.commit.manifest import TaskEntry
from millstream.commit.reports import EpochMismatchError, WrongInstanceError
from millstream.commit.source_times import TimesRequest, read_times
from millstream.durable import DiskFullError
from millstream.engine.api import DurableEpoch, Engine, TaskWork, homes_after
from millstream.engine.program import Program
from millstream.engine.spark.failures import SparkGoneError, given_up, not_started
from millstream.engine.spark.job import run_epoch_job
from millstream.engine.spark.jvm_loss import log_jvm_loss_at_debug
from millstream.engine.spark.packing import pack
from millstream.engine.spark.program_broadcast import broadcast
from millstream.engine.spark.session import (
    check_context,
    check_settings,
    context_of,
    forget_dead_context,
    is_alive,
    make_context,
)
from millstream.engine.spark.slots import Slots
from millstream.engine.spark.stage_function import MakeWorker, assign
from millstream.engine.spark.warmup import warm_up
from millstream.errors import MillstreamError

_LOGGER = logging.getLogger("millstream")

T = TypeVar("T")

_RUN_AGAIN: Final = (
    EpochMismatchError,
    WrongInstanceError,
    DiskFullError,
    Py4JError,
    PySparkException,
    OSError,
)
"""Failures of the machinery: the same epoch may well succeed when it is run again."""
_POOL: Final = "millstream-background"
_FEW_RECORDS: Final = 1_000_000
"""A run that ends after so many has no use for a JVM that takes its time to become fast."""


class SparkEngine(Engine):
    """Runs tasks on Spark. If `spark` is None, it makes a session and ends it."""

    def __init__(self, program: Program, spark: Any) -> None:
        self._program = program
        self._application_id = program.application_id
        self._config = program.config
        self._spark = spark
        self._background = f"millstream-{program.application_id}-background"
        self._instances: dict[str, str] = {}
        self._is_short_run = False
        self._context: SparkContext | None = None
        self._slots: Slots | None = None
        self._make_worker: Any = None
        self._packed = b""

    @property
    def instances(self) -> Mapping[str, str]:
        return self._instances

    @property
    def make_worker(self) -> MakeWorker:
        """Makes the worker of this application in any process of it."""
        return self._running()[2]

    def check(self) -> None:
        """See `Engine.check`: a program that can't be sent to workers is found before Spark is started."""
        if self._context is not None:
            return
        self._packed = pack(self._program)
        if self._spark is None:
            check_settings(self._config.spark_settings)
            self._program.check_place()
        else:
            context_of(self._spark)

    def expect_records(self, count: int) -> None:
        self._is_short_run = count <= _FEW_RECORDS

    def open(self) -> None:
        """Get Spark ready: session, slots, warm workers."""
        self._instances.clear()
        try:
            self._open()
        except Exception as error:
            context = self._context
            if isinstance(error, MillstreamError) or context is None or is_alive(context):
                raise
            _LOGGER.debug("The JVM died while Spark was made ready", exc_info=True)
            raise not_started(self._application_id) from None

    def _open(self) -> None:
        if self._context is not None and not is_alive(self._context):
            self._forget_context(self._context)
        if self._context is None:
            self._context = self._get_context()
            self._slots = Slots(self._context, self._context.defaultParallelism)
            self._make_worker = broadcast(self._context, self._packed or pack(self._program))
            self._packed = b""
            warm_up(self._context, self._slots, self._make_worker, self._application_id)

    def run_tasks(self, job: EpochJob) -> list[TaskReport | WrongInstance]:
        context, slots, make_worker = self._running()
        return run_epoch_job(context, slots, job, make_worker)

    def read_times(self, requests: Sequence[TimesRequest]) -> list[array[int]]:
        """A small job, a task per partition, wherever there is room: it needs no state."""
        context, _, make_worker = self._running()
        what = f"Planning the next epoch of application {self._application_id!r}"
        tries = 0
        while True:
            try:
                context.setJobGroup(f"millstream-{self._application_id}", "timestamps of the next epoch")
                answers = context.parallelize(requests, len(requests)).map(_ReadTimes(make_worker)).collect()
                break
            except _RUN_AGAIN as error:
                tries += 1
                self._check_goes_on(what, error, tries)
        times: list[array[int]] = []
        for answer in answers:
            if isinstance(answer, MillstreamError):
                raise answer
            times.append(answer)
        return times

    def failed(self, job: EpochJob, error: Exception, tries: int) -> None:
        self._check_goes_on(f"Epoch {job.epoch} of application {job.application_id!r}", error, tries)

    def _check_goes_on(self, what: str, error: Exception, tries: int) -> None:
        """Raise, unless what has failed so many times may succeed when it is run again."""
        if not is_alive(self._running()[0]):
            _LOGGER.debug("Spark is gone", exc_info=error)
            raise given_up(what, error, tries, spark_is_alive=False) from None
        if not isinstance(error, _RUN_AGAIN):
            raise error
        if tries > self._config.max_epoch_retries:
            raise given_up(what, error, tries, spark_is_alive=True) from error

    def apply(self, epoch: DurableEpoch) -> None:
        """Stores follow the commit when they are opened next: a job of its own would cost more."""
        self._instances.update(homes_after(epoch.reports))

    def run_background(self, work: TaskWork[T], job: EpochJob, planned: PlannedTask, entry: TaskEntry) -> T:
        """A job with a single task: background work never takes more than one core from the epochs."""
        context, slots, make_worker = self._running()
        del job
        slot = assign((planned,), slots.count)[planned.task_id]
        context.setLocalProperty("spark.scheduler.pool", _POOL)
        context.setJobGroup(self._background, f"{work.__name__}, task {planned.task_id}")
        done: list[T] = context.runJob(slots.rows, _Work(work, planned, entry, make_worker), [slot])
        return done[0]

    def cancel_background(self) -> None:
        with suppress(Py4JError, OSError):  # Spark may be gone
            self._running()[0].cancelJobGroup(self._background)

    def close(self) -> None:
        """Let go of the slots, and end the Spark that was made here."""
        context, self._context = self._context, None
        if context is None:
            return
        if not is_alive(context):
            self._forget_context(context)
            return
        if self._slots is not None:
            self._slots.release()
            self._make_worker.release()
        if self._spark is None:
            context.stop()

    def _running(self) -> tuple[SparkContext, Slots, Any]:
        assert self._context is not None and self._slots is not None  # noqa: PT018 - open() comes first
        return self._context, self._slots, self._make_worker

    def _get_context(self) -> SparkContext:
        if self._spark is None:
            settings = self._config.spark_settings
            return make_context(self._application_id, settings, is_short_run=self._is_short_run)
        log_jvm_loss_at_debug()
        context = context_of(self._spark)
        if not is_alive(context):
            raise SparkGoneError(
                f"The Spark session that application {self._application_id!r} was given has ended. Remedy: "
                "make a new one and a new Streams object; the application goes on from its last commit."
            )
        check_context(context)
        return context

    def _forget_context(self, context: SparkContext) -> None:
        self._context = self._slots = None
        if self._spark is None:
            forget_dead_context(context)


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
