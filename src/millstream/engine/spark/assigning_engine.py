"""What engines on Spark have in common: one assignment of tasks and copies to slots, which is told."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.engine.api import Engine
from millstream.engine.assignment.rules import slot_assigner
from millstream.engine.assignment.view import AssignedTask, Rebalance
from millstream.engine.program import Program

__all__ = ["AssigningEngine"]


class AssigningEngine(Engine):
    """An engine that places tasks by what it knows of their state. It outlives any Spark of the engine."""

    def __init__(self, program: Program, *, applies_at_once: bool) -> None:
        plan = program.topology.plan()
        self._assigner = slot_assigner(program.config, plan, applies_at_once=applies_at_once)

    def assigned(self) -> Sequence[AssignedTask]:
        return self._assigner.assigned()

    def places(self, task_id: str) -> Sequence[AssignedTask]:
        return self._assigner.places(task_id)

    def take_rebalances(self) -> Sequence[Rebalance]:
        return self._assigner.take_rebalances()

    def drain(self, host: str, *, is_over: bool = False) -> None:
        (self._assigner.undrain if is_over else self._assigner.drain)(host)
