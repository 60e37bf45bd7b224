"""One application on one machine, and everything that can happen to it.

A :class:`World` writes input, runs epochs through the real commit, lets processes die, drivers stall, disks
and power fail, and compares what is left with the oracle. What was acknowledged to it is kept here and not
in the folders that the faults strike.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from unittest import mock

from millstream import failpoints
from millstream.durable import OS_FILES, FileLayer, is_temporary
from millstream.log.api import TopicConfig, TopicPartition
from millstream.log.blocks import record_batch
from millstream.log.errors import UnknownTopicError
from millstream.log.files import FileLog, Limits
from millstream.runtime.commit import DriverSettings
from millstream.runtime.epoch import Blob, EpochJob, Misplaced, PlannedTask, TaskReport
from millstream.runtime.lease import LeaseHeldError, LeaseLostError
from millstream.runtime.manifest import Manifest, TaskEntry
from millstream.runtime.step import Worker, apply_commit, run_task
from millstream.state.backends import supplier
from millstream.state.changelog import changelog_topic
from millstream.state.directory import StateDirectory, TaskDirectory, open_state_directory
from millstream.state.errors import StoreAheadError
from millstream.testing import oracle
from millstream.testing.executor import InProcessExecutor, run_level
from millstream.testing.fault_programs import APPLICATIONS, PARTITIONS
from millstream.testing.faulty_files import FaultyFiles
from millstream.testing.oracle import Copy, Facts, Row, Verdict
from millstream.testing.stalls import Site, Stalled
from millstream.types import Attempt, Offset, Partition

__all__ = ["APPLICATION_ID", "LEASE_TTL_MS", "MAX_RECORDS", "LostAttempt", "Task", "World"]

APPLICATION_ID: Final = "app"
LEASE_TTL_MS: Final = 30_000
MAX_RECORDS: Final = 3
"""Of each partition and epoch: so that input is left when a fault strikes."""
_EPOCHS_UP_TO_A_FAULT: Final = 8
_FIRST_ZOMBIE_ATTEMPT: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Task:
    """A task of some epoch, as it was started: it can be started again at any time."""

    job: EpochJob
    planned: PlannedTask
    blobs: tuple[Blob, ...]


@dataclass(frozen=True, slots=True)
class LostAttempt:
    """A task that runs twice in an epoch."""

    task_id: str
    named: int
    """Which of the two attempts is reported to the driver."""
    heard: int
    """Whose rows the next level gets."""


class Executor(InProcessExecutor):
    """Runs chosen tasks twice, and remembers all."""

    def __init__(self, world: World, **settings: Any) -> None:
        self.twice: LostAttempt | None = None
        self.past = world.past
        super().__init__(world.application.build(), **settings)

    def run_tasks(self, job: EpochJob) -> list[TaskReport | Misplaced]:
        """Steps 3 to 6 for all tasks, level by level."""
        reports: list[TaskReport | Misplaced] = []
        blobs: list[Blob] = []
        for level in range(1 + max(task.level for task in job.tasks)):
            sent: list[Blob] = []
            for planned in (task for task in job.tasks if task.level == level):
                self.past.append(Task(job, planned, tuple(self._for(planned, blobs))))
                twice = self.twice if self.twice and self.twice.task_id == planned.task_id else None
                attempts = [
                    run_level(self.worker, job, [planned], blobs, self.next_attempt)
                    for _ in range(2 if twice else 1)
                ]
                reports += attempts[twice.named if twice else 0][0]
                sent += attempts[twice.heard if twice else 0][1]
            blobs += sent
        return reports

    def _for(self, planned: PlannedTask, blobs: list[Blob]) -> Iterator[Blob]:
        sub = self.worker.subtopology(planned.subtopology)
        return (blob for blob in blobs if blob.partition == planned.partition and sub.source_of(blob.topic))


@dataclass
class World:
    """An application under faults. Use it in a ``with`` block."""

    folder: Path
    name: str = "ledger"
    """Of the application, and of the oracle's fold."""
    backend: str = "memory"
    seed: int = 0
    make_files: Callable[[Path], FileLayer] = FaultyFiles
    limits: Limits = field(default_factory=lambda: Limits(segment_entries=4))
    happened: Counter[str] = field(default_factory=Counter)
    """How many faults of each kind there were."""

    def __post_init__(self) -> None:
        self.application = APPLICATIONS[self.name]
        self.disk = self.folder / "disk"
        self.log_root = self.disk / "log"
        self.state = self.folder / "state"
        self.standby = self.folder / "standby"
        self.disk.mkdir(0o700, exist_ok=True)
        self.files = self.make_files(self.disk)
        self.rng = random.Random(f"world {self.seed}")
        self.now = 1_000_000
        self.boot = 1
        self.time = 0
        self.inputs: list[list[Row]] = [[] for _ in range(PARTITIONS)]
        self.past: list[Task] = []
        self.app: Executor | None = None
        self.stalled: list[Stalled] = []
        self.forgetful = False
        self._zombies = _FIRST_ZOMBIE_ATTEMPT
        self._applied: frozenset[str] = frozenset()
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        for user in ("millstream.state.directory.boot_id", "millstream.runtime.lease.boot_id"):
            self._resources.enter_context(mock.patch(user, lambda: f"boot {self.boot}"))
        for topic in (self.application.input, *self.application.outputs):
            with suppress(Exception) if self.exists(topic) else ExitStack():
                self.log().create_topic(topic, TopicConfig(partitions=PARTITIONS))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end_stalled()
        self._resources.close()
