"""What the coordinator knows about where state is, and the assignment that it makes of it.

Slots say what is on their instance when they join, and how far their copies are. Commits say where tasks ran
and how far they have come.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

from millstream.commit.epoch_job import EpochJob, PlannedTask, TaskReport
from millstream.commit.manifest import TaskEntry
from millstream.commit.standby import StandbyPosition
from millstream.engine.assignment.assignor import assign
from millstream.engine.assignment.model import (
    NO_ASSIGNMENT,
    Assignment,
    AssignmentRules,
    Replica,
    Role,
    SlotPlace,
    TaskToPlace,
)
from millstream.engine.assignment.view import AssignedTask, Rebalance
from millstream.state.local.directory import Checkpoint
from millstream.types import Offset, Version

__all__ = ["Follower", "LiveSlot", "SlotAssigner"]

P = ParamSpec("P")
R = TypeVar("R")

_LONGEST_PAUSE_S: Final = 5.0
_SHARE: Final = 20
"""At most a twentieth of the time goes into assignments that are made because copies have come further."""
_HANGS_S: Final = 60.0
"""So long the stores of a slot that hangs on another host are left alone: Spark ends it within seconds."""


@dataclass(frozen=True, slots=True)
class _Position:
    """Where the state of a task stands on an instance."""

    version: Version
    offsets: Mapping[str, Offset]


@dataclass(frozen=True, slots=True)
class LiveSlot:
    """A slot that is there, as it has said."""

    incarnation: str
    """Another one whenever a slot is made anew."""
    instance: str
    host: str
    tags: Mapping[str, str]
    held: Mapping[str, Checkpoint]
    """The tasks whose state was on its instance when it was made, and where their stores stood."""
    followed: Mapping[str, StandbyPosition] = field(default_factory=dict)
    """How far its copies are."""


@dataclass(frozen=True, slots=True)
class Follower:
    """A place where the changelogs of a task are to be followed to its last commit."""

    task: PlannedTask
    entry: TaskEntry
    role: Role
    place: Replica
    is_behind: bool
    missing: int
    """How many records."""


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
    applies_at_once: bool = True
    """Stores are at a commit soon after it; else they follow it when they are opened for the next epoch."""
    now: Assignment = NO_ASSIGNMENT
    draining: set[str] = field(default_factory=set)
    """Hosts that give their tasks away."""
    tasks: dict[str, PlannedTask] = field(default_factory=dict)
    """All that were ever planned: those that are idle keep their slots, and their stores open."""
    entries: dict[str, TaskEntry] = field(default_factory=dict)
    """The last commit of each task."""
    _positions: dict[str, dict[str, _Position]] = field(default_factory=dict)
    """By instance and task: what is on its disk."""
    _ran: dict[str, tuple[str, _Position]] = field(default_factory=dict)
    """By task: the instance that ran it last, and where its stores are there when they are opened next."""
    _sizes: dict[str, int] = field(default_factory=dict)
    _joined: set[str] = field(default_factory=set)
    """Incarnations whose first words are known."""
    _slots: Mapping[int, LiveSlot] = field(default_factory=dict)
    """Those of the last assignment."""
    _deleted: dict[str, set[str]] = field(default_factory=dict)
    """By incarnation: the tasks whose state it had when it joined, and which was deleted since."""
    _hosts: set[str] = field(default_factory=set)
    _reason: str = ""
    """Of what is on its way."""
    _events: list[Rebalance] = field(default_factory=list)
    _warmups: int = 0
    _signature: object = None
    _not_before: float = 0.0
    _hanging: dict[tuple[int, str], tuple[float, frozenset[str]]] = field(default_factory=dict)
    """Slots that were fenced and may hold stores: until when that is believed, and of which tasks."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    """Users ask from threads of their own."""

    @_locked
    def begin_term(self) -> None:
        """What was committed in an earlier term may be known by others only."""
        self.entries.clear()
        self._positions.clear()
        self._ran.clear()
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
            self.note_deleted(report.instance, report.deleted)
            if report.sealed is not None:
                self._sizes[report.task_id] = report.state_size.bytes
                now = _position(entries[report.task_id])
                before = self.entries.get(report.task_id)
                self._ran[report.task_id] = (report.instance, now)
                on_disk = now if self.applies_at_once else _position(before)
                self._positions.setdefault(report.instance, {})[report.task_id] = on_disk
        self.entries.update((task_id, entries[task_id]) for task_id in sealed)

    @_locked
    def note_deleted(self, instance: str, tasks: Collection[str]) -> None:
        """Local state that was deleted on an instance: whoever gets such a task there has to read all."""
        for task_id in tasks:
            self._positions.get(instance, {}).pop(task_id, None)
            if task_id in self._ran and self._ran[task_id][0] == instance:
                del self._ran[task_id]
        for slot in self._slots.values():
            if slot.instance == instance:
                self._deleted.setdefault(slot.incarnation, set()).update(tasks)

    @_locked
    def note_hanging(self, places: Iterable[tuple[int, str]]) -> None:
        """Slots that were fenced, with their instances, and may hold their stores: tasks go elsewhere."""
        for place in places:
            tasks = frozenset(
                task_id
                for task_id, placed in self.now.tasks.items()
                if (placed.active.slot, placed.active.instance) == place
            )
            self._hanging[place] = (time.monotonic() + _HANGS_S, tasks)

    @_locked
    def update(self, slots: Mapping[int, LiveSlot]) -> Assignment:
        """The assignment for the slots that are there now.

        If only copies have come further it is made again now and then: with many tasks it takes its time.
        """
        self._note_slots(slots)
        incarnations = tuple(slot.incarnation for slot in slots.values())
        signature = (incarnations, len(self.tasks), frozenset(self.draining))
        if signature == self._signature and time.monotonic() < self._not_before:
            return self.now
        began = time.thread_time()
        places = [
            SlotPlace(number, slot.instance, slot.host, slot.tags, is_draining=slot.host in self.draining)
            for number, slot in slots.items()
        ]
        tasks = [*map(self._to_place, self.tasks.values())]
        self.now = assign(tasks, places, self.lags(), self.now, self.rules, self._avoided(slots))
        self._warmups = self.now.warmups
        self._note_changes({place.host for place in places})
        took = min(_LONGEST_PAUSE_S, _SHARE * (time.thread_time() - began))
        self._signature, self._not_before = signature, time.monotonic() + took
        return self.now

    def _avoided(self, slots: Mapping[int, LiveSlot]) -> dict[str, str]:
        """Where tasks can't run, for a process that hangs holds their stores: until its slot is replaced.

        A slot of the same number on another instance says nothing about that process.
        """
        now, live = time.monotonic(), {(number, slot.instance) for number, slot in slots.items()}
        self._hanging = {
            place: (until, tasks)
            for place, (until, tasks) in self._hanging.items()
            if now < until and place not in live
        }
        return {task: place[1] for place, (_, tasks) in self._hanging.items() for task in tasks}

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
        return self._places(sorted(self.now.tasks, key=_order))

    @_locked
    def places(self, task_id: str) -> tuple[AssignedTask, ...]:
        """Each place of one task, that which runs it first."""
        return self._places([task_id] if task_id in self.now.tasks else [])

    def _places(self, tasks: Iterable[str]) -> tuple[AssignedTask, ...]:
        head = max((entry.version for entry in self.entries.values()), default=0)
        rows: list[AssignedTask] = []
        for task_id in tasks:
            placed = self.now.tasks[task_id]
            task, entry = self.tasks[task_id], self.entries.get(task_id)
            for role, one in placed.replicas():
                version = position = lag = lag_epochs = None
                if task.subtopology in self.stateful and entry is not None:
                    version, position = (
                        self.version(task_id, one.instance),
                        self.offset(task_id, one.instance),
                    )
                    lag = _missing(entry, self._at(task_id, one.instance))
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
            for task_id in held:
                entry = self.entries.get(task_id)
                if entry is not None:
                    found.setdefault(task_id, {})[instance] = _missing(entry, self._at(task_id, instance))
        return found

    def version(self, task_id: str, instance: str) -> Version | None:
        """The version of a task's state on an instance; None if there is none that is known."""
        position = self._at(task_id, instance)
        return None if position is None else position.version

    def offset(self, task_id: str, instance: str) -> int:
        """How many records of the changelogs of a task are on an instance."""
        position = self._at(task_id, instance)
        return 0 if position is None else sum(position.offsets.values())

    def _at(self, task_id: str, instance: str) -> _Position | None:
        """Where the state of a task is on an instance: for whoever runs it, when it is opened next."""
        ran, placed = self._ran.get(task_id), self.now.tasks.get(task_id)
        if ran is not None and placed is not None and ran[0] == instance == placed.active.instance:
            return ran[1]
        return self._positions.get(instance, {}).get(task_id)

    @_locked
    def expecting(self, job: EpochJob) -> EpochJob:
        """The job, with each task expected where its slot is, if it was expected anywhere."""

        def expected(task: PlannedTask) -> PlannedTask:
            here = self.now.tasks[task.task_id].active.instance
            return task if task.expected_instance in (None, here) else replace(task, expected_instance=here)

        return replace(job, tasks=tuple(map(expected, job.tasks)))

    @property
    def keeps_copies(self) -> bool:
        """Whether anybody follows tasks that others run."""
        return bool(self.rules.standbys or self._warmups)

    @_locked
    def followers(self) -> list[Follower]:
        """All copies, and those tasks that miss something where they are to run: they need not wait for it.

        None if no copies are kept.
        """
        found: list[Follower] = []
        for task_id, placed in self.now.tasks.items() if self.keeps_copies else ():
            entry = self.entries.get(task_id)
            for role, one in placed.replicas() if entry is not None else ():
                is_behind = self._is_behind(task_id, one.instance)
                if entry is not None and (is_behind or role is not Role.ACTIVE):
                    missing = _missing(entry, self._at(task_id, one.instance))
                    found.append(Follower(self.tasks[task_id], entry, role, one, is_behind, missing))
        return found

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

    @_locked
    def note_followed(self, instance: str, positions: Mapping[str, StandbyPosition]) -> None:
        """How far copies on an instance are."""
        here = self._positions.setdefault(instance, {})
        for task_id, position in positions.items():
            self._advance(here, task_id, _Position(position.version, position.offsets))

    def _note_slots(self, slots: Mapping[int, LiveSlot]) -> None:
        live = {slot.incarnation for slot in slots.values()}
        self._slots = slots
        self._deleted = {name: tasks for name, tasks in self._deleted.items() if name in live}
        self._forget_what_is_gone()
        for slot in slots.values():
            here = self._positions.setdefault(slot.instance, {})
            if slot.incarnation not in self._joined:
                self._joined.add(slot.incarnation)
                for task_id in slot.held.keys() - self._deleted.get(slot.incarnation, set()):
                    checkpoint = slot.held[task_id]
                    self._advance(here, task_id, _Position(checkpoint.version, checkpoint.positions))
        for slot in slots.values():
            self.note_followed(slot.instance, slot.followed)
        for instance in self._positions.keys() - {slot.instance for slot in slots.values()}:
            del self._positions[instance]

    def _forget_what_is_gone(self) -> None:
        """If all slots of an instance are new they know what is there: nobody may have told of a deletion."""
        by_instance: dict[str, list[LiveSlot]] = {}
        for slot in self._slots.values():
            by_instance.setdefault(slot.instance, []).append(slot)
        for instance, slots in by_instance.items():
            here = self._positions.get(instance, {})
            if here and not any(slot.incarnation in self._joined for slot in slots):
                for task_id in here.keys() - {task_id for slot in slots for task_id in slot.held}:
                    task = self.tasks.get(task_id)
                    if task is not None and task.subtopology in self.stateful:
                        del here[task_id]

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


def _position(entry: TaskEntry | None) -> _Position:
    return _Position(Version(0), {}) if entry is None else _Position(Version(entry.version), entry.changelogs)


def _missing(entry: TaskEntry, position: _Position | None) -> int:
    if position is None:
        return sum(entry.changelogs.values())
    if position.version == Version(entry.version):
        return 0
    if not entry.changelogs:
        return 1  # nobody can read what is missing: it is better at home
    return sum(max(0, end - position.offsets.get(store, 0)) for store, end in entry.changelogs.items())
