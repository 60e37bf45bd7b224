"""Slots that stay, as threads of this process: epochs, and faults of slots and bundles."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.engine.slots_in_threads import SlotsInThreads
from tests.spark.lab import Lab
from tests.spark.programs import COUNTING, check_exact, two_levels, words
from tests.spark.test_workers import counting

from millstream import StreamsConfig, Topology
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.worker import Worker
from millstream.engine.assignment.rules import slot_assigner
from millstream.engine.loop import EpochLoop
from millstream.engine.program import Program, make_worker
from millstream.engine.spark.resident.flight import FlightClients
from millstream.engine.spark.resident.slot import Slot, SlotError
from millstream.engine.spark.resident.slot_pool import SlotLostError
from millstream.engine.spark.resident.tls import tls_files
from millstream.errors import ProcessingError
from millstream.log import open_log
from millstream.state.errors import StateDirectoryError


class Application:
    """An application on slots in threads."""

    def __init__(self, lab: Lab, topology: Topology, slots: int = 2, **settings: Any) -> None:
        timeout_s = settings.pop("timeout_s", 10.0)
        lock_timeout_ms = settings.pop("lock_timeout_ms", 60_000)
        config = StreamsConfig(state_dir=lab.state_dir, default_partitions=2, **settings)
        log = open_log(lab.folder / "log")
        storage = ApplicationStorage(log.root, "app")
        program = Program.of(topology, storage, log.address, config)
        assigner = slot_assigner(config, topology.plan())

        def worker() -> Worker:
            return replace(make_worker(program), lock_timeout_ms=lock_timeout_ms)

        self.engine = SlotsInThreads(worker, slots, timeout_s, assigner, tls=tls_files(config))
        self.loop = EpochLoop(storage, log, topology.plan(), self.engine, config)
        self.loop.goes_on = True

    def run(self) -> None:
        while self.loop.run_epoch(tick=False) is not None or self.loop.has_backlog:
            pass


@contextmanager
def running(lab: Lab, topology: Topology, slots: int = 2, **settings: Any) -> Iterator[Application]:
    app = Application(lab, topology, slots, **settings)
    app.loop.open()
    try:
        yield app
    finally:
        app.loop.close()


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab", None)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(("program", "slots"), [("one_level", 1), ("two_levels", 3), ("three_levels", 2)])
def test_every_record_counts_once(lab: Lab, program: str, slots: int) -> None:
    lab.topic("in", parts := words(200, seed=8))
    with running(lab, COUNTING[program](), slots, max_records_per_epoch=25) as app:
        app.run()
        assert app.engine.failures == []
    check_exact(lab, program, parts)


def test_tasks_stay_where_they_are_and_nobody_reads_a_changelog(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.topic("in", parts := words(300, seed=9, partitions=4))
    with running(lab, two_levels(), max_records_per_epoch=10) as app:
        app.loop.run_epoch(tick=False)
        placed = app.engine.tasks.assignment.slots()
        monkeypatch.setattr(
            "millstream.state.local.task_stores.follow",
            lambda *_: pytest.fail("a store follows its changelog"),
        )
        app.run()
        assert app.engine.tasks.assignment.slots() == placed
        assert len(app.engine.launcher.submitted) == 2
    check_exact(lab, "two_levels", parts)


def test_a_level_is_one_bundle_for_each_pair_of_slots_however_many_tasks_there_are(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.topic("in", parts := words(300, seed=23, partitions=8))
    put, sent = FlightClients.put, list[tuple[Any, ...]]()

    def noted(clients: FlightClients, to: Any, blocks: Any, header: Any) -> None:
        made = header(1, 1, "")
        sent.append((made.epoch, made.level, made.sender, made.receiver_incarnation))
        put(clients, to, blocks, header)

    monkeypatch.setattr(FlightClients, "put", noted)
    with running(lab, COUNTING["three_levels"](), 3) as app:
        app.run()
        assert app.engine.failures == []
    assert len(sent) == len(set(sent))
    assert {level for _, level, _, _ in sent} == {0, 1}
    check_exact(lab, "three_levels", parts)


def test_an_error_of_the_program_is_raised_as_it_is_and_the_slots_stay(lab: Lab) -> None:
    lab.topic("in", [[("a", "bad"), ("b", "good")], []])

    def fail(_: str, value: str) -> None:
        if value == "bad":
            raise ValueError(value)

    with running(lab, counting(fail)) as app:
        for _ in range(2):
            with pytest.raises(ProcessingError, match="bad"):
                app.loop.run_epoch(tick=False)
        assert len(app.engine.launcher.submitted) == 2


def test_what_keeps_a_slot_from_starting_is_told(lab: Lab) -> None:
    lab.topic("in", [[]])
    lab.state_dir.mkdir(mode=0o700)
    (lab.state_dir / "letters.txt").touch()
    app = Application(lab, two_levels())
    with pytest.raises(StateDirectoryError, match=r"letters\.txt"):
        app.loop.open()
    app.loop.close()


def test_workers_that_can_t_load_a_slot_at_all_are_told(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark tells of them, and would try for ever."""
    lab.topic("in", words(10, seed=14))

    def no_module(*_: object) -> None:
        raise SlotError("ModuleNotFoundError: No module named 'millstream'")

    app = Application(lab, two_levels(), 2)
    monkeypatch.setattr(app.engine.launcher, "run", no_module)
    with pytest.raises(SlotError, match="No module named 'millstream'"):
        app.loop.open()
    app.loop.close()


