"""The resident engine: slots that stay, epochs by command.

An epoch costs a message to each slot and back, and between levels a bundle from slot to slot. A slot that is
lost in an epoch ends the attempt: it is given up everywhere, its tasks go to other slots, and the same epoch
is run again under a new number. A commit uses the reports of one attempt only.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Final, TypeVar

from pyspark import InheritableThread

from millstream.commit.epoch import RunningTasks
from millstream.commit.epoch_job import EpochJob, PlannedTask, TaskReport, WrongInstance
from millstream.commit.manifest import Manifest, TaskEntry
from millstream.commit.source_times import TimesRequest
from millstream.engine.api import DurableEpoch, TaskWork
from millstream.engine.program import Program
from millstream.engine.spark.assigning_engine import AssigningEngine
from millstream.engine.spark.attached import RUN_AGAIN, AttachedSpark
from millstream.engine.spark.failures import not_ready
from millstream.engine.spark.resident.flight import PeerLostError
from millstream.engine.spark.resident.launcher import SparkLauncher, task_slots
from millstream.engine.spark.resident.settings import (
    check_settings,
    pool_settings,
    slot_settings,
)
from millstream.engine.spark.resident.slot import SlotError
from millstream.engine.spark.resident.slot_pool import SlotLostError, SlotPool
from millstream.engine.spark.resident.slot_tasks import SlotTasks
from millstream.engine.spark.resident.tls import tls_files
from millstream.state.errors import StoreInUseError, TaskLockedError, UnpublishedVersionError

_LOGGER = logging.getLogger("millstream")

T = TypeVar("T")

_LOSSES: Final = (SlotLostError, PeerLostError)
_RUN_AGAIN: Final = (
    *RUN_AGAIN,
    *_LOSSES,
    SlotError,
    TaskLockedError,
    StoreInUseError,
    UnpublishedVersionError,
)
_TRIES_PER_RETRY: Final = 4
"""Lost slots are as cheap as failed tasks, which Spark runs four times before it gives a job up."""


class ResidentSparkEngine(AssigningEngine):
    """Runs tasks in slots that stay. If `spark` is None, it makes a session and ends it."""

    def __init__(self, program: Program, spark: Any) -> None:
        super().__init__(program, applies_at_once=True)
        self._program = program
        self._application_id = program.application_id
        self._config = program.config
        self._spark = AttachedSpark(program, spark)
        self._attempts = count(1)
        self._slots: SlotTasks | None = None
        self._make_worker: Any = None

    @property
    def instances(self) -> Mapping[str, str]:
        return {} if self._slots is None else self._slots.instances

    def check(self) -> None:
        self._spark.check()

    def expect_records(self, count: int) -> None:
        self._spark.expect_records(count)

    def open(self) -> None:
        """Get Spark ready, and slots that stay."""
        try:
            if not self._spark.is_alive():
                self._end_slots()
            if self._spark.attach() or self._slots is None:
                self._make_worker = self._spark.broadcast()
                pool = self._new_pool()
                self._slots = SlotTasks(self._application_id, pool, self._attempts, self._assigner)
                pool.open(InheritableThread)
            self._slots.begin_term()
        except Exception as error:
            failure = self._spark.failure_of_start(error)
            self._end_slots()
            if isinstance(failure, SlotError):
                raise not_ready(self._application_id, failure) from None
            if failure is error:
                raise
            raise failure from None

    def _new_pool(self) -> SlotPool:
        config, conf = self._config, self._spark.context.getConf()
        tls = tls_files(config)
        check_settings(conf, tls)
        launcher = SparkLauncher(
            self._spark,
            self._application_id,
            self._make_worker,
            count=config.slots,
            left_free=1 if self._program.topology.graph.frames else 0,  # for the queries that write frames
            timeout_s=config.slot_timeout_ms / 1000,
            settings=slot_settings(config),
            tls=tls,
        )
        cores = task_slots(self._spark.context)
        if self._spark.is_given and launcher.wanted() >= cores:
            _LOGGER.warning(
                "The slots of application %r hold all %d cores of the given Spark session for as long as it "
                "runs: other jobs of the session wait. Remedy: leave some with StreamsConfig(slots=...).",
                self._application_id,
                cores,
            )
        return SlotPool(launcher, pool_settings(config, conf))

    def run_tasks(self, job: EpochJob) -> Sequence[TaskReport | WrongInstance]:
        return self._running().run_tasks(job)

    def begin_next(
        self, epoch: DurableEpoch, plan: Callable[[], EpochJob | None]
    ) -> tuple[EpochJob, RunningTasks[TaskReport]] | None:
        return self._running().begin_next(epoch, plan)

    def cancel_next(self) -> None:
        if self._slots is not None:
            self._slots.cancel_next()

    def read_times(self, requests: Sequence[TimesRequest]) -> list[array[int]]:
        what = f"Planning the next epoch of application {self._application_id!r}"
        tries = 0
        while True:
            try:
                return self._running().read_times(requests)
            except _RUN_AGAIN as error:
                tries += 1
                self._spark.check_goes_on(what, error, tries, _RUN_AGAIN)

    def failed(self, job: EpochJob, error: Exception, tries: int) -> None:
        what = f"Epoch {job.epoch} of application {job.application_id!r}"
        if isinstance(error, _LOSSES):
            tries = -(-tries // _TRIES_PER_RETRY)
        self._spark.check_goes_on(what, error, tries, _RUN_AGAIN)

    def apply(self, epoch: DurableEpoch) -> None:
        self._running().apply(epoch)

    def nothing_to_do(self, tasks: Iterable[PlannedTask], head: Manifest) -> None:
        self._running().nothing_to_do(tasks, head)

    def prepare(self) -> None:
        self._spark.attach()

    def run_background(self, work: TaskWork[T], job: EpochJob, planned: PlannedTask, entry: TaskEntry) -> T:
        del job
        return self._running().run_background(work, planned, entry)

    def ask(self, slot: int, work: Callable[..., T], *arguments: Any, timeout_s: float) -> T:
        slots = self._slots
        if slots is None:
            return super().ask(slot, work, *arguments, timeout_s=timeout_s)
        return slots.ask(slot, work, *arguments, timeout_s=timeout_s)

    def tell(self, slot: int, work: Callable[..., object], *arguments: Any) -> None:
        slots = self._slots
        if slots is not None:
            slots.tell(slot, work, *arguments)

    def cancel_background(self) -> None:
        if self._slots is not None:
            self._slots.pool.forget_calls()

    def close(self) -> None:
        """End the slots in order, and the Spark that was made here."""
        self._end_slots()
        if self._make_worker is not None and self._spark.is_alive():
            self._make_worker.release()
        self._spark.detach()

    def _end_slots(self) -> None:
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.pool.close()

    def _running(self) -> SlotTasks:
        assert self._slots is not None  # open() comes first
        return self._slots
