"""What slots have to be told about who runs what: only when it changes."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.engine.assignment.assigner import SlotAssigner
from millstream.engine.assignment.model import Assignment
from millstream.engine.spark.resident.messages import Assigned
from millstream.engine.spark.resident.slot_pool import Member

__all__ = ["AssignedMessages"]


class AssignedMessages:
    """Used by the thread that runs epochs. What slots know is known by incarnation."""

    def __init__(self, assigner: SlotAssigner) -> None:
        self._assigner = assigner
        self._told: dict[str, Assigned] = {}
        self._told_of: tuple[set[str], Assignment] | None = None
        """The incarnations and the assignment of the last look."""

    def messages(self, members: Mapping[int, Member]) -> dict[int, Assigned]:
        """What each slot has to be told; nothing, as long as nothing has changed."""
        now = self._assigner.now
        incarnations = {member.incarnation for member in members.values()}
        if self._told_of == (incarnations, now):
            return {}
        before, self._told_of = self._told, (incarnations, now)
        slots, peers = now.slots(), {number: member.peer for number, member in members.items()}
        here = now.by_instance()
        self._told = {
            member.incarnation: Assigned(number, slots, peers, here.get(member.hello.instance, frozenset()))
            for number, member in members.items()
        }
        return {
            message.slot: message
            for incarnation, message in self._told.items()
            if before.get(incarnation) != message
        }
