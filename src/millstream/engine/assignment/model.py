"""What an assignment is made of, and what it says. Plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Final

__all__ = [
    "NO_ASSIGNMENT",
    "Assignment",
    "AssignmentRules",
    "Change",
    "Lags",
    "Replica",
    "Role",
    "SlotPlace",
    "TaskPlacement",
    "TaskToPlace",
]


class Role(Enum):
    """What a slot does for a task."""

    ACTIVE = "active"
    STANDBY = "standby"
    WARM_UP = "warm-up"


@dataclass(frozen=True, slots=True)
class TaskToPlace:
    """A task as far as its place depends on it."""

    task_id: str
    level: int = 0
    has_state: bool = True
    """It has stores with a changelog."""
    records: int = 0
    """So many records an instance has to read that has nothing of its state."""
    size: int = 0
    """About how many bytes its state has."""


@dataclass(frozen=True, slots=True)
class SlotPlace:
    """A live slot: the instance (state directory) that it works in, its host, and where that stands."""

    slot: int
    instance: str
    host: str
    tags: Mapping[str, str] = field(default_factory=dict)
    is_draining: bool = False
    """It gives its tasks away as soon as others can take them, and gets no new ones."""


Lags = Mapping[str, Mapping[str, int]]
"""Per task and instance that has state of it: how many records of its changelogs are missing there."""


@dataclass(frozen=True, slots=True)
class AssignmentRules:
    """How tasks are placed."""

    standbys: int = 0
    """Copies of each task's state, beside that of the task itself."""
    acceptable_lag: int = 10_000
    """An instance that misses no more records than that may run a task at once."""
    max_warmups: int = 2
    """So many copies at once are made only to move something there later."""
    spread_over: tuple[str, ...] = ()
    """Tags in which the copies of a task should differ: racks, zones."""


@dataclass(frozen=True, slots=True)
class Replica:
    """A task in a slot, and why there."""

    slot: int
    instance: str
    host: str
    why: str = field(compare=False, default="")


@dataclass(frozen=True, slots=True)
class TaskPlacement:
    """All places of a task, no two of them on one instance."""

    active: Replica
    standbys: tuple[Replica, ...] = ()
    warmups: tuple[Replica, ...] = ()

    def replicas(self) -> Iterator[tuple[Role, Replica]]:
        """Each place with its role."""
        yield Role.ACTIVE, self.active
        for replica in self.standbys:
            yield Role.STANDBY, replica
        for replica in self.warmups:
            yield Role.WARM_UP, replica

    def copies(self) -> tuple[Replica, ...]:
        """Standbys and warm-ups: who follows the task's changelogs."""
        return self.standbys + self.warmups


@dataclass(frozen=True, slots=True)
class Change:
    """A role of a task that somebody got, or lost."""

    task_id: str
    role: Role
    before: Replica | None
    after: Replica | None

    def __str__(self) -> str:
        """A line for people.

        >>> here, there = Replica(0, "a", "one"), Replica(1, "b", "two", "its copy is caught up")
        >>> print(Change("0_1", Role.ACTIVE, here, there))
        0_1 active: one -> two (its copy is caught up)
        """
        names = [one.host if one is not None else "-" for one in (self.before, self.after)]
        why = f" ({self.after.why})" if self.after is not None and self.after.why else ""
        return f"{self.task_id} {self.role.value}: {names[0]} -> {names[1]}{why}"


@dataclass(frozen=True)
class Assignment:
    """Where all tasks are, and what is new about it."""

    tasks: Mapping[str, TaskPlacement]
    changes: tuple[Change, ...] = ()

    def slots(self) -> Mapping[str, int]:
        """The slot that runs each task."""
        return self._slots

    @cached_property
    def _slots(self) -> dict[str, int]:
        return {task: placement.active.slot for task, placement in self.tasks.items()}

    def by_instance(self) -> dict[str, frozenset[str]]:
        """The tasks that each instance runs, or keeps copies of."""
        found: dict[str, set[str]] = {}
        for task, placement in self.tasks.items():
            for _, replica in placement.replicas():
                found.setdefault(replica.instance, set()).add(task)
        return {instance: frozenset(tasks) for instance, tasks in found.items()}

    @property
    def warmups(self) -> int:
        """How many copies are made to move something."""
        return sum(len(placement.warmups) for placement in self.tasks.values())


NO_ASSIGNMENT: Final = Assignment({})
