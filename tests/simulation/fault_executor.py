"""The executor of a world under faults: it can run a task twice, and remembers every task it started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.simulation.executor import InProcessExecutor

from millstream.commit.epoch_job import EpochJob, PlannedTask, TaskReport, WrongInstance
from millstream.commit.targets import Targets
from millstream.commit.worker import for_tasks_of_an_epoch
from millstream.engine.local import run_level
from millstream.task.shuffle_block import ShuffleBlock

__all__ = ["Executor", "LostAttempt", "StartedTask"]


@dataclass(frozen=True, slots=True)
class LostAttempt:
    """A task runs twice in an epoch."""

    task_id: str
    named: int
    """Which of the two attempts is reported to the coordinator, 0 or 1."""
    heard: int
    """Whose rows the next level gets."""


@dataclass(frozen=True, slots=True)
class StartedTask:
    """A task of some epoch as it was started: it can be started again at any time."""

    job: EpochJob
    planned: PlannedTask
    blocks: tuple[ShuffleBlock, ...]

    @property
    def has_past(self) -> bool:
        """Whether the task had sealed before that epoch."""
        return self.planned.task_id in self.job.entries


class Executor(InProcessExecutor):
    """Runs a chosen task twice, and remembers all."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.twice: LostAttempt | None = None
        self.started: list[StartedTask] = []
        self.beside: Callable[[], None] | None = None
        """What happens once while tasks have sealed and nothing is committed yet."""
        super().__init__(*args, **settings)

    def run_tasks(self, job: EpochJob) -> list[TaskReport | WrongInstance]:
        """Steps 3 to 6 for all tasks, level by level."""
        reports: list[TaskReport | WrongInstance] = []
        blocks: list[ShuffleBlock] = []
        with for_tasks_of_an_epoch(self.worker) as worker:
            for level in range(1 + max(task.level for task in job.tasks)):
                sent: list[ShuffleBlock] = []
                for planned in (task for task in job.tasks if task.level == level):
                    self.started.append(StartedTask(job, planned, tuple(self._for(planned, blocks))))
                    twice = self.twice if self.twice and self.twice.task_id == planned.task_id else None
                    attempts = [
                        run_level(worker, job, [planned], blocks, self.next_attempt)
                        for _ in range(2 if twice else 1)
                    ]
                    reports += attempts[twice.named if twice else 0][0]
                    sent += attempts[twice.heard if twice else 0][1]
                blocks += sent
        beside, self.beside = self.beside, None
        if beside is not None:
            beside()
        return reports

    def _for(self, planned: PlannedTask, blocks: list[ShuffleBlock]) -> Iterator[ShuffleBlock]:
        targets = Targets(self.worker.plan, [planned])
        return iter(targets.by_task(blocks).get(planned.task_id, ()))
