"""The loop of an application: epoch after epoch on any engine, and what goes on beside them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Final

from millstream.clock import now_ms
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.coordinator import CommitCoordinator, CoordinatorSettings
from millstream.commit.epoch import EpochAhead, run_epoch
from millstream.commit.epoch_job import PlannedTask
from millstream.commit.planned_tasks import planned_task
from millstream.commit.publisher import EmbeddedPublisher
from millstream.config import StreamsConfig
from millstream.engine.api import DurableEpoch, Engine
from millstream.engine.assignment.view import AssignmentFile, Rebalance
from millstream.engine.epoch_result import EpochResult, result_of
from millstream.engine.global_loading import GlobalLoading
from millstream.engine.restore_notes import RestoreNotes
from millstream.engine.snapshots import Snapshots
from millstream.engine.ticks import Ticks
from millstream.frozen_heap import FROZEN_HEAP
from millstream.log.api import SealedLog
from millstream.maintenance.background import BackgroundScheduler
from millstream.maintenance.maintenance import Maintenance
from millstream.maintenance.retention import PinnedEpochs
from millstream.maintenance.snapshot_schedule import schedule_of
from millstream.maintenance.snapshots import pinned_epochs, storage_of
from millstream.state.changelog.follow import NO_LISTENER
from millstream.state_dir import absolute_state_dir, state_dir_if_known
from millstream.threads import with_timeout
from millstream.throttler import Throttler
from millstream.topology.plan import Plan

_LOOK_S: Final = 1.0
"""How often an application looks for records of which the log would have told."""
_SLICE_S: Final = 0.05
"""How late at most it notices then that it shall end."""
_LONGEST_WAIT_S: Final = 10.0
"""So long a storage of snapshots may take to answer, and maintenance at work is waited for in the end."""


class EpochLoop:
    """Runs an application. `open`, then `run_epoch` again and again, then `close`."""

    def __init__(
        self,
        storage: ApplicationStorage,
        log: SealedLog,
        plan: Plan,
        engine: Engine,
        config: StreamsConfig,
        listeners: Sequence[Callable[[EpochResult], None]] = (),
    ) -> None:
        self.engine = engine
        self._config = config
        self._listeners = listeners
        self._application_id = storage.application_id
        self._snapshot_storage = storage_of(config)  # refuses what can't be one
        self._snapshots: Snapshots | None = None
        self.coordinator = CommitCoordinator(
            storage,
            log,
            EmbeddedPublisher(storage, log),
            plan,
            clock=now_ms,
            settings=CoordinatorSettings(
                max_records=config.max_records_per_epoch,
                max_bytes=config.max_bytes_per_epoch,
                lease_ttl_ms=config.lease_ttl_ms,
                default_partitions=config.default_partitions,
                offset_reset=config.offset_reset,
                timestamp_extractor=config.timestamp_extractor,
                max_task_idle_ms=config.max_task_idle_ms,
            ),
            read_times=engine.read_times,
        )
        self._left_records = False
        """The cut of the epoch at work has left some, whatever that of the next one does."""
        self.rebalance_listeners: list[Callable[[Rebalance], None]] = []
        self._assignment_file = AssignmentFile(storage.path)
        self._ticks = Ticks(plan, config.tick_ms)
        self._heap = ExitStack()
        self.goes_on = False
        """Whoever runs epochs will run the next one, whatever comes of this one."""
        # Whether the clock shall tick, or more has come, is known when an epoch is published and has ended.
        # And an epoch that is committed shall not wait long to be shown, because the next one is planned.
        self._may_begin_ahead = not (
            self._ticks.may_be_wanted or plan.reads_what_it_writes or self.coordinator.may_plan_for_long
        )
        self._ahead = EpochAhead(self.coordinator, engine, self._has_next)
        folder = state_dir_if_known(absolute_state_dir(config.state_dir))
        notes = None if folder is None else RestoreNotes(folder / storage.application_id, what="loading-")
        self._loading = GlobalLoading(plan, self.coordinator, notes or NO_LISTENER)
        pinned = with_timeout(self._pinned, _LONGEST_WAIT_S, "The storage of snapshots")
        maintenance = Maintenance(self.coordinator, log, pinned)
        self._throttler = Throttler()
        self._maintenance = BackgroundScheduler(
            "maintenance",
            maintenance.run,
            interval=config.maintenance_interval_epochs,
            urgency=maintenance.urgency,
            while_waiting=self._kept_alive,
            throttler=self._throttler,
        )

    def open(self, *, until_caught_up: bool = False) -> None:
        """Take the application over, and get the engine ready."""
        self.engine.check()
        self.coordinator.open()
        self._loading.begin()
        if until_caught_up:
            self.engine.expect_records(sum(self.coordinator.lag().values()))
        self.engine.open()
        self._heap.close()
        self._heap.enter_context(FROZEN_HEAP)
        self._let_engine_rest()
        schedule = schedule_of(self._config, self._snapshot_storage, self.coordinator.head)
        self._snapshots = None if schedule is None else Snapshots(self.engine, schedule, self._task)

    @property
    def has_backlog(self) -> bool:
        """Records were waiting when an epoch was last planned that it does not take, if there was one."""
        return self.coordinator.has_backlog

    @property
    def is_idling(self) -> bool:
        """Records wait for a partition that has none."""
        return self.coordinator.is_idling

    def run_epoch(self, *, tick: bool) -> EpochResult | None:
        """Run one epoch; None if there is nothing to do. `tick` lets the wall clock move punctuators."""
        began = time.monotonic()
        latency_ms: int | None = None
        result: EpochResult | None = None
        self._left_records = False

        def measure(epoch: DurableEpoch) -> None:
            nonlocal latency_ms
            appended = self.coordinator.newest_append_time(epoch.job)
            latency_ms = None if appended is None else max(0, now_ms() - appended)

        def tell(epoch: DurableEpoch) -> None:
            nonlocal result
            seconds = time.monotonic() - began
            has_backlog = self.has_backlog or self._left_records
            result = result_of(epoch, seconds=seconds, has_backlog=has_backlog, latency_ms=latency_ms)
            for listener in self._listeners:
                listener(result)

        snapshots = () if self._snapshots is None else (self._snapshots.epoch_ended,)
        with self._throttler.epoch():
            epoch = run_epoch(
                self.coordinator,
                self.engine,
                tick=tick and self._ticks.due(),
                listeners=(
                    measure,
                    *snapshots,
                    self._ticks.epoch_ended,
                    self._loading.epoch_ended,
                    self._maintenance.epoch_ended,
                    tell,
                ),
                heartbeat=self._kept_alive,
                ahead=self._ahead,
            )
        if epoch is None:
            self._maintenance.nothing_to_do()
            self._let_engine_rest()
        self._tell_of_places()
        return result

    def wait_for_records(self, interval_s: float, longest_s: float, stop: threading.Event) -> None:
        """Wait, with nothing to do, until records come, the clock shall tick, or it is time to look for them.

        If the log tells of records, to look for them is a matter of caution, and rare.
        """
        coordinator = self.coordinator
        is_waiting = coordinator.has_backlog or coordinator.is_idling  # for others than records
        if is_waiting or not coordinator.is_told_of_records:
            stop.wait(min(interval_s, longest_s))
            return
        longest_s = min(longest_s, max(interval_s, _LOOK_S), self._ticks.seconds_to_next())
        deadline = time.monotonic() + longest_s
        while not stop.is_set() and (left := deadline - time.monotonic()) > 0:
            if coordinator.wait_for_records(min(left, _SLICE_S)):
                return

    def finish(self) -> None:
        """No epoch will follow for a while: if the next one has begun, it is the last.

        It is not given up: what the user's functions do to others, they should do once if nothing fails.
        """
        self.goes_on = False
        if self._ahead.has_begun:
            self.run_epoch(tick=False)

    def release(self) -> None:
        """Release the lease; the engine stays, for the next `open`."""
        self._end(None)

    def close(self) -> None:
        """Release the lease, and close the engine."""
        self._heap.close()
        self._end(_LONGEST_WAIT_S)
        self.engine.close()

    def _end(self, longest_wait_s: float | None) -> None:
        self.goes_on = False
        self._ahead.cancel()
        self._maintenance.wait(longest_wait_s)
        self.coordinator.close()
        snapshots, self._snapshots = self._snapshots, None
        if snapshots is not None:
            snapshots.finish()

    def _has_next(self) -> bool:
        """Whether an epoch follows the one that is committed just now: records are waiting that it left."""
        self._left_records = self.has_backlog
        return self._left_records and self.goes_on and self._may_begin_ahead

    def _pinned(self) -> PinnedEpochs:
        """The epochs that snapshots need. First those at work: when they are done, they are listed."""
        since = None if self._snapshots is None else self._snapshots.at_work_since
        return PinnedEpochs(pinned_epochs(self._snapshot_storage, self._application_id), since)

    def prepare(self) -> None:
        """Get ready for an application that another coordinator runs."""
        self.engine.check()
        self.engine.prepare()

    def _tell_of_places(self) -> None:
        for rebalance in self.engine.take_rebalances():
            for listener in self.rebalance_listeners:
                listener(rebalance)
        with suppress(OSError):  # a file for people: not worth a failed epoch
            self._assignment_file.write(self.engine.assigned)

    def _let_engine_rest(self) -> None:
        coordinator = self.coordinator
        tasks = (some.task(partition) for some in coordinator.tasks for partition in range(some.count))
        self.engine.nothing_to_do(tasks, coordinator.head)

    def _task(self, task_id: str) -> PlannedTask | None:
        return planned_task(self.coordinator.tasks, task_id)

    def _kept_alive(self) -> AbstractContextManager[None]:
        return self.coordinator.lease.kept_alive()
