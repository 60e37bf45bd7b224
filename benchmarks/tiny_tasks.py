"""What a task with one record costs its slot, by stage: processor time and calls, without Spark and syncs.

python -m benchmarks.tiny_tasks          512 tasks, six epochs
python -m benchmarks.tiny_tasks 100 3    100 tasks, three epochs

The tasks count by key and have no repartition, as in `scale`. Stores stay open, as in a resident slot; keys
are new in each epoch. Calls are counted in an epoch of their own, by Python's profiler.
"""

from __future__ import annotations

import cProfile
import gc
import pstats
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from benchmarks.applications import workplace
from benchmarks.fake_slots import NotSynced, counts_by_key
from millstream import StreamsConfig
from millstream.clock import now_ms
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.coordinator import CommitCoordinator
from millstream.commit.epoch import CommittedEpoch, run_epoch
from millstream.commit.epoch_job import EpochJob, TaskReport, WrongInstance
from millstream.commit.manifest import Manifest
from millstream.commit.publisher import EmbeddedPublisher
from millstream.commit.store_opening import apply_commit
from millstream.commit.task_attempt import run_task
from millstream.commit.worker import Worker, for_tasks_of_an_epoch
from millstream.engine.program import Program, make_worker
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.state.local.open_stores import OpenStores, most_tasks
from millstream.task import stage_timer
from millstream.types import Attempt, Partition

_WARM_UP = 2


class OneSlot:
    """Runs all tasks here, and notes what it took."""

    def __init__(self, worker: Worker) -> None:
        self.instances: dict[str, str] = {}
        self.seconds: dict[str, float] = {}
        self.profiles: tuple[cProfile.Profile, cProfile.Profile] | None = None
        """For running tasks, and for applying what is committed."""
        self._worker = worker

    def run_tasks(self, job: EpochJob) -> Sequence[TaskReport | WrongInstance]:
        """Steps 3 to 6."""
        self.seconds = {}
        reports: list[TaskReport | WrongInstance] = []
        with (
            for_tasks_of_an_epoch(self._worker) as worker,
            self.profiles[0] if self.profiles else nullcontext(),
        ):
            for task in job.tasks:
                report, _ = run_task(worker, job, task, (), Attempt(1))
                reports.append(report)
        for report in reports:
            assert isinstance(report, TaskReport)  # there is one instance
            for stage, seconds in report.stages.items():
                self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
        return reports

    def failed(self, job: EpochJob, error: Exception, tries: int) -> None:
        """Never again."""
        del job, tries
        raise error

    def apply(self, epoch: CommittedEpoch[EpochJob, TaskReport, Manifest]) -> None:
        """Step 10."""
        began = time.thread_time()
        with self.profiles[1] if self.profiles else nullcontext():
            for planned in epoch.job.tasks:
                apply_commit(self._worker, planned, epoch.manifest.tasks[planned.task_id])
        self.seconds["apply"] = time.thread_time() - began


def main(tasks: int = 512, rounds: int = 6) -> None:
    """Print microseconds and calls per task."""
    vars(stage_timer)["time"] = SimpleNamespace(perf_counter=time.thread_time)  # a clock of the processor
    gc.set_threshold(100_000, 20, 20)  # as in Spark's workers
    with workplace() as folder:
        log = FileLog(folder / "log", files=NotSynced())
        changelog = "many-counts-0-changelog"
        for topic in ("in-0", "out-0", changelog):
            log.create_topic(topic, TopicConfig(tasks, is_compacted=topic == changelog))
        _measure(folder, log, tasks, rounds)


def _measure(folder: Path, log: FileLog, tasks: int, rounds: int) -> None:
    topology, storage = counts_by_key(1), ApplicationStorage(log.root, "many", NotSynced())
    config = StreamsConfig(state_dir=folder / "state", default_partitions=tasks)
    stores = OpenStores(most_tasks())
    worker = make_worker(Program.of(topology, storage, log.address, config))
    slot = OneSlot(replace(worker, open_stores=stores))
    coordinator = CommitCoordinator(
        storage, log, EmbeddedPublisher(storage, log), topology.plan(), clock=now_ms
    )
    coordinator.open()
    found: list[dict[str, float]] = []
    for number in range(_WARM_UP + rounds + 1):
        for partition in range(tasks):
            key = b"key-%08d" % (number * tasks + partition)
            log.append(TopicPartition("in-0", Partition(partition)), record_batch([key], [key], [number]))
        if number == _WARM_UP + rounds:
            slot.profiles = (cProfile.Profile(), cProfile.Profile())
        run_epoch(coordinator, slot)
        found.append(slot.seconds)
    for stage in found[-1]:
        microseconds = [epoch[stage] * 1e6 / tasks for epoch in found[_WARM_UP:-1]]
        print(f"{stage:12} {statistics.median(microseconds):6.0f} us, at best {min(microseconds):.0f} us")
    for what, profile in zip(("run", "apply"), slot.profiles or (), strict=True):
        print(f"{what:12} {pstats.Stats(profile).total_calls / tasks:6.0f} calls")  # type: ignore[attr-defined]
    coordinator.close()
    stores.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
