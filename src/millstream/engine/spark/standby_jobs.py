"""Standby tasks of the engine of Spark jobs: copies are brought forward by small jobs beside the epochs.

One thread runs them one after the other, so they never have more than one core. Each is a *slice*: it takes a
moment, well below the time for which Spark keeps a task waiting for its executor, so no task of an epoch is
ever sent elsewhere for it. None begins while an epoch is at work, unless that takes long, and while epochs
follow each other slices get a small share of the time.

It does not know Spark: whoever makes it says how a slice is run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from millstream.commit.epoch_job import PlannedTask
from millstream.commit.manifest import TaskEntry
from millstream.commit.standby import StandbyPosition
from millstream.engine.assignment.assigner import Follower, SlotAssigner
from millstream.engine.assignment.model import Role

__all__ = ["Slice", "StandbyJobs", "slice_seconds"]

_LOGGER = logging.getLogger("millstream")

_LONGEST_SLICE_S: Final = 0.1
LONGEST_WAIT_S: Final = 1.0
"""So long a slice waits at most for an epoch at work."""
_RESTS_TIMES: Final = 9
"""How many times as long as a slice took it is rested, while epochs follow each other."""
_RETRY_S: Final = 1.0
"""After a failure: Spark gave the slice no core in its place, or somebody has the lock of a task."""
_LONGEST_PAUSE_S: Final = 2.0
"""So long somebody who needs all cores waits for a slice to end, at most."""
_LONGEST_END_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Slice:
    """Copies of one slot that are to be followed."""

    slot: int
    instance: str
    tasks: tuple[tuple[PlannedTask, TaskEntry], ...]
    """Those with least to do come first."""


def slice_seconds(locality_wait_s: float) -> float:
    """How long a slice takes at most, by how long Spark lets a task wait for its executor.

    >>> slice_seconds(3.0), slice_seconds(0.5)
    (0.1, 0.05)
    """
    return min(_LONGEST_SLICE_S, locality_wait_s / 10)


class StandbyJobs:
    """Follows what the assignment wants to be followed. All but its thread is called by that of epochs."""

    def __init__(
        self,
        assigner: SlotAssigner,
        run_slice: Callable[[Slice], Mapping[str, StandbyPosition]],
        cancel: Callable[[], None],
    ) -> None:
        self._assigner = assigner
        self._run_slice = run_slice
        self._cancel = cancel
        self._changed = threading.Condition()
        self._is_woken = False
        self._is_over = False
        self._is_at_work = False
        self._is_paused = False
        self._epoch_began: float | None = None
        self._epochs = 0
        self._last_served: dict[int, float] = {}
        self._not_before: dict[tuple[str, str], float] = {}
        """By instance and task."""
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """There may be something to follow."""
        with self._changed:
            self._is_woken = True
            if self._thread is None and self._assigner.keeps_copies:
                self._thread = threading.Thread(target=self._run, name="millstream-standbys", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    @contextmanager
    def epoch_at_work(self) -> Iterator[None]:
        """An epoch is at work, for the length of a `with` block."""
        with self._changed:
            self._epoch_began = time.monotonic()
            self._epochs += 1
        try:
            yield
        finally:
            with self._changed:
                self._epoch_began = None
                self._is_woken = True
                self._changed.notify_all()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No slice is at work, for the length of a `with` block; unless it takes far too long."""
        with self._changed:
            self._is_paused = True
            self._changed.wait_for(lambda: not self._is_at_work, _LONGEST_PAUSE_S)
        try:
            yield
        finally:
            with self._changed:
                self._is_paused = False
                self._changed.notify_all()

    def close(self) -> None:
        """Begin no other slice, and give up the one at work."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        if self._thread is not None:
            try:
                self._cancel()
            finally:
                self._thread.join(_LONGEST_END_S)

    # The thread of standbys ----------------------------------------------------------------------------

    def _run(self) -> None:
        while (chosen := self._next()) is not None:
            began, epochs = time.monotonic(), self._epochs
            self._follow(chosen)
            took = time.monotonic() - began
            with self._changed:
                self._is_at_work = False
                self._changed.notify_all()
                if self._epochs != epochs or self._epoch_began is not None:
                    self._changed.wait_for(lambda: self._is_over, _RESTS_TIMES * took)

    def _next(self) -> Slice | None:
        """Wait for a slice that is to be run; None: it is over."""
        with self._changed:
            while not self._is_over:
                began = self._epoch_began
                left = 0.0 if began is None else began + LONGEST_WAIT_S - time.monotonic()
                if self._is_paused or left > 0:
                    self._changed.wait(left if left > 0 else None)
                    continue
                self._is_woken = False
                chosen = self._chosen()
                if chosen is not None:
                    self._is_at_work = True
                    return chosen
                self._changed.wait_for(lambda: self._is_over or self._is_woken, self._longest_sleep())
            return None

    def _chosen(self) -> Slice | None:
        """What the slot is to follow that was not served for longest."""
        now = time.monotonic()
        self._not_before = {task: due for task, due in self._not_before.items() if due > now}
        behind: dict[tuple[int, str], list[Follower]] = {}
        for one in self._assigner.followers():
            # An epoch at work brings its tasks forward itself.
            is_due = one.is_behind and (one.role is not Role.ACTIVE or self._epoch_began is None)
            if is_due and (one.place.instance, one.task.task_id) not in self._not_before:
                behind.setdefault((one.place.slot, one.place.instance), []).append(one)
        if not behind:
            return None
        slot, instance = min(behind, key=lambda place: (self._last_served.get(place[0], 0.0), place))
        self._last_served[slot] = now
        tasks = sorted(behind[slot, instance], key=lambda one: (one.missing, one.task.task_id))
        return Slice(slot, instance, tuple((one.task, one.entry) for one in tasks))

    def _follow(self, chosen: Slice) -> None:
        try:
            positions = self._run_slice(chosen)
        except Exception:
            if not self._is_over:
                _LOGGER.debug("Standby tasks on %s could not follow", chosen.instance, exc_info=True)
            positions = {}
        self._assigner.note_followed(chosen.instance, positions)
        if not positions:
            later = time.monotonic() + _RETRY_S
            self._not_before |= {(chosen.instance, task.task_id): later for task, _ in chosen.tasks}

    def _longest_sleep(self) -> float | None:
        due = min(self._not_before.values(), default=None)
        return None if due is None else max(0.0, due - time.monotonic())
