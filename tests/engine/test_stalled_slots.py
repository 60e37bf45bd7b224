"""Slots that stand still, hang on other hosts, never come, or are run twice."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.engine.hosts_in_threads import running_on
from tests.engine.test_resident_slots import Application, running, until
from tests.spark.lab import Lab
from tests.spark.processes import is_stopped
from tests.spark.programs import check_exact, one_level, two_levels, words

from millstream.commit.process import process_is_alive, process_started
from millstream.engine.spark.failures import WorkersNotReadyError
from millstream.engine.spark.resident import slot_pool
from millstream.engine.spark.resident.connection import Connection, ConnectionLostError, connect
from millstream.engine.spark.resident.messages import Beat, Hello, Ping, RunEpoch
from millstream.engine.spark.resident.slot import Slot, SlotSettings
from millstream.engine.spark.resident.slot_function import SlotFunction
from millstream.engine.spark.resident.slot_pool import Launcher, PoolSettings, SlotPool
from millstream.state.local.directory import boot_id, open_state_directory


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab", None)


class Given(Launcher):
    """Slots that a test makes by hand. A submission lasts until the end."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.submitted: dict[int, str] = {}
        self.cancelled: list[int] = []
        self.is_over = threading.Event()

    def run(self, number: int, incarnation: str, address: tuple[str, int], secret: bytes) -> None:
        self.submitted[number] = incarnation
        self.is_over.wait(60)

    def cancel(self, number: int) -> None:
        self.cancelled.append(number)

    def is_alive(self) -> bool:
        return True

    def wanted(self) -> int:
        return self.slots


@contextmanager
def pool_of(slots: int, **settings: Any) -> Iterator[tuple[SlotPool, Given]]:
    launcher = Given(slots)
    pool = SlotPool(launcher, PoolSettings(**settings))
    pool.open()
    until(lambda: len(launcher.submitted) == slots)
    yield pool, launcher
    launcher.is_over.set()
    pool.close()


def joined(pool: SlotPool, launcher: Given, number: int, pid: int, host: str) -> Connection:
    """A slot that says who it is, and nothing more."""
    connection = connect(pool.address, launcher.submitted[number], pool._secret, 5.0)
    hello = Hello("instance", host, boot_id() or "", pid, process_started(pid) or "", "", {})
    connection.send(hello)
    until(lambda: number in pool.live())
    return connection


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands still."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    process.send_signal(signal.SIGSTOP)
    until(lambda: is_stopped(process.pid))
    yield process
    process.kill()
    process.wait()


def test_a_slot_that_takes_no_message_is_killed_and_the_others_hear_of_their_coordinator(
    sleeper: subprocess.Popen[bytes],
) -> None:
    """It stands still while a command is sent that is longer than what the kernel keeps for it."""
    started = process_started(sleeper.pid)
    heard = threading.Event()
    with pool_of(2, timeout_s=2.0, beat_s=0.05) as (pool, launcher):
        stalled = joined(pool, launcher, 0, sleeper.pid, socket.gethostname())
        other = joined(pool, launcher, 1, sleeper.pid, "elsewhere")
        sending = threading.Thread(target=pool.tell, args=(bytes(50 << 20), pool.live()[0]))

        def listen() -> None:
            while not heard.is_set():
                if isinstance(other.receive(), Ping) and sending.is_alive():
                    heard.set()

        sending.start()
        listening = threading.Thread(target=listen)
        listening.start()
        until(lambda: other.send(Beat()) is None and 0 not in pool.live())  # type: ignore[func-returns-value]
        assert not process_is_alive(sleeper.pid, started or "")
        assert heard.wait(60), "a command that nobody takes must not keep pings from the others"
        assert 1 in pool.live()
        listening.join()
        with closing(stalled), pytest.raises(ConnectionLostError):
            connect(pool.address, launcher.submitted[0], pool._secret, 5.0)  # it is fenced
        other.close()


def test_the_job_of_a_slot_that_takes_no_message_elsewhere_is_cancelled(
    sleeper: subprocess.Popen[bytes],
) -> None:
    with pool_of(1, timeout_s=0.5, beat_s=60.0) as (pool, launcher):
        with closing(joined(pool, launcher, 0, sleeper.pid, "elsewhere")):
            pool.tell(bytes(50 << 20))
            until(lambda: launcher.cancelled == [0])
            assert pool.live() == {}
            assert [member.number for member in pool.take_hanging()] == [0]
        assert sleeper.poll() is None, "a process id means nothing on another host"


