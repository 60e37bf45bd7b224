"""The slots of the engine of Spark jobs, and where they are.

There is one per core. When executors come or go they are made anew, on those that are there then; each says
on which instance it is and which state is there, and tasks are placed by that. Spark keeps a slot where it
is for as long as its executor lives.

A slot has a number by which tasks are assigned to it. It keeps the number when the slots are made anew and
there is one on its instance again: so nothing moves that need not.

An executor that has just registered is not given tasks for a moment, and one whose cores others hold is not
given any: slots that are made then are all on the others. So they are made again, until each executor has
its share. After a loss the tasks of an epoch that was given up hold the cores of the executors that are left,
for a moment: until each of those has slots again it is waited a little, or their tasks would have to move.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from pyspark import SparkContext

from millstream.engine.assignment.assigner import LiveSlot
from millstream.engine.spark.slots import Slots
from millstream.engine.spark.stage_function import MakeWorker
from millstream.engine.spark.warmup import SlotInfo, ask_slots, warm_up
from millstream.errors import MillstreamError

_LOGGER = logging.getLogger("millstream")
_LOOKS_EVERY_S: Final = 1.0
"""How often it is asked which executors there are."""
_LONGEST_PAUSE_S: Final = 60.0
"""Between two tries to have enough slots on each of them. It begins with a short one, and doubles."""
_SURVIVORS_S: Final = 4.0
"""So long it is tried at once after a loss. Spark gives Python workers 2 s to end a task that it cancels."""
_SURVIVORS_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class NumberedSlots:
    """Slots that were made together."""

    slots: Slots
    partitions: Mapping[int, int]
    """The partition of each slot, by its number."""


class PlacedSlots:
    """The slots of one application, for as long as a Spark lives. Used by the thread that runs epochs."""

    def __init__(
        self,
        context: SparkContext,
        make_worker: MakeWorker,
        application_id: str,
        undisturbed: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._context = context
        self._undisturbed = undisturbed
        """Slots are made while it lasts: who holds a core then would have one less."""
        self._make_worker = make_worker
        self._is_stale = False
        self._looked = time.monotonic()
        self._executors = _executors(context)
        self._generation = 0
        self._live: dict[int, LiveSlot] = {}
        slots = Slots(context, context.defaultParallelism)
        self._take(slots, warm_up(context, slots, make_worker, application_id))
        self._pause_s = _LOOKS_EVERY_S
        self._next_try = self._looked

    def distrust(self) -> None:
        """Something went wrong: look at once when it is asked next, and make the slots anew."""
        self._is_stale = True

    def has_lost_executor(self) -> bool:
        """Whether an executor is gone that was there when the slots were made. Any thread may ask."""
        return bool(self._executors - _executors(self._context))

    def live(self) -> Mapping[int, LiveSlot]:
        """The slots that are there, by number. They are made anew first, if there is a reason."""
        self._follow_executors()
        return self._live

    def release(self) -> None:
        """Let go of the slots."""
        self.now.slots.release()

    def _take(self, slots: Slots, said: Sequence[SlotInfo]) -> None:
        self._generation += 1
        before = {number: slot.instance for number, slot in self._live.items()}
        self._said = said
        self.now = NumberedSlots(slots, numbered(before, [one.instance for one in said]))
        """Made anew and never changed: any thread may look, at both at once."""
        self._live = {
            number: LiveSlot(
                incarnation=f"{self._generation}-{partition}",
                instance=said[partition].instance,
                host=said[partition].node,
                tags=said[partition].tags,
                held=said[partition].held,
            )
            for number, partition in self.now.partitions.items()
        }

    def _follow_executors(self) -> None:
        """Make the slots anew if executors have come or gone, or have too few."""
        now = time.monotonic()
        if not self._is_stale and now - self._looked < _LOOKS_EVERY_S:
            return
        self._looked = now
        executors = _executors(self._context)
        is_news = self._is_stale or executors != self._executors
        missing = _missing(executors, self._said)
        if not is_news and (not missing or now < self._next_try):
            return
        self._pause_s = _LOOKS_EVERY_S if is_news else min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self._next_try = now + self._pause_s
        is_needed = self._is_stale or bool(self._executors - executors)
        try:
            fresh, said = self._made(executors, now + _SURVIVORS_S if is_needed else now)
        except MillstreamError as error:
            if self._is_stale:
                raise
            self._executors = executors
            if is_news:
                _LOGGER.warning("An executor that has joined can't run tasks, and is left out: %s", error)
            return
        is_no_better = not is_news and _missing(executors, said) >= missing
        if is_no_better or (not is_needed and self._leaves_out_a_survivor(executors, said)):
            fresh.release()
            self._executors = executors
            return
        old, self._executors, self._is_stale = self.now.slots, executors, False
        self._take(fresh, said)
        old.release()

    def _made(self, executors: frozenset[str], until: float) -> tuple[Slots, list[SlotInfo]]:
        """Slots on the executors that are there; until a moment not without one that had some before."""
        with self._undisturbed():
            while True:
                fresh = Slots(self._context, self._context.defaultParallelism)
                try:
                    said = ask_slots(fresh, self._make_worker)
                except BaseException:
                    fresh.release()
                    raise
                if time.monotonic() >= until or not self._leaves_out_a_survivor(executors, said):
                    return fresh, said
                fresh.release()
                time.sleep(_SURVIVORS_PAUSE_S)

    def _leaves_out_a_survivor(self, executors: frozenset[str], said: Sequence[SlotInfo]) -> bool:
        """Whether slots that were made anew are on fewer executors than there are, and not for a new one."""
        there = {one.executor for one in said}
        without = {one.executor for one in self._said} - there
        most = min(len(executors) - 1, len(said))  # the driver is among them
        return len(there) < most and len(without) > len(self._executors - executors)


def numbered(before: Mapping[int, str], instances: Sequence[str]) -> dict[int, int]:
    """Numbers for the partitions of slots that are made anew, which are on these instances.

    As many as possible are those of before, which had numbers on instances, too.

    >>> numbered({}, ["a", "b"])
    {0: 0, 1: 1}
    >>> numbered({0: "a", 1: "b", 2: "b"}, ["b", "a", "c"])
    {1: 0, 0: 1, 2: 2}
    """
    known: dict[str, list[int]] = {}
    for number, instance in sorted(before.items(), reverse=True):
        known.setdefault(instance, []).append(number)
    numbers: dict[int, int] = {}
    others: list[int] = []
    for partition, instance in enumerate(instances):
        if known.get(instance):
            numbers[known[instance].pop()] = partition
        else:
            others.append(partition)
    free = (number for number in count() if number not in numbers)
    for partition in others:
        numbers[next(free)] = partition
    return numbers


def _missing(executors: frozenset[str], said: Sequence[SlotInfo]) -> int:
    """How many slots executors have less than their even share."""
    most = min(len(executors) - 1, len(said))  # the driver is among them
    if most <= 0:
        return 0
    share = len(said) // most
    having = Counter(one.executor for one in said)
    return share * max(0, most - len(having)) + sum(max(0, share - slots) for slots in having.values())


def _executors(context: SparkContext) -> frozenset[str]:
    """The driver and the executors that are there. Spark on this machine has one, for ever."""
    master: Any = context.master
    if master.startswith("local"):
        return frozenset()
    status: Any = context._jsc.sc()  # noqa: SLF001 - PySpark does not show it
    return frozenset(status.getExecutorMemoryStatus().keySet().mkString(" ").split())
