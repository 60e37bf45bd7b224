"""Works beside the epochs that give way to small ones."""

from __future__ import annotations

import threading

import pytest

from millstream import throttler as module
from millstream.commit.manifest_retention import Urgency
from millstream.maintenance.background import BackgroundScheduler
from millstream.throttler import Throttler, maybe_throttle

LONG_S = 60.0


@pytest.fixture
def all_epochs_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALL_EPOCH_S", 3600.0)


class Clock:
    """Stands still, unless a step ends."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def worker(throttler: Throttler, clock: Clock, step_s: float) -> tuple[threading.Thread, threading.Event]:
    """A thread that works for one step, and what tells that it goes on behind it."""
    goes_on = threading.Event()

    def work() -> None:
        with throttler.throttled():
            clock.now += step_s
            maybe_throttle()
            goes_on.set()

    return threading.Thread(target=work), goes_on


@pytest.mark.usefixtures("all_epochs_are_small")
def test_a_work_goes_on_when_the_epoch_has_ended() -> None:
    clock = Clock()
    throttler = Throttler(clock)
    thread, goes_on = worker(throttler, clock, 0.01)
    with throttler.epoch():
        thread.start()
        assert not goes_on.wait(0.05)
    assert goes_on.wait(LONG_S)
    thread.join()


@pytest.mark.usefixtures("all_epochs_are_small")
def test_a_short_step_is_not_the_end_of_one() -> None:
    clock = Clock()
    throttler = Throttler(clock)
    thread, goes_on = worker(throttler, clock, 0.0001)
    with throttler.epoch():
        thread.start()
        assert goes_on.wait(LONG_S)
    thread.join()


def test_a_long_epoch_is_not_waited_for() -> None:
    clock = Clock()
    throttler = Throttler(clock)
    thread, goes_on = worker(throttler, clock, 1.0)
    with throttler.epoch():
        thread.start()
        assert goes_on.wait(LONG_S)
    thread.join()


@pytest.mark.usefixtures("all_epochs_are_small")
def test_a_work_that_is_waited_for_goes_on_at_once() -> None:
    clock = Clock()
    throttler = Throttler(clock)
    thread, goes_on = worker(throttler, clock, 0.01)
    with throttler.epoch():
        thread.start()
        throttler.hurry()
        assert goes_on.wait(LONG_S)
    thread.join()


def test_a_thread_that_is_not_throttled_does_not_wait() -> None:
    with Throttler().epoch():
        maybe_throttle()


class Beside:
    """A scheduler whose work has many steps that take long, beside an epoch that does not end."""

    def __init__(self, *, interval: int, urgency: Urgency = Urgency.NONE) -> None:
        self.began = threading.Event()
        self.done = threading.Event()
        clock = Clock()
        self.throttler = Throttler(clock)
        self.urgency = urgency

        def work() -> None:
            self.began.set()
            for _ in range(100):
                clock.now += 0.01
                maybe_throttle()
            self.done.set()

        self.scheduler = BackgroundScheduler(
            "maintenance", work, interval=interval, urgency=lambda: self.urgency, throttler=self.throttler
        )

    def begin(self) -> None:
        self.scheduler.epoch_ended()
        assert self.began.wait(LONG_S)
        assert not self.done.wait(0.05)


@pytest.mark.usefixtures("all_epochs_are_small")
def test_when_its_turn_comes_again_a_work_does_not_give_way_any_more() -> None:
    beside = Beside(interval=1)
    with beside.throttler.epoch():
        beside.begin()
        beside.scheduler.epoch_ended()
        assert beside.done.wait(LONG_S)
    beside.scheduler.wait()


@pytest.mark.usefixtures("all_epochs_are_small")
def test_under_backpressure_a_work_does_not_give_way() -> None:
    beside = Beside(interval=1000, urgency=Urgency.WORTH_IT)
    with beside.throttler.epoch():
        beside.begin()
        beside.urgency = Urgency.BACKPRESSURE
        beside.scheduler.epoch_ended()
        assert beside.done.wait(LONG_S)
    beside.scheduler.wait()


@pytest.mark.usefixtures("all_epochs_are_small")
def test_whoever_waits_for_the_end_of_a_work_is_not_given_way() -> None:
    beside = Beside(interval=1000, urgency=Urgency.WORTH_IT)
    with beside.throttler.epoch():
        beside.begin()
        beside.scheduler.wait()
        assert beside.done.is_set()


@pytest.mark.usefixtures("all_epochs_are_small")
def test_the_next_work_gives_way_again() -> None:
    beside = Beside(interval=1)
    with beside.throttler.epoch():
        beside.begin()
        beside.scheduler.wait()
    beside.began.clear()
    beside.done.clear()
    with beside.throttler.epoch():
        beside.begin()
    beside.scheduler.wait()
