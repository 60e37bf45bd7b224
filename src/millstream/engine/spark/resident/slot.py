"""A slot at work: commands of the coordinator, tasks, blocks of other slots. Runs in a worker process.

It knows nothing of Spark. Threads: one runs tasks, one receives commands (so that a command to give up comes
through while a task runs), one says that the slot is alive and ends the process if the coordinator is silent,
and now and then one works beside the epochs.

A slot that hears nothing of its coordinator for so long that another one may soon take over drops what is not
committed, lets its stores go and ends. So does one whose connection ends.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from millstream.commit.epoch_job import EpochJob, PlannedTask, TaskReport, WrongInstance
from millstream.commit.standby import StandbyPosition
from millstream.commit.store_opening import apply_commit
from millstream.commit.targets import Targets
from millstream.commit.task_attempt import run_task
from millstream.commit.worker import Worker, for_tasks_of_an_epoch
from millstream.engine.spark.resident.connection import Connection, ConnectionLostError, travels
from millstream.engine.spark.resident.flight import FlightClients, header_of
from millstream.engine.spark.resident.inbox import AbortedError, Inbox
from millstream.engine.spark.resident.messages import (
    Abort,
    Answered,
    Assigned,
    Beat,
    Call,
    Committed,
    Deleted,
    EpochDone,
    EpochFailed,
    Follow,
    Followed,
    Ping,
    RunEpoch,
    Stop,
)
from millstream.engine.spark.resident.standbys import StandbyTasks
from millstream.errors import MillstreamError
from millstream.frozen_heap import FROZEN_HEAP
from millstream.maintenance.state_cleaner import clean_what_may_go
from millstream.state.errors import TaskLockedError, UnpublishedVersionError
from millstream.task.shuffle_block import Route, ShuffleBlock
from millstream.threads import end_threads

_LOGGER = logging.getLogger("millstream")
_GRACE_S: Final = 1.0
"""How long a slot without a coordinator may take to come to the end of what it does."""


_CLEANS_EVERY_S: Final = 30.0
"""How often a slot without tasks looks for state of tasks that have left its host."""
_LOCK_WAIT_MS: Final = 200
"""How long a task waits for its stores before it is looked whether the attempt was given up meanwhile.

Whoever holds them may be in a later attempt already, and wait for stores that are still held here.
"""
_PUBLICATION_LOOKS_S: Final = 0.002
"""How often a task looks whether the epoch before its own is published, if it needs that."""

_Command: TypeAlias = Assigned | RunEpoch | Committed | Follow | Call


class SlotError(MillstreamError):
    """A slot could not run its tasks, though the user's program is not to blame: the epoch is run again."""


@dataclass(frozen=True, slots=True)
class SlotSettings:
    """How a slot lives."""

    beat_s: float = 1.0
    """How often it says that it is alive."""
    patience_s: float = 20.0
    """How long it waits for a word of its coordinator."""
    node: str = ""
    """What its host is called; empty: as the host says itself."""
    exit: Callable[[int], None] = field(default=os._exit)
    """Ends the process, whatever it does."""


