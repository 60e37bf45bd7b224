"""Slots that only say what tasks would have done: to drive a real coordinator with very many tasks.

Each task that has records seals one row for its output and one for its changelog, in a file per host, so that
publishing and maintenance have something to do. No operator runs, and nothing is synced: what is left is the
coordinator's own work.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from millstream import StreamsBuilder, Topology, serdes
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.coordinator import CommitCoordinator
from millstream.commit.epoch import CommittedEpoch
from millstream.commit.epoch_job import EpochJob, PlannedTask, TaskReport, WrongInstance
from millstream.commit.manifest import Manifest
from millstream.commit.seal_group import SealGroup
from millstream.commit.sealed_file import SealedContent
from millstream.durable.layer import OsFileLayer
from millstream.log import record_batch
from millstream.state.changelog.rows import changelog_topic
from millstream.task.task import TaskState
from millstream.types import Attempt

__all__ = ["FakeSlots", "NotSynced", "TimedCoordinator", "counts_by_key"]


class NotSynced(OsFileLayer):
    """Files that no power cut has to spare."""

    def fsync(self, fd: int) -> None:
        """Nothing."""

    def sync_folder(self, path: Path) -> None:
        """Nothing."""


def counts_by_key(copies: int) -> Topology:
    """So many counts of a topic each, that have nothing to do with each other."""
    builder = StreamsBuilder()
    for number in range(copies):
        stream = builder.stream(f"in-{number}", key=serdes.bytes, value=serdes.bytes)
        counts = stream.group_by_key().count(store=f"counts-{number}")
        counts.to_stream().to(f"out-{number}", key=serdes.bytes, value=serdes.int64)
    return builder.build()


class FakeSlots:
    """An engine that runs nothing. Tasks are spread over hosts, and stay there."""

    def __init__(self, storage: ApplicationStorage, hosts: int) -> None:
        self._storage = ApplicationStorage(storage.root, storage.application_id, NotSynced())
        self._hosts = hosts
        self._rows = record_batch([b"key"], [bytes(16)], [0])
        self.instances: dict[str, str] = {}

    def run_tasks(self, job: EpochJob) -> Sequence[TaskReport | WrongInstance]:
        """Report what all tasks would have done, had they run."""
        by_host: dict[str, list[PlannedTask]] = {}
        for number, task in enumerate(job.tasks):
            by_host.setdefault(task.expected_instance or f"host-{number % self._hosts}", []).append(task)
        return [
            report for host, tasks in by_host.items() for report in self.reports(job, tasks, host, Attempt(1))
        ]

    def failed(self, job: EpochJob, error: Exception, tries: int) -> None:
        """Never again."""
        del job, tries
        raise error

    def apply(self, epoch: CommittedEpoch[EpochJob, TaskReport, Manifest]) -> None:
        """Learn where tasks are."""
        self.instances.update((report.task_id, report.instance) for report in epoch.reports)

    def reports(
        self, job: EpochJob, tasks: Iterable[PlannedTask], instance: str, attempt: Attempt
    ) -> list[TaskReport]:
        """What the tasks of an instance would have done."""
        with SealGroup(self._storage) as seals:
            return [self._report(job, task, instance, attempt, seals) for task in tasks]

    def _report(
        self, job: EpochJob, task: PlannedTask, instance: str, attempt: Attempt, seals: SealGroup
    ) -> TaskReport:
        start, end = job.cut.get(f"in-{task.subtopology}", {}).get(task.partition, (0, 0))
        store = f"counts-{task.subtopology}"
        sealed = None
        if start < end:
            path = self._storage.sealed_file(job.epoch, task.task_id, task.level, job.term, attempt)
            places = (f"out-{task.subtopology}", changelog_topic(job.application_id, store))
            published = {(topic, task.partition): self._rows for topic in places}
            content = SealedContent(task.task_id, job.epoch, published, {}, job.clock_ms)
            sealed = seals.seal(path, content, is_read_again=False)
        return TaskReport(
            task_id=task.task_id,
            attempt=attempt,
            instance=instance,
            sealed=sealed,
            state=TaskState(),
            changelog_counts={store: 1 if sealed else 0},
            repartitioned={},
            sent=(),
            consumed=(),
            inferred_types=(),
            records=end - start,
            commit_requested=False,
        )


class TimedCoordinator(CommitCoordinator):
    """A coordinator that notes how long its steps take."""

    seconds: dict[str, float]

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - began

    def open(self) -> None:
        """Step 1, timed."""
        self.seconds = {}
        with self._timed("open"):
            super().open()

    def plan_epoch(
        self, *, tick: bool = False, instances: Mapping[str, str] | None = None
    ) -> EpochJob | None:
        """Step 2, timed."""
        with self._timed("plan"):
            return super().plan_epoch(tick=tick, instances=instances)

    def commit(self, job: EpochJob, reports: Sequence[Any]) -> Manifest:
        """Step 7, timed."""
        with self._timed("commit"):
            return super().commit(job, reports)

    def publish(self, manifest: Manifest) -> None:
        """Step 8, timed."""
        with self._timed("publish"):
            super().publish(manifest)
