"""Punctuators: callbacks driven by a clock.

Stream time: due from time 0 on, so the first record fires one. Wall clock: first due one interval after
it was scheduled. Intervals that were missed collapse into one call, with the time as it is now. Of several
that are due the earliest is called first; those that are due at the same time are called in Kafka's order
(:mod:`.due_queue`), in which a cancelled one keeps its place until its time has come.

A schedule that `init` makes belongs to its node, its clock and its number there (the first, the second,
...), so a task that is opened again goes on where the last one stopped, and a cancelled one stays so. A
schedule that is made later lasts as long as its task does: its callback can't be made again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from millstream.errors import ProcessingError
from millstream.processors.api import PunctuationType
from millstream.task.due_queue import heapify, offer, poll

ScheduleKey = tuple[str, int]
CANCELLED = -1
"""Remembered instead of a time: cancelled, and no longer in the queue. Lower: see `_cancelled_at`."""


@dataclass(slots=True, eq=False)
class Schedule:
    """One punctuator. `cancel()` is the user's."""

    node: str
    kind: PunctuationType
    interval_ms: int
    callback: Callable[[int], None]
    due: int
    key: ScheduleKey | None = None
    """Under which it is remembered; None if it is not."""
    is_cancelled: bool = False

    def cancel(self) -> None:
        """Never call it again."""
        self.is_cancelled = True


class Punctuations:
    """All punctuators of a task."""

    def __init__(self, remembered: Mapping[ScheduleKey, int]) -> None:
        self._remembered = dict(remembered)
        """In the order of the queues, as `remember` told it."""
        self._schedules: dict[ScheduleKey, Schedule] = {}
        self._queues: dict[PunctuationType, list[Schedule]] = {}
        """Made with the first punctuator: most tasks have none."""
        self._opened: list[Schedule] = []
        """Made by `init`, and not in a queue yet: their order there is known when all are made again."""

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
        if not self._queues:
            self._queues = {kind: [] for kind in PunctuationType}
        first = 0 if kind is PunctuationType.STREAM_TIME else now + interval_ms
        schedule = Schedule(node, kind, interval_ms, callback, first)
        if is_initial:
            place = f"{node} {kind.value}"
            schedule.key = (place, sum(1 for at, _ in self._schedules if at == place))
            self._schedules[schedule.key] = schedule
            self._opened.append(schedule)
        else:
            offer(self._queue(kind), schedule)
        return schedule

    def has(self, kind: PunctuationType) -> bool:
        """Whether a punctuator of that clock is waiting."""
        return bool(self._queues) and any(not one.is_cancelled for one in self._queue(kind))

    def next_due(self, kind: PunctuationType) -> int | None:
        """When the next punctuator of that clock is due."""
        if not self._queues:
            return None
        return min((one.due for one in self._queue(kind) if not one.is_cancelled), default=None)

    def run(self, kind: PunctuationType, now: int, call: Callable[[Schedule, int], None]) -> bool:
        """Call all that are due, the one that was due first first. True if there was one."""
        if not self._queues:
            return False
        ran = False
        queue = self._queue(kind)
        while queue and queue[0].due <= now:
            due = poll(queue)
            if due.is_cancelled:
                continue
            call(due, now)
            ran = True
            if not due.is_cancelled:
                missed = max(0, now - due.due) // due.interval_ms
                due.due += (missed + 1) * due.interval_ms
                offer(queue, due)
        return ran

    def remember(self) -> dict[ScheduleKey, int]:
        """When each punctuator is due next, for the task that comes after this one, in the queues' order."""
        if not self._queues:
            return dict(self._remembered)
        waiting = {
            one.key: _cancelled_at(one.due) if one.is_cancelled else one.due
            for kind in self._queues
            for one in self._queue(kind)
            if one.key is not None
        }
        gone = {key: CANCELLED for key in self._schedules if key not in waiting}
        return {
            **waiting,
            **gone,
            **{key: due for key, due in self._remembered.items() if key not in self._schedules},
        }

    def _queue(self, kind: PunctuationType) -> list[Schedule]:
        if self._opened:
            self._queue_opened()
        return self._queues[kind]

    def _queue_opened(self) -> None:
        """Put what `init` has made into the queues: where an earlier task had it, else at the end."""
        opened, self._opened = {one.key: one for one in self._opened}, []
        for key, due in self._remembered.items():
            one = opened.pop(key, None)
            if one is None:
                continue
            one.is_cancelled = one.is_cancelled or due < 0
            if due != CANCELLED:
                one.due = _cancelled_at(due) if due < 0 else due
                self._queues[one.kind].append(one)
        for queue in self._queues.values():
            heapify(queue)  # changes nothing, unless some of them were not made again
        for one in opened.values():
            offer(self._queues[one.kind], one)


def _cancelled_at(due: int) -> int:
    """A time below `CANCELLED`: cancelled, but still in the queue, until that time. And back."""
    return CANCELLED - 1 - due
