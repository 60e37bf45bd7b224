"""Windows that close by the clock: the rule by which stream time moves on while no records come.

Once an operator has seen no record for `after_idle_ms` of wall clock, its stream time moves on by the wall
clock that has passed since the last one, and from then on again each time that so much has passed: time goes
on as if records had come, at its usual pace. Nothing moves while records wait that the epoch did not take in,
for then nobody knows whether it is quiet; nor while nothing is open. The wall clock is the epoch's, so a
replay moves time in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.processors.batch import NO_ORIGIN, Batch
from millstream.processors.operator import OperatorContext
from millstream.processors.operator_times import UNKNOWN_TIME

__all__ = ["IdleClock"]


@dataclass(frozen=True, slots=True)
class IdleClock:
    """The clock of one operator; without `after_idle_ms` it never moves anything."""

    context: OperatorContext
    after_idle_ms: int | None

    def records_came(self, open_until: int = UNKNOWN_TIME) -> None:
        """The operator is not idle; what the records have opened will have closed at that stream time."""
        if self.after_idle_ms is not None:
            times = self.context.times
            times.active = self.context.wall_clock()
            times.open_until = max(times.open_until, open_until)

    @property
    def waits(self) -> bool:
        """Whether the clock alone will close what records have opened."""
        times = self.context.times
        return self.after_idle_ms is not None and times.observed < times.open_until

    def moves(self, *, is_open: bool) -> Batch | None:
        """At the end of an epoch: move stream time on if it is time for that.

        Then it answers with a row that stands in for a record: what leaves now was caused by it.
        """
        if self.after_idle_ms is None or not is_open or not self.context.caught_up:
            return None
        times, now = self.context.times, self.context.wall_clock()
        if times.active == UNKNOWN_TIME:  # opened before windows were to close by the clock
            times.active = now
        passed = now - times.active
        if passed < max(1, self.after_idle_ms):
            return None
        times.observed += passed
        times.active = now
        return Batch([None], [None], [times.observed], None, [NO_ORIGIN])
