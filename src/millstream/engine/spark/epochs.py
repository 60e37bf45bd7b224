"""The loop: one Spark job per epoch, through the steps of the commit, until told to stop."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.coordinator import (
    CommitCoordinator,
    CoordinatorSettings,
    EpochMismatchError,
    WrongInstanceError,
)
from millstream.commit.epoch_job import EpochJob, TaskReport
from millstream.commit.heartbeat import kept_alive
from millstream.commit.manifest import Manifest
from millstream.config import StreamsConfig
from millstream.durable import DiskFullError
from millstream.engine.spark.failures import EpochFailedError, SparkGoneError, given_up, not_started
from millstream.engine.spark.job import run_epoch_job
from millstream.engine.spark.jvm_loss import log_jvm_loss_at_debug
from millstream.engine.spark.program_broadcast import Program, ship
from millstream.engine.spark.session import (
    check_context,
    context_of,
    forget_dead_context,
    is_alive,
    make_context,
)
from millstream.engine.spark.slots import Slots
from millstream.engine.spark.snapshots import SnapshotJobs
from millstream.engine.spark.warmup import warm_up
from millstream.engine.ticks import Ticks, now_ms
from millstream.errors import MillstreamError
from millstream.log.embedded.file_log import FileLog
from millstream.maintenance.background import BackgroundScheduler
from millstream.maintenance.snapshots import PinnedEpochs, pinned_epochs, schedule_of, storage_of
from millstream.state.backends.api import StoreSize
from millstream.state.backends.config_setter import config_setter
from millstream.state.snapshots import absolute_location
from millstream.task.stage_timer import StageTimer
from millstream.threads import Impatient
from millstream.topology.topology import Topology

__all__ = ["EpochFailedError", "EpochLoop", "EpochResult"]

_LOGGER = logging.getLogger("millstream")
_LONGEST_WAIT_S = 10.0
"""So long a storage of snapshots may take to answer, and maintenance at work is waited for in the end."""
_RUN_AGAIN = (EpochMismatchError, WrongInstanceError, DiskFullError, Py4JError, PySparkException, OSError)
"""Failures of the machinery: the same epoch may well succeed when it is run again."""


@dataclass(frozen=True, slots=True)
class EpochResult:
    """What an epoch did."""

    manifest: Manifest
    records: int
    """Of the sources; rows that went through repartitions are not counted again."""
    seconds: float
    commit_requested: bool
    counters: Mapping[tuple[str, str], int]
    """What its tasks counted, by node and counter. Attempts that were not committed are not in it."""
    has_backlog: bool = False
    """Records were waiting that did not fit into it."""
    latency_ms: int | None = None
    """From the moment when its newest record came into the log to the publication; None without records."""
    state_sizes: Mapping[str, StoreSize] = field(default_factory=dict)
    """About how large the stores of the tasks that ran are: bytes are without the changes of this epoch."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """Where the coordinator's time went: plan, job and commit, publish."""
    task_stages: Mapping[str, float] = field(default_factory=dict)
    """Where the tasks' time went, summed over all tasks; they run side by side, within the job."""


