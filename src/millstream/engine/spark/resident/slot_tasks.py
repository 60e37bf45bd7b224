"""Epochs on slots: which slot runs which task, and what the slots are told.

It does not know Spark, nor how slots come to be.
"""

from __future__ import annotations

import logging
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from millstream.commit.epoch import RunningTasks
from millstream.commit.epoch_job import EpochJob, PlannedTask, TaskReport, WrongInstance
from millstream.commit.epoch_shares import shares_of
from millstream.commit.manifest import Manifest, TaskEntry
from millstream.commit.reports import EpochMismatchError
from millstream.commit.source_times import TimesRequest, read_times
from millstream.engine.api import DurableEpoch, TaskWork
from millstream.engine.assignment.assigner import SlotAssigner
from millstream.engine.assignment.model import Assignment
from millstream.engine.spark.failures import waited_in_vain
from millstream.engine.spark.homes import follow_reports
from millstream.engine.spark.resident.assigned_messages import AssignedMessages
from millstream.engine.spark.resident.follow_messages import FollowMessages
from millstream.engine.spark.resident.messages import (
    NO_ANSWER,
    Abort,
    Call,
    Committed,
    EpochAttempt,
    RunEpoch,
)
from millstream.engine.spark.resident.slot_pool import Member, SlotLostError, SlotPool
from millstream.state.errors import StoreNotHereError
from millstream.types import Attempt, Epoch

_LOGGER = logging.getLogger("millstream")

T = TypeVar("T")

_LOOKS_EVERY_S: Final = 0.5
_TOLD_AFTER_S: Final = 20.0
_LONGEST_WAIT_S: Final = 300.0
"""For the first slot: a cluster may have to start machines."""
_OTHERS_S: Final = 10.0
"""And then for all others that are submitted."""