class Slot:
    """Runs epochs by command, from `run` on until the coordinator ends it."""

    def __init__(
        self,
        incarnation: str,
        worker: Worker,
        connection: Connection,
        inbox: Inbox,
        clients: FlightClients,
        settings: SlotSettings,
    ) -> None:
        self._incarnation = incarnation
        self._worker = worker
        lock_timeout_ms = min(worker.lock_timeout_ms, _LOCK_WAIT_MS)
        self._task_worker = replace(worker, lock_timeout_ms=lock_timeout_ms)
        self._connection = connection
        self._inbox = inbox
        self._clients = clients
        self._settings = settings
        self._commands: queue.SimpleQueue[_Command | Stop] = queue.SimpleQueue()
        self._heard = time.monotonic()
        self._is_over = threading.Event()
        self._assigned = Assigned(0, {}, {})
        self._last_job: EpochJob | None = None
        self._heap = ExitStack()
        self._global_tasks = {sub.task_id(0) for sub in worker.plan.global_subtopologies}
        self._standbys = StandbyTasks(worker, self._tell_positions)

    def run(self) -> None:
        """Obey until the coordinator says stop, or is gone."""
        threads = [
            threading.Thread(target=target, name=f"millstream-slot-{what}", daemon=True)
            for what, target in (("commands", self._receive), ("beats", self._beat))
        ]
        for thread in threads:
            thread.start()
        try:
            while not isinstance(command := self._next_command(), Stop):
                self._obey(command)
        except ConnectionLostError:
            _LOGGER.debug("The coordinator is gone", exc_info=True)
        finally:
            self._is_over.set()
            self._connection.close()
            self._heap.close()
            self._standbys.close()
            if self._worker.open_stores is not None:
                self._worker.open_stores.close()
            for thread in threads:
                thread.join()
            end_threads()

    # The thread of commands and the thread of beats ----------------------------------------------------

    def _receive(self) -> None:
        with suppress(ConnectionLostError):
            while True:
                message = self._connection.receive()
                self._heard = time.monotonic()
                if isinstance(message, Abort):
                    self._inbox.end(message.of)
                elif isinstance(message, Call) and message.is_beside:
                    threading.Thread(
                        target=self._answer, args=(message,), name="millstream-slot-call", daemon=True
                    ).start()
                elif not isinstance(message, Ping):
                    self._commands.put(message)
                if isinstance(message, Stop):
                    return
        self._leave()

    def _beat(self) -> None:
        while not self._is_over.wait(self._settings.beat_s):
            if time.monotonic() - self._heard > self._settings.patience_s:
                self._leave()
                return
            with suppress(ConnectionLostError):
                self._connection.send(Beat())

    def _leave(self) -> None:
        """The coordinator is gone: end what is at work, by force if it does not end by itself."""
        self._inbox.close()
        self._commands.put(Stop())
        if not self._is_over.wait(_GRACE_S):
            self._settings.exit(1)

    # The thread of tasks -------------------------------------------------------------------------------

    def _next_command(self) -> _Command | Stop:
        while True:
            try:
                return self._commands.get(timeout=_CLEANS_EVERY_S)
            except queue.Empty:
                self._clean()

    def _obey(self, command: _Command) -> None:
        if isinstance(command, Assigned):
            self._take_assignment(command)
        elif isinstance(command, RunEpoch):
            with self._standbys.busy():
                self._run_epoch(command)
        elif isinstance(command, Committed):
            with self._standbys.busy():
                self._apply(command)
        elif isinstance(command, Follow):
            self._follow(command)
        else:
            self._answer(command)

    def _run_epoch(self, command: RunEpoch) -> None:
        try:
            reports = self._run_levels(command)
        except AbortedError:
            return
        except ConnectionLostError:
            raise
        except Exception as error:  # noqa: BLE001 - told to the coordinator, which decides
            self._connection.send(EpochFailed(command.of, portable(error)))
            return
        self._connection.send(EpochDone(command.of, tuple(reports)))
        if self._last_job is None:  # by now all is imported that tasks need
            self._heap.enter_context(FROZEN_HEAP)
        self._last_job = command.job
        self._clean()

    def _take_assignment(self, command: Assigned) -> None:
        """Tasks that others run from now on: their stores are closed."""
        self._assigned = command
        if self._worker.open_stores is not None:
            here = {task_id for task_id, slot in command.slots.items() if slot == command.slot}
            self._worker.open_stores.assign(here)
        self._clients.keep_only([peer.flight for peer in command.peers.values()])

    def _run_levels(self, command: RunEpoch) -> list[TaskReport | WrongInstance]:
        self._standbys.release({task.task_id for task in command.job.tasks})
        with for_tasks_of_an_epoch(replace(self._task_worker, awaits_publication=command.is_ahead)) as worker:
            reports = self._run_tasks(command, worker)
        self._inbox.end(command.of)
        return reports

    def _run_tasks(self, command: RunEpoch, worker: Worker) -> list[TaskReport | WrongInstance]:
        mine, own, assigned, received = command.job.tasks, self._assigned.slot, self._assigned, 0
        others = {slot: levels for slot, levels in command.levels.items() if slot != own}
        targets = Targets(worker.plan, mine)
        route = targets.route(assigned.slots)
        blocks: list[ShuffleBlock] = []
        reports: list[TaskReport | WrongInstance] = []
        for level in sorted({task.level for task in mine}):
            for before in range(received, level):
                senders = [slot for slot, levels in others.items() if before in levels]
                blocks += self._inbox.wait(command.of, before, senders, assigned.peers)
            received = level
            taken = targets.by_task(blocks)
            sent: dict[int, list[ShuffleBlock]] = {}
            for task in mine:
                if task.level == level and (task.has_input or task.task_id in taken):
                    report, out = self._run_task(command, worker, task, taken.get(task.task_id, ()), route)
                    reports.append(report)
                    for block in out:
                        sent.setdefault(block.slot, []).append(block)
            blocks += sent.pop(own, [])
            for slot, levels in others.items():
                if max(levels) > level:  # it waits for a bundle, if only for an empty one
                    self._send(command, level, slot, sent.get(slot, ()))
        return reports

    def _run_task(
        self,
        command: RunEpoch,
        worker: Worker,
        task: PlannedTask,
        blocks: Sequence[ShuffleBlock],
        route: Route,
    ) -> tuple[TaskReport | WrongInstance, list[ShuffleBlock]]:
        deadline = time.monotonic() + self._worker.lock_timeout_ms / 1000
        while True:
            self._inbox.check(command.of)
            try:
                return run_task(worker, command.job, task, blocks, command.of.attempt, route)
            except TaskLockedError:
                if time.monotonic() >= deadline:
                    raise
            except UnpublishedVersionError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_PUBLICATION_LOOKS_S)

    def _send(self, command: RunEpoch, level: int, slot: int, blocks: Sequence[ShuffleBlock]) -> None:
        self._inbox.check(command.of)
        peer, own = self._assigned.peers[slot], self._assigned.slot
        self._clients.put(peer, blocks, header_of(command.of, level, own, self._incarnation, peer))

    def _clean(self) -> None:
        """Delete local state of tasks that are elsewhere, if it is time for that, and say so."""
        worker, delay_ms = self._worker, self._worker.config.state_cleanup_delay_ms
        application_id = worker.storage.application_id
        deleted = clean_what_may_go(worker.directory, delay_ms, application_id, self._may_go)
        if deleted:
            self._connection.send(Deleted(frozenset(deleted)))

    def _may_go(self, task_id: str) -> bool:
        """Whether the host needs nothing of a task. Until it is told otherwise, it needs all that it has."""
        if task_id in self._global_tasks:  # each host has a copy, whoever runs the task
            return False
        if task_id in self._assigned.slots:
            return task_id not in self._assigned.here
        return self._last_job is not None and not self._last_job.has_task(task_id)

    def _apply(self, command: Committed) -> None:
        """Step 10, from memory. What fails here is made up for, or told, when the stores are opened next."""
        for planned, entry in command.tasks:
            try:
                apply_commit(self._worker, planned, entry)
            except Exception:
                _LOGGER.debug("Task %s could not apply a commit", planned.task_id, exc_info=True)

    def _follow(self, command: Follow) -> None:
        """The stores of a task that ran here until now are closed: they are followed from here on."""
        stores = self._worker.open_stores
        if stores is not None:
            stores.keep_only(stores.versions().keys() - command.keep)
        self._standbys.follow(command.keep, command.tasks)

    def _tell_positions(self, positions: Mapping[str, StandbyPosition]) -> None:
        with suppress(ConnectionLostError):
            self._connection.send(Followed(positions))

    def _answer(self, call: Call) -> None:
        try:
            answer = Answered(call.number, call.work(self._worker, *call.arguments))
        except Exception as error:  # noqa: BLE001 - told
            answer = Answered(call.number, error=portable(error))
        with suppress(ConnectionLostError):
            self._connection.send(answer)


def portable(error: Exception) -> Exception:
    """An error of ours as it is, if it survives the journey; else a `SlotError` that tells of it."""
    if isinstance(error, MillstreamError) and travels(error):
        return error
    return SlotError(f"{type(error).__name__}: {error}")
