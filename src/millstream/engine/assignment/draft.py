"""An assignment in the making: who has what so far, and how loaded everybody is."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from millstream.engine.assignment.model import (
    Assignment,
    AssignmentRules,
    Lags,
    Replica,
    SlotPlace,
    TaskPlacement,
    TaskToPlace,
)

__all__ = ["Draft", "Inputs", "quotas"]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What an assignment is made from."""

    tasks: Sequence[TaskToPlace]
    slots: Mapping[int, SlotPlace]
    lags: Lags
    before: Assignment
    rules: AssignmentRules
    by_instance: Mapping[str, Sequence[SlotPlace]]
    """The slots of each instance, those with the smallest number first."""
    open_weights: Mapping[str, int]
    """How many slots each instance has that may get tasks."""
    avoided: Mapping[str, str]
    """An instance where a task can't run now, for those that have one."""

    @classmethod
    def of(
        cls,
        tasks: Sequence[TaskToPlace],
        slots: Iterable[SlotPlace],
        lags: Lags,
        before: Assignment,
        rules: AssignmentRules,
        avoided: Mapping[str, str],
    ) -> Inputs:
        """Sorted out. If all slots are draining none is: somebody has to do the work."""
        found = sorted(slots, key=lambda place: place.slot)
        by_instance: dict[str, list[SlotPlace]] = {}
        for place in found:
            by_instance.setdefault(place.instance, []).append(place)
        draining = {place.instance for place in found if place.is_draining}
        weights = {name: len(of) for name, of in by_instance.items() if name not in draining}
        weights = weights or {name: len(of) for name, of in by_instance.items()}
        by_slot = {place.slot: place for place in found}
        return cls(tasks, by_slot, lags, before, rules, by_instance, weights, avoided)

    def lag(self, task: TaskToPlace, instance: str) -> int:
        """How many records an instance would have to read to run a task."""
        if not task.has_state or not task.records:
            return 0
        return self.lags.get(task.task_id, {}).get(instance, task.records)

    def is_ready(self, task: TaskToPlace, instance: str) -> bool:
        """Whether an instance may run a task at once."""
        return self.avoided.get(task.task_id) != instance and (
            self.lag(task, instance) <= self.rules.acceptable_lag
        )

    def held(self, task: TaskToPlace) -> dict[str, int]:
        """The instances that may get tasks and have state of this one, with their lags."""
        found, not_here = self.lags.get(task.task_id, {}), self.avoided.get(task.task_id)
        return {name: lag for name, lag in found.items() if name in self.open_weights and name != not_here}

    def host(self, instance: str) -> str:
        """The host of an instance."""
        return self.by_instance[instance][0].host

    def placed_before(self, task: TaskToPlace) -> TaskPlacement | None:
        """Where a task was."""
        return self.before.tasks.get(task.task_id)

    def lives(self, replica: Replica) -> bool:
        """Whether a place of before is still there: slots are used again, on other instances."""
        place = self.slots.get(replica.slot)
        return place is not None and place.instance == replica.instance

    def had_copy(self, task: TaskToPlace, instance: str) -> bool:
        """Whether an instance has followed a task until now."""
        placed = self.placed_before(task)
        return placed is not None and any(one.instance == instance for one in placed.copies())


@dataclass(slots=True)
class Draft:
    """Where the tasks are so far."""

    inputs: Inputs
    active: dict[str, Replica] = field(default_factory=dict)
    on_slot: dict[tuple[int, int], dict[str, TaskToPlace]] = field(default_factory=lambda: defaultdict(dict))
    """Tasks by level and slot."""
    loads: Counter[tuple[int, str]] = field(default_factory=Counter)
    """How many tasks there are by level and instance."""
    total: Counter[int] = field(default_factory=Counter)
    size: Counter[str] = field(default_factory=Counter)
    """Bytes of state by instance."""
    warmups: dict[str, list[Replica]] = field(default_factory=dict)
    standbys: dict[str, list[Replica]] = field(default_factory=dict)
    copies: Counter[int] = field(default_factory=Counter)
    """Standbys and warm-ups by slot."""
    warmups_left: int = 0

    def load(self, level: int, slot: int) -> int:
        """How many tasks of a level a slot has."""
        found = self.on_slot.get((level, slot))
        return 0 if found is None else len(found)

    def load_of(self, level: int, instance: str) -> int:
        """The same of an instance."""
        return self.loads[level, instance]

    def put(self, task: TaskToPlace, replica: Replica) -> None:
        """Let a slot run a task, and no other slot."""
        old = self.active.get(task.task_id)
        if old is not None:
            del self.on_slot[task.level, old.slot][task.task_id]
            self.loads[task.level, old.instance] -= 1
            self.total[old.slot] -= 1
            self.size[old.instance] -= task.size
        self.active[task.task_id] = replica
        self.on_slot[task.level, replica.slot][task.task_id] = task
        self.loads[task.level, replica.instance] += 1
        self.total[replica.slot] += 1
        self.size[replica.instance] += task.size

    def put_on(self, task: TaskToPlace, instance: str, why: str) -> None:
        """Let the least loaded slot of an instance run a task."""
        place = min(
            self.inputs.by_instance[instance],
            key=lambda one: (self.load(task.level, one.slot), self.total[one.slot], one.slot),
        )
        self.put(task, Replica(place.slot, instance, place.host, why))

    def copy_on(self, task: TaskToPlace, instance: str, why: str) -> Replica:
        """A copy on an instance, in the slot where it was, else in that with the fewest copies."""
        placed = self.inputs.placed_before(task)
        for one in () if placed is None else placed.copies():
            if one.instance == instance and self.inputs.lives(one):
                self.copies[one.slot] += 1
                return one
        place = min(
            self.inputs.by_instance[instance],
            key=lambda one: (self.copies[one.slot], self.total[one.slot], one.slot),
        )
        self.copies[place.slot] += 1
        return Replica(place.slot, instance, place.host, why)

    def warm_up(self, task: TaskToPlace, instance: str, why: str) -> bool:
        """Let an instance get ready to take something over; False if too many do that already."""
        if not self.warmups_left or task.task_id in self.warmups:
            return False
        self.warmups_left -= 1
        self.warmups[task.task_id] = [self.copy_on(task, instance, why)]
        return True


def quotas(count: int, weights: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """Shares of so many things by weight. Whoever has most now gets the rest, so that little has to move.

    >>> quotas(5, {"a": 1, "b": 1}, {"b": 3})
    {'a': 2, 'b': 3}
    """
    whole = sum(weights.values())
    share = {name: count * weight // whole for name, weight in weights.items()}
    rest = count - sum(share.values())
    order = sorted(
        weights,
        key=lambda name: (share[name] - now.get(name, 0), -(count * weights[name] % whole), name),
    )
    for name in order[:rest]:
        share[name] += 1
    return share
