"""The coordinator's side of the slots: submitted, listened to, watched, commanded, fenced.

It does not know Spark: whoever makes it says how a slot is submitted. Each submission is a fresh
*incarnation*, and only the last one of a slot may connect. A slot is lost when its connection ends, when its
submission ends, or when it has been silent for too long; then its incarnation is refused from there on, and
if it hangs on this host its process is killed, so that it lets go of its stores before others open them.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, Protocol

from millstream.commit.epoch_job import TaskReport, WrongInstance
from millstream.commit.process import process_is_alive
from millstream.commit.standby import StandbyPosition
from millstream.engine.assignment.assigner import LiveSlot
from millstream.engine.spark.resident.connection import (
    Connection,
    ConnectionLostError,
    PeerStalledError,
    accepted,
)
from millstream.engine.spark.resident.messages import (
    Abort,
    Answered,
    Call,
    Deleted,
    EpochAttempt,
    EpochDone,
    EpochFailed,
    Followed,
    Hello,
    NotReady,
    Peer,
    Ping,
    RunEpoch,
    Stop,
)
from millstream.engine.spark.resident.slot import SlotError
from millstream.engine.spark.resident.tls import TlsFiles
from millstream.errors import MillstreamError
from millstream.state.local.directory import boot_id

_LOGGER = logging.getLogger("millstream")
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 5.0
_STEADY_S: Final = 10.0
"""A slot that has lived so long was no failure of the start: it is submitted again without a pause."""
_MOST_STRANGERS: Final = 64
"""So many callers at most that have not proved yet who they are."""
_LOOKS_EVERY_S: Final = 2.0
"""How often it is asked whether there are cores for more slots."""
_STOP_S: Final = 5.0
_KILL_S: Final = 10.0


class SlotLostError(MillstreamError):
    """A slot was lost while it ran an epoch: the epoch is run again, by others or by its successor."""


class Launcher(Protocol):
    """How slots come to be."""

    def run(self, number: int, incarnation: str, address: tuple[str, int], secret: bytes) -> None:
        """Run an incarnation of a slot, until it ends. Raises a `SlotError` if no process can be one."""

    def cancel(self, number: int) -> None:
        """End whatever runs for a slot."""

    def is_alive(self) -> bool:
        """Whether it makes sense to go on."""

    def wanted(self) -> int:
        """How many slots there should be now."""


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """How patient a pool is."""

    timeout_s: float = 10.0
    """So long a slot may be silent."""
    beat_s: float = 1.0
    """How often slots are told that the coordinator is alive."""
    bind: str = "127.0.0.1"
    host: str = "127.0.0.1"
    """The address that slots call."""
    tls: TlsFiles | None = None


@dataclass(slots=True)
class Member:
    """A live slot."""

    number: int
    incarnation: str
    connection: Connection
    hello: Hello
    heard: float = field(default_factory=time.monotonic)
    followed: Mapping[str, StandbyPosition] = field(default_factory=dict)
    """How far its copies are, as it has said last."""

    @property
    def slot(self) -> LiveSlot:
        """The slot as tasks are assigned to it."""
        hello = self.hello
        host = hello.node or hello.host
        return LiveSlot(self.incarnation, hello.instance, host, hello.tags, hello.held, self.followed)

    @property
    def peer(self) -> Peer:
        """The slot as others see it."""
        return Peer(self.incarnation, self.hello.flight)


class SlotPool:
    """All slots of one application. `open`, then `begin` attempts of epochs, then `close`."""

    def __init__(self, launcher: Launcher, settings: PoolSettings) -> None:
        self._launcher = launcher
        self._settings = settings
        self._secret = secrets.token_bytes(32)
        self._changed = threading.Condition()
        self._expected: dict[str, int] = {}
        """Incarnations that may connect, and their slots."""
        self._members: dict[int, Member] = {}
        self._hanging: list[Member] = []
        """Fenced on other hosts, where they may hold their stores for a while."""
        self._deleted: list[tuple[str, frozenset[str]]] = []
        """Instances, and the tasks whose state was deleted there."""
        self._refusal: Exception | None = None
        """Why no slot starts: the first time one that does not is enough, later all have to say so."""
        self._refusals = 0
        self.last_failure: Exception | None = None
        """Of a submission, for whoever waits in vain."""
        self._has_started = False
        self._told = ""
        self._attempt: EpochAttempt | None = None
        self._answers: dict[int, EpochDone | EpochFailed] = {}
        self._calls: dict[int, tuple[int, str]] = {}
        self._called: dict[int, Answered] = {}
        self._calls_made = 0
        self._closing = threading.Event()
        self._strangers = threading.BoundedSemaphore(_MOST_STRANGERS)
        self._threads: dict[int, threading.Thread] = {}
        self._wanted = 0
        family = socket.getaddrinfo(settings.bind, 0, type=socket.SOCK_STREAM)[0][0]
        self._listener = socket.create_server((settings.bind, 0), family=family)
        self.address = (settings.host, int(self._listener.getsockname()[1]))

    def open(self, make_thread: Callable[..., threading.Thread] = threading.Thread) -> None:
        """Submit the slots, and listen to them."""
        self._make_thread = make_thread
        for what, target in (
            ("listener", self._listen),
            ("watch", self._watch),
            ("submitter", self._follow_wanted),
        ):
            threading.Thread(target=target, name=f"millstream-slots-{what}", daemon=True).start()
        self._submit_wanted()

    @property
    def is_alive(self) -> bool:
        """Whether slots can be submitted."""
        return not self._closing.is_set() and self._launcher.is_alive()

    def live(self) -> dict[int, Member]:
        """The slots that are there, by number."""
        with self._changed:
            return dict(sorted(self._members.items()))

    def take_hanging(self) -> list[Member]:
        """The slots that were fenced since it was asked last, and may still hold their stores."""
        with self._changed:
            hanging, self._hanging = self._hanging, []
            return hanging

    def take_deleted(self) -> list[tuple[str, frozenset[str]]]:
        """Instances, and the tasks whose state slots have deleted there since it was asked last."""
        with self._changed:
            deleted, self._deleted = self._deleted, []
            return deleted

    def wait(self, is_enough: Callable[[int, int], bool], timeout_s: float) -> bool:
        """Wait until there are enough slots, of so many that are wanted. Raises why they don't start."""

        def met() -> bool:
            return self._refusal is not None or is_enough(len(self._members), self._wanted)

        with self._changed:
            self._changed.wait_for(met, timeout_s)
            if self._refusal is not None and not self._members:
                refusal, self._refusal = self._refusal, None
                raise refusal
            return is_enough(len(self._members), self._wanted)

    def begin(
        self, of: EpochAttempt, commands: Mapping[int, RunEpoch], members: Mapping[int, Member]
    ) -> Callable[[], list[TaskReport | WrongInstance]]:
        """Let slots begin an attempt of an epoch. Returns what waits for their reports.

        If one fails, or is lost, all are told to give it up.
        """
        asked = {number: members[number].incarnation for number in commands}
        with self._changed:
            self._attempt, self._answers = of, {}

        def collected() -> list[TaskReport | WrongInstance]:
            try:
                return self._collected(of, asked)
            except BaseException:
                self.tell(Abort(of))
                raise

        try:
            for number, command in commands.items():
                self._send(number, asked[number], command)
        except BaseException:
            self.tell(Abort(of))
            raise
        return collected

    def _collected(self, of: EpochAttempt, asked: Mapping[int, str]) -> list[TaskReport | WrongInstance]:
        """The reports of the incarnations of slots that were asked."""
        with self._changed:
            while True:
                for number, incarnation in asked.items():
                    member = self._members.get(number)
                    if member is None or member.incarnation != incarnation:
                        raise SlotLostError(
                            f"slot {number} was lost in attempt {of.attempt} of epoch {of.epoch}"
                        )
                for answer in self._answers.values():
                    if isinstance(answer, EpochFailed):
                        raise answer.error
                if self._answers.keys() == asked.keys():
                    done = [one for one in self._answers.values() if isinstance(one, EpochDone)]
                    return [report for answer in done for report in answer.reports]
                self._changed.wait()

    def tell(self, message: object, to: Member | None = None) -> None:
        """Tell all slots, or one, something that needs no answer. Not its successor, if it was replaced."""
        for member in self.live().values() if to is None else (to,):
            self._send(member.number, member.incarnation, message)

    def call(self, number: int, work: Callable[..., Any], *arguments: Any, is_beside: bool = False) -> int:
        """Let a slot do some work between the epochs, or beside them; the number of the call."""
        with self._changed:
            member = self._members.get(number)
            if member is None:
                raise SlotLostError(f"slot {number} is not there")
            self._calls_made += 1
            call = self._calls_made
            self._calls[call] = (number, member.incarnation)
        self._send(number, member.incarnation, Call(call, work, arguments, is_beside))
        return call

    def answer(self, call: int, timeout_s: float = inf) -> Any:
        """Wait for the answer to a call. An error is raised, also if the slot is lost meanwhile."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            try:
                while call not in self._called:
                    if call not in self._calls:
                        raise SlotLostError("what a slot was asked for was given up")
                    number, incarnation = self._calls[call]
                    member = self._members.get(number)
                    if member is None or member.incarnation != incarnation:
                        raise SlotLostError(f"slot {number} was lost while it was at work")
                    left_s = deadline - time.monotonic()
                    if left_s <= 0:
                        raise SlotLostError(f"slot {number} has not answered within {timeout_s:.0f} s")
                    self._changed.wait(min(left_s, threading.TIMEOUT_MAX))
                answered = self._called[call]
            finally:
                self._calls.pop(call, None)
                self._called.pop(call, None)
        if answered.error is not None:
            raise answered.error
        return answered.value

    def forget_calls(self) -> None:
        """Let nobody wait for answers any more."""
        with self._changed:
            self._calls.clear()
            self._changed.notify_all()

    def close(self) -> None:
        """End all slots in order; what does not end is killed, or given up to Spark. No thread is left."""
        with self._changed:  # whoever submits slots just now has begun them
            self._closing.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        live = self.live()
        self.tell(Stop())
        self.forget_calls()
        for number in self._threads.keys() - live.keys():
            self._launcher.cancel(number)
        deadline = time.monotonic() + _STOP_S
        for thread in self._threads.values():
            thread.join(max(0.0, deadline - time.monotonic()))
        for number, thread in self._threads.items():
            if thread.is_alive():
                if number in live:
                    _kill_hanging(live[number])
                self._launcher.cancel(number)
        for thread in self._threads.values():
            thread.join(_KILL_S)
        for member in self.live().values():
            member.connection.close()

    # Submitting ----------------------------------------------------------------------------------------

    def _submit_wanted(self) -> None:
        wanted = self._launcher.wanted()
        with self._changed:
            if self._closing.is_set():
                return
            self._wanted = wanted
            for number in range(wanted):
                if not self._is_held(number):
                    name = f"millstream-slot-{number}"
                    thread = self._make_thread(target=self._hold, args=(number,), name=name, daemon=True)
                    self._threads[number] = thread
                    thread.start()

    def _is_held(self, number: int) -> bool:
        """Whether somebody submits a slot: one who took Spark for dead has ended, perhaps by mistake."""
        thread = self._threads.get(number)
        return thread is not None and thread.is_alive()

    def _hold(self, number: int) -> None:
        """Submit a slot again and again: Spark would give up a job whose task has failed a few times."""
        pause = _FIRST_PAUSE_S
        while not self._closing.is_set():
            incarnation = self._expect(number)
            began = time.monotonic()
            try:
                self._launcher.run(number, incarnation, self.address, self._secret)
            except SlotError as error:
                self._refuse(error)
            except Exception as error:
                _LOGGER.debug("Slot %d has ended", number, exc_info=True)
                self.last_failure = error
            self._lose(number, incarnation, "its Spark job has ended")
            if self._closing.is_set() or not self._launcher.is_alive():
                return
            pause = (
                _FIRST_PAUSE_S if time.monotonic() - began > _STEADY_S else min(2 * pause, _LONGEST_PAUSE_S)
            )
            self._closing.wait(pause)

    def _refuse(self, error: Exception) -> None:
        """Note why slots don't start, for whoever waits for one."""
        with self._changed:
            self._refusals += 1
            if not self._has_started or self._refusals >= self._wanted:
                self._refusal = error
            is_news = bool(self._members) and str(error) != self._told
            if is_news:
                self._told = str(error)
            self._changed.notify_all()
        if is_news:
            _LOGGER.warning("A slot could not start, the others go on without it: %s", error)

    def _expect(self, number: int) -> str:
        """A fresh incarnation of a slot. Those before are fenced."""
        incarnation = secrets.token_hex(16)
        with self._changed:
            for old in [name for name, slot in self._expected.items() if slot == number]:
                del self._expected[old]
            self._expected[incarnation] = number
        return incarnation

    # Listening -----------------------------------------------------------------------------------------

    def _listen(self) -> None:
        while not self._closing.is_set():
            try:
                peer, _ = self._listener.accept()
            except OSError:  # it is closed; or a caller is gone already, or descriptors have run out
                self._closing.wait(_FIRST_PAUSE_S)
                continue
            if not self._strangers.acquire(blocking=False):
                peer.close()
                continue
            threading.Thread(
                target=self._serve, args=(peer,), name="millstream-slots-connection", daemon=True
            ).start()

    def _serve(self, peer: socket.socket) -> None:
        try:
            connection, incarnation = accepted(
                peer,
                self._secret,
                self._expected.__contains__,
                self._settings.timeout_s,
                self._settings.tls,
            )
        except ConnectionLostError as error:
            _LOGGER.debug("A caller was refused: %s", error)
            return
        finally:
            self._strangers.release()
        number: int | None = None
        why = "its connection has ended"
        try:
            first = connection.receive()
            number = self._joined(incarnation, connection, first)
            while number is not None:
                self._take(number, incarnation, connection.receive())
        except ConnectionLostError as error:
            why = str(error)
        except Exception:  # a message that can't be read
            _LOGGER.debug("A message of a slot could not be read", exc_info=True)
        finally:
            connection.close()
            if number is not None:
                self._lose(number, incarnation, why)

    def _joined(self, incarnation: str, connection: Connection, first: object) -> int | None:
        with self._changed:
            if isinstance(first, NotReady):  # its submission may have ended already
                self._refuse(first.error)
            number = self._expected.get(incarnation)
            if not isinstance(first, Hello) or number is None or number in self._members:
                return None
            if self._closing.is_set():
                return None
            self._refusal, self._refusals, self._has_started = None, 0, True
            self._members[number] = Member(number, incarnation, connection, first)
            self._changed.notify_all()
            return number

    def _take(self, number: int, incarnation: str, message: object) -> None:
        """A message of a slot. One of another attempt, or of a fenced incarnation, is dropped."""
        with self._changed:
            member = self._members.get(number)
            if member is None or member.incarnation != incarnation:
                raise ConnectionLostError("the incarnation was fenced")
            member.heard = time.monotonic()
            if isinstance(message, Followed):
                member.followed = message.tasks
            elif isinstance(message, Deleted):
                self._deleted.append((member.hello.instance, message.tasks))
            elif isinstance(message, EpochDone | EpochFailed):
                if message.of == self._attempt:
                    self._answers[number] = message
                    self._changed.notify_all()
            elif isinstance(message, Answered) and message.number in self._calls:
                self._called[message.number] = message
                self._changed.notify_all()

    # Watching ------------------------------------------------------------------------------------------

    def _follow_wanted(self) -> None:
        """Submit more slots as there are more cores. Not by the watch: Spark may take its time to answer."""
        while not self._closing.wait(_LOOKS_EVERY_S):
            with suppress(Exception):  # Spark may be gone
                self._submit_wanted()

    def _watch(self) -> None:
        while not self._closing.wait(self._settings.beat_s):
            for member in self.live().values():
                self._send(member.number, member.incarnation, Ping())
                silent = time.monotonic() - member.heard
                if silent > self._settings.timeout_s:
                    _tell_replaced(member, f"has said nothing for {silent:.0f} s")
                    self.fence(member)

    def fence(self, member: Member) -> None:
        """Refuse an incarnation from now on, and end it: here at once, elsewhere when Spark gets to it.

        Whoever watches it and whoever sends to it may find at once that it stands still: one of them does it.
        """
        with self._changed:
            if self._expected.pop(member.incarnation, None) is None:
                return
        if not _kill_hanging(member):  # Spark may take its time to answer
            with self._changed:
                self._hanging.append(member)
            threading.Thread(
                target=self._launcher.cancel,
                args=(member.number,),
                name=f"millstream-slot-{member.number}-cancel",
                daemon=True,
            ).start()
        self._lose(member.number, member.incarnation, "it was silent")
        member.connection.close()

    def _lose(self, number: int, incarnation: str, why: str) -> None:
        with self._changed:
            self._expected.pop(incarnation, None)
            member = self._members.get(number)
            if member is not None and member.incarnation == incarnation:
                _LOGGER.debug("Slot %d is lost: %s", number, why)
                del self._members[number]
                self._changed.notify_all()
            else:
                member = None
        if member is not None:
            member.connection.close()

    def _send(self, number: int, incarnation: str, message: object) -> None:
        """Send to a slot; one that can't be reached is lost, and one that stands still is ended."""
        member = self.live().get(number)
        if member is None or member.incarnation != incarnation:
            return
        try:
            if isinstance(message, Ping):
                member.connection.ping(message)
            else:
                member.connection.send(message)
        except PeerStalledError:
            _tell_replaced(member, "takes no message any more")
            self.fence(member)
        except ConnectionLostError as error:
            self._lose(number, incarnation, str(error))


def _tell_replaced(member: Member, why: str) -> None:
    hello = member.hello
    _LOGGER.warning(
        "Slot %d (process %d on %s) %s. It is replaced.", member.number, hello.pid, hello.host, why
    )


def _kill_hanging(member: Member) -> bool:
    """Kill a slot's process if it is on this host, and wait for its death; whether it is dead then.

    By process id and time of start: a process id is used again, the pair is not.
    """
    hello = member.hello
    if (hello.host, hello.boot) != (socket.gethostname(), boot_id() or "") or not hello.started:
        return False
    if hello.pid == os.getpid():  # a slot in a thread: nobody ends the coordinator for it
        return False
    deadline = time.monotonic() + _KILL_S
    with suppress(OSError):
        if process_is_alive(hello.pid, hello.started):
            os.kill(hello.pid, signal.SIGKILL)
        while process_is_alive(hello.pid, hello.started) and time.monotonic() < deadline:
            time.sleep(0.005)
    return not process_is_alive(hello.pid, hello.started)
