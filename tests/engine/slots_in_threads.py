"""The resident engine without Spark: its slots are threads of this process. Its connections are real."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import TypeVar

from millstream.commit.epoch_job import EpochJob, PlannedTask, TaskReport, WrongInstance
from millstream.commit.manifest import TaskEntry
from millstream.commit.reports import EpochMismatchError
from millstream.commit.source_times import TimesRequest
from millstream.commit.worker import Worker
from millstream.engine.api import DurableEpoch, Engine, TaskWork
from millstream.engine.spark.resident.flight import PeerLostError
from millstream.engine.spark.resident.slot import SlotError, SlotSettings
from millstream.engine.spark.resident.slot_function import SlotFunction
from millstream.engine.spark.resident.slot_pool import Launcher, PoolSettings, SlotLostError, SlotPool
from millstream.engine.spark.resident.slot_tasks import SlotTasks

T = TypeVar("T")

MAX_RUNS = 6


class ThreadLauncher(Launcher):
    """Slots as threads. What they would do to end their process is noted."""

    def __init__(self, make_worker: Callable[[], Worker], slots: int) -> None:
        self.make_worker = make_worker
        self.slots = slots
        self.submitted: list[tuple[int, str]] = []
        self.exits = threading.Event()
        self.patience_s = 5.0

    def run(self, number: int, incarnation: str, address: tuple[str, int], secret: bytes) -> None:
        self.submitted.append((number, incarnation))
        settings = SlotSettings(beat_s=0.05, patience_s=self.patience_s, exit=lambda _: self.exits.set())
        SlotFunction(address, incarnation, self.make_worker, 5.0, settings, secret).serve()

    def cancel(self, number: int) -> None: ...

    def is_alive(self) -> bool:
        return True

    def wanted(self) -> int:
        return self.slots


class SlotsInThreads(Engine):
    """An engine for tests."""

    def __init__(self, make_worker: Callable[[], Worker], slots: int = 2, timeout_s: float = 10.0) -> None:
        self.launcher = ThreadLauncher(make_worker, slots)
        self.pool = SlotPool(self.launcher, PoolSettings(timeout_s=timeout_s, beat_s=0.05))
        self.tasks = SlotTasks("app", self.pool, count(1))
        self.failures: list[Exception] = []

    @property
    def instances(self) -> Mapping[str, str]:
        return self.tasks.instances

    def open(self) -> None:
        self.pool.open()
        self.tasks.begin_term()

    def run_tasks(self, job: EpochJob) -> list[TaskReport | WrongInstance]:
        return self.tasks.run_tasks(job)

    def read_times(self, requests: Sequence[TimesRequest]) -> list[array[int]]:
        return self.tasks.read_times(requests)

    def failed(self, job: EpochJob, error: Exception, tries: int) -> None:
        del job
        self.failures.append(error)
        again = (EpochMismatchError, SlotLostError, PeerLostError, SlotError)
        if tries >= MAX_RUNS or not isinstance(error, again):
            raise error

    def apply(self, epoch: DurableEpoch) -> None:
        self.tasks.apply(epoch)

    def run_background(self, work: TaskWork[T], job: EpochJob, planned: PlannedTask, entry: TaskEntry) -> T:
        del job
        return self.tasks.run_background(work, planned, entry)

    def cancel_background(self) -> None:
        self.pool.forget_calls()

    def close(self) -> None:
        self.pool.close()