class SlotTasks:
    """Runs the tasks of one application in the slots of a pool."""

    def __init__(
        self,
        application_id: str,
        pool: SlotPool,
        attempts: Iterator[int],
        assigner: SlotAssigner | None = None,
    ) -> None:
        self.pool = pool
        self.instances: dict[str, str] = {}
        self._application_id = application_id
        self._attempts = attempts
        """Numbers that no other attempt of a term has."""
        self.assigner = SlotAssigner() if assigner is None else assigner
        self._assigned_messages = AssignedMessages(self.assigner)
        self._follow_messages = FollowMessages(self.assigner)
        self._last: EpochAttempt | None = None
        self._asked: dict[int, str] = {}
        """The incarnations of the slots that were there in the last attempt."""
        self._told_of = Epoch(0)
        """The last epoch of whose commit slots were told."""

    def begin_term(self) -> None:
        """Wait for slots. Where state is, the slots say; what was known in an earlier term may be wrong."""
        self.instances.clear()
        self.assigner.begin_term()
        self.wait_for_slots()

    @property
    def assignment(self) -> Assignment:
        """Where tasks and their copies are."""
        return self.assigner.now

    def assign(self, members: Mapping[int, Member]) -> Assignment:
        """Where tasks and their copies are with these slots. Slots are told what is new to them."""
        self.assigner.note_hanging((slot.number, slot.hello.instance) for slot in self.pool.take_hanging())
        for instance, tasks in self.pool.take_deleted():
            self.assigner.note_deleted(instance, tasks)
        made = self.assigner.update({number: member.slot for number, member in members.items()})
        for number, message in self._assigned_messages.messages(members).items():
            self.pool.tell(message, members[number])
        self._tell_of_copies(members)
        return made

    def _tell_of_copies(self, members: Mapping[int, Member]) -> None:
        for number, message in self._follow_messages.messages(_incarnations(members)).items():
            self.pool.tell(message, members[number])

    def nothing_to_do(self, tasks: Iterable[PlannedTask], head: Manifest) -> None:
        """Between epochs, and before the first: who lost a copy gets another one."""
        members = self.pool.live()
        if members:
            self.assigner.note_tasks(tasks, head.tasks)
            self.assign(members)

    def run_tasks(self, job: EpochJob) -> Sequence[TaskReport | WrongInstance]:
        """One attempt of an epoch, in all slots that are there."""
        members = self.pool.live() or self.wait_for_slots()
        self.assigner.note_tasks(job.tasks, job.entries)
        self.assign(members)
        return self._begin(job, members, is_ahead=False)()

    def begin_next(
        self, epoch: DurableEpoch, plan: Callable[[], EpochJob | None]
    ) -> tuple[EpochJob, RunningTasks[TaskReport]] | None:
        """The first attempt of the next epoch, if all stays where it is, and nobody follows.

        Copies can't follow what is not published yet, and slots are told of it between two epochs.
        """
        members = self.pool.live()
        if self.assigner.keeps_copies or _incarnations(members) != self._asked:
            return None
        self._tell_committed(epoch, members)
        before = self.assigner.now.tasks
        slots = {number: member.slot for number, member in members.items()}
        if self.assigner.update(slots).tasks != before:
            return None
        job = plan()
        if job is None or not all(task.task_id in self.assigner.now.tasks for task in job.tasks):
            return None
        return job, self._begin(job, members, is_ahead=True)

    def cancel_next(self) -> None:
        """Let the slots give up what they have begun."""
        if self._last is not None:
            self.pool.tell(Abort(self._last))

    def _begin(
        self, job: EpochJob, members: Mapping[int, Member], *, is_ahead: bool
    ) -> RunningTasks[TaskReport]:
        of = self._last = EpochAttempt(job.term, Attempt(next(self._attempts)), job.epoch)
        self._asked = _incarnations(members)
        self._follow_messages.note_run(self._asked, job.tasks)
        shares = shares_of(self.assigner.expecting(job), self.assigner.now.slots())
        levels = {slot: frozenset(task.level for task in share.tasks) for slot, share in shares.items()}
        commands = {slot: RunEpoch(of, share, levels, is_ahead) for slot, share in shares.items()}
        reports = self.pool.begin(of, commands, members)
        return lambda: _of_one_attempt(of, reports())

    def read_times(self, requests: Sequence[TimesRequest]) -> list[array[int]]:
        """By the slots, in turn: they need no state."""
        slots = [*(self.pool.live() or self.wait_for_slots())]
        calls = [
            self.pool.call(slots[at % len(slots)], read_times, request) for at, request in enumerate(requests)
        ]
        return [self.pool.answer(call) for call in calls]

    def apply(self, epoch: DurableEpoch) -> None:
        """Slots apply what they have sealed, from memory, while the next epoch is planned."""
        members = self.pool.live()
        if self._told_of != epoch.manifest.epoch:
            self._tell_committed(epoch, members)
        self._tell_of_copies(members)

    def _tell_committed(self, epoch: DurableEpoch, members: Mapping[int, Member]) -> None:
        self._told_of = epoch.manifest.epoch
        follow_reports(self._application_id, self.instances, epoch.reports, {})
        self.assigner.note_committed(epoch.manifest.sealed, epoch.manifest.tasks, epoch.reports)
        of = self._last
        assert of is not None  # it is the attempt that was committed
        committed: dict[int, list[tuple[PlannedTask, TaskEntry]]] = {}
        sealed, slots = set(epoch.manifest.sealed), self.assigner.now.slots()
        for task in epoch.job.tasks:
            if task.task_id in sealed:
                entry = epoch.manifest.tasks[task.task_id]
                committed.setdefault(slots[task.task_id], []).append((task, entry))
        for number, tasks in committed.items():
            if number in members:
                self.pool.tell(Committed(of, tuple(tasks)), members[number])

    def run_background(self, work: TaskWork[T], planned: PlannedTask, entry: TaskEntry) -> T:
        """By the slot that has the task's stores open."""
        placed = self.assigner.now.tasks.get(planned.task_id)
        slot = next(iter(self.pool.live()), 0) if placed is None else placed.active.slot
        call = self.pool.call(slot, work, planned, entry, is_beside=True)
        done: T = self.pool.answer(call)
        return done

    def ask(self, slot: int, work: Callable[..., T], *arguments: Any, timeout_s: float) -> T:
        """By a slot, whichever it is, beside the epochs."""
        try:
            call = self.pool.call(slot, work, *arguments, is_beside=True)
            done: T = self.pool.answer(call, timeout_s)
        except SlotLostError as error:
            raise StoreNotHereError(str(error)) from error
        return done

    def tell(self, slot: int, work: Callable[..., object], *arguments: Any) -> None:
        """The same; nobody waits for the answer."""
        member = self.pool.live().get(slot)
        if member is not None:
            self.pool.tell(Call(NO_ANSWER, work, arguments, is_beside=True), member)

    def wait_for_slots(self) -> dict[int, Member]:
        """Wait for a slot, and then a while for all others. A long wait is told, and has a bound."""
        pool, began, is_told = self.pool, time.monotonic(), False
        while not pool.wait(lambda there, _: there > 0, _LOOKS_EVERY_S):
            waited = time.monotonic() - began
            if not pool.is_alive:
                raise SlotLostError("there is no slot, and Spark is gone")
            if waited > _LONGEST_WAIT_S:
                raise waited_in_vain(self._application_id, _LONGEST_WAIT_S, pool.last_failure)
            if waited > _TOLD_AFTER_S and not is_told:
                is_told = True
                _LOGGER.warning(
                    "Application %r waits for Spark to give it a core: no slot has started yet. It waits for "
                    "at most %.0f s.",
                    self._application_id,
                    _LONGEST_WAIT_S,
                )
        pool.wait(lambda there, wanted: there >= wanted, _OTHERS_S)
        return pool.live()


def _incarnations(members: Mapping[int, Member]) -> dict[int, str]:
    return {number: member.incarnation for number, member in members.items()}


def _of_one_attempt(
    of: EpochAttempt, reports: list[TaskReport | WrongInstance]
) -> list[TaskReport | WrongInstance]:
    """Refuse reports of another attempt: slots and pool have dropped them, and a commit must not mix them."""
    for report in reports:
        if isinstance(report, TaskReport) and report.attempt != of.attempt:
            raise EpochMismatchError(
                f"epoch {of.epoch}: task {report.task_id} has reported attempt {report.attempt}, but this is "
                f"attempt {of.attempt}: the epoch has to run again"
            )
    return reports
