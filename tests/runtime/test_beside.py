"""Work beside the epochs."""

from __future__ import annotations

import logging
import threading

import pytest

from millstream.runtime.beside import Beside


def test_it_comes_after_every_so_many_epochs() -> None:
    done: list[int] = []
    beside = Beside("upkeep", lambda: done.append(1), interval=3)
    for expected in (0, 0, 1, 1, 1, 2):
        beside.epoch_ended()
        beside.wait()
        assert len(done) == expected


def test_it_comes_early_if_there_is_much_and_then_counts_anew() -> None:
    now = 0.0
    done: list[int] = []
    beside = Beside("upkeep", lambda: done.append(1), interval=3, clock=lambda: now)
    turns = [(False, 0), (True, 1), (False, 1), (False, 1), (False, 2), (True, 3)]
    for has_much, expected in turns:
        beside.epoch_ended(has_much=has_much)
        beside.wait()
        now += 1
        assert len(done) == expected


def test_before_it_comes_early_it_rests_four_times_as_long_as_it_took() -> None:
    now = 100.0
    done: list[float] = []

    def work() -> None:
        nonlocal now
        done.append(now)
        now += 20

    beside = Beside("upkeep", work, interval=1000, clock=lambda: now)
    for _ in range(180):
        beside.epoch_ended(has_much=True)
        beside.wait()
        now += 1
    assert done == [100, 200, 300]


def test_after_a_failure_it_rests_a_minute_before_it_comes_early() -> None:
    now = 100.0
    tries: list[float] = []

    def work() -> None:
        tries.append(now)
        raise OSError("the disk is full")

    beside = Beside("upkeep", work, interval=1000, clock=lambda: now)
    for _ in range(130):
        beside.epoch_ended(has_much=True)
        beside.wait()
        now += 1
    assert tries == [100, 160, 220]


def test_an_interval_of_zero_means_never() -> None:
    beside = Beside("upkeep", lambda: pytest.fail("it ran"), interval=0)
    for _ in range(5):
        beside.epoch_ended(has_much=True)
    beside.wait()


def test_a_turn_that_comes_too_early_is_left_out() -> None:
    may_end = threading.Event()
    begun: list[int] = []

    def work() -> None:
        begun.append(1)
        may_end.wait(30)

    beside = Beside("upkeep", work, interval=1)
    for _ in range(4):
        beside.epoch_ended()
    may_end.set()
    beside.wait()
    assert len(begun) == 1
    beside.epoch_ended()
    beside.wait()
    assert len(begun) == 2


def test_a_failure_is_a_warning_and_the_next_turn_tries_again(caplog: pytest.LogCaptureFixture) -> None:
    tries: list[int] = []

    def work() -> None:
        tries.append(1)
        raise OSError("the disk is full")

    beside = Beside("upkeep", work, interval=1)
    with caplog.at_level(logging.WARNING, "millstream"):
        for _ in range(2):
            beside.epoch_ended()
            beside.wait()
    assert len(tries) == 2
    assert caplog.messages[0] == (
        "The upkeep failed; the epochs go on, and it is tried again later: the disk is full"
    )
