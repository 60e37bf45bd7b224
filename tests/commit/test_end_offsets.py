"""Where partitions end: looked at where somebody has written, and everywhere now and then."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

import pytest

from millstream.commit.end_offsets import EndOffsets
from millstream.log.api import Log, LogWatch, TopicPartition
from millstream.types import Offset, Partition

PLACES = [TopicPartition("lines", Partition(number)) for number in range(3)]


class Told(LogWatch):
    """Tells what a test says."""

    def __init__(self) -> None:
        self.news: set[TopicPartition] | None = set()
        self.is_closed = False

    def changed(self) -> Collection[TopicPartition] | None:
        news, self.news = self.news, set()
        return news

    def wait(self, timeout_s: float) -> bool:
        return bool(self.news)

    def close(self) -> None:
        self.is_closed = True


class Ends:
    """A log of which only the ends are asked for."""

    def __init__(self, *, tells: bool = True) -> None:
        self.tells = tells
        self.ends = dict.fromkeys(PLACES, Offset(0))
        self.asked: list[TopicPartition] = []
        self.watches: list[Told] = []

    def latest(self, place: TopicPartition) -> Offset:
        self.asked.append(place)
        return self.ends[place]

    def watch(self, places: Sequence[TopicPartition]) -> Told | None:
        assert list(places) == PLACES
        if self.tells:
            self.watches.append(Told())
        return self.watches[-1] if self.tells else None

    def append(self, number: int, *, told: bool = True) -> None:
        self.ends[PLACES[number]] = Offset(self.ends[PLACES[number]] + 1)
        news = self.watches[-1].news if told else None
        if news is not None:
            news.add(PLACES[number])

    def asked_since(self) -> list[TopicPartition]:
        asked, self.asked = self.asked, []
        return asked


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def ends_of(log: Ends, clock: Clock) -> EndOffsets:
    ends = EndOffsets(cast("Log", log), clock)
    assert ends.look(PLACES) == log.ends
    assert (log.asked_since(), ends.is_complete) == (PLACES, True)
    return ends


def test_only_those_are_looked_at_that_were_written_to(clock: Clock) -> None:
    log = Ends()
    ends = ends_of(log, clock)
    log.append(1)
    assert ends.look(PLACES) == log.ends
    assert (log.asked_since(), ends.is_complete) == ([PLACES[1]], False)
    assert ends.look(PLACES) == log.ends
    assert log.asked_since() == []


def test_what_nobody_told_of_is_found_now_and_then(clock: Clock) -> None:
    log = Ends()
    ends = ends_of(log, clock)
    log.append(2, told=False)
    assert ends.look(PLACES)[PLACES[2]] == 0
    clock.now += 1
    assert ends.look(PLACES)[PLACES[2]] == 1
    assert (log.asked_since(), ends.is_complete) == (PLACES, True)


def test_what_nobody_told_of_is_found_when_there_is_time(clock: Clock) -> None:
    log = Ends()
    ends = ends_of(log, clock)
    log.append(2, told=False)
    assert ends.look_at_all() == log.ends


def test_the_longer_it_takes_the_more_rarely_all_are_looked_at(clock: Clock) -> None:
    class Slow(Ends):
        def latest(self, place: TopicPartition) -> Offset:
            clock.now += 1
            return super().latest(place)

    log = Slow()
    ends = ends_of(log, clock)
    clock.now += 59
    ends.look(PLACES)
    assert log.asked_since() == []
    clock.now += 1
    ends.look(PLACES)
    assert log.asked_since() == PLACES


def test_where_nobody_tells_all_are_looked_at(clock: Clock) -> None:
    log = Ends(tells=False)
    ends = ends_of(log, clock)
    assert (ends.is_told, ends.look(PLACES), log.asked_since()) == (False, log.ends, PLACES)


def test_when_nobody_can_tell_any_more_all_are_looked_at_and_watched_anew(clock: Clock) -> None:
    log = Ends()
    ends = ends_of(log, clock)
    log.append(0, told=False)
    log.watches[0].news = None
    assert ends.look(PLACES) == log.ends
    assert [watch.is_closed for watch in log.watches] == [True, False]
    assert log.asked_since() == PLACES


def test_who_was_closed_watches_anew(clock: Clock) -> None:
    log = Ends()
    ends = ends_of(log, clock)
    ends.close()
    assert (ends.is_told, ends.look(PLACES), ends.is_told) == (False, log.ends, True)
