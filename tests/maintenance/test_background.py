"""Work beside the epochs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from millstream.commit.manifest_retention import Urgency
from millstream.maintenance.background import BackgroundScheduler

NONE, WORTH_IT, BACKPRESSURE = Urgency


def test_it_comes_after_every_so_many_epochs() -> None:
    done: list[int] = []
    beside = BackgroundScheduler("maintenance", lambda: done.append(1), interval=3)
    for expected in (0, 0, 1, 1, 1, 2):
        beside.epoch_ended()
        beside.wait()
        assert len(done) == expected


def test_it_comes_early_if_it_is_worth_it_and_then_counts_anew() -> None:
    now = 0.0
    urgency = NONE
    done: list[int] = []
    beside = BackgroundScheduler(
        "maintenance", lambda: done.append(1), interval=3, urgency=lambda: urgency, clock=lambda: now
    )
    for turn, expected in [(NONE, 0), (WORTH_IT, 1), (NONE, 1), (NONE, 1), (NONE, 2), (BACKPRESSURE, 3)]:
        urgency = turn
        beside.epoch_ended()
        beside.wait()
        now += 1
        assert len(done) == expected


def times_of(urgency: Urgency, *, fails: bool = False) -> list[float]:
    """When work that takes 20 seconds begins, if an epoch ends every second."""
    now = 100.0
    done: list[float] = []

    def work() -> None:
        nonlocal now
        done.append(now)
        now += 20
        if fails:
            raise OSError("the disk is full")

    beside = BackgroundScheduler(
        "maintenance", work, interval=1000, urgency=lambda: urgency, clock=lambda: now
    )
    while now < 290:
        beside.epoch_ended()
        beside.wait()
        now += 1
    return done


def test_before_it_comes_early_it_rests_four_times_as_long_as_it_took() -> None:
    assert times_of(WORTH_IT) == [100, 200]


def test_if_it_presses_it_does_not_rest() -> None:
    assert times_of(BACKPRESSURE) == list(range(100, 290, 21))


@pytest.mark.parametrize("urgency", [WORTH_IT, BACKPRESSURE])
def test_after_a_failure_it_rests_however_much_it_presses(urgency: Urgency) -> None:
    assert times_of(urgency, fails=True) == [100, 200]


def test_after_a_failure_it_rests_a_minute_at_least() -> None:
    now = 100.0
    tries: list[float] = []

    def work() -> None:
        tries.append(now)
        raise OSError("the disk is full")

    beside = BackgroundScheduler(
        "maintenance", work, interval=1000, urgency=lambda: BACKPRESSURE, clock=lambda: now
    )
    for _ in range(130):
        beside.epoch_ended()
        beside.wait()
        now += 1
    assert tries == [100, 160, 220]


class Slow:
    """Work that takes until it is told to end."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, interval: int = 100) -> None:
        self.may_end = threading.Event()
        self.begun: list[int] = []
        self.waited: list[str] = []
        self.urgency = WORTH_IT
        self.beside = BackgroundScheduler(
            "maintenance",
            self.work,
            interval=interval,
            urgency=lambda: self.urgency,
            while_waiting=self.while_waiting,
            clock=clock,
        )

    @contextmanager
    def while_waiting(self) -> Iterator[None]:
        self.waited.append("begun")
        yield
        self.waited.append(f"ended at {self.urgency.name}")

    def work(self) -> None:
        self.begun.append(1)
        assert self.may_end.wait(30)
        self.urgency = NONE


def test_it_comes_when_there_is_nothing_to_do_if_it_is_worth_it_and_has_rested() -> None:
    now = 0.0
    urgency = NONE
    done: list[float] = []
    beside = BackgroundScheduler(
        "maintenance", lambda: done.append(now), interval=1, urgency=lambda: urgency, clock=lambda: now
    )
    for turn in (NONE, NONE, WORTH_IT, WORTH_IT, WORTH_IT, NONE):
        urgency = turn
        beside.nothing_to_do()
        beside.wait()
        now += 0.5
    assert done == [1.0, 2.0]


def test_epochs_go_on_while_it_is_at_work() -> None:
    slow = Slow(lambda: 0.0)
    slow.beside.epoch_ended()
    slow.urgency = WORTH_IT
    for _ in range(3):
        slow.beside.epoch_ended()
    assert slow.urgency is WORTH_IT, "nobody has waited"
    assert not slow.waited
    slow.may_end.set()
    slow.beside.wait()
    assert slow.begun == [1]


def test_epochs_wait_for_it_if_it_presses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.maintenance.background._PATIENCE_S", 60.0)
    slow = Slow(lambda: 0.0)
    slow.beside.epoch_ended()
    slow.urgency = BACKPRESSURE
    threading.Timer(0.1, slow.may_end.set).start()
    slow.beside.epoch_ended()
    assert slow.urgency is NONE, "it is done"
    assert slow.begun == [1], "and is not begun again, because nothing presses any more"
    assert slow.waited == ["begun", "ended at NONE"], "the lease, for one, is kept alive meanwhile"


def test_if_it_takes_much_longer_than_the_last_time_they_go_on() -> None:
    now = 0.0
    slow = Slow(lambda: now)
    slow.beside.epoch_ended()
    slow.urgency = BACKPRESSURE
    now = 1.1
    for _ in range(3):
        slow.beside.epoch_ended()
    assert slow.urgency is BACKPRESSURE, "nobody has waited: it was given a second"
    slow.may_end.set()
    slow.beside.wait()


def test_an_interval_of_zero_means_never() -> None:
    beside = BackgroundScheduler(
        "maintenance", lambda: pytest.fail("it ran"), interval=0, urgency=lambda: BACKPRESSURE
    )
    for _ in range(5):
        beside.epoch_ended()
    beside.wait()


def test_a_turn_that_comes_too_early_is_left_out() -> None:
    slow = Slow(interval=3)
    slow.urgency = NONE
    for _ in range(3 + 3 + 1):
        slow.beside.epoch_ended()
    slow.may_end.set()
    slow.beside.wait()
    assert slow.begun == [1]
    for expected in ([1], [1, 1]):
        slow.beside.epoch_ended()
        slow.beside.wait()
        assert slow.begun == expected, "it comes when it is its turn again, and not as soon as it can"


def test_in_the_end_it_is_not_waited_for_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    slow = Slow()
    slow.beside.epoch_ended()
    with caplog.at_level(logging.WARNING, "millstream"):
        slow.beside.wait(0.01)
    assert caplog.messages == ["The maintenance is still at work after 0.01 s. It is left behind."]
    slow.may_end.set()
    slow.beside.wait()
    assert slow.urgency is NONE


def test_a_failure_is_a_warning_and_the_next_turn_tries_again(caplog: pytest.LogCaptureFixture) -> None:
    tries: list[int] = []

    def work() -> None:
        tries.append(1)
        raise OSError("the disk is full")

    beside = BackgroundScheduler("maintenance", work, interval=1)
    with caplog.at_level(logging.WARNING, "millstream"):
        for _ in range(2):
            beside.epoch_ended()
            beside.wait()
    assert len(tries) == 2
    assert caplog.messages[0] == (
        "The maintenance failed; the epochs go on, and it is tried again later: the disk is full"
    )
