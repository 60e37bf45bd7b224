"""Which slot of Spark jobs runs which task: the assignment that resident slots get, without copies.

So a task stays where it is, or where its state is, as long as that instance has no more than its even share
of a level; and one that has to move does so at once, and is restored.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Final

from millstream.commit.epoch_job import PlannedTask
from millstream.engine.assignment.assignor import assign
from millstream.engine.assignment.model import Assignment, AssignmentRules, SlotPlace, TaskToPlace

__all__ = ["place"]

_RULES: Final = AssignmentRules(acceptable_lag=sys.maxsize, max_warmups=0)


def place(
    tasks: Iterable[PlannedTask], slots: Mapping[int, str], before: Assignment, homes: Mapping[str, str]
) -> Assignment:
    """A slot for each task. `slots` are the live ones, with their instances; `homes` has those of tasks.

    A home is an instance that lives.

    >>> from millstream.engine.assignment.model import NO_ASSIGNMENT
    >>> tasks = [PlannedTask(f"0_{number}", 0, number, 0) for number in range(4)]
    >>> first = place(tasks, {0: "here", 1: "here"}, NO_ASSIGNMENT, {})
    >>> first.slots()
    {'0_0': 0, '0_1': 1, '0_2': 0, '0_3': 1}
    >>> place(tasks, {1: "here"}, first, {}).slots()
    {'0_0': 1, '0_1': 1, '0_2': 1, '0_3': 1}
    """
    wanted = [TaskToPlace(one.task_id, one.level, records=int(one.task_id in homes)) for one in tasks]
    places = [SlotPlace(number, instance, instance) for number, instance in slots.items()]
    lags = {task_id: {home: 0} for task_id, home in homes.items()}
    return assign(wanted, places, lags, before, _RULES)
