"""One epoch as one Spark job: a stage per level, a shuffle between levels, nothing else."""

from __future__ import annotations

from pyspark import SparkContext

from millstream.commit.epoch_job import EpochJob, TaskReport, WrongInstance
from millstream.engine.spark.slots import Slots
from millstream.engine.spark.stage_function import Failed, MakeWorker, Passed, Stage


def run_epoch_job(
    context: SparkContext,
    slots: Slots,
    job: EpochJob,
    assignment: dict[str, int],
    make_worker: MakeWorker,
) -> list[TaskReport | WrongInstance]:
    """Run all tasks of an epoch and return their reports. An error of the user's program is raised.

    `assignment` has the slot of each task.
    """
    sent = job.share(assignment)
    levels = 1 + max((task.level for task in job.tasks), default=-1)

    def stage(level: int) -> Stage:
        return Stage(sent, level, assignment, slots.count, make_worker)

    context.setJobGroup(f"millstream-{job.application_id}", f"epoch {job.epoch}", interruptOnCancel=True)
    rows = slots.rows.mapPartitions(stage(0))
    for level in range(1, levels):
        rows = slots.joined_with(rows).mapPartitions(stage(level))
    answers = [sent for _, sent in rows.collect()]
    for answer in answers:
        if isinstance(answer, Failed):
            raise answer.error
    return [answer.report for answer in answers if isinstance(answer, Passed)]
