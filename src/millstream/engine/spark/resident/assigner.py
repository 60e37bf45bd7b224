"""What the coordinator knows about where state is, and the assignment that it makes of it.

Slots say what is on their instance when they join, and how far their copies are. Commits say where tasks ran
and how far they have come.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

from millstream.commit.epoch_job import PlannedTask, TaskReport
from millstream.commit.manifest import TaskEntry
from millstream.engine.assignment.assignor import assign
from millstream.engine.assignment.model import (
    NO_ASSIGNMENT,
    Assignment,
    AssignmentRules,
    SlotPlace,
    TaskToPlace,
)
from millstream.engine.assignment.view import AssignedTask, Rebalance
from millstream.engine.spark.resident.messages import Follow
from millstream.engine.spark.resident.slot_pool import Member
from millstream.types import Offset, Version

__all__ = ["SlotAssigner"]

P = ParamSpec("P")
R = TypeVar("R")

_LONGEST_PAUSE_S: Final = 5.0
_SHARE: Final = 20
"""At most a twentieth of the time goes into assignments that are made because copies have come further."""


@dataclass(frozen=True, slots=True)
class _Position:
    """Where the state of a task stands on an instance."""

    version: Version
    offsets: Mapping[str, Offset]


@dataclass(frozen=True, slots=True)
class _Told:
    """What a slot knows: the tasks that it follows, to which versions, and those that it runs."""

    follows: dict[str, Version]
    runs: set[str]


def _locked(method: Callable[Concatenate[SlotAssigner, P], R]) -> Callable[Concatenate[SlotAssigner, P], R]:
    @wraps(method)
    def held(self: SlotAssigner, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:
            return method(self, *args, **kwargs)

    return held


@dataclass(slots=True)
class SlotAssigner:
    """The assignment of one application, epoch after epoch."""

    stateful: Container[int] = frozenset()
    """The sub-topologies whose tasks have stores with a changelog."""
    rules: AssignmentRules = field(default_factory=AssignmentRules)
    now: Assignment = NO_ASSIGNMENT
    draining: set[str] = field(default_factory=set)
    """Hosts that give their tasks away."""
    tasks: dict[str, PlannedTask] = field(default_factory=dict)
    """All that were ever planned: those that are idle keep their slots, and their stores open."""
    entries: dict[str, TaskEntry] = field(default_factory=dict)
    """The last commit of each task."""
    _positions: dict[str, dict[str, _Position]] = field(default_factory=dict)
    """By instance and task."""
    _sizes: dict[str, int] = field(default_factory=dict)
    _joined: set[str] = field(default_factory=set)
    """Incarnations whose first words are known."""
    _hosts: set[str] = field(default_factory=set)
    _reason: str = ""
    """Of what is on its way."""
    _events: list[Rebalance] = field(default_factory=list)
    _told: dict[str, _Told] = field(default_factory=dict)
    """By incarnation."""
    _warmups: int = 0
    _signature: object = None
    _not_before: float = 0.0
    _lock: threading.RLock = field(default_factory=threading.RLock)
    """Users ask from threads of their own."""

    @_locked
    def begin_term(self) -> None:
        """What was committed in an earlier term may be known by others only."""
        self.entries.clear()
        self._positions.clear()
        self._joined.clear()

    @_locked
    def note_tasks(self, tasks: Iterable[PlannedTask], entries: Mapping[str, TaskEntry]) -> None:
        """Tasks that there are, and their last commits."""
        self.tasks.update((task.task_id, task) for task in tasks)
        self.entries.update(entries)

    @_locked
    def note_committed(
        self, sealed: Iterable[str], entries: Mapping[str, TaskEntry], reports: Iterable[TaskReport]
    ) -> None:
        """An epoch: what it has committed is where it ran."""
        for report in reports:
            if report.sealed is not None:
                self._sizes[report.task_id] = report.state_size.bytes
                entry = entries[report.task_id]
                here = self._positions.setdefault(report.instance, {})
                here[report.task_id] = _Position(Version(entry.version), entry.changelogs)
        self.entries.update((task_id, entries[task_id]) for task_id in sealed)

    @_locked
    def update(self, members: Mapping[int, Member]) -> Assignment:
        """The assignment for the slots that are there now.

        If only copies have come further it is made again now and then: with many tasks it takes its time.
        """
        self._note_members(members)
        incarnations = tuple(member.incarnation for member in members.values())
        signature = (incarnations, len(self.tasks), frozenset(self.draining))
        if signature == self._signature and time.monotonic() < self._not_before:
            return self.now
        began = time.thread_time()
        places = [
            SlotPlace(
                number,
                member.hello.instance,
                host := member.hello.node or member.hello.host,
                member.hello.tags,
                is_draining=host in self.draining,
            )
            for number, member in members.items()
        ]
        tasks = [*map(self._to_place, self.tasks.values())]
        self.now = assign(tasks, places, self.lags(), self.now, self.rules)
        self._warmups = self.now.warmups
        self._note_changes({place.host for place in places})
        took = min(_LONGEST_PAUSE_S, _SHARE * (time.thread_time() - began))
        self._signature, self._not_before = signature, time.monotonic() + took
        return self.now

    def copies_on(self, instance: str) -> frozenset[str]:
        """The tasks that an instance keeps copies of."""
        if not (self.rules.standbys or self._warmups):
            return frozenset()
        return frozenset(
            task_id
            for task_id, placed in self.now.tasks.items()
            if any(copy.instance == instance for copy in placed.copies())
        )

    @_locked
    def take_rebalances(self) -> list[Rebalance]:
        """What has happened since it was asked last."""
        events, self._events = self._events, []
        return events

    def drain(self, host: str) -> None:
        """Let a host give its tasks away, without a break."""
        self.draining.add(host)

    def undrain(self, host: str) -> None:
        """Let a host have tasks again."""
        self.draining.discard(host)

    @_locked
    def assigned(self) -> tuple[AssignedTask, ...]:
        """Each place of each task, and how far it is."""
        lags, head = self.lags(), max((entry.version for entry in self.entries.values()), default=0)
        rows: list[AssignedTask] = []
        for task_id, placed in sorted(self.now.tasks.items(), key=lambda item: _order(item[0])):
            task, entry = self.tasks[task_id], self.entries.get(task_id)
            for role, one in placed.replicas():
                version = position = lag = lag_epochs = None
                if task.subtopology in self.stateful and entry is not None:
                    version, position = (
                        self.version(task_id, one.instance),
                        self.offset(task_id, one.instance),
                    )
                    lag = lags.get(task_id, {}).get(one.instance, sum(entry.changelogs.values()))
                    lag_epochs = 0 if version == Version(entry.version) else head - (version or 0)
                rows.append(
                    AssignedTask(
                        task=task_id,
                        role=role.value,
                        host=one.host,
                        instance=one.instance,
                        slot=one.slot,
                        version=version,
                        position=position,
                        lag=lag,
                        lag_epochs=lag_epochs,
                        why=one.why,
                    )
                )
        return tuple(rows)

    def _note_changes(self, hosts: set[str]) -> None:
        """Remember what to tell: when something begins to move, and when all has come to rest."""
        changes = self.now.changes
        if changes:
            self._reason = _reason(self._hosts, hosts, self.draining) or self._reason or "new tasks"
            self._events.append(Rebalance(self._reason, changes))
        elif self._reason and not self.now.warmups:
            self._events.append(Rebalance(self._reason, (), is_over=True))
            self._reason = ""
        self._hosts = hosts

    def lags(self) -> dict[str, dict[str, int]]:
        """Per task and instance, how many records are missing there."""
        found: dict[str, dict[str, int]] = {}
        for instance, held in self._positions.items():
            for task_id, position in held.items():
                entry = self.entries.get(task_id)
                if entry is not None:
                    found.setdefault(task_id, {})[instance] = _missing(entry, position)
        return found

    def version(self, task_id: str, instance: str) -> Version | None:
        """The version of a task's state on an instance; None if there is none that is known."""
        position = self._positions.get(instance, {}).get(task_id)
        return None if position is None else position.version

    def offset(self, task_id: str, instance: str) -> int:
        """How many records of the changelogs of a task are on an instance."""
        position = self._positions.get(instance, {}).get(task_id)
        return 0 if position is None else sum(position.offsets.values())

    @_locked
    def follow_messages(self, members: Mapping[int, Member]) -> dict[int, Follow]:
        """What each slot has to be told about its copies, and about tasks that it runs no more."""
        if not (self.rules.standbys or self._warmups or self._told):
            return {}
        wanted: dict[int, dict[str, Version]] = {}
        runs: dict[int, set[str]] = {}
        for task_id, placed in self.now.tasks.items():
            runs.setdefault(placed.active.slot, set()).add(task_id)
            entry = self.entries.get(task_id)
            if entry is None:
                continue
            followers = placed.copies()
            if self._is_behind(task_id, placed.active.instance):
                followers = (*followers, placed.active)  # it need not wait for its next record
            for one in followers:
                wanted.setdefault(one.slot, {})[task_id] = Version(entry.version)
        messages: dict[int, Follow] = {}
        told: dict[str, _Told] = {}
        for number, member in members.items():
            now = told[member.incarnation] = _Told(wanted.get(number, {}), runs.get(number, set()))
            had = self._told.get(member.incarnation, _Told({}, set()))
            gone = had.runs - now.runs
            if now.follows != had.follows or gone:
                fresh = [task for task, version in now.follows.items() if had.follows.get(task) != version]
                pairs = tuple((self.tasks[task_id], self.entries[task_id]) for task_id in fresh)
                messages[number] = Follow(frozenset(now.follows), pairs, frozenset(gone))
        self._told = told
        return messages

    @_locked
    def note_run(self, members: Mapping[int, Member], tasks: Iterable[PlannedTask]) -> None:
        """Tasks that an epoch runs: whoever runs one follows it no more."""
        slots = self.now.slots()
        for task in tasks:
            told = self._told.get(members[slots[task.task_id]].incarnation)
            if told is not None:
                told.follows.pop(task.task_id, None)

    def _is_behind(self, task_id: str, instance: str) -> bool:
        """Whether an instance misses something of the last commit of a task with state."""
        if self.tasks[task_id].subtopology not in self.stateful:
            return False
        return self.version(task_id, instance) != Version(self.entries[task_id].version)

    def _to_place(self, task: PlannedTask) -> TaskToPlace:
        entry = self.entries.get(task.task_id)
        has_state = task.subtopology in self.stateful
        records = sum(entry.changelogs.values()) if has_state and entry is not None else 0
        size = self._sizes.get(task.task_id, 0) if has_state else 0
        return TaskToPlace(task.task_id, task.level, has_state, records, size)

    def _note_members(self, members: Mapping[int, Member]) -> None:
        for member in members.values():
            here = self._positions.setdefault(member.hello.instance, {})
            if member.incarnation not in self._joined:
                self._joined.add(member.incarnation)
                for task_id, checkpoint in member.hello.held.items():
                    self._advance(here, task_id, _Position(checkpoint.version, checkpoint.positions))
            for task_id, position in member.followed.items():
                self._advance(here, task_id, _Position(position.version, position.offsets))
        live = {member.hello.instance for member in members.values()}
        for instance in self._positions.keys() - live:
            del self._positions[instance]

    @staticmethod
    def _advance(here: dict[str, _Position], task_id: str, position: _Position) -> None:
        before = here.get(task_id)
        if before is None or sum(position.offsets.values()) >= sum(before.offsets.values()):
            here[task_id] = position


def _reason(before: set[str], now: set[str], draining: set[str]) -> str:
    """Why things move; empty if hosts are not the reason."""
    gone, new = sorted(before - now), sorted(now - before)
    parts = [f"{_hosts(gone)} gone" if gone else "", f"{_hosts(new)} new" if new else ""]
    parts += [f"{_hosts(sorted(draining & now))} drained" if draining & now else ""]
    return ", ".join(filter(None, parts))


def _hosts(names: list[str]) -> str:
    return f"host {names[0]} is" if len(names) == 1 else f"hosts {', '.join(names)} are"


def _order(task_id: str) -> tuple[int, ...]:
    return tuple(int(part) for part in task_id.split("_"))


def _missing(entry: TaskEntry, position: _Position) -> int:
    if position.version == Version(entry.version):
        return 0
    return sum(max(0, end - position.offsets.get(store, 0)) for store, end in entry.changelogs.items())
