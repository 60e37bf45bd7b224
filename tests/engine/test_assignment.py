"""Where tasks and their copies go: rules that hold after any history, and examples."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.engine.assigned_world import World, grow, random_world

from millstream.engine.assignment.assignor import assign
from millstream.engine.assignment.model import (
    Assignment,
    AssignmentRules,
    Replica,
    SlotPlace,
    TaskPlacement,
    TaskToPlace,
)

HISTORIES = 500


def tasks(levels: int, partitions: int, records: int = 0, size: int = 0) -> list[TaskToPlace]:
    return [
        TaskToPlace(f"{level}_{number}", level, records=records, size=size)
        for level in range(levels)
        for number in range(partitions)
    ]


def slots(*instances: str) -> list[SlotPlace]:
    """Slots by number, of instances that are hosts of the same name."""
    return [SlotPlace(number, name, name) for number, name in enumerate(instances)]


def loads(planned: list[TaskToPlace], placed: Assignment) -> dict[int, list[int]]:
    """How many tasks the slots have, by level."""
    return {
        level: sorted(
            Counter(placed.slots()[task.task_id] for task in planned if task.level == level).values()
        )
        for level in {task.level for task in planned}
    }


def actives(placed: Assignment) -> dict[str, str]:
    return {task: one.active.instance for task, one in placed.tasks.items()}


# Any history ---------------------------------------------------------------------------------------------


def disturb(world: World, gone: list[str], chance: random.Random, step: int) -> None:
    """Something happens to the hosts, or to the topics, or nothing does."""
    kind = chance.choice(["join", "lose", "return", "grow", "restart", "drain", "undrain", "none"])
    if kind == "join" and len(world.hosts) < 8:
        world.join(f"new{step}", chance.randint(1, 3), rack=f"r{chance.randrange(3)}")
    elif kind == "lose" and len(world.hosts) > 1:
        gone.append(chance.choice(world.hosts))
        world.lose(gone[-1])
    elif kind == "return" and gone:
        world.join(gone.pop(chance.randrange(len(gone))), chance.randint(1, 2))
    elif kind == "restart":
        host = chance.choice(world.hosts)
        world.lose(host)
        world.join(host, chance.randint(1, 3))
    elif kind == "grow" and len(world.tasks) < 40:
        grow(world, chance)
    elif kind == "drain":
        world.draining.add(chance.choice(world.hosts))
    elif kind == "undrain" and world.draining:
        world.draining.remove(chance.choice(sorted(world.draining)))


@pytest.mark.parametrize("part", range(10))
def test_what_must_hold_does_after_any_history_of_joins_losses_returns_and_growth(part: int) -> None:
    for seed in range(part * HISTORIES // 10, (part + 1) * HISTORIES // 10):
        print("seed", seed)
        chance = random.Random(seed)
        world, gone = random_world(chance), list[str]()
        for step in range(20):
            disturb(world, gone, chance, step)
            before = world.now
            made = world.assign()
            assert made == assign(world.tasks, world.places(), world.lags(), before, world.rules)
            world.run_epoch(chance.randrange(30), followed=chance.choice([0, 20, 100]))
        rounds = world.settle()
        is_drained = world.draining and world.open_instances() < world.instances
        homes = {one.active.instance for one in world.now.tasks.values()}
        assert not is_drained or homes <= world.open_instances(), "a host that is drained keeps nothing"
        world.draining.clear()
        rounds += world.settle()
        assert rounds <= 10 + 6 * len(world.tasks)
        assert world.now.warmups == 0
        world.check_balance()
        world.check_tags()
        settled = dict(world.moves)
        for _ in range(20):
            world.run_epoch(7, followed=7)
            assert world.assign().changes == ()
        assert world.moves == settled, "nothing moves undisturbed"


def test_a_hundred_hosts_and_ten_thousand_tasks_with_rolling_failures() -> None:
    world = World(AssignmentRules(standbys=1, acceptable_lag=100, max_warmups=50))
    for number in range(100):
        world.join(f"h{number:02}", 4, rack=f"r{number % 5}")
    world.tasks = tasks(2, 5_000, records=10_000, size=1_000)
    world.assign()
    world.run_epoch(10, followed=1 << 60)
    for number in range(0, 100, 20):
        host = f"h{number:02}"
        mine = {task for task, one in world.now.tasks.items() if one.active.host == host}
        before = actives(world.now)
        world.lose(host)
        after = world.assign()  # the first epoch after it was noticed
        moved = {task for task, instance in actives(after).items() if instance != before[task]}
        assert moved == mine, "only the tasks of the lost host move"
        standbys = {task: "its copy is there" in after.tasks[task].active.why for task in moved}
        assert all(standbys.values()), "and all of them to their standbys"
        world.run_epoch(10, followed=1 << 60)
        world.join(host, 4)
        world.assign()
        world.run_epoch(10, followed=1 << 60)
    world.settle()
    world.check_balance()
    assert world.moves["lost"] == 500
    assert world.moves["balance"] <= 1_000, "each goes back, and few others to where it was balanced before"


# Examples ------------------------------------------------------------------------------------------------


def test_each_level_is_spread_evenly() -> None:
    planned = tasks(2, 7)
    placed = assign(planned, slots("a", "b", "c"))
    assert loads(planned, placed) == {0: [2, 2, 3], 1: [2, 2, 3]}


def test_levels_with_one_task_each_go_to_different_slots() -> None:
    assert assign(tasks(2, 1), slots("a", "a")).slots() == {"0_0": 0, "1_0": 1}


def test_few_tasks_are_spread_over_hosts_and_not_over_the_slots_of_one() -> None:
    assert Counter(actives(assign(tasks(1, 2), slots("a", "a", "b", "b"))).values()) == {"a": 1, "b": 1}


def test_nothing_moves_while_slots_stay() -> None:
    planned, places = tasks(3, 10), slots("a", "a", "b", "c")
    placed = assign(planned, places)
    for _ in range(30):
        again = assign(planned, places, before=placed)
        assert (again.tasks, again.changes) == (placed.tasks, ())


def test_the_tasks_of_a_lost_slot_go_to_the_other_slot_of_their_instance() -> None:
    planned = tasks(1, 6, records=100_000)
    placed = assign(planned, slots("a", "a", "b"))
    lags = {task: {instance: 0} for task, instance in actives(placed).items()}
    left = [place for place in slots("a", "a", "b") if place.slot != 1]
    after = assign(planned, left, lags, placed)
    assert actives(after) == actives(placed)


def test_a_slot_number_that_lives_on_another_instance_now_is_not_where_its_tasks_were() -> None:
    planned = tasks(1, 2, records=100_000)
    placed = assign(planned, slots("a", "b"))
    lags = {"0_0": {"a": 0}, "0_1": {"b": 0}}
    swapped = assign(planned, slots("b", "a"), lags, placed)
    assert actives(swapped) == actives(placed)
    assert swapped.slots() != placed.slots()


def test_a_lost_active_goes_to_its_standby_and_not_to_the_least_loaded() -> None:
    planned = tasks(1, 6, records=100_000)
    rules = AssignmentRules(standbys=1)
    placed = assign(planned, slots("a", "b", "c"), rules=rules)
    lost = [task for task, one in placed.tasks.items() if one.active.instance == "a"]
    lags = {task: {one.instance: 0 for _, one in where.replicas()} for task, where in placed.tasks.items()}
    after = assign(planned, slots("a", "b", "c")[1:], lags, placed, rules)
    for task in lost:
        assert after.tasks[task].active.instance == placed.tasks[task].standbys[0].instance
        assert after.tasks[task].active.why == "its copy is there, 0 records behind"


def test_without_a_copy_it_goes_to_the_instance_with_most_of_its_state() -> None:
    planned = [TaskToPlace("0_0", records=1_000_000)]
    placed = Assignment({"0_0": TaskPlacement(Replica(9, "gone", "gone"))})
    lags = {"0_0": {"b": 400_000, "c": 300_000}}
    after = assign(planned, slots("a", "b", "c"), lags, placed)
    assert after.tasks["0_0"].active.instance == "c"
    assert after.tasks["0_0"].active.why == (
        "most of its state is there, 300000 of 1000000 records are missing"
    )


def test_a_copy_on_its_way_is_better_than_nothing() -> None:
    planned = [TaskToPlace("0_0", records=1_000_000)]
    copy = Replica(2, "c", "c")
    placed = Assignment({"0_0": TaskPlacement(Replica(9, "gone", "gone"), (copy,))})
    lags = {"0_0": {"b": 900_000, "c": 900_000}}
    after = assign(planned, slots("a", "b", "c"), lags, placed)
    assert after.tasks["0_0"].active.instance == "c"
    assert after.tasks["0_0"].active.why == "its copy is there, 900000 of 1000000 records are missing"
    for lag in ({"0_0": {"b": 900_000}}, {"0_0": {"c": 1_000_000}}):
        assert (
            assign(planned, slots("a", "b", "c"), lag, placed).tasks["0_0"].active.why == "the least loaded"
        )


def test_a_task_whose_stores_have_no_changelog_goes_where_they_are() -> None:
    planned = [TaskToPlace("0_0", has_state=False), TaskToPlace("0_1", has_state=False)]
    lags = {"0_0": {"b": 0, "a": 1}, "0_1": {"a": 0}}
    assert actives(assign(planned, slots("a", "b"), lags)) == {"0_0": "b", "0_1": "a"}


def test_a_new_instance_gets_a_warm_up_and_the_task_only_when_that_has_caught_up() -> None:
    planned = tasks(1, 2, records=1_000)
    rules = AssignmentRules(acceptable_lag=10)
    first = assign(planned, slots("a"), rules=rules)
    lags = {"0_0": {"a": 0}, "0_1": {"a": 0}}
    joined = assign(planned, slots("a", "b"), lags, first, rules)
    assert actives(joined) == {"0_0": "a", "0_1": "a"}
    warm = {task: [one.instance for one in where.warmups] for task, where in joined.tasks.items()}
    assert warm == {"0_0": ["b"], "0_1": []}
    lags["0_0"]["b"] = 11
    assert assign(planned, slots("a", "b"), lags, joined, rules).changes == ()
    lags["0_0"]["b"] = 10
    promoted = assign(planned, slots("a", "b"), lags, joined, rules)
    assert actives(promoted) == {"0_0": "b", "0_1": "a"}
    assert promoted.warmups == 0
    assert [str(change) for change in promoted.changes] == [
        "0_0 active: a -> b (balance; 10 records were missing there)",
        "0_0 warm-up: b -> -",
    ]


def test_warm_ups_are_few() -> None:
    planned = tasks(1, 100, records=1_000)
    rules = AssignmentRules(acceptable_lag=0, max_warmups=3)
    first = assign(planned, slots("a"), rules=rules)
    lags = {task.task_id: {"a": 0} for task in planned}
    assert assign(planned, slots("a", "b"), lags, first, rules).warmups == 3


def test_an_instance_that_is_drained_gives_its_tasks_to_standbys_at_once_and_else_when_they_are_warm() -> (
    None
):
    planned = tasks(1, 2, records=1_000)
    rules = AssignmentRules(acceptable_lag=0)
    a, b = slots("a", "b")
    first = assign(planned, [a, b], rules=rules)
    lags = {"0_0": {"a": 0, "b": 0}, "0_1": {"b": 0}}
    leaving = SlotPlace(1, "b", "b", is_draining=True)
    after = assign(planned, [a, leaving], lags, first, rules)
    assert actives(first) == {"0_0": "a", "0_1": "b"}
    assert actives(after) == actives(first)
    assert [one.instance for one in after.tasks["0_1"].warmups] == ["a"]
    lags["0_1"]["a"] = 0
    assert actives(assign(planned, [a, leaving], lags, after, rules)) == {"0_0": "a", "0_1": "a"}


def test_standbys_are_in_other_racks_than_their_tasks() -> None:
    places = [
        SlotPlace(number, f"i{number}", f"h{number}", {"rack": rack}) for number, rack in enumerate("xxyy")
    ]
    rack = {place.instance: place.tags["rack"] for place in places}
    placed = assign(tasks(1, 8), places, rules=AssignmentRules(standbys=1, spread_over=("rack",)))
    for one in placed.tasks.values():
        assert rack[one.standbys[0].instance] != rack[one.active.instance]


def test_a_standby_moves_to_another_rack_when_there_is_one_and_stays_until_that_is_ready() -> None:
    x, y, z = (
        SlotPlace(number, name, name, {"rack": rack})
        for number, (name, rack) in enumerate([("a", "x"), ("b", "x"), ("c", "y")])
    )
    planned = [TaskToPlace("0_0", records=1_000)]
    rules = AssignmentRules(standbys=1, acceptable_lag=0, spread_over=("rack",))
    first = assign(planned, [x, y], rules=rules)
    joined = assign(planned, [x, y, z], {"0_0": {"a": 0, "b": 0}}, first, rules)
    assert [one.instance for one in joined.tasks["0_0"].standbys] == ["b"]
    assert [one.instance for one in joined.tasks["0_0"].warmups] == ["c"]
    moved = assign(planned, [x, y, z], {"0_0": {"a": 0, "b": 0, "c": 0}}, joined, rules)
    assert [one.instance for one in moved.tasks["0_0"].standbys] == ["c"]


def test_instances_on_one_host_keep_no_copies_of_each_others_tasks() -> None:
    places = [SlotPlace(number, f"i{number}", "one") for number in range(3)]
    placed = assign(tasks(1, 3), places, rules=AssignmentRules(standbys=1))
    assert [one.standbys for one in placed.tasks.values()] == [(), (), ()]


def test_state_is_spread_by_its_size_too() -> None:
    large = {f"0_{number}": 1_000 << 20 if number < 4 else 1 << 20 for number in range(8)}
    planned = [TaskToPlace(task, records=1, size=size) for task, size in large.items()]
    before = Assignment(
        {
            task: TaskPlacement(Replica(0, "a", "a", "x") if size > 1 << 20 else Replica(1, "b", "b", "x"))
            for task, size in large.items()
        }
    )
    for _ in range(10):
        before = assign(planned, slots("a", "b"), {}, before)
    sizes: Counter[str] = Counter()
    for task, instance in actives(before).items():
        sizes[instance] += large[task]
    assert sizes == {"a": 2002 << 20, "b": 2002 << 20}
    assert Counter(actives(before).values()) == {"a": 4, "b": 4}


def test_stateless_tasks_have_no_copies() -> None:
    placed = assign([TaskToPlace("0_0", has_state=False)], slots("a", "b"), rules=AssignmentRules(standbys=1))
    assert placed.tasks["0_0"].copies() == ()
