"""The resident engine without Spark: its slots are threads of this process. Its connections are real."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, TypeVar

from millstream.commit.epoch import RunningTasks
from millstream.commit.epoch_job import EpochJob, PlannedTask, TaskReport, WrongInstance
from millstream.commit.manifest import Manifest, TaskEntry
from millstream.commit.reports import EpochMismatchError
from millstream.commit.source_times import TimesRequest
from millstream.commit.worker import Worker
from millstream.engine.api import DurableEpoch, Engine, TaskWork
from millstream.engine.assignment.assigner import SlotAssigner
from millstream.engine.assignment.view import AssignedTask, Rebalance
from millstream.engine.spark.resident.flight import PeerLostError
from millstream.engine.spark.resident.slot import SlotError, SlotSettings
from millstream.engine.spark.resident.slot_function import SlotFunction
from millstream.engine.spark.resident.slot_pool import Launcher, PoolSettings, SlotLostError, SlotPool
from millstream.engine.spark.resident.slot_tasks import SlotTasks
from millstream.engine.spark.resident.tls import TlsFiles

T = TypeVar("T")

MAX_RUNS = 6


class ThreadLauncher(Launcher):
    """Slots as threads. What they would do to end their process is noted."""

    def __init__(
        self,
        make_worker: Callable[..., Worker],
        slots: int,
        hosts: Mapping[int, str] | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        self.tls = tls
        self.make_worker = make_worker
        self.slots = slots
        self.hosts = {} if hosts is None else hosts
        self.down = threading.Condition()
        self.hosts_down: set[str] = set()
        self.submitted: list[tuple[int, str]] = []
        self.exits = threading.Event()
        self.patience_s = 5.0

    def run(self, number: int, incarnation: str, address: tuple[str, int], secret: bytes) -> None:
        node = self.hosts.get(number, "")
        with self.down:
            self.down.wait_for(lambda: node not in self.hosts_down)
        self.submitted.append((number, incarnation))
        settings = SlotSettings(
            beat_s=0.05, patience_s=self.patience_s, node=node, exit=lambda _: self.exits.set()
        )
        make_worker = partial(self.make_worker, node) if node else self.make_worker
        SlotFunction(address, incarnation, make_worker, 5.0, settings, secret, self.tls).serve()

    def cancel(self, number: int) -> None: ...

    def is_alive(self) -> bool:
        return True

    def wanted(self) -> int:
        return self.slots


class SlotsInThreads(Engine):
    """An engine for tests."""

    def __init__(
        self,
        make_worker: Callable[..., Worker],
        slots: int = 2,
        timeout_s: float = 10.0,
        assigner: SlotAssigner | None = None,
        hosts: Mapping[int, str] | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        self.launcher = ThreadLauncher(make_worker, slots, hosts, tls)
        self.pool = SlotPool(self.launcher, PoolSettings(timeout_s=timeout_s, beat_s=0.05, tls=tls))
        self.tasks = SlotTasks("app", self.pool, count(1), assigner)
        self.failures: list[Exception] = []
        self._is_open = False

    @property
    def instances(self) -> Mapping[str, str]:
        return self.tasks.instances

    def open(self) -> None:
        """Slots stay if it is opened again."""
        if not self._is_open:
            self._is_open = True
            self.pool.open()
        self.tasks.begin_term()

    def run_tasks(self, job: EpochJob) -> Sequence[TaskReport | WrongInstance]:
        return self.tasks.run_tasks(job)

    def begin_next(
        self, epoch: DurableEpoch, plan: Callable[[], EpochJob | None]
    ) -> tuple[EpochJob, RunningTasks[TaskReport]] | None:
        return self.tasks.begin_next(epoch, plan)

    def cancel_next(self) -> None:
        self.tasks.cancel_next()

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

    def nothing_to_do(self, tasks: Iterable[PlannedTask], head: Manifest) -> None:
        self.tasks.nothing_to_do(tasks, head)

    def assigned(self) -> Sequence[AssignedTask]:
        return self.tasks.assigner.assigned()

    def take_rebalances(self) -> Sequence[Rebalance]:
        return self.tasks.assigner.take_rebalances()

    def run_background(self, work: TaskWork[T], job: EpochJob, planned: PlannedTask, entry: TaskEntry) -> T:
        del job
        return self.tasks.run_background(work, planned, entry)

    def places(self, task_id: str) -> Sequence[AssignedTask]:
        return self.tasks.assigner.places(task_id)

    def ask(self, slot: int, work: Callable[..., T], *arguments: Any, timeout_s: float) -> T:
        return self.tasks.ask(slot, work, *arguments, timeout_s=timeout_s)

    def tell(self, slot: int, work: Callable[..., object], *arguments: Any) -> None:
        self.tasks.tell(slot, work, *arguments)

    def cancel_background(self) -> None:
        self.pool.forget_calls()

    def close(self) -> None:
        self.pool.close()
