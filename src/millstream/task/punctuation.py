"""Punctuators: callbacks driven by a clock.

Stream time: due from time 0 on, so the first record fires one. Wall clock: first due one interval after
it was scheduled. Intervals that were missed collapse into one call, with the time as it is now.

A schedule that `init` makes belongs to its node, its clock and its number there (the first, the second,
...), so a task that is opened again goes on where the last one stopped, and a cancelled one stays so. A
schedule that is made later lasts as long as its task does: its callback can't be made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from millstream.errors import ProcessingError
from millstream.processors.api import PunctuationType

ScheduleKey = tuple[str, int]
CANCELLED = -1


@dataclass(slots=True)
class Schedule:
    """One punctuator. `cancel()` is the user's."""

    node: str
    kind: PunctuationType
    interval_ms: int
    callback: Callable[[int], None]
    due: int
    sequence: int

    def cancel(self) -> None:
        """Never call it again."""
        self.due = CANCELLED

    @property
    def is_cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.due == CANCELLED


class Punctuations:
    """All punctuators of a task."""

    def __init__(self, remembered: Mapping[ScheduleKey, int]) -> None:
        self._remembered = dict(remembered)
        self._schedules: dict[ScheduleKey, Schedule] = {}
        self._short_lived: list[Schedule] = []
        self._sequence = 0

    def schedule(
        self,
        node: str,
        interval_ms: int,
        kind: PunctuationType,
        callback: Callable[[int], None],
        now: int,
        *,
        is_initial: bool = True,
    ) -> Schedule:
        """A new punctuator, or the one that an earlier task had under the same number.

        Only one that `init` schedules (`is_initial`) outlives the task: its callback is made again.
        """
        if interval_ms < 1:
            message = f"node {node!r} schedules a punctuator every {interval_ms} ms: at least 1 is needed"
            raise ProcessingError(message)
        first = 0 if kind is PunctuationType.STREAM_TIME else now + interval_ms
        schedule = Schedule(node, kind, interval_ms, callback, first, self._sequence)
        self._sequence += 1
        if is_initial:
            place = f"{node} {kind.value}"
            key = (place, sum(1 for at, _ in self._schedules if at == place))
            schedule.due = self._remembered.get(key, first)
            self._schedules[key] = schedule
        else:
            self._short_lived = [one for one in self._short_lived if not one.is_cancelled]
            self._short_lived.append(schedule)
        return schedule

    def _all(self) -> Iterator[Schedule]:
        return chain(self._schedules.values(), self._short_lived)

    def has(self, kind: PunctuationType) -> bool:
        """Whether a punctuator of that clock is waiting."""
        return any(one.kind is kind and not one.is_cancelled for one in self._all())

    def next_due(self, kind: PunctuationType) -> int | None:
        """When the next punctuator of that clock is due."""
        return min(
            (one.due for one in self._all() if one.kind is kind and not one.is_cancelled),
            default=None,
        )

    def run(self, kind: PunctuationType, now: int, call: Callable[[Schedule, int], None]) -> bool:
        """Call all that are due, the one that was due first first; of two, the one scheduled first.

        True if there was one.
        """
        ran = False
        while due := self._due(kind, now):
            call(due, now)
            ran = True
            if not due.is_cancelled:
                missed = max(0, now - due.due) // due.interval_ms
                due.due += (missed + 1) * due.interval_ms
        return ran

    def remember(self) -> dict[ScheduleKey, int]:
        """When each punctuator is due next, for the task that comes after this one."""
        return {**self._remembered, **{key: one.due for key, one in self._schedules.items()}}

    def _due(self, kind: PunctuationType, now: int) -> Schedule | None:
        waiting = [one for one in self._all() if one.kind is kind and not one.is_cancelled and one.due <= now]
        return min(waiting, key=lambda one: (one.due, one.sequence), default=None)
