"""The loop: one Spark job per epoch, through the steps of the commit, until told to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

from millstream.config import StreamsConfig
from millstream.errors import MillstreamError
from millstream.log.files import FileLog
from millstream.runtime.application_folder import ApplicationFolder
from millstream.runtime.commit import Driver, DriverSettings, EpochMismatchError, MisplacedError
from millstream.runtime.epoch import EpochJob, TaskReport
from millstream.runtime.manifest import Manifest
from millstream.spark.job import run_epoch_job
from millstream.spark.session import check_context, context_of, make_context
from millstream.spark.shipping import Program, ship
from millstream.spark.slots import Slots
from millstream.topology.topology import Topology

__all__ = ["EpochLoop", "EpochResult"]


@dataclass(frozen=True, slots=True)
class EpochResult:
    """What an epoch did."""

    manifest: Manifest
    records: int
    """Of the sources; rows that went through repartitions are not counted again."""
    seconds: float
    commit_requested: bool


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
        self._application_id = application_id
        self._config = config
        self._spark = spark
        self._plan = topology.plan()
        self.log = FileLog(log_root)
        self.driver = Driver(
            ApplicationFolder(log_root, application_id),
            self.log,
            self._plan,
            clock=_now_ms,
            settings=DriverSettings(
                max_records=config.max_records_per_epoch,
                lease_ttl_ms=config.lease_ttl_ms,
                default_partitions=config.default_partitions,
                offset_reset=config.offset_reset,
            ),
        )
        self._program = Program(
            topology, config, application_id, log_root.resolve(), config.state_dir.resolve(), config.backend
        )
        self._context: SparkContext | None = None
        self._slots: Slots | None = None
        self._make_worker: Any = None
        self._next_tick = 0
        self._wants_ticks = any(
            "_run_user_processor" in getattr(getattr(node, "make", None), "func", type(self)).__qualname__
            for sub in self._plan.subtopologies
            for node in sub.nodes.values()
        )

    def open(self) -> None:
        """Take the application over, and get Spark ready: session, slots, warm workers."""
        self.driver.open()
        if self._context is None:
            if self._spark is None:
                self._context = make_context(self._application_id, self._config.spark_settings)
            else:
                self._context = context_of(self._spark)
                check_context(self._context)
            self._slots = Slots(self._context, self._context.defaultParallelism)
            self._make_worker = ship(self._context, self._program)
            self._slots.rows.mapPartitions(_Warm(self._make_worker)).collect()

    def run_epoch(self, *, tick: bool) -> EpochResult | None:
        """Run one epoch; None if there is nothing to do. `tick` lets the wall clock move punctuators."""
        began = time.monotonic()
        due = tick and self._wants_ticks and _now_ms() >= self._next_tick
        job = self.driver.plan_epoch(tick=due)
        if job is None:
            return None
        if due:
            self._next_tick = _now_ms() + self._config.tick_ms
        reports, manifest = self._committed(job)
        self.driver.publish(manifest)
        self.driver.end(manifest)
        return EpochResult(
            manifest,
            sum(end - start for parts in job.cut.values() for start, end in parts.values()),
            time.monotonic() - began,
            any(report.commit_requested for report in reports),
        )

    def close(self) -> None:
        """Let the lease go, and end the Spark that was made here."""
        self.driver.close()
        if self._slots is not None:
            self._slots.release()
        if self._spark is None and self._context is not None:
            self._context.stop()
        self._context = None

    def _committed(self, job: EpochJob) -> tuple[list[TaskReport], Manifest]:
        assert self._context is not None and self._slots is not None  # noqa: PT018 - open() comes first
        tries = 0
        while True:
            try:
                reports = run_epoch_job(self._context, self._slots, job, self._make_worker)
                manifest = self.driver.commit(job, reports)
            except (EpochMismatchError, MisplacedError, Py4JError) as error:
                tries += 1
                if tries > self._config.max_epoch_retries:
                    raise _given_up(job, error, tries) from error
            else:
                return [report for report in reports if isinstance(report, TaskReport)], manifest


class _Warm:
    """Makes a worker process import and unpack what it will need."""

    def __init__(self, make_worker: Callable[[], object]) -> None:
        self._make_worker = make_worker

    def __call__(self, rows: Any) -> list[int]:
        self._make_worker()
        return [sum(1 for _ in rows)]


def _given_up(job: EpochJob, error: Exception, tries: int) -> MillstreamError:
    return MillstreamError(
        f"Epoch {job.epoch} of application {job.application_id!r} failed {tries} times; nothing of it is "
        f"visible. The last failure: {error}"
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
