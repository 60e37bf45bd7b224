"""Whole epochs on the local engine, through the real commit: real files, real stores, real topics.

Other engines differ from it in nothing but who calls `run_task` and where. So every crash site of the commit
is tested here, without a JVM.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from millstream import failpoints
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.coordinator import CommitCoordinator, CoordinatorSettings
from millstream.commit.epoch import run_epoch
from millstream.commit.manifest import Manifest
from millstream.commit.planned_tasks import planned_task
from millstream.commit.publisher import EmbeddedPublisher
from millstream.commit.worker import Worker
from millstream.config import StreamsConfig
from millstream.durable import OS_FILES, FileLayer
from millstream.engine.api import DurableEpoch
from millstream.engine.local import LocalEngine
from millstream.errors import MillstreamError
from millstream.log.embedded.file_log import FileLog
from millstream.log.embedded.partition import Limits
from millstream.maintenance.maintenance import Maintenance, MaintenanceReport
from millstream.maintenance.snapshot_schedule import schedule_of
from millstream.maintenance.snapshots import pinned_epochs, snapshot_task, storage_of, warn_of
from millstream.state.backends.api import BackendSupplier
from millstream.state.changelog.follow import NO_LISTENER, RestoreListener
from millstream.state.local.directory import note_log, open_state_directory
from millstream.state.snapshots.taking import Outcome
from millstream.task.metrics import Metrics
from millstream.threads import end_threads
from millstream.topology.topology import Topology

__all__ = ["InProcessExecutor"]


class InProcessExecutor(LocalEngine):
    """An application with the engine that runs it. Opening it twice on the same folders is a restart."""

    def __init__(
        self,
        topology: Topology,
        *,
        application_id: str,
        log_root: Path,
        state_dir: Path,
        backend: str | BackendSupplier = "memory",
        config: StreamsConfig | None = None,
        settings: CoordinatorSettings | None = None,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        files: FileLayer = OS_FILES,
        limits: Limits | None = None,
        listener: RestoreListener = NO_LISTENER,
        apply_after_commit: bool = True,
    ) -> None:
        plan = topology.plan()
        config = config if config is not None else StreamsConfig()
        snapshots = storage_of(config, files)
        storage = ApplicationStorage(log_root, application_id, files)
        self.log = FileLog(log_root, files=files, limits=limits, now_ms=clock)
        self.metrics = Metrics()
        self.coordinator = CommitCoordinator(
            storage,
            self.log,
            EmbeddedPublisher(storage, self.log),
            plan,
            clock=clock,
            settings=settings,
            read_times=self.read_times,
        )
        self.maintenance = Maintenance(
            self.coordinator, self.log, lambda: pinned_epochs(self.worker.snapshots, application_id)
        )
        worker = Worker(
            plan=plan,
            config=config,
            storage=storage,
            log=self.log,
            directory=note_log(open_state_directory(state_dir), application_id, log_root),
            backend=backend,
            metrics=self.metrics,
            listener=listener,
            snapshots=snapshots,
        )
        super().__init__(lambda: worker)
        self.apply_after_commit = apply_after_commit
        self.coordinator.open()
        self.schedule = schedule_of(config, snapshots, self.coordinator.head)

    def run_epoch(self, *, tick: bool = False) -> Manifest | None:
        """Run one epoch through all ten steps; None if there was nothing to do."""
        epoch = run_epoch(self.coordinator, self, tick=tick)
        if epoch is None:
            return None
        if self.apply_after_commit:
            self.take_due_snapshots(epoch)
        return epoch.manifest

    def run_until_caught_up(self) -> int:
        """Run epochs until all input is committed. How many there were."""
        epochs = 0
        while (manifest := self.run_epoch()) is not None or self.coordinator.has_backlog:
            epochs += manifest is not None
        return epochs

    def run_maintenance(self, *, min_entries: int = 1) -> MaintenanceReport:
        """Tidy up, as step 10 does now and then."""
        return self.maintenance.run(min_entries=min_entries)

    def take_due_snapshots(self, epoch: DurableEpoch) -> list[Outcome]:
        """Snapshots of the tasks that are due."""
        if self.schedule is None:
            return []
        self.schedule.note(epoch.manifest)
        due = self.schedule.due(epoch.manifest)
        outcomes = [
            outcome
            for task in filter(None, (planned_task(self.coordinator.tasks, task_id) for task_id in due))
            for outcome in snapshot_task(self.worker, task, epoch.manifest.tasks[task.task_id])
        ]
        self.schedule.tried(due, epoch.manifest.epoch)
        warn_of(outcomes)
        return outcomes

    def close(self) -> None:
        """Let the lease go."""
        with suppress(failpoints.InjectedCrash, OSError, MillstreamError):
            self.coordinator._settle()  # what a thread beside the epochs died of: this one lives on
        self.coordinator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            end_threads()  # nothing of a dead process goes on
