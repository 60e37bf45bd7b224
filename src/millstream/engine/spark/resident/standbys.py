"""The standby tasks of a slot: a thread that follows changelogs while the slot has nothing else to do.

It goes from task to task in rounds, and pauses behind each the longer, the more there was to do: commits that
come meanwhile are followed together, of a key that all of them have written the last row alone. It takes
small steps, and before each it waits until no epoch is at work; but not for ever, or a slot that is always
busy would have standbys that are of no use. On a long way it rests between them. A slot that runs no tasks
goes a long way at low priority instead: there may be others on its host that do. A task that the slot is to
run itself, or that is not its any more, is let go at once: in the middle of a long way, too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import polars as pl

from millstream.commit.epoch_job import PlannedTask
from millstream.commit.manifest import TaskEntry
from millstream.commit.standby import STANDBY_LOCK_TIMEOUT_MS, StandbyPosition, StandbyTask
from millstream.commit.worker import Worker
from millstream.errors import MillstreamError
from millstream.state.changelog.follow import Progress, RestoreListener, ToldRestores
from millstream.threads import at_low_priority
from millstream.types import Version

_LOGGER = logging.getLogger("millstream")

LONGEST_WAIT_S: Final = 0.2
"""So long it waits at most for a slot that is at work, before each step."""
_LITTLE_S: Final = 0.005
"""So much a round may take without a pause. Of the rest ..."""
_SHARE: Final = 100
"""... a hundredth of its time, at most, goes into following commits ..."""
_LONGEST_PAUSE_S: Final = 2.0
"""... unless it would be further behind than that."""
_LONG_WAY: Final = 10_000
"""Records."""
_STEP_RESTS: Final = 3
"""Behind each step of a long way it rests so many times as long as the step took, if the slot runs tasks."""
_RESTS_S: Final = 5.0
"""A slot that has run nothing for so long has no tasks, or such that are idle."""
_REPORTS_EVERY_S: Final = 0.25
_RETRY_S: Final = 1.0
"""After a failure: the changelog was compacted meanwhile, or somebody has the lock."""


class _LetGoError(MillstreamError):
    """The task is not followed any more."""


@dataclass(frozen=True, slots=True)
class _Followed:
    planned: PlannedTask
    entry: TaskEntry
    """To which it is to be brought."""


class StandbyTasks:
    """Follows the tasks that it is told to. `follow`, `release` and `busy` may be called by any thread."""

    def __init__(self, worker: Worker, report: Callable[[Mapping[str, StandbyPosition]], None]) -> None:
        self._worker = replace(
            worker,
            listener=_Steps(self, worker.listener),
            open_stores=None,
            lock_timeout_ms=STANDBY_LOCK_TIMEOUT_MS,
        )
        self._report = report
        self._changed = threading.Condition()
        self._followed: dict[str, _Followed] = {}
        self._held: dict[str, StandbyTask] = {}
        self._at_work: str | None = None
        self._is_busy = False
        self._was_busy = 0.0
        self._step_began = 0.0
        self._lower_priority: Callable[[], None] | None = None
        self._is_over = False
        self._not_before: dict[str, float] = {}
        self._positions: dict[str, StandbyPosition] = {}
        self._reported = 0.0
        self._thread: threading.Thread | None = None

    def follow(self, keep: Collection[str], tasks: Collection[tuple[PlannedTask, TaskEntry]]) -> None:
        """Follow some tasks to their entries, and of those before only the ones to keep."""
        with self._changed:
            kept = {task_id: one for task_id, one in self._followed.items() if task_id in keep}
            kept.update({planned.task_id: _Followed(planned, entry) for planned, entry in tasks})
            self._followed = kept
            if kept and self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="millstream-slot-standbys", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def release(self, tasks: Collection[str]) -> None:
        """Let go of tasks, and wait until their stores are closed."""
        with self._changed:
            for task_id in tasks:
                self._followed.pop(task_id, None)
            if any(task_id in self._held for task_id in tasks) or self._at_work in tasks:
                self._changed.notify_all()
                self._changed.wait_for(
                    lambda: self._at_work not in tasks and self._held.keys().isdisjoint(tasks)
                )

    @contextmanager
    def busy(self) -> Iterator[None]:
        """The slot is at work, for the length of a `with` block."""
        self._is_busy = True
        try:
            yield
        finally:
            with self._changed:
                self._is_busy = False
                self._was_busy = time.monotonic()
                self._changed.notify_all()

    def close(self) -> None:
        """Let go of everything."""
        with self._changed:
            self._is_over = True
            self._followed = {}
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    # The thread of standbys ----------------------------------------------------------------------------

    def _run(self) -> None:
        pause_ends = 0.0
        while (tasks := self._next_round(pause_ends)) is not None:
            took = 0.0
            for task_id in tasks:
                self._let_go()
                took += self._bring_forward(task_id)
                self._tell(is_due=False)
            self._let_go()
            self._tell(is_due=True)
            pause = min(_LONGEST_PAUSE_S, _SHARE * max(0.0, took - _LITTLE_S))
            pause_ends = max(pause_ends, time.monotonic() + pause)
        for task in self._held.values():
            task.close()
        self._held.clear()

    def _next_round(self, not_before: float) -> list[str] | None:
        """Wait until there are tasks to follow, or to let go of; None: it is over.

        Those to follow come in their order: the one with least to do first.
        """
        with self._changed:
            while not self._is_over:
                now = time.monotonic()
                tasks = self._behind(now) if now >= not_before else []
                if tasks or not self._held.keys() <= self._followed.keys():
                    return tasks
                failed = self._followed.keys() & self._not_before.keys()
                dues = [not_before, *(self._not_before[task_id] for task_id in failed)]
                self._changed.wait(min((due - now for due in dues if due > now), default=None))
        return None

    def _behind(self, now: float) -> list[str]:
        missing = {
            task_id: self._missing(task_id, one.entry)
            for task_id, one in self._followed.items()
            if self._not_before.get(task_id, 0.0) <= now
            and not (task_id in self._held and self._held[task_id].is_at(one.entry))
        }
        return sorted(missing, key=lambda task_id: (missing[task_id], task_id))

    def _missing(self, task_id: str, entry: TaskEntry) -> int:
        here = self._positions.get(task_id)
        return sum(entry.changelogs.values()) - (0 if here is None else sum(here.offsets.values()))

    def _let_go(self) -> None:
        with self._changed:
            gone = self._held.keys() - self._followed.keys()
            for task_id in gone:
                self._positions.pop(task_id, None)
        if gone:
            self._tell(is_due=True)  # while nobody can delete them: what is told of that comes later
        for task_id in gone:
            self._held[task_id].close()
            with self._changed:
                del self._held[task_id]
                self._changed.notify_all()

    def _bring_forward(self, task_id: str) -> float:
        """Bring a task to its last commit. Gives the seconds that it took, if its stores were open before."""
        with self._changed:
            followed = self._followed.get(task_id)
            if followed is None:
                return 0.0
            held = self._held.setdefault(task_id, StandbyTask(self._worker, followed.planned))
            self._at_work = task_id
        was_open = held.is_open
        began = time.thread_time()
        try:
            self.wait_for_turn()
            self._go(held, self._followed.get(task_id, followed).entry)  # there may be a later one by now
        except _LetGoError:
            return 0.0
        except Exception:
            _LOGGER.debug("Standby task %s could not follow", task_id, exc_info=True)
            self._not_before[task_id] = time.monotonic() + _RETRY_S
            return 0.0
        finally:
            with self._changed:
                self._at_work = None
                self._changed.notify_all()
        self._not_before.pop(task_id, None)
        position = held.position()
        if position is not None:
            self._positions[task_id] = position
        return time.thread_time() - began if was_open else 0.0

    def _go(self, held: StandbyTask, entry: TaskEntry) -> None:
        self._step_began = time.monotonic()
        if self._missing(held.planned.task_id, entry) >= _LONG_WAY and not self._runs_tasks():
            at_low_priority(partial(self._follow_slowly, held, entry))
        else:
            held.follow(entry)

    def _follow_slowly(self, held: StandbyTask, entry: TaskEntry, lower_priority: Callable[[], None]) -> None:
        """At low priority from the first step on: the threads of stores and libraries are there by then."""
        self._lower_priority = lower_priority
        try:
            held.follow(entry)
        finally:
            self._lower_priority = None

    def _runs_tasks(self) -> bool:
        return time.monotonic() - self._was_busy <= _RESTS_S

    def rest(self) -> None:
        """Between two steps of a long way. Where tasks run, most of the time is theirs."""
        lower_priority, self._lower_priority = self._lower_priority, None
        if lower_priority is not None:
            pl.thread_pool_size()  # starts its threads
            lower_priority()
        if self._runs_tasks():
            pause = _STEP_RESTS * (time.monotonic() - self._step_began)
            with self._changed:
                self._changed.wait_for(self._is_let_go, min(_LONGEST_PAUSE_S, pause))
        self.wait_for_turn()
        self._step_began = time.monotonic()

    def wait_for_turn(self) -> None:
        """Wait while the slot is at work, but not for long. Raises if the task is to be let go."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_busy or self._is_let_go(), LONGEST_WAIT_S)
            if self._is_let_go():
                raise _LetGoError("the task is not followed here any more")

    def note(self, progress: Progress) -> None:
        """A step of a long way was made."""
        followed = self._followed.get(self._at_work or "")
        if followed is not None and self._at_work is not None:
            before = self._positions.get(self._at_work, StandbyPosition(Version(0), {}))
            self._positions[self._at_work] = before.on_the_way(followed.entry, progress)
            self._tell(is_due=False)

    def _is_let_go(self) -> bool:
        return self._is_over or self._at_work not in self._followed

    def _tell(self, *, is_due: bool) -> None:
        now = time.monotonic()
        if is_due or now - self._reported > _REPORTS_EVERY_S:
            self._reported = now
            with self._changed:
                positions = dict(self._positions)
            self._report(positions)


class _Steps(ToldRestores):
    """Between two steps: wait for the turn, and tell how far it is."""

    def __init__(self, standbys: StandbyTasks, other: RestoreListener) -> None:
        super().__init__(other)
        self._standbys = standbys

    def on_batch(self, progress: Progress) -> None:
        super().on_batch(progress)
        if progress.records < progress.total_records:  # the last step is told with the version
            self._standbys.note(progress)
            self._standbys.rest()
