"""Which slot of Spark jobs runs which task: even, where it was, and where its state is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from millstream.commit.epoch_job import PlannedTask
from millstream.engine.assignment.assignor import assign
from millstream.engine.assignment.model import (
    NO_ASSIGNMENT,
    Assignment,
    Replica,
    SlotPlace,
    TaskPlacement,
    TaskToPlace,
)
from millstream.engine.spark import placed_slots
from millstream.engine.spark.placed_slots import numbered
from millstream.engine.spark.warmup import SlotInfo
from millstream.types import Partition


def tasks(levels: int, partitions: int) -> list[PlannedTask]:
    return [
        PlannedTask(f"{level}_{number}", level, Partition(number), level)
        for level in range(levels)
        for number in range(partitions)
    ]


def put(
    planned: list[PlannedTask],
    slots: Mapping[int, str],
    before: Mapping[str, tuple[int, str]] | None = None,
    homes: Mapping[str, str] | None = None,
) -> Mapping[str, int]:
    """The slot of each task. `before` has slots and instances."""
    were = {task: TaskPlacement(Replica(slot, name, name)) for task, (slot, name) in (before or {}).items()}
    known = homes or {}
    wanted = [TaskToPlace(one.task_id, one.level, records=int(one.task_id in known)) for one in planned]
    places = [SlotPlace(number, instance, instance) for number, instance in slots.items()]
    lags = {task_id: {home: 0} for task_id, home in known.items()}
    return assign(wanted, places, lags, Assignment(were) if were else NO_ASSIGNMENT).slots()


def with_instances(placed: Mapping[str, int], slots: Mapping[int, str]) -> dict[str, tuple[int, str]]:
    return {task: (slot, slots[slot]) for task, slot in placed.items()}


def loads(planned: list[PlannedTask], placed: Mapping[str, int]) -> dict[int, list[int]]:
    """How many tasks the slots have, by level."""
    return {
        level: sorted(Counter(placed[task.task_id] for task in planned if task.level == level).values())
        for level in {task.level for task in planned}
    }


def test_each_level_is_spread_evenly() -> None:
    planned = tasks(2, 7)
    placed = put(planned, {0: "a", 1: "a", 2: "b"})
    assert loads(planned, placed) == {0: [2, 2, 3], 1: [2, 2, 3]}


def test_levels_with_one_task_each_go_to_different_slots() -> None:
    placed = put(tasks(2, 1), {0: "a", 1: "a"})
    assert placed == {"0_0": 0, "1_0": 1}


def test_nothing_moves_while_slots_stay() -> None:
    planned, slots = tasks(3, 10), {0: "a", 1: "a", 2: "b", 3: "c"}
    first = put(planned, slots)
    homes = {task: slots[slot] for task, slot in first.items()}
    for _ in range(30):
        assert put(planned, slots, with_instances(first, slots), homes) == first


def test_slots_that_are_made_anew_get_the_tasks_whose_state_is_there() -> None:
    planned, slots = tasks(2, 12), {0: "a", 1: "a", 2: "b", 3: "c"}
    first = put(planned, slots)
    homes = {task: slots[slot] for task, slot in first.items()}
    anew = {0: "c", 1: "b", 2: "a", 3: "a"}
    assert {task: anew[slot] for task, slot in put(planned, anew, {}, homes).items()} == homes
    renumbered = {number: anew[partition] for number, partition in numbered(slots, [*anew.values()]).items()}
    assert put(planned, renumbered, with_instances(first, slots), homes) == first


def test_the_tasks_of_a_lost_slot_go_where_their_state_is() -> None:
    planned, slots = tasks(1, 6), {0: "a", 1: "a", 2: "b"}
    first = put(planned, slots)
    homes = {task: slots[slot] for task, slot in first.items()}
    left = {number: instance for number, instance in slots.items() if number != 1}
    placed = put(planned, left, with_instances(first, slots), homes)
    kept = {task: slot for task, slot in first.items() if slot != 1}
    assert {task: placed[task] for task in kept} == kept
    lost = [task for task, slot in first.items() if slot == 1]
    assert 0 in {placed[task] for task in lost}, "the other slot of its instance, as long as it has room"
    assert loads(planned, placed) == {0: [3, 3]}


def test_a_slot_that_joins_gets_its_share_and_no_more_moves_than_that() -> None:
    planned, slots = tasks(1, 9), {0: "a", 1: "b"}
    first = put(planned, slots)
    placed = put(planned, {**slots, 2: "c"}, with_instances(first, slots))
    assert loads(planned, placed) == {0: [3, 3, 3]}
    assert sum(placed[task] != first[task] for task in first) == 3


@pytest.mark.parametrize("slots", [1, 5])
def test_every_task_has_a_slot(slots: int) -> None:
    planned = tasks(2, 3)
    placed = put(planned, dict.fromkeys(range(slots), "a"), {"0_0": (77, "a")}, {"0_1": "nowhere"})
    assert placed.keys() == {task.task_id for task in planned}
    assert set(placed.values()) <= set(range(slots))


def test_a_slot_that_is_elsewhere_by_now_gives_its_tasks_back_to_their_home() -> None:
    planned = tasks(1, 2)
    before = {"0_0": (0, "a"), "0_1": (1, "b")}
    placed = put(planned, {0: "b", 1: "b", 2: "a"}, before, {"0_0": "a", "0_1": "b"})
    assert placed == {"0_0": 2, "0_1": 1}


def test_tasks_without_a_home_do_not_take_the_room_of_those_that_have_one() -> None:
    planned = tasks(1, 4)
    slots = {0: "a", 1: "a", 2: "b", 3: "b"}
    for homes in ({"0_2": "a", "0_3": "a"}, {"0_0": "b", "0_1": "b"}):
        placed = put(planned, slots, {}, homes)
        assert {task: slots[placed[task]] for task in homes} == homes
        assert loads(planned, placed) == {0: [1, 1, 1, 1]}


def test_a_slot_that_joins_gets_tasks_also_if_there_are_few() -> None:
    """Two tasks more than slots: two slots have two, and no slot has none."""
    planned, slots = tasks(1, 8), dict.fromkeys(range(4), "a")
    before = put(planned, slots)
    homes = dict.fromkeys(before, "a")
    placed = put(planned, {**slots, 4: "b", 5: "b"}, with_instances(before, slots), homes)
    assert loads(planned, placed) == {0: [1, 1, 1, 1, 2, 2]}
    assert sum(placed[task] != before[task] for task in before) == 2


@pytest.mark.parametrize(
    ("slots_of_executors", "missing"),
    [([2, 2, 2], 0), ([3, 2, 1], 1), ([4, 2], 2), ([6], 4), ([3, 3, 1], 1)],
)
def test_slots_are_missing_where_an_executor_has_less_than_its_share(
    slots_of_executors: list[int], missing: int
) -> None:
    said = [
        SlotInfo("instance", ("host", executor), "host", {}, {})
        for executor, count in enumerate(slots_of_executors)
        for _ in range(count)
    ]
    executors = frozenset({"driver", "one", "two", "three"})
    assert placed_slots._missing(executors, said) == missing
    assert placed_slots._missing(frozenset(), said) == 0, "Spark on this machine"