def test_a_slot_that_can_t_start_later_is_told_and_the_others_go_on(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An executor joins whose host lacks something."""
    lab.topic("in", parts := words(60, seed=15))
    monkeypatch.setattr("millstream.engine.spark.resident.slot_pool._LOOKS_EVERY_S", 0.05)
    with running(lab, two_levels(), max_records_per_epoch=10) as app:
        launcher = app.engine.launcher
        run = launcher.run

        def no_module_in_the_third(number: int, *more: Any) -> None:
            if number == 2:
                raise SlotError("ModuleNotFoundError: No module named 'beside'")
            run(number, *more)

        monkeypatch.setattr(launcher, "run", no_module_in_the_third)
        launcher.slots = 3
        until(lambda: "No module named 'beside'" in caplog.text)
        app.run()
        assert set(app.engine.pool.live()) == {0, 1}
    assert caplog.text.count("A slot could not start, the others go on without it") == 1
    check_exact(lab, "two_levels", parts)


def lose(app: Application, number: int) -> None:
    """As if the process of a slot was killed: its connection ends, and its coordinator has noticed that."""
    member = app.engine.pool.live()[number]
    member.connection.close()
    until(lambda: app.engine.pool.live().get(number) is not member)


def test_a_lost_slot_is_replaced_and_its_tasks_go_on_elsewhere_meanwhile(lab: Lab) -> None:
    lab.topic("in", parts := words(300, seed=10))
    lost = threading.Event()

    def lose_one(_: str, value: str) -> None:
        if value == "weir" and lab.committed() >= 100 and not lost.is_set():
            lost.set()
            lose(app, 1)

    with running(lab, counting(lose_one), max_records_per_epoch=25) as app:
        before = app.engine.pool.live()[1].incarnation
        app.run()
        assert [type(failure) for failure in app.engine.failures] == [SlotLostError]
        until(lambda: len(app.engine.pool.live()) == 2)
        assert app.engine.pool.live()[1].incarnation != before
    check_exact(lab, "two_levels", parts)


def test_a_slot_comes_back_though_spark_was_taken_for_dead_and_a_call_was_not_taken(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both by mistake: a question that failed, and a listener that had no descriptor left for a moment."""
    lab.topic("in", parts := words(100, seed=16))
    monkeypatch.setattr("millstream.engine.spark.resident.slot_pool._LOOKS_EVERY_S", 0.05)
    mistakes = ["dead", "no descriptor"]
    with running(lab, two_levels(), max_records_per_epoch=10) as app:
        launcher, pool = app.engine.launcher, app.engine.pool
        accept = pool._listener.accept

        def once_no_descriptor() -> tuple[socket.socket, Any]:
            peer, address = accept()
            if "no descriptor" in mistakes:
                mistakes.remove("no descriptor")
                peer.close()
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return peer, address

        def is_alive() -> bool:
            if "dead" in mistakes:
                mistakes.remove("dead")
                return False
            return True

        monkeypatch.setattr(launcher, "is_alive", is_alive)
        pool._listener = SimpleNamespace(  # type: ignore[assignment]
            accept=once_no_descriptor, shutdown=pool._listener.shutdown, close=pool._listener.close
        )
        socket.create_connection(pool.address).close()  # ends the call that waits for the old one
        before = pool.live()[1].incarnation
        lose(app, 1)
        until(lambda: mistakes == [])
        until(lambda: len(pool.live()) == 2)
        assert pool.live()[1].incarnation != before
        app.run()
    check_exact(lab, "two_levels", parts)


def test_slots_go_on_while_spark_does_not_answer(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM that stands still answers neither how many cores there are nor that a job is cancelled."""
    lab.topic("in", parts := words(100, seed=13))
    monkeypatch.setattr("millstream.engine.spark.resident.slot_pool._LOOKS_EVERY_S", 0.05)
    monkeypatch.setattr("millstream.engine.spark.resident.slot_pool._kill_hanging", lambda _: False)
    asked, cancelled, answers = threading.Event(), threading.Event(), threading.Event()
    with running(lab, two_levels(), max_records_per_epoch=10) as app:
        launcher, pool = app.engine.launcher, app.engine.pool

        def no_answer() -> int:
            asked.set()
            answers.wait(60)
            return 2

        def no_cancel(_: int) -> None:
            cancelled.set()
            answers.wait(60)

        monkeypatch.setattr(launcher, "wanted", no_answer)
        monkeypatch.setattr(launcher, "cancel", no_cancel)
        assert asked.wait(60)
        before = {number: member.heard for number, member in pool.live().items()}
        until(lambda: all(member.heard > before[number] + 0.5 for number, member in pool.live().items()))
        pool.fence(pool.live()[1])
        assert cancelled.wait(60)
        app.run()
        answers.set()
    check_exact(lab, "two_levels", parts)


def test_a_silent_slot_is_fenced_and_what_it_says_later_is_not_heard(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process can't be killed here: it wakes up when it was replaced, goes on, and nobody listens."""
    lab.topic("in", parts := words(200, seed=11))
    asleep, awake, woken = threading.Event(), threading.Event(), threading.Event()
    slots: list[Slot] = []
    beat = Slot._beat
    monkeypatch.setattr("millstream.engine.spark.resident.slot_pool._kill_hanging", lambda _: True)

    def sleep_once(_: str, value: str) -> None:
        if value == "weir" and lab.committed() >= 100 and not asleep.is_set():
            asleep.set()
            awake.wait(60)
            woken.set()

    def beat_unless_asleep(slot: Slot) -> None:
        send = slot._connection.send
        slots.append(slot)

        def send_if_awake(message: object) -> None:
            if not asleep.is_set() or awake.is_set() or slot is not slots[0]:
                send(message)

        monkeypatch.setattr(slot._connection, "send", send_if_awake)
        beat(slot)

    def wake_the_fenced() -> None:
        asleep.wait(60)
        until(lambda: len(app.engine.launcher.submitted) > 1 or not app.engine.pool.live())
        awake.set()

    monkeypatch.setattr(Slot, "_beat", beat_unless_asleep)
    with running(lab, counting(sleep_once), 1, max_records_per_epoch=25, timeout_s=1.0) as app:
        waker = threading.Thread(target=wake_the_fenced)
        waker.start()
        app.run()
        waker.join()
        assert {type(failure) for failure in app.engine.failures} == {SlotLostError}
    assert woken.is_set()
    check_exact(lab, "two_levels", parts)
