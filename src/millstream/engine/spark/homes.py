"""Where the state of tasks is: which instance has it, as its processes say and as epochs go."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from millstream.commit.epoch_job import TaskReport
from millstream.commit.worker import Worker
from millstream.engine.api import homes_after
from millstream.state.local.directory import Checkpoint

__all__ = ["follow_reports", "held_checkpoints", "held_state", "homes_among", "newest_homes"]

_LOGGER = logging.getLogger("millstream")


def held_state(worker: Worker) -> dict[str, int]:
    """The version of the local state of each task that has some here."""
    return {task: checkpoint.version for task, checkpoint in held_checkpoints(worker).items()}


def held_checkpoints(worker: Worker) -> dict[str, Checkpoint]:
    """Where the stores of each task stand that has some here."""
    application_id = worker.storage.application_id
    held: dict[str, Checkpoint] = {}
    for task in worker.directory.tasks(application_id):
        checkpoint = worker.directory.task(application_id, task).read_checkpoint()
        if checkpoint is not None:
            held[task] = checkpoint
    return held


def newest_homes(held: Iterable[tuple[str, Mapping[str, int]]]) -> dict[str, str]:
    """The instance that has the newest state of each task, of what instances have.

    >>> newest_homes([("a", {"0_0": 7, "0_1": 7}), ("b", {"0_1": 9})])
    {'0_0': 'a', '0_1': 'b'}
    """
    newest: dict[str, tuple[int, str]] = {}
    for instance, versions in held:
        for task, version in versions.items():
            newest[task] = max(newest.get(task, (0, "")), (version, instance))
    return {task: instance for task, (_, instance) in newest.items()}


def homes_among(live: Collection[str], *known: Mapping[str, str]) -> dict[str, str]:
    """The home of each task, of instances that live; what is known later counts more.

    >>> homes_among({"a", "c"}, {"0_0": "a", "0_1": "a"}, {"0_0": "gone", "0_1": "c"})
    {'0_0': 'a', '0_1': 'c'}
    """
    return {task: home for homes in known for task, home in homes.items() if home in live}


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
