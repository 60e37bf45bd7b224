"""The ordinary life of an application on one machine: input, coordinators, epochs, snapshots, maintenance.

What was acknowledged is kept here, and not in the folders that faults strike.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from unittest import mock

from tests.simulation import oracle
from tests.simulation.chronicle import Chronicle
from tests.simulation.fault_executor import Executor, StartedTask
from tests.simulation.fault_programs import APPLICATIONS, PARTITIONS
from tests.simulation.faulty_files import FaultyFiles
from tests.simulation.observation import held_by, manifests_in
from tests.simulation.oracle import Held, Row
from tests.simulation.small_restores import restores_by_key
from tests.simulation.stalls import Stalled

from millstream.commit.coordinator import CoordinatorSettings
from millstream.commit.epoch_job import PlannedTask
from millstream.commit.manifest import Manifest, TaskEntry
from millstream.commit.worker import Worker
from millstream.config import StreamsConfig
from millstream.durable import FileLayer
from millstream.log.api import DELETE_RETENTION_MS, TopicConfig, TopicPartition
from millstream.log.blocks import record_batch
from millstream.log.embedded.file_log import FileLog
from millstream.log.embedded.partition import Limits
from millstream.maintenance.snapshots import snapshot_task
from millstream.state.backends.lmdb import LmdbSupplier
from millstream.state.changelog.follow import Progress
from millstream.state.changelog.rows import changelog_topic
from millstream.types import Partition

__all__ = ["APPLICATION_ID", "LEASE_TTL_MS", "RECORDS_OF_AN_EPOCH", "NoFaultError", "OrdinaryWorld"]

APPLICATION_ID: Final = "app"
LEASE_TTL_MS: Final = 30_000
MAX_RECORDS: Final = 3
"""Of each partition in an epoch: so that input is left when a fault strikes."""
RECORDS_OF_AN_EPOCH: Final = MAX_RECORDS * PARTITIONS

_IN_SMALL_STEPS: Final = LmdbSupplier(step_rows=(1, 1))
"""So that few records are enough for a crash between two steps of a write."""


class NoFaultError(AssertionError):
    """A planned fault did not happen: the test would show nothing."""


@dataclass
class OrdinaryWorld:
    """An application to which nothing happens yet. Use it in a ``with`` block."""

    folder: Path
    name: str = "ledger"
    """Of the application, and of the oracle's fold."""
    backend: str = "memory"
    seed: int = 0
    make_files: Callable[[Path], FileLayer] = FaultyFiles
    limits: Limits = field(default_factory=lambda: Limits(segment_entries=4))
    happened: Counter[str] = field(default_factory=Counter)
    """How many faults of each kind there were."""
    snapshot_interval: int | None = None
    """After how many epochs each task gets a snapshot; None: there are none."""
    snapshots_retained: int = 1
    retained_manifests: int = CoordinatorSettings().retained_manifests
    delete_retention_ms: int = DELETE_RETENTION_MS
    """How long changelogs keep tombstones."""
    retention_bytes: int | None = None
    """Of the outputs."""
    sorted_rows: int | None = None
    """From so many records on an empty store is restored by key; None: not in such a small world."""

    def __post_init__(self) -> None:
        self.application = APPLICATIONS[self.name]
        self.plan = self.application.build().plan()
        self.disk = self.folder / "disk"
        self.log_root = self.disk / "log"
        self.state = self.folder / "state"
        self.standby = self.folder / "standby"
        self.snapshots = self.disk / "snapshots"
        self.config = StreamsConfig()
        if self.snapshot_interval is not None:
            self.config = StreamsConfig(
                snapshot_uri=self.snapshots,
                snapshot_interval_epochs=self.snapshot_interval,
                snapshots_retained=self.snapshots_retained,
            )
        self.disk.mkdir(0o700, parents=True, exist_ok=True)
        self.files = self.make_files(self.disk)
        self.rng = random.Random(f"world {self.seed}")
        self.now = 1_000_000
        self.boot = 1
        self.inputs: list[list[Row]] = [[] for _ in range(PARTITIONS)]
        self.chronicle = Chronicle()
        self.torn: dict[Path, bytes] = {}
        """Manifests of snapshots that were harmed, and what they are now."""
        self.app: Executor | None = None
        self.started: list[StartedTask] = []
        """All tasks that were ever started."""
        self.stalled: list[Stalled] = []
        self._tending: list[Stalled] = []
        """Those that stand still while they tidy up."""
        self._time = 0
        self._is_forgetful = False
        self._at_head: set[str] = set()
        self._zombies = count(1_000_000)
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        for sync in ("fsync", "sync_folder"):  # nobody takes the real power away: the books are enough
            self._resources.enter_context(mock.patch(f"millstream.durable.layer.OsFileLayer.{sync}"))
        for user in ("millstream.state.local.directory.boot_id", "millstream.commit.lease.boot_id"):
            self._resources.enter_context(mock.patch(user, self._boot_id))
        if self.sorted_rows is not None:
            self._resources.enter_context(restores_by_key(self.sorted_rows, self.happened))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end_stalled()
        self._resources.close()

    # What happens -------------------------------------------------------------------------------------

    def create_topics(self) -> Self:
        """Make the application's topics."""
        log = self.log()
        compacted = TopicConfig(PARTITIONS, is_compacted=True, delete_retention_ms=self.delete_retention_ms)
        is_compacted = self.application.is_input_compacted
        log.create_topic(self.application.input, compacted if is_compacted else TopicConfig(PARTITIONS))
        for topic in self.application.outputs:
            log.create_topic(topic, TopicConfig(partitions=PARTITIONS, retention_bytes=self.retention_bytes))
        if self.delete_retention_ms != DELETE_RETENTION_MS:  # else the coordinator makes them
            for topic in self.changelogs().values():
                log.create_topic(topic, compacted)
        return self

    def append(self, records: int) -> None:
        """Write random input, as a producer of its own."""
        new: list[list[Row]] = [[] for _ in range(PARTITIONS)]
        for _ in range(records):
            partition, key, value = self.application.record(self.rng)
            self._time += self.rng.randrange(4)
            new[partition].append((key, value, max(0, self._time - self.rng.choice((0, 0, 0, 5)))))
        for partition, rows in enumerate(new):
            if rows:
                self.write(partition, rows)

    def write(self, partition: int, rows: Sequence[Row]) -> None:
        """Write chosen input."""
        keys, values, timestamps = zip(*rows, strict=True)
        place = TopicPartition(self.application.input, Partition(partition))
        self.log().append(place, record_batch(keys, values, timestamps))
        self.inputs[partition] += rows

    def open(self, *, max_records: int = MAX_RECORDS) -> Executor:
        """Start a coordinator; if there was one before, its lease has run out."""
        self.now += LEASE_TTL_MS
        self.app = self.new_executor(max_records=max_records)
        self._at_head = set()
        return self.app

    def epoch(self, *, apply: bool = True) -> Manifest | None:
        """Run an epoch, in a new coordinator if there is none."""
        app = self.app or self.open()
        at_head, self._at_head = self._at_head, set()  # nobody knows, if this fails
        manifest = self._run_epoch(app, apply=apply)
        sealed = set() if manifest is None else set(manifest.sealed)
        self._at_head = at_head | sealed if apply else at_head - sealed
        return manifest

    def take_snapshots(self) -> None:
        """Take a snapshot of every task that has changed since its last one."""
        worker = self._worker()
        for planned, entry in self._committed_tasks():
            for outcome in snapshot_task(worker, planned, entry):
                if outcome.problem and not outcome.version:
                    raise NoFaultError(f"no snapshot of task {planned.task_id}: {outcome.problem}")

    def run_maintenance(self, *, min_entries: int = 2) -> None:
        """Tidy up: fold and compact topics, apply retention, and collect what nobody needs."""
        app = self.app or self.open()
        self.note()
        self.now += 1  # tombstones of this moment are old enough, too
        report = app.run_maintenance(min_entries=min_entries)
        self.happened["manifests removed"] += report.manifests_removed
        self.happened["files collected"] += report.files_collected

    def tend_beside_an_epoch(self) -> None:
        """Tidy up while an epoch is under way: its tasks have sealed, and nothing names their files."""
        app = self.app or self.open()
        self.append(2 * RECORDS_OF_AN_EPOCH)
        app.beside = self.run_maintenance
        self.epoch()

    def advance(self, milliseconds: int) -> None:
        """Let the time of records that are written from now on be later."""
        self._time += milliseconds

    def finish(self) -> None:
        """Run epochs until all input is committed; with large ones, in another coordinator."""
        self.epoch()
        self.close()
        app = self.open(max_records=sum(map(len, self.inputs)))
        while self.epoch() is not None or app.coordinator.has_backlog:
            pass

    def copy_to(self, folder: Path) -> Self:
        """The same world in another folder; nobody may be at work in this one."""
        shutil.copytree(self.folder, folder)
        other = replace(self, folder=folder, happened=Counter())
        other.chronicle = self.chronicle.copied()
        other.inputs = [list(rows) for rows in self.inputs]
        other.now, other.boot = self.now, self.boot
        other.advance(self._time)
        return other

    def remove(self) -> None:
        """Delete everything: tests leave much behind."""
        shutil.rmtree(self.folder)

    def close(self) -> None:
        """End the coordinator in order."""
        if self.app is not None:
            self.app.close()
        self.app = None

    # What is there ------------------------------------------------------------------------------------

    def backlog(self) -> int:
        """How many records are not committed."""
        manifests = self._manifests()
        done = sum(offset for _, _, offset in manifests[-1]["positions"]) if manifests else 0
        return sum(map(len, self.inputs)) - done

    def note(self) -> dict[str, list[Held]]:
        """Write down all that is there; return what topics hold."""
        self.chronicle.note_manifests(self._manifests())
        topics = (*self.application.outputs, *self.changelogs().values())
        held = {topic: held_by(self.log_root, topic, self.files) for topic in topics}
        for topic, partitions in held.items():
            self.chronicle.note_topic(topic, partitions)
        return held

    def changelogs(self) -> dict[str, str]:
        """The topic of every store that has a changelog."""
        return {
            name: changelog_topic(APPLICATION_ID, name)
            for sub in self.plan.subtopologies
            for name, spec in sub.stores.items()
            if spec.has_changelog
        }

    def followed(self) -> dict[str, str]:
        """The input of every store that has one for a changelog."""
        specs = (spec for sub in self.plan.subtopologies for spec in sub.stores.values())
        return {spec.name: spec.source_topic for spec in specs if spec.source_topic is not None}

    def program(self) -> oracle.Program:
        """The application as the oracle knows it, before its first record."""
        return oracle.PROGRAMS[self.name](PARTITIONS)

    def log(self) -> FileLog:
        """The log, opened as another process would."""
        return FileLog(self.log_root, files=self.files, limits=self.limits, now_ms=lambda: self.now)

    @property
    def application_folder(self) -> Path:
        """Where manifests and leases are."""
        return self.log_root / "applications" / APPLICATION_ID

    def new_executor(self, *, max_records: int = MAX_RECORDS) -> Executor:
        """A new coordinator on the same folders."""
        app = Executor(
            self.application.build(),
            application_id=APPLICATION_ID,
            log_root=self.log_root,
            state_dir=self.state,
            backend=_IN_SMALL_STEPS if self.backend == _IN_SMALL_STEPS.name else self.backend,
            settings=CoordinatorSettings(
                max_records=max_records,
                lease_ttl_ms=LEASE_TTL_MS,
                default_partitions=PARTITIONS,
                retained_manifests=self.retained_manifests,
            ),
            clock=lambda: self.now,
            files=self.files,
            limits=self.limits,
            config=self.config,
            listener=self,
        )
        app.started = self.started
        self.chronicle.acknowledge(app.coordinator.head.epoch)
        return app

    def count(self, fault: str) -> None:
        """Note a fault; it must have come before the end of the input."""
        if not self.backlog():
            raise NoFaultError(f"all input was committed before the fault ({fault})")
        self.happened[fault] += 1

    # Restores -----------------------------------------------------------------------------------------

    def on_start(self, progress: Progress) -> None:
        """See `RestoreListener.on_start`."""

    def on_batch(self, progress: Progress) -> None:
        """See `RestoreListener.on_batch`."""

    def on_end(self, progress: Progress) -> None:
        """Count the stores that came from snapshots."""
        if progress.snapshot is not None:
            self.happened["restored from a snapshot"] += 1

    def on_suspended(self, progress: Progress) -> None:
        """See `RestoreListener.on_suspended`."""

    # Inside -------------------------------------------------------------------------------------------

    def _boot_id(self) -> str:
        return f"boot {self.boot}"

    def _run_epoch(self, app: Executor, *, apply: bool) -> Manifest | None:
        app.apply_after_commit = apply
        manifest = app.run_epoch()
        self.chronicle.acknowledge(0 if manifest is None else manifest.epoch)
        return manifest

    def _worker(self) -> Worker:
        return (self.app or self.open()).worker

    def _committed_tasks(self) -> Iterator[tuple[PlannedTask, TaskEntry]]:
        """Every task that has sealed, as the head has it."""
        app = self.app or self.open()
        for sub in self.plan.subtopologies:
            for number in range(self.plan.task_count(sub, app.coordinator.counts)):
                planned = PlannedTask(sub.task_id(number), sub.number, Partition(number), sub.level)
                entry = app.coordinator.head.tasks.get(planned.task_id)
                if entry is not None:
                    yield planned, entry

    def _manifests(self) -> list[dict[str, Any]]:
        return manifests_in(self.application_folder / "manifests")

    def _end_stalled(self) -> None:
        for stalled in self.stalled:
            stalled.kill()
        self.stalled = []
