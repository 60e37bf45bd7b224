"""Where the state of tasks is: which instance has it, as its processes say and as epochs go."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from millstream.commit.epoch_job import TaskReport
from millstream.commit.worker import Worker
from millstream.engine.api import homes_after
from millstream.state.local.directory import Checkpoint

__all__ = ["follow_reports", "held_checkpoints"]
from millstream.types import Version

_LOGGER = logging.getLogger("millstream")


def held_checkpoints(worker: Worker) -> dict[str, Checkpoint]:
    """Where the stores of each task stand that has some here: at the beginning, if nobody knows."""
    application_id = worker.storage.application_id
    return {
        task: worker.directory.task(application_id, task).read_checkpoint() or Checkpoint(Version(0), {})
        for task in worker.directory.tasks(application_id)
    }


def follow_reports(
    application_id: str, homes: dict[str, str], reports: Iterable[TaskReport], intended: Mapping[str, str]
) -> None:
    """Note where tasks ran, and tell of those that moved. `intended` says where each was meant to run."""
    after = homes_after(reports)
    for task, home in after.items():
        before = homes.get(task, home)
        if before == home:
            continue
        if intended.get(task, home) == home:
            _LOGGER.info(
                "Task %s of application %r has moved from instance %s to %s.",
                task,
                application_id,
                before,
                home,
            )
        else:
            _LOGGER.warning(
                "Task %s of application %r ran on instance %s, though its state is on %s, which is there: it "
                "was restored. Likely cause: other jobs hold the cores there for longer than "
                "spark.locality.wait. Remedy: leave a core of each executor free, or use engine='resident'.",
                task,
                application_id,
                home,
                before,
            )
    homes.update(after)
