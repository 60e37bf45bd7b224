"""What slots have to be told about the copies that they keep: only what is new."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.commit.epoch_job import PlannedTask
from millstream.commit.manifest import TaskEntry
from millstream.engine.assignment.assigner import SlotAssigner
from millstream.engine.spark.resident.messages import Follow
from millstream.types import Version

__all__ = ["FollowMessages"]


class FollowMessages:
    """Used by the thread that runs epochs. Slots are named by number, and what they know by incarnation."""

    def __init__(self, assigner: SlotAssigner) -> None:
        self._assigner = assigner
        self._told: dict[str, dict[str, Version]] = {}
        """By incarnation: the tasks that it follows, and to which versions."""

    def messages(self, incarnations: Mapping[int, str]) -> dict[int, Follow]:
        """What each slot has to be told about its copies."""
        assigner = self._assigner
        if not (assigner.keeps_copies or self._told):
            return {}
        wanted: dict[int, dict[str, TaskEntry]] = {}
        for one in assigner.followers():
            wanted.setdefault(one.place.slot, {})[one.task.task_id] = one.entry
        messages: dict[int, Follow] = {}
        told: dict[str, dict[str, Version]] = {}
        for number, incarnation in incarnations.items():
            entries = wanted.get(number, {})
            now = told[incarnation] = {task: Version(entry.version) for task, entry in entries.items()}
            had = self._told.get(incarnation, {})
            if now != had:
                fresh = [task for task, version in now.items() if had.get(task) != version]
                pairs = tuple((assigner.tasks[task_id], entries[task_id]) for task_id in fresh)
                messages[number] = Follow(frozenset(now), pairs)
        self._told = told
        return messages

    def note_run(self, incarnations: Mapping[int, str], tasks: Iterable[PlannedTask]) -> None:
        """Tasks that an epoch runs: whoever runs one follows it no more."""
        slots = self._assigner.now.slots()
        for task in tasks:
            told = self._told.get(incarnations[slots[task.task_id]])
            if told is not None:
                told.pop(task.task_id, None)