def test_the_job_of_a_slot_that_can_not_be_killed_here_is_cancelled_and_the_slot_may_hold_its_stores(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError("the process of another user")

    monkeypatch.setattr(slot_pool, "os", SimpleNamespace(kill=refused, getpid=os.getpid))
    with (
        pool_of(1, timeout_s=60.0, beat_s=60.0) as (pool, launcher),
        closing(joined(pool, launcher, 0, sleeper.pid, socket.gethostname())),
    ):
        pool.fence(pool.live()[0])
        until(lambda: launcher.cancelled == [0])
        assert [member.number for member in pool.take_hanging()] == [0]
        assert sleeper.poll() is None


def test_a_pool_can_be_closed_while_a_slot_is_just_submitted() -> None:
    """Whoever closes it joins the threads that hold slots: also one that is about to start."""
    launcher = Given(1)
    pool = SlotPool(launcher, PoolSettings())
    failures: list[BaseException] = []

    def close() -> None:
        try:
            pool.close()
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    closer = threading.Thread(target=close)

    class LateThread(threading.Thread):
        def start(self) -> None:
            launcher.is_over.set()
            closer.start()
            closer.join(0.5)  # it may go on for as long as nothing keeps it from it
            super().start()

    pool.open(LateThread)
    closer.join(60)
    assert not closer.is_alive()
    assert failures == []


def test_a_slot_that_two_threads_find_silent_is_fenced_once(sleeper: subprocess.Popen[bytes]) -> None:
    """The watch, and whoever has something to say to it. The second one must not cancel its successor."""
    with (
        pool_of(1, timeout_s=60.0, beat_s=60.0) as (pool, launcher),
        closing(joined(pool, launcher, 0, sleeper.pid, "elsewhere")),
    ):
        member = pool.live()[0]
        pool.fence(member)
        pool.fence(member)
        assert pool.take_hanging() == [member]
        until(lambda: not any(thread.name.endswith("-cancel") for thread in threading.enumerate()))
        assert launcher.cancelled == [0]


def test_tasks_of_a_slot_that_hangs_on_another_host_go_to_other_hosts_first(lab: Lab) -> None:
    """Whoever hangs there may hold their stores, so another slot of that host would wait for it."""
    parts = words(200, seed=21)
    lab.topic("in", [part[:50] for part in parts])
    settings = {"max_records_per_epoch": 25, "acceptable_recovery_lag": 0}
    with running_on(lab, one_level(), {0: "one", 1: "one", 2: "two", 3: "two"}, **settings) as app:
        app.run()
        placed = app.engine.tasks.assignment.tasks
        before = app.active()
        assert sorted(before.values()) == ["one", "two"]
        task, there = next((task, one.active) for task, one in placed.items() if one.active.host == "one")
        with app.engine.launcher.down:
            app.engine.launcher.hosts_down.add("one")  # so that the slot is not replaced meanwhile
        app.engine.pool.fence(app.engine.pool.live()[there.slot])
        assert len(app.engine.pool.live()) == 3, "the other slot of the host is there"
        for number, part in enumerate(parts):
            lab.append("in", part[50:], partition=number)
        app.run()
        assert app.active() == {**before, task: "two"}
        app.bring_back("one")
        until(lambda: len(app.engine.pool.live()) == 4)
        until(lambda: app.is_caught_up() and sorted(app.active().values()) == ["one", "two"])
    check_exact(lab, "one_level", parts)


def test_a_task_that_waits_for_its_stores_hears_that_its_attempt_was_given_up(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else two slots of a host wait for each other: one holds what the other needs, in a later attempt."""
    lab.topic("in", parts := words(40, seed=24))
    begun: list[tuple[int, int]] = []
    run_levels = Slot._run_levels

    def noted(slot: Slot, command: RunEpoch) -> Any:
        begun.append((slot._assigned.slot, command.of.attempt))
        return run_levels(slot, command)

    monkeypatch.setattr(Slot, "_run_levels", noted)
    with running(lab, one_level(), lock_timeout_ms=600_000) as app, ExitStack() as held:
        directory = open_state_directory(lab.state_dir).task("app", "0_0")
        held.enter_context(directory.lock(timeout_ms=0))
        running_epoch = threading.Thread(target=app.run)
        running_epoch.start()
        until(lambda: len(begun) == 2)
        waits = app.engine.tasks.assignment.slots()["0_0"]
        app.engine.pool.live()[1 - waits].connection.close()
        until(lambda: (waits, 2) in begun)  # it has heard, though nobody has let the stores go
        held.close()
        running_epoch.join(60)
        assert not running_epoch.is_alive()
    check_exact(lab, "one_level", parts)


def test_a_wait_for_the_first_slot_is_told_and_has_an_end(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lab.topic("in", words(10, seed=22))
    app = Application(lab, two_levels())
    seconds = count(step=50)

    def clock() -> int:
        """Goes on with each look at it, as soon as a slot could not be had."""
        return 0 if app.engine.pool.last_failure is None else next(seconds)

    module = "millstream.engine.spark.resident.slot_tasks"
    monkeypatch.setattr(f"{module}._LOOKS_EVERY_S", 0.02)
    monkeypatch.setattr(f"{module}.time", SimpleNamespace(monotonic=clock))

    def no_core(*_: object) -> None:
        raise ConnectionResetError("no executor")

    monkeypatch.setattr(app.engine.launcher, "run", no_core)
    with pytest.raises(
        WorkersNotReadyError, match=r"has no slot .* after 300 s.*The last failure: no executor"
    ):
        app.loop.open()
    app.loop.close()
    told = [record for record in caplog.records if "waits for Spark to give it a core" in record.message]
    assert [record.levelname for record in told] == ["WARNING"]


@pytest.mark.parametrize(("attempt", "serves"), [(0, True), (1, False)])
def test_a_slot_that_spark_runs_again_returns_at_once(
    monkeypatch: pytest.MonkeyPatch, attempt: int, serves: bool
) -> None:
    """Its coordinator submits a new incarnation: so no job of a slot reaches its limit of failures."""
    module = "millstream.engine.spark.resident.slot_function"
    context = SimpleNamespace(attemptNumber=lambda: attempt)
    monkeypatch.setattr(f"{module}.TaskContext", SimpleNamespace(get=lambda: context))
    served: list[bool] = []
    monkeypatch.setattr(SlotFunction, "serve", lambda _: served.append(True))
    function = SlotFunction(("127.0.0.1", 1), "one", lambda: None, 1.0, SlotSettings(), b"")  # type: ignore[arg-type, return-value]
    assert function([0]) == []
    assert bool(served) is serves
