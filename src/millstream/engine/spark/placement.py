"""Which slot runs which task: a pure function of the tasks, the slots, and where the tasks were.

A task stays where it is as long as its slot lives: its stores are open there. Tasks of each level are spread
evenly, because a level runs all its tasks at once; a slot that has more than its share gives some away. A
task that has to move goes to a slot of the instance that holds its state, if there is one with room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from millstream.commit.epoch_job import PlannedTask

__all__ = ["place"]


def place(
    tasks: Sequence[PlannedTask],
    slots: Mapping[int, str],
    before: Mapping[str, int],
    homes: Mapping[str, str],
) -> dict[str, int]:
    """A slot for each task. `slots` are the live ones, with their instances; `homes` has those of tasks.

    A home is an instance that lives.

    >>> tasks = [PlannedTask(f"0_{number}", 0, number, 0) for number in range(4)]
    >>> first = place(tasks, {0: "here", 1: "here"}, {}, {})
    >>> first
    {'0_0': 0, '0_1': 1, '0_2': 0, '0_3': 1}
    >>> place(tasks, {1: "here"}, first, {})
    {'0_0': 1, '0_1': 1, '0_2': 1, '0_3': 1}
    """
    placed: dict[str, int] = {}
    per_level = Counter(task.level for task in tasks)
    share = {level: count // len(slots) for level, count in per_level.items()}
    one_more = {level: count % len(slots) for level, count in per_level.items()}
    """How many slots may have one more than their share."""
    load: Counter[tuple[int, int]] = Counter()
    total: Counter[int] = Counter()

    def has_room(slot: int, level: int) -> bool:
        return load[slot, level] < share[level] + (one_more[level] > 0)

    def put(task: PlannedTask, slot: int) -> None:
        placed[task.task_id] = slot
        one_more[task.level] -= load[slot, task.level] == share[task.level]
        load[slot, task.level] += 1
        total[slot] += 1

    for task in tasks:
        slot = before.get(task.task_id)
        home = homes.get(task.task_id)
        if slot is None or slot not in slots or not has_room(slot, task.level):
            continue
        if home in (None, slots[slot]):  # the slot may be elsewhere by now
            put(task, slot)
    live = {*slots.values()}
    left = [task for task in tasks if task.task_id not in placed]
    left.sort(key=lambda task: homes.get(task.task_id) not in live)  # others must not take their room
    for task in left:
        home = homes.get(task.task_id)
        room = [slot for slot in slots if has_room(slot, task.level)]
        put(
            task,
            min(
                room,
                key=lambda slot: (
                    home is not None and slots[slot] != home,
                    load[slot, task.level],
                    total[slot],
                    slot,
                ),
            ),
        )
    return {task.task_id: placed[task.task_id] for task in tasks}
