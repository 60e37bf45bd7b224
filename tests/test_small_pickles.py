"""What is told of tasks by the thousand travels as calls of its classes."""

from __future__ import annotations

import pickle

import pytest

from millstream.commit.epoch_job import PlannedTask, TaskReport
from millstream.commit.manifest import Section
from millstream.commit.sealed_file import SealedFile
from millstream.task.task import TaskState
from millstream.types import Attempt, Partition

PLANNED = PlannedTask("0_1", 0, Partition(1), 0, "here", caught_up=False, number=3, has_input=False)
SEALED = SealedFile("sealed/app/1/0_1", "digest", (Section("out", Partition(1), 0, 64, 1, 5, 5),))
STATE = TaskState(5, {("in", 1): 5}, {("node", 0): 7}, {"window": (1, 2, 3, 4)})
REPORT = TaskReport(
    task_id="0_1",
    attempt=Attempt(2),
    instance="here",
    sealed=SEALED,
    state=STATE,
    changelog_counts={"counts": 1},
    repartitioned={},
    sent=(),
    consumed=(),
    inferred_types=(("counts", "key", "int"),),
    records=1,
    commit_requested=True,
    deleted=("0_2",),
)


@pytest.mark.parametrize("told", [PLANNED, SEALED, STATE, REPORT], ids=lambda told: type(told).__name__)
def test_what_is_told_arrives_as_it_was(told: object) -> None:
    assert told.__reduce__()[0] is type(told)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(told, protocol)) == told  # noqa: S301 - our own bytes
