"""What slots have to be told about the copies that they keep: only what is new."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from millstream.commit.epoch_job import PlannedTask
from millstream.commit.manifest import TaskEntry
from millstream.engine.assignment.assigner import SlotAssigner
from millstream.engine.spark.resident.messages import Follow
from millstream.types import Version

__all__ = ["FollowMessages"]


@dataclass(frozen=True, slots=True)
class _Told:
    """What a slot knows: the tasks that it follows, to which versions, and those that it runs."""

    follows: dict[str, Version] = field(default_factory=dict)
    runs: set[str] = field(default_factory=set)


class FollowMessages:
    """Used by the thread that runs epochs. Slots are named by number, and what they know by incarnation."""

    def __init__(self, assigner: SlotAssigner) -> None:
        self._assigner = assigner
        self._told: dict[str, _Told] = {}

    def messages(self, incarnations: Mapping[int, str]) -> dict[int, Follow]:
        """What each slot has to be told about its copies, and about tasks that it runs no more."""
        assigner = self._assigner
        if not (assigner.keeps_copies or self._told):
            return {}
        wanted: dict[int, dict[str, TaskEntry]] = {}
        for one in assigner.followers():
            wanted.setdefault(one.place.slot, {})[one.task.task_id] = one.entry
        runs: dict[int, set[str]] = {}
        for task_id, slot in assigner.now.slots().items():
            runs.setdefault(slot, set()).add(task_id)
        messages: dict[int, Follow] = {}
        told: dict[str, _Told] = {}
        for number, incarnation in incarnations.items():
            entries = wanted.get(number, {})
            versions = {task_id: Version(entry.version) for task_id, entry in entries.items()}
            now = told[incarnation] = _Told(versions, runs.get(number, set()))
            had = self._told.get(incarnation, _Told())
            gone = had.runs - now.runs
            if now.follows != had.follows or gone:
                fresh = [task for task, version in versions.items() if had.follows.get(task) != version]
                pairs = tuple((assigner.tasks[task_id], entries[task_id]) for task_id in fresh)
                messages[number] = Follow(frozenset(versions), pairs, frozenset(gone))
        self._told = told
        return messages

    def note_run(self, incarnations: Mapping[int, str], tasks: Iterable[PlannedTask]) -> None:
        """Tasks that an epoch runs: whoever runs one follows it no more."""
        slots = self._assigner.now.slots()
        for task in tasks:
            told = self._told.get(incarnations[slots[task.task_id]])
            if told is not None:
                told.follows.pop(task.task_id, None)