class EpochLoop:
    """An application on Spark. `open`, then `run_epoch` again and again, then `close`."""

    def __init__(
        self,
        topology: Topology,
        *,
        application_id: str,
        log_root: Path,
        spark: Any,
        config: StreamsConfig,
    ) -> None:
        if config.snapshot_uri is not None:
            config = replace(config, snapshot_uri=absolute_location(config.snapshot_uri))
        self._application_id = application_id
        self._config = config
        self._spark = spark
        self._plan = topology.plan()
        self._snapshot_storage = storage_of(config)  # refuses what can't be one
        self._snapshots: SnapshotJobs | None = None
        self.log = FileLog(log_root)
        self.coordinator = CommitCoordinator(
            ApplicationStorage(log_root, application_id),
            self.log,
            self._plan,
            clock=now_ms,
            settings=CoordinatorSettings(
                max_records=config.max_records_per_epoch,
                max_bytes=config.max_bytes_per_epoch,
                lease_ttl_ms=config.lease_ttl_ms,
                default_partitions=config.default_partitions,
                offset_reset=config.offset_reset,
            ),
            pinned=Impatient(self._pinned, _LONGEST_WAIT_S, "The storage of snapshots"),
        )
        config_setter(config.rocksdb_config_setter)  # refused here, and not by the first worker
        self._program = Program(
            topology, config, application_id, log_root.resolve(), config.state_dir.resolve(), config.backend
        )
        self._context: SparkContext | None = None
        self._slots: Slots | None = None
        self._make_worker: Any = None
        self._ticks = Ticks(self._plan, config.tick_ms)
        self._maintenance = BackgroundScheduler(
            "maintenance",
            self.coordinator.run_maintenance,
            interval=config.maintenance_interval_epochs,
            urgency=self.coordinator.maintenance_urgency,
            while_waiting=lambda: kept_alive(self.coordinator.lease, config.lease_ttl_ms),
        )

    def open(self) -> None:
        """Take the application over, and get Spark ready: session, slots, warm workers."""
        self.coordinator.open()
        try:
            self._open_spark()
        except Exception as error:
            context = self._context
            if isinstance(error, MillstreamError) or context is None or is_alive(context):
                raise
            _LOGGER.debug("The JVM died while Spark was made ready", exc_info=True)
            raise not_started(self._application_id) from None
        self._begin_snapshots()

    def _open_spark(self) -> None:
        if self._context is not None and not is_alive(self._context):
            self._forget_context(self._context)
        if self._context is None:
            self._context = self._get_context()
            self._slots = Slots(self._context, self._context.defaultParallelism)
            self._make_worker = ship(self._context, self._program)
            warm_up(self._context, self._slots, self._make_worker, self._application_id)

    @property
    def has_backlog(self) -> bool:
        """Records were waiting when an epoch was last planned that it does not take, if there was one."""
        return self.coordinator.has_backlog

    def run_epoch(self, *, tick: bool) -> EpochResult | None:
        """Run one epoch; None if there is nothing to do. `tick` lets the wall clock move punctuators."""
        began = time.monotonic()
        stages = StageTimer()
        due = tick and self._ticks.due()
        job = self.coordinator.plan_epoch(tick=due)
        if job is None:
            self._maintenance.nothing_to_do()
            return None
        stages.ended("plan")
        has_backlog = self.coordinator.has_backlog
        reports, manifest = self._committed(job)
        stages.ended("job and commit")
        self.coordinator.publish(manifest)
        stages.ended("publish")
        appended = self.coordinator.newest_append_time(job)
        latency_ms = None if appended is None else max(0, now_ms() - appended)
        if self._snapshots is not None:
            self._snapshots.after(job, manifest, reports)
        self._ticks.ended(reports, ticked=due)
        self._maintenance.epoch_ended()
        counters: Counter[tuple[str, str]] = Counter()
        task_stages: dict[str, float] = {}
        for report in reports:
            counters.update(report.counters)
            for stage, seconds in report.stages.items():
                task_stages[stage] = task_stages.get(stage, 0.0) + seconds
        return EpochResult(
            manifest,
            sum(end - start for parts in job.cut.values() for start, end in parts.values()),
            time.monotonic() - began,
            any(report.commit_requested for report in reports),
            counters,
            has_backlog,
            latency_ms,
            {report.task_id: report.state_size for report in reports if report.sealed is not None},
            stages.seconds,
            task_stages,
        )

    def let_go(self) -> None:
        """Let the lease go; Spark stays, for the next `open`."""
        self._maintenance.wait()
        self.coordinator.close()
        self._end_snapshots()

    def close(self) -> None:
        """Let the lease go, and end the Spark that was made here."""
        self._maintenance.wait(_LONGEST_WAIT_S)
        self.coordinator.close()
        self._end_snapshots()
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

    def _begin_snapshots(self) -> None:
        assert self._context is not None and self._slots is not None  # noqa: PT018 - open() comes first
        schedule = schedule_of(self._config, self._snapshot_storage, self.coordinator.head)
        if schedule is not None:
            self._snapshots = SnapshotJobs(self._context, self._slots, self._make_worker, schedule)

    def _pinned(self) -> PinnedEpochs:
        """The epochs that snapshots need. First those at work: when they are done, they are listed."""
        since = None if self._snapshots is None else self._snapshots.at_work_since
        return PinnedEpochs(pinned_epochs(self._snapshot_storage, self._application_id), since)

    def _end_snapshots(self) -> None:
        jobs, self._snapshots = self._snapshots, None
        if jobs is not None:
            jobs.finish()

    def _get_context(self) -> SparkContext:
        if self._spark is None:
            return make_context(self._application_id, self._config.spark_settings)
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

    def _committed(self, job: EpochJob) -> tuple[list[TaskReport], Manifest]:
        assert self._context is not None and self._slots is not None  # noqa: PT018 - open() comes first
        tries = 0
        while True:
            try:
                with kept_alive(self.coordinator.lease, self._config.lease_ttl_ms):
                    reports = run_epoch_job(self._context, self._slots, job, self._make_worker)
                manifest = self.coordinator.commit(job, reports)
            except Exception as error:
                # A coordinator that was overtaken says so, whatever else went wrong because of it.
                self.coordinator.lease.verify()
                tries += 1
                alive = is_alive(self._context)
                if alive and not isinstance(error, _RUN_AGAIN):
                    raise
                if not alive:
                    _LOGGER.debug("Spark is gone", exc_info=True)
                    raise given_up(job, error, tries, spark_is_alive=False) from None
                if tries > self._config.max_epoch_retries:
                    raise given_up(job, error, tries, spark_is_alive=True) from error
            else:
                return [report for report in reports if isinstance(report, TaskReport)], manifest
