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


def test_an_interval_of_zero_means_never() -> None:
    beside = Beside("upkeep", lambda: pytest.fail("it ran"), interval=0)
    for _ in range(5):
        beside.epoch_ended()
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
