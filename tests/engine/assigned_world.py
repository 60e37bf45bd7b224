"""A world of hosts that come and go, in which an assignment is made again and again."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

from millstream.engine.assignment.assignor import assign
from millstream.engine.assignment.model import (
    NO_ASSIGNMENT,
    Assignment,
    AssignmentRules,
    SlotPlace,
    TaskPlacement,
    TaskToPlace,
)


@dataclass
class World:
    """Hosts with slots and state, and the tasks of an application."""

    rules: AssignmentRules
    tasks: list[TaskToPlace] = field(default_factory=list)
    slots: dict[int, SlotPlace] = field(default_factory=dict)
    missing: dict[str, dict[str, int]] = field(default_factory=dict)
    """Per task and instance with state, dead or alive: the records that it misses."""
    draining: set[str] = field(default_factory=set)
    """Hosts that give their tasks away."""
    now: Assignment = NO_ASSIGNMENT
    moves: Counter[str] = field(default_factory=Counter)

    def join(self, host: str, count: int = 1, *, rack: str = "") -> None:
        """A host comes, perhaps again: what it had it still has. Slots get the numbers that are free."""
        free = (number for number in range(100_000) if number not in self.slots)
        for number in [next(free) for _ in range(count)]:
            self.slots[number] = SlotPlace(number, f"instance-{host}", host, {"rack": rack} if rack else {})

    def lose(self, host: str) -> None:
        self.slots = {number: place for number, place in self.slots.items() if place.host != host}

    def places(self) -> list[SlotPlace]:
        return [replace(one, is_draining=one.host in self.draining) for one in self.slots.values()]

    def open_instances(self) -> set[str]:
        """Those that may get tasks. If all are drained, that is all."""
        found = {place.instance for place in self.slots.values() if place.host not in self.draining}
        return found or self.instances

    @property
    def hosts(self) -> list[str]:
        return sorted({place.host for place in self.slots.values()})

    @property
    def instances(self) -> set[str]:
        return {place.instance for place in self.slots.values()}

    def lags(self) -> dict[str, dict[str, int]]:
        live = self.instances
        return {
            task: {name: lag for name, lag in held.items() if name in live}
            for task, held in self.missing.items()
        }

    def assign(self) -> Assignment:
        """Make the assignment, check what must hold, and let the tasks run on it."""
        before, lags = self.now, self.lags()
        after = assign(self.tasks, self.places(), lags, before, self.rules)
        self.check(before, after, lags)
        for task in self.tasks:
            old, new = before.tasks.get(task.task_id), after.tasks[task.task_id]
            if old is not None and old.active.instance != new.active.instance:
                is_lost = not self.lives(old.active.slot, old.active.instance)
                self.moves["lost" if is_lost else "balance"] += 1
        self.now = after
        return after

    def lives(self, slot: int, instance: str) -> bool:
        return slot in self.slots and self.slots[slot].instance == instance

    def run_epoch(self, written: int, *, followed: int) -> None:
        """Actives write, so everybody else falls behind; copies follow by so many records."""
        for task in self.tasks:
            if not task.has_state:
                continue
            placed = self.now.tasks[task.task_id]
            held = self.missing.setdefault(task.task_id, {})
            had = task.records
            for name in held:
                held[name] += written
            held[placed.active.instance] = 0
            for copy in placed.copies():
                held[copy.instance] = max(0, held.get(copy.instance, had + written) - followed)
        self.tasks = [
            TaskToPlace(task.task_id, task.level, task.has_state, task.records + written, task.size)
            for task in self.tasks
        ]

    def settle(self) -> int:
        """No more faults and no input: everybody catches up. How many rounds it took."""
        for rounds in range(1, 10_000):
            self.run_epoch(0, followed=1 << 60)
            if not self.assign().changes:
                return rounds
        raise AssertionError("the assignment does not come to rest")

    # What must hold ------------------------------------------------------------------------------------

    def check(self, before: Assignment, after: Assignment, lags: dict[str, dict[str, int]]) -> None:
        assert after.tasks.keys() == {task.task_id for task in self.tasks}
        assert after.warmups <= self.rules.max_warmups
        is_open = self.open_instances()
        hosts = {place.instance: place.host for place in self.slots.values() if place.instance in is_open}
        per_host = Counter(hosts.values())
        for task in self.tasks:
            placed = after.tasks[task.task_id]
            self.check_places(task, placed, len(hosts) - per_host[placed.active.host])
            self.check_active(task, before.tasks.get(task.task_id), placed, lags.get(task.task_id, {}))

    def check_places(self, task: TaskToPlace, placed: TaskPlacement, elsewhere: int) -> None:
        for _, one in placed.replicas():
            place = self.slots[one.slot]
            assert (place.instance, place.host) == (one.instance, one.host)
            assert one.why
        instances = [one.instance for _, one in placed.replicas()]
        assert len(set(instances)) == len(instances), "no task twice on one instance"
        assert placed.active.host not in {one.host for one in placed.standbys}
        if not task.has_state:
            assert placed.copies() == ()
            return
        elsewhere -= sum(one.host != placed.active.host for one in placed.warmups)
        assert len(placed.standbys) == min(self.rules.standbys, elsewhere)

    def check_active(
        self, task: TaskToPlace, old: TaskPlacement | None, new: TaskPlacement, lags: dict[str, int]
    ) -> None:
        def lag(instance: str) -> int:
            return lags.get(instance, task.records) if task.has_state else 0

        most = self.rules.acceptable_lag
        is_open = self.open_instances()
        stays = old is not None and old.active.instance == new.active.instance
        assert stays or new.active.instance in is_open, "it came to a host that is drained"
        assert stays or "slots of one instance" not in new.active.why, "it came from elsewhere, and why?"
        lags = {name: lag for name, lag in lags.items() if name in is_open}
        if old is not None and self.lives(old.active.slot, old.active.instance):
            if new.active.instance != old.active.instance:
                assert lag(new.active.instance) <= most, "it moved to an instance that was not caught up"
        elif old is not None and any(lag(name) <= most for name in lags):
            assert lag(new.active.instance) <= most, "somebody was caught up, but did not take over"

    def check_tags(self) -> None:
        """Of a world at rest: no copy shares tags with its task, or another copy, where it need not."""
        by_instance = {place.instance: place for place in self.slots.values()}

        def conflicts(instance: str, others: list[SlotPlace]) -> int:
            place = by_instance[instance]
            same = sum(place.tags.get("rack", at) == one.tags.get("rack") for at, one in enumerate(others))
            return same + sum(place.host == one.host for one in others)

        for placed in self.now.tasks.values():
            for one in placed.standbys if self.rules.spread_over else ():
                others = [self.slots[other.slot] for _, other in placed.replicas() if other is not one]
                taken = {other.instance for other in others}
                hosts = {other.host for other in others[:1]}
                free = [
                    name
                    for name, place in by_instance.items()
                    if name not in taken and place.host not in hosts
                ]
                best = min(conflicts(name, others) for name in free)
                assert conflicts(one.instance, others) == best, "a copy is in the rack of another one"

    def check_balance(self) -> None:
        """Of a world at rest."""
        weights = Counter(place.instance for place in self.slots.values())
        whole = sum(weights.values())
        for level in {task.level for task in self.tasks}:
            of_level = [task.task_id for task in self.tasks if task.level == level]
            loads = Counter(self.now.tasks[task].active.instance for task in of_level)
            for name, weight in weights.items():
                assert len(of_level) * weight // whole <= loads[name] <= len(of_level) * weight // whole + 1
            slots = Counter(self.now.tasks[task].active.slot for task in of_level)
            for places in {place.instance: place for place in self.slots.values()}.values():
                mine = [slots[n] for n, place in self.slots.items() if place.instance == places.instance]
                assert max(mine) - min(mine) <= 1


def random_world(chance: random.Random) -> World:
    rules = AssignmentRules(
        standbys=chance.choice([0, 1, 1, 2]),
        acceptable_lag=chance.choice([0, 10, 1000]),
        max_warmups=chance.choice([1, 2, 5]),
        spread_over=chance.choice([(), ("rack",)]),
    )
    world = World(rules)
    for number in range(chance.randint(1, 4)):
        world.join(f"h{number}", chance.randint(1, 3), rack=f"r{number % 2}")
    grow(world, chance)
    return world


def grow(world: World, chance: random.Random) -> None:
    """More partitions."""
    number = len(world.tasks)
    level, has_state = chance.randrange(3), chance.random() < 0.8
    world.tasks += [
        TaskToPlace(f"{number}_{at}", level, has_state, size=chance.choice([0, 10, 10, 1000]) << 20)
        for at in range(chance.randint(1, 8))
    ]
