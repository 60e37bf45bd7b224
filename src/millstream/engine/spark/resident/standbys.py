"""The standby tasks of a slot: a thread that follows changelogs while the slot has nothing else to do.

It takes small steps, and before each it waits until no epoch is at work; but not for ever, or a slot that is
always busy would have standbys that are of no use. A task that the slot is to run itself, or that is not its
any more, is let go at once: in the middle of a long way, too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from millstream.commit.epoch_job import PlannedTask
from millstream.commit.manifest import TaskEntry
from millstream.commit.standby import StandbyPosition, StandbyTask
from millstream.commit.worker import Worker
from millstream.errors import MillstreamError
from millstream.state.changelog.follow import Progress, RestoreListener
from millstream.types import Offset, Version

_LOGGER = logging.getLogger("millstream")

LONGEST_WAIT_S: Final = 0.2
"""So long it waits at most for a slot that is at work, before each step."""
_REPORTS_EVERY_S: Final = 0.25
_LOCK_TIMEOUT_MS: Final = 100
"""Somebody who has to let go of a task must not wait for one who waits."""
_RETRY_S: Final = 1.0
"""After a failure: the changelog was compacted meanwhile, or somebody has the lock."""


class _LetGoError(MillstreamError):
    """The task is not followed any more."""


@dataclass(frozen=True, slots=True)
class _Wish:
    planned: PlannedTask
    entry: TaskEntry


class StandbyTasks:
    """Follows the tasks that it is told to. `wish`, `release` and `busy` may be called by any thread."""

    def __init__(self, worker: Worker, report: Callable[[Mapping[str, StandbyPosition]], None]) -> None:
        self._worker = replace(
            worker,
            listener=_Steps(self, worker.listener),
            open_stores=None,
            lock_timeout_ms=_LOCK_TIMEOUT_MS,
        )
        self._report = report
        self._changed = threading.Condition()
        self._wishes: dict[str, _Wish] = {}
        self._held: dict[str, StandbyTask] = {}
        self._at_work: str | None = None
        self._is_busy = False
        self._is_over = False
        self._not_before: dict[str, float] = {}
        self._positions: dict[str, StandbyPosition] = {}
        self._reported = 0.0
        self._thread: threading.Thread | None = None

    def wish(self, keep: Collection[str], tasks: Collection[tuple[PlannedTask, TaskEntry]]) -> None:
        """Follow some tasks to their entries, and of those before only the ones to keep."""
        with self._changed:
            kept = {task_id: wish for task_id, wish in self._wishes.items() if task_id in keep}
            kept.update({planned.task_id: _Wish(planned, entry) for planned, entry in tasks})
            self._wishes = kept
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
                self._wishes.pop(task_id, None)
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
                self._changed.notify_all()

    def close(self) -> None:
        """Let go of everything."""
        with self._changed:
            self._is_over = True
            self._wishes = {}
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    # The thread of standbys ----------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                task_id = self._next()
                while task_id is None and not self._is_over:
                    self._changed.wait(self._longest_sleep())
                    task_id = self._next()
                if task_id is None:
                    break
                wish = self._wishes.get(task_id)
                self._at_work = task_id
            try:
                self._step(task_id, wish)
            finally:
                with self._changed:
                    self._at_work = None
                    self._changed.notify_all()
            self._tell(is_due=self._next() is None)
        for task in self._held.values():
            task.close()
        self._held.clear()

    def _next(self) -> str | None:
        """A task to let go of, else one to follow: the one with least to do comes first."""
        for task_id in self._held:
            if task_id not in self._wishes:
                return task_id
        now = time.monotonic()
        behind = [
            (self._missing(task_id, wish.entry), task_id)
            for task_id, wish in self._wishes.items()
            if self._not_before.get(task_id, 0.0) <= now
            and not (task_id in self._held and self._held[task_id].is_at(wish.entry))
        ]
        return min(behind)[1] if behind else None

    def _missing(self, task_id: str, entry: TaskEntry) -> int:
        here = self._positions.get(task_id)
        return sum(entry.changelogs.values()) - (0 if here is None else sum(here.offsets.values()))

    def _longest_sleep(self) -> float | None:
        later = [due for task_id, due in self._not_before.items() if task_id in self._wishes]
        return max(0.01, min(later) - time.monotonic()) if later else None

    def _step(self, task_id: str, wish: _Wish | None) -> None:
        held = self._held.get(task_id)
        if wish is None:
            if held is not None:
                held.close()
                with self._changed:
                    del self._held[task_id]
                    self._positions.pop(task_id, None)
            return
        if held is None:
            held = StandbyTask(self._worker, wish.planned)
            with self._changed:
                self._held[task_id] = held
        try:
            self.wait_for_turn()
            held.follow(wish.entry)
        except _LetGoError:
            return
        except Exception:
            _LOGGER.debug("Standby task %s could not follow", task_id, exc_info=True)
            self._not_before[task_id] = time.monotonic() + _RETRY_S
            return
        self._not_before.pop(task_id, None)
        position = held.position()
        if position is not None:
            self._positions[task_id] = position

    def wait_for_turn(self) -> None:
        """Wait while the slot is at work, but not for long. Raises if the task is to be let go."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_busy or self._is_let_go(), LONGEST_WAIT_S)
            if self._is_let_go():
                raise _LetGoError("the task is not followed here any more")

    def note(self, progress: Progress) -> None:
        """A step of a long way was made."""
        wish = self._wishes.get(self._at_work or "")
        if wish is not None and self._at_work is not None:
            before = self._positions.get(self._at_work, StandbyPosition(Version(0), {}))
            target = wish.entry.changelogs.get(progress.store, Offset(0))
            left = progress.total_records - progress.records
            offsets = {**before.offsets, progress.store: Offset(max(0, target - left))}
            self._positions[self._at_work] = StandbyPosition(before.version, offsets)
            self._tell(is_due=False)

    def _is_let_go(self) -> bool:
        return self._is_over or self._at_work not in self._wishes

    def _tell(self, *, is_due: bool) -> None:
        now = time.monotonic()
        if is_due or now - self._reported > _REPORTS_EVERY_S:
            self._reported = now
            with self._changed:
                positions = dict(self._positions)
            self._report(positions)


class _Steps(RestoreListener):
    """Between two steps: wait for the turn, and tell how far it is."""

    def __init__(self, standbys: StandbyTasks, other: RestoreListener) -> None:
        self._standbys = standbys
        self._other = other

    def on_start(self, progress: Progress) -> None:
        self._other.on_start(progress)

    def on_batch(self, progress: Progress) -> None:
        self._other.on_batch(progress)
        if progress.records < progress.total_records:  # the last step is told with the version
            self._standbys.note(progress)
            self._standbys.wait_for_turn()

    def on_end(self, progress: Progress) -> None:
        self._other.on_end(progress)

    def on_suspended(self, progress: Progress) -> None:
        self._other.on_suspended(progress)
