"""One application on one machine, and everything that can happen to it.

A :class:`World` writes input, runs epochs through the real commit, lets processes die, drivers stall, disks
and power fail, and compares what is left with the oracle. What was acknowledged to it is kept here, and not
in the folders that the faults strike.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from unittest import mock

import pyarrow as pa

from millstream import failpoints
from millstream.config import StreamsConfig
from millstream.durable import FileLayer
from millstream.log.api import DELETE_RETENTION_MS, TopicConfig, TopicPartition
from millstream.log.blocks import record_batch
from millstream.log.files import FileLog, Limits
from millstream.runtime.blobs import Blob
from millstream.runtime.commit import DriverSettings
from millstream.runtime.epoch import EpochJob, Misplaced, PlannedTask, TaskReport
from millstream.runtime.lease import LeaseHeldError, LeaseLostError
from millstream.runtime.manifest import Manifest, TaskEntry
from millstream.runtime.snapshots import snapshot_task
from millstream.runtime.step import Worker, apply_commit, run_task
from millstream.state.backends.lmdb import LmdbSupplier
from millstream.state.changelog import changelog_topic
from millstream.state.directory import open_state_directory
from millstream.state.errors import ChangelogCompactedError, StoreAheadError
from millstream.state.follow import Progress
from millstream.state.snapshots.storage import FolderStorage
from millstream.state.sorted_runs import SortedRuns, sorted_runs
from millstream.testing import oracle
from millstream.testing.chronicle import Chronicle
from millstream.testing.executor import InProcessExecutor, run_level
from millstream.testing.fault_programs import APPLICATIONS, PARTITIONS
from millstream.testing.faulty_files import FaultyFiles
from millstream.testing.observation import (
    copies_in,
    held_by,
    manifests_in,
    sealed_in,
    snapshot_copies,
    table_rows_of,
)
from millstream.testing.oracle import Facts, Held, Row, Verdict
from millstream.testing.oracle_programs import table_row
from millstream.testing.stalls import Site, Stalled
from millstream.types import Attempt, Partition

__all__ = ["APPLICATION_ID", "RECORDS_OF_AN_EPOCH", "LostAttempt", "NoFaultError", "World"]

APPLICATION_ID: Final = "app"
LEASE_TTL_MS: Final = 30_000
MAX_RECORDS: Final = 3
"""Of each partition in an epoch: so that input is left when a fault strikes."""
RECORDS_OF_AN_EPOCH: Final = MAX_RECORDS * PARTITIONS

_IN_SMALL_STEPS: Final = LmdbSupplier(step_rows=(1, 1))
"""So that few records are enough for a crash between two steps of a write."""
TOO_LATE: Final = (StoreAheadError, ChangelogCompactedError)
"""How a task is refused that asks for a version of the past."""
OVERTAKEN: Final = (LeaseLostError, LeaseHeldError, *TOO_LATE)
"""How a driver may end that finds another one in its place."""


class NoFaultError(AssertionError):
    """A planned fault did not happen: the test would show nothing."""


@dataclass(frozen=True, slots=True)
class LostAttempt:
    """A task runs twice in an epoch."""

    task_id: str
    named: int
    """Which of the two attempts is reported to the driver, 0 or 1."""
    heard: int
    """Whose rows the next level gets."""


@dataclass(frozen=True, slots=True)
class StartedTask:
    """A task of some epoch as it was started: it can be started again at any time."""

    job: EpochJob
    planned: PlannedTask
    blobs: tuple[Blob, ...]

    @property
    def has_past(self) -> bool:
        """Whether the task had sealed before that epoch."""
        return self.planned.task_id in self.job.entries


class Executor(InProcessExecutor):
    """Runs a chosen task twice, and remembers all."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.twice: LostAttempt | None = None
        self.started: list[StartedTask] = []
        self.beside: Callable[[], None] | None = None
        """What happens once while tasks have sealed and nothing is committed yet."""
        super().__init__(*args, **settings)

    def run_tasks(self, job: EpochJob) -> list[TaskReport | Misplaced]:
        """Steps 3 to 6 for all tasks, level by level."""
        reports: list[TaskReport | Misplaced] = []
        blobs: list[Blob] = []
        for level in range(1 + max(task.level for task in job.tasks)):
            sent: list[Blob] = []
            for planned in (task for task in job.tasks if task.level == level):
                self.started.append(StartedTask(job, planned, tuple(self._for(planned, blobs))))
                twice = self.twice if self.twice and self.twice.task_id == planned.task_id else None
                attempts = [
                    run_level(self.worker, job, [planned], blobs, self.next_attempt)
                    for _ in range(2 if twice else 1)
                ]
                reports += attempts[twice.named if twice else 0][0]
                sent += attempts[twice.heard if twice else 0][1]
            blobs += sent
        beside, self.beside = self.beside, None
        if beside is not None:
            beside()
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
    snapshot_interval: int | None = None
    """After how many epochs each task gets a snapshot; None: there are none."""
    snapshots_retained: int = 1
    retained_manifests: int = DriverSettings().retained_manifests
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
        self.rng = random.Random(f"world {self.seed}")  # noqa: S311 - not a secret
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
        for user in ("millstream.state.directory.boot_id", "millstream.runtime.lease.boot_id"):
            self._resources.enter_context(mock.patch(user, self._boot_id))
        if self.sorted_rows is not None:
            self._resources.enter_context(_restores_by_key(self.sorted_rows, self.happened))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end_stalled()
        self._resources.close()

    # Ordinary life ------------------------------------------------------------------------------------

    def create_topics(self) -> Self:
        """Make the application's topics."""
        log = self.log()
        is_compacted = self.application.is_input_compacted
        log.create_topic(self.application.input, TopicConfig(PARTITIONS, is_compacted=is_compacted))
        for topic in self.application.outputs:
            log.create_topic(topic, TopicConfig(partitions=PARTITIONS, retention_bytes=self.retention_bytes))
        if self.delete_retention_ms != DELETE_RETENTION_MS:  # else the driver makes them
            for topic in self.changelogs().values():
                log.create_topic(
                    topic,
                    TopicConfig(PARTITIONS, is_compacted=True, delete_retention_ms=self.delete_retention_ms),
                )
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
        """Start a driver; if there was one before, its lease has run out."""
        self.now += LEASE_TTL_MS
        self.app = self.new_executor(max_records=max_records)
        self._at_head = set()
        return self.app

    def epoch(self, *, apply: bool = True) -> Manifest | None:
        """Run an epoch, in a new driver if there is none."""
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

    def tend(self, *, min_entries: int = 2) -> None:
        """Tidy up: fold and compact topics, apply retention, and collect what nobody needs."""
        app = self.app or self.open()
        self.note()
        self.now += 1  # tombstones of this moment are old enough, too
        report = app.tend(min_entries=min_entries)
        self.happened["manifests removed"] += report.manifests_removed
        self.happened["files collected"] += report.files_collected

    def tend_beside_an_epoch(self) -> None:
        """Tidy up while an epoch is under way: its tasks have sealed, and nothing names their files."""
        app = self.app or self.open()
        self.append(2 * RECORDS_OF_AN_EPOCH)
        app.beside = self.tend
        self.epoch()

    def advance(self, milliseconds: int) -> None:
        """Let the time of records that are written from now on be later."""
        self._time += milliseconds

    def finish(self) -> None:
        """Run epochs until all input is committed; with large ones, in another driver."""
        self.epoch()
        self.close()
        self.open(max_records=sum(map(len, self.inputs)))
        while self.epoch() is not None:
            pass

    def copy_to(self, folder: Path) -> World:
        """The same world in another folder; nobody may be at work in this one."""
        shutil.copytree(self.folder, folder)
        other = World(
            folder,
            self.name,
            self.backend,
            self.seed,
            self.make_files,
            self.limits,
            snapshot_interval=self.snapshot_interval,
            snapshots_retained=self.snapshots_retained,
            retained_manifests=self.retained_manifests,
            delete_retention_ms=self.delete_retention_ms,
            retention_bytes=self.retention_bytes,
            sorted_rows=self.sorted_rows,
        )
        other.chronicle = self.chronicle.copied()
        other.inputs = [list(rows) for rows in self.inputs]
        other.now, other.boot, other._time = self.now, self.boot, self._time
        return other

    def remove(self) -> None:
        """Delete everything: tests leave much behind."""
        shutil.rmtree(self.folder)

    def close(self) -> None:
        """End the driver in order."""
        if self.app is not None:
            self.app.close()
        self.app = None

    def backlog(self) -> int:
        """How many records are not committed."""
        manifests = self._manifests()
        done = sum(offset for _, _, offset in manifests[-1]["positions"]) if manifests else 0
        return sum(map(len, self.inputs)) - done

    # Faults -------------------------------------------------------------------------------------------

    def die(self) -> None:
        """The driver's process is gone, without a word."""
        self.app = None
        self._at_head = set()

    def crash(self, point: str, action: Any = "raise", *, skip: int = 0) -> None:
        """Run epochs, or first a driver's start, until a failpoint ends the process."""
        epochs = skip + 2  # a point is passed at least once in an epoch, and what is torn comes after it
        self.append((epochs + 1) * RECORDS_OF_AN_EPOCH)
        with failpoints.armed(point, action, skip=skip):
            try:
                for _ in range(epochs):
                    self.epoch()
            except failpoints.InjectedCrash:
                self.die()
        if self.app is not None:
            raise NoFaultError(f"{point} ended nothing in {epochs} epochs")
        self.count("crash")

    def crash_at(self, site: Site, *, opening: bool = False) -> None:
        """End the driver at a site in the middle of an epoch, or of its start."""
        self.stall(site, opening=opening)
        self.stalled.pop().kill()
        self.count("crash")

    def lose_attempt(self, lost: LostAttempt) -> None:
        """Run an epoch in which a task runs twice; one of the two is never named."""
        self.append(2 * RECORDS_OF_AN_EPOCH)
        app = self.app or self.open()
        before = len(app.started)
        app.twice = lost
        try:
            self.epoch()
        finally:
            app.twice = None
        if all(task.planned.task_id != lost.task_id for task in app.started[before:]):
            raise NoFaultError(f"there is no task {lost.task_id}")
        self.count("lost attempt")

    def zombie(self, task: StartedTask, *, elsewhere: bool) -> None:
        """Let a task of the past run now, here or on another instance. It may be refused."""
        worker = self._worker()
        if elsewhere:
            worker = replace(worker, directory=open_state_directory(self.standby))
        with suppress(*TOO_LATE):
            run_task(worker, task.job, task.planned, task.blobs, Attempt(next(self._zombies)))
        self.count("zombie")

    def late_apply(self, task: StartedTask) -> None:
        """Let a task of the past apply what was the head when it was started. It may be refused."""
        with suppress(*TOO_LATE):
            apply_commit(self._worker(), task.planned, task.job.entries[task.planned.task_id])
        self.count("zombie")

    def stall(self, site: Site, *, opening: bool = False) -> None:
        """Stop the driver in the middle of an epoch, or of its start. The next one takes over."""
        self.append(2 * RECORDS_OF_AN_EPOCH)
        if opening:
            self.die()
            self.now += LEASE_TTL_MS
        app = None if opening else self.app or self.open()

        def work() -> None:
            driver = app if app is not None else self.new_executor()
            self._run_epoch(driver, apply=True)

        self.stalled.append(Stalled(site, work))
        self.count("stalled driver")
        self.die()

    def stall_in_upkeep(self, site: Site) -> None:
        """Stop the driver while it tidies up. The next one takes over."""
        self.append((self.retained_manifests + 4) * RECORDS_OF_AN_EPOCH)
        for _ in range(self.retained_manifests + 2):  # so that there is something to remove
            self.epoch()
        app = self.app
        assert app is not None
        self.note()
        self.stalled.append(Stalled(site, lambda: app.tend(min_entries=2)))
        self._tending.append(self.stalled[-1])
        self.count("stalled driver")
        self.die()

    def wake(self) -> BaseException | None:
        """Let the driver that stalled first go on; how it ended."""
        stalled = self.stalled.pop(0)
        if stalled in self._tending:
            self.note()  # it may go on to apply retention to what was written since
        error = stalled.wake()
        self._at_head = set()  # it may have committed
        if error is not None and not isinstance(error, OVERTAKEN):
            raise error
        self.count("woken driver")
        return error

    def lose_local_state(self, task_id: str | None = None) -> None:
        """Delete the local stores of a task, or of all."""
        folder = self.state / APPLICATION_ID
        for path in [folder / task_id] if task_id else list(folder.glob("*_*")):
            shutil.rmtree(path, ignore_errors=True)
        self.forget_local_state()
        self.count("lost local state")

    def forget_local_state(self) -> None:
        """Local stores may be gone: what has no changelog may have forgotten, and nobody is at the head."""
        self._is_forgetful = True
        self._at_head = set()

    def crash_in_snapshot(self, point: str, action: Any = "raise", *, skip: int = 0) -> None:
        """Run epochs, each with a snapshot and a restore from it, until a failpoint ends the process."""

        def work() -> None:
            self.epoch()
            self.take_snapshots()
            self.lose_local_state()
            self.epoch()

        # Only one that is not retained is replaced, and what is torn comes later.
        self._crash_beside(work, skip + 2 + self.snapshots_retained, point, action, skip)

    def crash_in_upkeep(self, point: str, action: Any = "raise", *, skip: int = 0) -> None:
        """Run epochs, and tidy up after each two, until a failpoint ends the process."""

        def work() -> None:
            self.epoch()
            self.epoch()
            self.tend()

        self._crash_beside(work, skip + 4, point, action, skip)

    def _crash_beside(
        self, work: Callable[[], None], rounds: int, point: str, action: Any, skip: int
    ) -> None:
        """Do work of two epochs and what goes on beside them, until a failpoint ends the process."""
        self.append((2 * rounds + 1) * RECORDS_OF_AN_EPOCH)
        with failpoints.armed(point, action, skip=skip):
            try:
                for _ in range(rounds):
                    work()
            except failpoints.InjectedCrash:
                self.die()
        if self.app is not None:
            raise NoFaultError(f"{point} ended nothing in {rounds} rounds")
        self.count("crash")

    def restore_from_snapshots(self) -> None:
        """Lose the local disk after a snapshot, and go on from it."""
        self.append(5 * RECORDS_OF_AN_EPOCH)
        self.epoch()
        self.take_snapshots()
        self.lose_local_state()
        self.epochs_until_restored()

    def epochs_until_restored(self) -> None:
        """Run epochs until one needs a store that comes from a snapshot: an epoch may have no use for any."""
        before = self.happened["restored from a snapshot"]
        while self.happened["restored from a snapshot"] == before:
            if self.epoch() is None:
                raise NoFaultError("nothing was restored from a snapshot")

    def restore_from_harmed_snapshots(self) -> None:
        """Lose the local disk and a part of every snapshot."""
        self.append(3 * RECORDS_OF_AN_EPOCH)
        self.epoch()
        self.take_snapshots()
        self.harm_snapshots()
        self.lose_local_state()
        self.epoch()
        storage = FolderStorage(self.snapshots, self.files)
        for name in storage.sizes(APPLICATION_ID):
            storage.delete(f"{APPLICATION_ID}/{name}")

    def harm_snapshots(self) -> None:
        """Something happens to one file of the snapshots of each store, if there is any."""
        harmed = 0
        storage = FolderStorage(self.snapshots, self.files)
        for store in sorted(self.snapshots.glob(f"{APPLICATION_ID}/*_*/*/*")):
            content = sorted(path for path in store.glob("*/*") if path.stat().st_size)
            if content:
                file, fate = self.rng.choice(content), self.rng.choice(("cut", "lost", "zeroed"))
                if fate == "lost":
                    storage.delete(file.relative_to(self.snapshots).as_posix())
                else:
                    self.harm_file(file, fate)
                harmed += 1
        if not harmed:
            raise NoFaultError("there were no snapshots to harm")
        self.count("harmed snapshot")

    def power_cut(self) -> None:
        """All processes end, and what was not synced is lost, wholly or in part."""
        self._end_stalled()
        self.die()
        assert isinstance(self.files, FaultyFiles)
        self.files.power_cut(self.rng)
        self.chronicle.power_cut(self._manifests())
        self.boot += 1
        for store in sorted(self.state.glob(f"{APPLICATION_ID}/*_*/*/*/")):
            self._scramble(store)
        self._is_forgetful = True
        self.count("power cut")

    # What is left -------------------------------------------------------------------------------------

    def check(self) -> Verdict:
        """Compare everything with the oracle. A dead driver's last epoch may be half published."""
        settled = self.app is not None
        facts = self.facts(settled=settled)
        return oracle.check(self.program(), facts)

    def check_versions(self) -> None:
        """Compare only what can be seen without reading a topic, which would bring it into order."""
        self.chronicle.note_manifests(self._manifests())
        oracle.check_versions(self.chronicle.manifests, self._copies(self.state))

    def check_snapshots(self) -> int:
        """Make a store of every snapshot that can be seen, and compare it with the oracle; how many."""
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            copies = snapshot_copies(self.snapshots / APPLICATION_ID, Path(scratch), self.torn)
        oracle.check_snapshots(self.program(), self.facts(settled=self.app is not None), copies)
        return len(copies)

    def check_to_the_end(self) -> Verdict:
        """Run to the end of the input, follow with a standby, and compare everything."""
        self.finish()
        self.follow()
        verdict = self.check()
        everything = sum(map(len, self.inputs))
        if verdict.records != everything or not verdict.outputs:
            raise oracle.InvariantBroken(f"I1: {verdict.records} of {everything} records were committed")
        return verdict

    def follow(self) -> None:
        """Bring a standby of every task to the head."""
        worker = replace(self._worker(), directory=open_state_directory(self.standby))
        for planned, entry in self._committed_tasks():
            apply_commit(worker, planned, entry)

    def facts(self, *, settled: bool = True) -> Facts:
        """Everything that can be seen from outside, and all that was ever seen."""
        held = self.note()
        rows = {store: self.chronicle.topics[topic] for store, topic in self.changelogs().items()}
        rows_now = {store: held[topic] for store, topic in self.changelogs().items()}
        for store, topic in self.program().followed.items():
            rows[store] = [[table_row(row) for row in partition] for partition in self.inputs]
            rows_now[store] = table_rows_of(held_by(self.log_root, topic, self.files))
        return Facts(
            inputs={self.application.input: self.inputs},
            manifests=self.chronicle.manifests,
            outputs={topic: self.chronicle.topics[topic] for topic in self.application.outputs},
            changelogs=rows,
            stores=self._copies(self.state),
            standbys=self._copies(self.standby),
            sealed=sealed_in(self.log_root),
            referenced=self.log().referenced_files(),
            forgetful={"visits"} if self._is_forgetful else frozenset(),
            settled=settled,
            applied=frozenset(self._at_head),
            kept={manifest["epoch"] for manifest in self._manifests()},
            retained_manifests=self.retained_manifests,
            outputs_now={topic: held[topic] for topic in self.application.outputs},
            changelogs_now=rows_now,
            retention=frozenset() if self.retention_bytes is None else {*self.application.outputs},
        )

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
        """A new driver on the same folders."""
        app = Executor(
            self.application.build(),
            application_id=APPLICATION_ID,
            log_root=self.log_root,
            state_dir=self.state,
            backend=_IN_SMALL_STEPS if self.backend == _IN_SMALL_STEPS.name else self.backend,
            settings=DriverSettings(
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
        self.chronicle.acknowledge(app.driver.head.epoch)
        return app

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
            for number in range(self.plan.task_count(sub, app.driver.counts)):
                planned = PlannedTask(sub.task_id(number), sub.number, Partition(number), sub.level)
                entry = app.driver.head.tasks.get(planned.task_id)
                if entry is not None:
                    yield planned, entry

    def _manifests(self) -> list[dict[str, Any]]:
        return manifests_in(self.application_folder / "manifests")

    def _copies(self, state: Path) -> dict[tuple[str, str], oracle.Copy]:
        return copies_in(state, self.plan, APPLICATION_ID, self.backend)

    def _end_stalled(self) -> None:
        for stalled in self.stalled:
            stalled.kill()
        self.stalled = []

    def count(self, fault: str) -> None:
        """Note a fault; it must have come before the end of the input."""
        if not self.backlog():
            raise NoFaultError(f"all input was committed before the fault ({fault})")
        self.happened[fault] += 1

    def _scramble(self, store: Path) -> None:
        """What a power cut may do to files that were never synced."""
        for file in sorted(path for path in store.rglob("*") if path.is_file() and path.name != "FORMAT"):
            self.harm_file(file, self.rng.choice(("kept", "cut", "lost", "zeroed")))

    def harm_file(self, file: Path, fate: str) -> None:
        """Cut, zero or delete a file, behind everybody's back."""
        size = file.stat().st_size
        if fate == "lost":
            file.unlink()
        elif fate == "cut":
            with file.open("r+b") as opened:
                opened.truncate(self.rng.randint(0, max(0, size - 1)))
        elif fate == "zeroed":
            file.write_bytes(bytes(size))


@contextmanager
def _restores_by_key(rows: int, happened: Counter[str]) -> Iterator[None]:
    """Let restores of so many rows and more be by key, in several runs of several blocks; count them."""
    run_rows = max(2, rows // 2)

    def small(parts: Iterable[list[pa.RecordBatch]]) -> Iterator[list[pa.RecordBatch]]:
        for batch in (batch for part in parts for batch in part):
            yield from ([batch.slice(at, run_rows)] for at in range(0, len(batch), run_rows))

    def counted(parts: Iterable[list[pa.RecordBatch]], folder: Path) -> AbstractContextManager[SortedRuns]:
        happened["restored by key"] += 1
        return sorted_runs(small(parts), folder)

    with (
        mock.patch("millstream.state.follow.SORTED_ROWS", rows),
        mock.patch("millstream.state.follow.BATCH_ROWS", run_rows),
        mock.patch("millstream.state.sorted_runs._BLOCK_ROWS", 2),
        mock.patch("millstream.state.follow.sorted_runs", counted),
    ):
        yield
