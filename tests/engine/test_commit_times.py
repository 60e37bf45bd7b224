"""Which commit was the last one a while ago: by that it is judged how stale an answer is."""

from __future__ import annotations

import pytest

from millstream.commit.manifest import Manifest
from millstream.query import commit_times
from millstream.query.commit_times import CommitTimes
from millstream.types import Epoch, Term


def manifest(epoch: int) -> Manifest:
    return Manifest("app", Epoch(epoch), Term(1), "", "", 0, (), {}, (), ())


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_last_commit_of_a_while_ago_is_known() -> None:
    clock = Clock()
    times = CommitTimes(lambda: manifest(3), clock)
    assert times.last_before(0) == 0
    assert (times.head() or manifest(0)).epoch == 3
    for epoch in (4, 5):
        clock.now += 1.0
        times.note(manifest(epoch))
    clock.now += 0.5
    found = {seconds: times.last_before(seconds) for seconds in (0, 0.4, 0.5, 0.6, 1.5, 1.6, 2.5, 1_000)}
    assert found == {0: 5, 0.4: 5, 0.5: 5, 0.6: 4, 1.5: 4, 1.6: 3, 2.5: 3, 1_000: 3}
    times.note(manifest(4))
    assert (times.head() or manifest(0)).epoch == 5, "it does not go back"


def test_what_is_forgotten_makes_answers_fresher_and_never_staler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_times, "_MOST", 4)
    clock = Clock()
    times = CommitTimes(lambda: None, clock)
    assert times.head() is None
    for epoch in range(1, 10):
        times.note(manifest(epoch))
        clock.now += 1.0
    assert times.last_before(1_000) == 5
    assert times.last_before(2.0) == 8
