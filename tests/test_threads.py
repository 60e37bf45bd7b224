"""What is done in another thread, and who waits for it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

import pytest

from millstream.threads import at_low_priority, short_turns, with_timeout


class Storage:
    """Answers when it is told to, with the number of the question."""

    def __init__(self) -> None:
        self.is_asked, self.may_answer = threading.Event(), threading.Event()
        self.asked = 0

    def __call__(self) -> int:
        self.asked += 1
        asked = self.asked
        self.is_asked.set()
        assert self.may_answer.wait(30)
        return asked


def test_an_answer_that_does_not_come_is_a_timeout_and_nobody_asks_again_meanwhile() -> None:
    storage = Storage()
    ask = with_timeout(storage, 0.05, "The storage")
    for _ in range(3):
        with pytest.raises(TimeoutError, match=r"^The storage has not answered within 0\.05 s\.$"):
            ask()
    assert storage.is_asked.wait(30)
    assert storage.asked == 1
    storage.may_answer.set()


def test_an_answer_that_comes_too_late_is_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage()
    ask = with_timeout(storage, 30, "The storage")
    before = set(threading.enumerate())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "join", lambda *_: storage.is_asked.wait(30))  # no longer than that
        with pytest.raises(TimeoutError):
            ask()
    (late,) = (one for one in set(threading.enumerate()) - before if one.name == "millstream-question")
    storage.may_answer.set()
    late.join()
    assert with_timeout(storage, 30, "The storage")() == 2
    assert ask() == 3, "and not 1"


def test_an_error_is_raised_to_whom_has_asked() -> None:
    def ask() -> int:
        raise PermissionError("the bucket is not yours")

    with pytest.raises(PermissionError, match="the bucket is not yours"):
        with_timeout(ask, 30, "The storage")()


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
def test_a_long_work_has_a_low_priority_and_whoever_waits_for_it_has_not() -> None:
    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    before = priority()

    def lowered(lower: Callable[[], None]) -> int:
        assert priority() == before
        lower()
        return priority()

    assert at_low_priority(lowered) > before == priority()


def test_the_error_of_a_long_work_is_raised_to_whom_waits() -> None:
    def work(lower: Callable[[], None]) -> None:
        lower()
        raise PermissionError("the disk is not yours")

    with pytest.raises(PermissionError, match="the disk is not yours"):
        at_low_priority(work)


def test_turns_are_short_until_the_last_of_several_works_has_ended() -> None:
    before = sys.getswitchinterval()
    with short_turns:
        with short_turns:
            assert sys.getswitchinterval() < before
        assert sys.getswitchinterval() < before
    assert sys.getswitchinterval() == before
