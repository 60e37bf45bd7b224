"""Many small applications on one Spark: the next epoch of each of them, all in one Spark job.

A test of its own kind of engine: the coordinator's steps and the stage function are those of production, only
the job carries many applications. So hundreds of cases cost as many jobs as the longest of them has epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext

from millstream.commit.epoch_job import EpochJob, TaskReport, WrongInstance
from millstream.commit.worker import Worker
from millstream.engine.program import Program, make_worker
from millstream.engine.spark.packing import pack, unpack
from millstream.engine.spark.slots import Slots
from millstream.engine.spark.stage_function import Failed, Passed, PlacedEpoch, Sent, Stage
from millstream.errors import MillstreamError

_WORKERS: dict[bytes, Worker] = {}
"""Per worker process: the programs that it has met."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """Something that is sent, and the application that it belongs to."""

    name: str
    sent: Sent


@dataclass(frozen=True, slots=True)
class MakeOne:
    """Makes the worker of one program out of many."""

    programs: Mapping[str, bytes]
    name: str

    def __call__(self) -> Worker:
        packed = self.programs[self.name]
        worker = _WORKERS.get(packed)
        if worker is None:
            worker = _WORKERS[packed] = make_worker(unpack(packed))
        return worker


@dataclass(frozen=True, slots=True)
class ManySteps:
    """One level of the epochs of many applications."""

    jobs: Mapping[str, EpochJob]
    level: int
    slot_count: int
    programs: Any

    def __call__(self, rows: Iterator[tuple[int, Tagged | None]]) -> Iterator[tuple[int, Tagged]]:
        slot = -1
        arrived: dict[str, list[tuple[int, Sent | None]]] = {}
        for slot, tagged in rows:
            if tagged is not None:
                arrived.setdefault(tagged.name, []).append((slot, tagged.sent))
        for number, (name, job) in enumerate(self.jobs.items()):
            slots = {task.task_id: (place + number) % self.slot_count for place, task in enumerate(job.tasks)}
            step = Stage(
                PlacedEpoch(job, slots), self.level, self.slot_count, MakeOne(self.programs.value, name)
            )
            yield from self._guarded(step, name, slot, [*arrived.get(name, ()), (slot, None)])

    @staticmethod
    def _guarded(
        step: Stage, name: str, slot: int, rows: list[tuple[int, Sent | None]]
    ) -> Iterator[tuple[int, Tagged]]:
        """One application's failure is not the others'."""
        try:
            for target, sent in step(iter(rows)):
                yield target, Tagged(name, sent)
        except Exception as error:  # noqa: BLE001 - shown by the case that it belongs to
            yield slot, Tagged(name, Failed("", MillstreamError(f"{type(error).__name__}: {error}")))


Answer = list[TaskReport | WrongInstance] | MillstreamError


class ManyApplications:
    """Runs epochs of many applications at once."""

    def __init__(self, context: SparkContext, programs: Mapping[str, Program]) -> None:
        packed = {name: pack(program) for name, program in programs.items()}
        self._programs = context.broadcast(packed)
        self._slots = Slots(context, context.defaultParallelism)

    def run(self, jobs: Mapping[str, EpochJob]) -> dict[str, Answer]:
        """One epoch of each application: its reports, or the error that it failed with."""
        levels = 1 + max(task.level for job in jobs.values() for task in job.tasks)
        rows = self._slots.rows.mapPartitions(self._steps(jobs, 0))
        for level in range(1, levels):
            rows = self._slots.joined_with(rows).mapPartitions(self._steps(jobs, level))
        answers: dict[str, Answer] = {name: [] for name in jobs}
        for _, tagged in rows.collect():
            known = answers[tagged.name]
            if isinstance(tagged.sent, Failed):
                answers[tagged.name] = tagged.sent.error
            elif isinstance(tagged.sent, Passed) and isinstance(known, list):
                known.append(tagged.sent.report)
        return answers

    def close(self) -> None:
        self._slots.release()
        self._programs.destroy()

    def _steps(self, jobs: Mapping[str, EpochJob], level: int) -> Callable[..., Any]:
        return ManySteps(jobs, level, self._slots.count, self._programs)
