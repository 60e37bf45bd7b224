"""Which slot runs which task: even, where it was, and where its state is."""

from __future__ import annotations

from collections import Counter

import pytest

from millstream.commit.epoch_job import PlannedTask
from millstream.engine.spark.placement import place
from millstream.types import Partition


def tasks(levels: int, partitions: int) -> list[PlannedTask]:
    return [
        PlannedTask(f"{level}_{number}", level, Partition(number), level)
        for level in range(levels)
        for number in range(partitions)
    ]


def loads(planned: list[PlannedTask], placed: dict[str, int]) -> dict[int, list[int]]:
    """How many tasks the slots have, by level."""
    return {
        level: sorted(Counter(placed[task.task_id] for task in planned if task.level == level).values())
        for level in {task.level for task in planned}
    }


def test_each_level_is_spread_evenly() -> None:
    planned = tasks(2, 7)
    placed = place(planned, {0: "a", 1: "a", 2: "b"}, {}, {})
    assert loads(planned, placed) == {0: [2, 2, 3], 1: [2, 2, 3]}


def test_levels_with_one_task_each_go_to_different_slots() -> None:
    placed = place(tasks(2, 1), {0: "a", 1: "a"}, {}, {})
    assert placed == {"0_0": 0, "1_0": 1}


def test_nothing_moves_while_slots_stay() -> None:
    planned, slots = tasks(3, 10), {0: "a", 1: "a", 2: "b", 3: "c"}
    first = place(planned, slots, {}, {})
    homes = {task: slots[slot] for task, slot in first.items()}
    for _ in range(30):
        assert place(planned, slots, first, homes) == first


def test_the_tasks_of_a_lost_slot_go_where_their_state_is() -> None:
    planned, slots = tasks(1, 6), {0: "a", 1: "a", 2: "b"}
    first = place(planned, slots, {}, {})
    homes = {task: slots[slot] for task, slot in first.items()}
    left = {number: instance for number, instance in slots.items() if number != 1}
    placed = place(planned, left, first, homes)
    kept = {task: slot for task, slot in first.items() if slot != 1}
    assert {task: placed[task] for task in kept} == kept
    lost = [task for task, slot in first.items() if slot == 1]
    assert placed[lost[0]] == 0, "the other slot of its instance, as long as it has room"
    assert loads(planned, placed) == {0: [3, 3]}


def test_a_slot_that_joins_gets_its_share_and_no_more_moves_than_that() -> None:
    planned = tasks(1, 9)
    first = place(planned, {0: "a", 1: "b"}, {}, {})
    placed = place(planned, {0: "a", 1: "b", 2: "c"}, first, {})
    assert loads(planned, placed) == {0: [3, 3, 3]}
    assert sum(placed[task] != first[task] for task in first) == 3


@pytest.mark.parametrize("slots", [1, 5])
def test_every_task_has_a_slot(slots: int) -> None:
    planned = tasks(2, 3)
    placed = place(planned, dict.fromkeys(range(slots), "a"), {"0_0": 77}, {"0_1": "nowhere"})
    assert placed.keys() == {task.task_id for task in planned}
    assert set(placed.values()) <= set(range(slots))


def test_a_slot_that_is_elsewhere_by_now_gives_its_tasks_back_to_their_home() -> None:
    planned = tasks(1, 2)
    before = {"0_0": 0, "0_1": 1}
    placed = place(planned, {0: "b", 1: "b", 2: "a"}, before, {"0_0": "a", "0_1": "b"})
    assert placed == {"0_0": 2, "0_1": 1}


def test_tasks_without_a_home_do_not_take_the_room_of_those_that_have_one() -> None:
    planned = tasks(1, 4)
    homes = {"0_2": "a", "0_3": "a"}
    placed = place(planned, {0: "a", 1: "a", 2: "b", 3: "b"}, {}, homes)
    assert {placed["0_2"], placed["0_3"]} == {0, 1}
    assert {placed["0_0"], placed["0_1"]} == {2, 3}


def test_a_slot_that_joins_gets_tasks_also_if_there_are_few() -> None:
    """Two tasks more than slots: two slots have two, and no slot has none."""
    planned = tasks(1, 8)
    before = place(planned, dict.fromkeys(range(4), "a"), {}, {})
    placed = place(
        planned, {**dict.fromkeys(range(4), "a"), 4: "b", 5: "b"}, before, dict.fromkeys(before, "a")
    )
    assert loads(planned, placed) == {0: [1, 1, 1, 1, 2, 2]}
    assert sum(placed[task] != before[task] for task in before) == 2
