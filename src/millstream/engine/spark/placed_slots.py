"""The slots of the engine of Spark jobs, where they are, and which task runs in which.

There is one per core. When executors come or go they are made anew, on those that are there then; each says
on which instance it is and which state is there, and tasks are placed by that. Spark keeps a slot where it
is for as long as its executor lives.

An executor that has just registered is not given tasks for a moment, and one whose cores others hold is not
given any: slots that are made then are all on the others. So they are made again, until each executor has
one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pyspark import SparkContext

from millstream.commit.epoch_job import EpochJob, PlannedTask
from millstream.engine.assignment.model import NO_ASSIGNMENT
from millstream.engine.spark.homes import homes_among, newest_homes
from millstream.engine.spark.placement import place
from millstream.engine.spark.slots import Slots
from millstream.engine.spark.stage_function import MakeWorker
from millstream.engine.spark.warmup import SlotPlace, ask_slots, warm_up
from millstream.errors import MillstreamError

_LOGGER = logging.getLogger("millstream")
_LOOKS_EVERY_S: Final = 1.0
"""How often it is asked which executors there are."""
_LONGEST_PAUSE_S: Final = 60.0
"""Between two tries to have a slot on each of them. It begins with a short one, and doubles."""


class PlacedSlots:
    """The slots of one application, for as long as a Spark lives."""

    def __init__(self, context: SparkContext, make_worker: MakeWorker, application_id: str) -> None:
        self._context = context
        self._make_worker = make_worker
        self._known: dict[str, PlannedTask] = {}
        """All tasks that were ever planned: those that are idle keep their slots."""
        self._placed = NO_ASSIGNMENT
        self._is_stale = False
        self._looked = time.monotonic()
        self._executors = _executors(context)
        self.slots = Slots(context, context.defaultParallelism)
        self._places = warm_up(context, self.slots, make_worker, application_id)
        self._pause_s = _LOOKS_EVERY_S
        self._next_try = self._looked

    def held(self) -> dict[str, str]:
        """The instance with the newest local state of each task, as the slots said when they were made."""
        return newest_homes((one.instance, one.held) for one in self._places)

    def distrust(self) -> None:
        """Something went wrong: look at once when tasks are placed next, and make the slots anew."""
        self._is_stale = True

    def place(self, job: EpochJob, homes: Mapping[str, str]) -> tuple[EpochJob, dict[str, int]]:
        """A slot for each task of an epoch: the one that it had, else one where its state is.

        The job that is given back expects each task where its slot is.
        """
        if self._follow_executors():
            self._placed = NO_ASSIGNMENT
        if any(task.task_id not in self._placed.tasks for task in job.tasks):
            self._known.update((task.task_id, task) for task in job.tasks)
            instances = {number: one.instance for number, one in enumerate(self._places)}
            live = homes_among({*instances.values()}, self.held(), homes)
            self._placed = place(self._known.values(), instances, self._placed, live)
        tasks = tuple(self._expected(task) for task in job.tasks)
        slots = self._placed.slots()
        return replace(job, tasks=tasks), {task.task_id: slots[task.task_id] for task in tasks}

    def intended(self, tasks: Iterable[PlannedTask]) -> dict[str, str]:
        """The instances where tasks are meant to run."""
        return {task.task_id: self._placed.tasks[task.task_id].active.instance for task in tasks}

    def slot_of(self, task: PlannedTask) -> int:
        """The slot of a task that has run; any other if it has not."""
        placed = self._placed.tasks.get(task.task_id)
        return task.number % self.slots.count if placed is None else placed.active.slot

    def release(self) -> None:
        """Let go of the slots."""
        self.slots.release()

    def _expected(self, task: PlannedTask) -> PlannedTask:
        here = self._placed.tasks[task.task_id].active.instance
        return task if task.expected_instance in (None, here) else replace(task, expected_instance=here)

    def _follow_executors(self) -> bool:
        """Make the slots anew if executors have come or gone, or have none; whether they were made."""
        now = time.monotonic()
        if not self._is_stale and now - self._looked < _LOOKS_EVERY_S:
            return False
        self._looked = now
        executors = _executors(self._context)
        is_news = self._is_stale or executors != self._executors
        without = _without_slot(executors, self._places)
        if not is_news and (not without or now < self._next_try):
            return False
        self._pause_s = _LOOKS_EVERY_S if is_news else min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self._next_try = now + self._pause_s
        fresh = Slots(self._context, self._context.defaultParallelism)
        try:
            places = ask_slots(fresh, self._make_worker)
        except MillstreamError as error:
            fresh.release()
            if self._is_stale:
                raise
            self._executors = executors
            if is_news:
                _LOGGER.warning("An executor that has joined can't run tasks, and is left out: %s", error)
            return False
        if not is_news and _without_slot(executors, places) >= without:  # no better than those that there are
            fresh.release()
            return False
        self.slots.release()
        self.slots, self._places, self._executors, self._is_stale = fresh, places, executors, False
        return True


def _without_slot(executors: frozenset[str], places: Sequence[SlotPlace]) -> int:
    """How many executors have no slot, though there are slots enough."""
    most = min(len(executors) - 1, len(places))  # the driver is among them
    return max(0, most - len({place.executor for place in places}))


def _executors(context: SparkContext) -> frozenset[str]:
    """The driver and the executors that are there. Spark on this machine has one, for ever."""
    master: Any = context.master
    if master.startswith("local"):
        return frozenset()
    status: Any = context._jsc.sc()  # noqa: SLF001 - PySpark does not show it
    return frozenset(status.getExecutorMemoryStatus().keySet().mkString(" ").split())
