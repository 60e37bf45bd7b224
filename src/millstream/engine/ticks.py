"""The wall clock of an application: quantised ticks, and only while somebody waits for one."""

from __future__ import annotations

from math import inf

from millstream.clock import now_ms
from millstream.engine.api import DurableEpoch
from millstream.topology.plan import Plan


class Ticks:
    """Says when an epoch should move the wall clock.

    Only processors and transformers of the user's own can schedule punctuators, and they do so when they are
    opened; and windows can close by the clock. So there is a first tick that opens all tasks; later ones come
    while a task says so.
    """

    def __init__(self, plan: Plan, tick_ms: int) -> None:
        self._tick_ms = tick_ms
        self._next = 0
        self.may_be_wanted = any(sub.may_schedule for sub in plan.subtopologies)
        self._opened = False
        self._wanting: set[str] = set()

    def due(self) -> bool:
        """Whether the next epoch should tick."""
        return self._is_wanted and now_ms() >= self._next

    def seconds_to_next(self) -> float:
        """How long until an epoch should tick, if there is none before."""
        return max(0, self._next - now_ms()) / 1000 if self._is_wanted else inf

    @property
    def _is_wanted(self) -> bool:
        return self.may_be_wanted and (not self._opened or bool(self._wanting))

    def epoch_ended(self, epoch: DurableEpoch) -> None:
        """Learn from an epoch which tasks want ticks. One that did not run has not changed its mind."""
        for report in epoch.reports:
            if report.wants_wall_clock:
                self._wanting.add(report.task_id)
            elif report.sealed is not None:
                self._wanting.discard(report.task_id)
        if epoch.job.tick:
            self._opened = True
            self._next = now_ms() + self._tick_ms
