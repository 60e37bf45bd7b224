"""One epoch as one Spark job: a stage per level, a shuffle between levels, nothing else."""

from __future__ import annotations

from dataclasses import replace

from pyspark import SparkContext

from millstream.commit.epoch_job import TaskReport, WrongInstance
from millstream.engine.spark.slots import Slots
from millstream.engine.spark.stage_function import Failed, MakeWorker, Passed, PlacedEpoch, Stage


def enter_job_group(context: SparkContext, application_id: str, what: str) -> None:
    """Jobs of this thread belong to the application from now on: they can be cancelled together."""
    context.setJobGroup(job_group(application_id), what, interruptOnCancel=True)


def job_group(application_id: str) -> str:
    """The group of the jobs that epochs wait for."""
    return f"millstream-{application_id}"


def run_epoch_job(
    context: SparkContext,
    slots: Slots,
    placed: PlacedEpoch,
    make_worker: MakeWorker,
) -> list[TaskReport | WrongInstance]:
    """Run all tasks of an epoch and return their reports. An error of the user's program is raised."""
    job = placed.job
    sent = replace(placed, job=job.without_empty_ranges())
    levels = 1 + max((task.level for task in job.tasks), default=-1)

    def stage(level: int) -> Stage:
        return Stage(sent, level, slots.count, make_worker)

    enter_job_group(context, job.application_id, f"epoch {job.epoch}")
    rows = slots.rows.mapPartitions(stage(0))
    for level in range(1, levels):
        rows = slots.joined_with(rows).mapPartitions(stage(level))
    answers = [sent for _, sent in rows.collect()]
    for answer in answers:
        if isinstance(answer, Failed):
            raise answer.error
    return [answer.report for answer in answers if isinstance(answer, Passed)]
