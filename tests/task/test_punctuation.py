"""Schedules: when each punctuator is due, and what a new task knows of it."""

from __future__ import annotations

import pytest

from millstream.errors import ProcessingError
from millstream.processors.api import PunctuationType
from millstream.task.punctuation import Punctuations, Schedule

STREAM, WALL = PunctuationType.STREAM_TIME, PunctuationType.WALL_CLOCK_TIME


class Calls:
    """Punctuations whose calls are noted by name."""

    def __init__(self, remembered: dict[tuple[str, int], int] | None = None) -> None:
        self.punctuations = Punctuations(remembered or {})
        self.made: list[tuple[str, int]] = []

    def add(self, name: str, interval_ms: int, kind: PunctuationType = STREAM, now: int = 0) -> Schedule:
        return self.punctuations.schedule(
            name, interval_ms, kind, lambda timestamp: self.made.append((name, timestamp)), now
        )

    def at(self, now: int, kind: PunctuationType = STREAM) -> list[tuple[str, int]]:
        self.made = []
        self.punctuations.run(kind, now, lambda schedule, timestamp: schedule.callback(timestamp))
        return self.made


def test_stream_time_counts_from_zero_so_the_first_record_fires() -> None:
    calls = Calls()
    calls.add("a", 10)
    assert [calls.at(now) for now in (7, 9, 10, 12, 45, 49, 50)] == [
        [("a", 7)],
        [],
        [("a", 10)],
        [],
        [("a", 45)],
        [],
        [("a", 50)],
    ]


def test_the_wall_clock_counts_from_when_it_was_scheduled() -> None:
    calls = Calls()
    calls.add("a", 10, WALL, now=1003)
    assert [calls.at(now, WALL) for now in (1003, 1012, 1013, 1014, 1050)] == [
        [],
        [],
        [("a", 1013)],
        [],
        [("a", 1050)],
    ]


def test_missed_intervals_are_one_call_and_the_next_is_where_it_would_have_been() -> None:
    calls = Calls()
    calls.add("a", 10, WALL, now=3)
    assert calls.at(37, WALL) == [("a", 37)]
    assert calls.punctuations.next_due(WALL) == 43


def test_clocks_do_not_drive_each_other() -> None:
    calls = Calls()
    calls.add("a", 10, WALL)
    calls.add("b", 10, STREAM)
    assert calls.at(100, STREAM) == [("b", 100)]


def test_the_one_that_was_due_first_is_called_first() -> None:
    calls = Calls()
    calls.add("slow", 10, WALL)
    calls.add("fast", 4, WALL)
    assert calls.at(11, WALL) == [("fast", 11), ("slow", 11)]


def test_of_two_that_are_due_together_the_one_that_was_scheduled_anew_first_is_called_first() -> None:
    calls = Calls()
    calls.add("fast", 5)
    calls.add("slow", 10)
    assert calls.at(0) == [("fast", 0), ("slow", 0)]
    calls.at(5)
    assert calls.at(10) == [("slow", 10), ("fast", 10)]


@pytest.mark.parametrize("kind", [STREAM, WALL])
@pytest.mark.parametrize("fresh", [False, True])
def test_equal_times_are_called_in_the_order_of_kafkas_queue(kind: PunctuationType, fresh: bool) -> None:
    def opened(remembered: dict[tuple[str, int], int] | None = None) -> Calls:
        calls = Calls(remembered)
        calls.add("a", 70, kind)
        calls.add("b", 30, kind)
        return calls

    calls, order = opened(), ""
    for now in (0, 200, 210):
        order += "".join(name for name, _ in calls.at(now, kind))
        if fresh:
            calls = opened(calls.punctuations.remember())
    assert order == {STREAM: "abbaba", WALL: "baba"}[kind]


def test_a_cancelled_one_keeps_its_place_until_its_time_has_come() -> None:
    def opened(remembered: dict[tuple[str, int], int] | None = None) -> tuple[Calls, Schedule]:
        calls = Calls(remembered)
        first = calls.add("a", 10)
        for name in "bcd":
            calls.add(name, 10)
        return calls, first

    calls, first = opened()
    first.cancel()
    remembered = calls.punctuations.remember()
    assert remembered == {("a stream time", 0): -2, **{(f"{name} stream time", 0): 0 for name in "bcd"}}
    again, _ = opened(remembered)
    # The last one fills the place of the first. Without the cancelled one, it would be "b", "d", "c".
    expected = [("d", 0), ("c", 0), ("b", 0)]
    assert [calls.at(0), again.at(0)] == [expected, expected]
    assert calls.punctuations.remember() == again.punctuations.remember()
    assert again.punctuations.remember()["a stream time", 0] == -1


def test_what_is_remembered_in_another_order_is_called_by_time_all_the_same() -> None:
    calls = Calls({("a stream time", 0): 30, ("b stream time", 0): 20, ("c stream time", 0): 10})
    for name in "abc":
        calls.add(name, 100)
    assert calls.at(50) == [("c", 50), ("b", 50), ("a", 50)]


def test_one_that_is_not_made_again_is_remembered_all_the_same() -> None:
    calls = Calls({("a stream time", 0): 30, ("b stream time", 0): 20, ("c stream time", 0): -1})
    calls.add("b", 100)
    assert calls.punctuations.remember() == {
        ("b stream time", 0): 20,
        ("a stream time", 0): 30,
        ("c stream time", 0): -1,
    }


def test_a_new_task_calls_them_in_the_same_order() -> None:
    calls = Calls()
    calls.add("fast", 5)
    calls.add("slow", 10)
    calls.at(7)
    again = Calls(calls.punctuations.remember())
    again.add("fast", 5)
    again.add("slow", 10)
    assert calls.at(10) == again.at(10)


def test_a_cancelled_one_is_not_called() -> None:
    calls = Calls()
    calls.add("a", 10).cancel()
    assert calls.at(100) == []
    assert calls.punctuations.next_due(STREAM) is None
    assert not calls.punctuations.has(STREAM)


def test_one_that_cancels_itself_is_called_once() -> None:
    punctuations = Punctuations({})
    calls = []

    def once(timestamp: int) -> None:
        calls.append(timestamp)
        schedule.cancel()

    schedule = punctuations.schedule("a", 10, STREAM, once, 0)
    for now in (5, 25):
        punctuations.run(STREAM, now, lambda one, timestamp: one.callback(timestamp))
    assert calls == [5]


def test_a_new_task_goes_on_where_the_last_one_stopped() -> None:
    calls = Calls()
    calls.add("a", 10)
    calls.at(12)
    again = Calls(calls.punctuations.remember())
    again.add("a", 10)
    assert again.at(19) == []
    assert again.at(20) == [("a", 20)]


def test_what_was_cancelled_stays_so_in_a_new_task() -> None:
    calls = Calls()
    calls.add("a", 10).cancel()
    again = Calls(calls.punctuations.remember())
    again.add("a", 10)
    assert again.at(100) == []


def test_schedules_of_a_node_are_told_apart_by_their_number() -> None:
    calls = Calls()
    calls.add("a", 10).cancel()
    calls.add("a", 20)
    again = Calls(calls.punctuations.remember())
    again.add("a", 10)
    again.add("a", 20)
    assert again.at(5) == [("a", 5)]


@pytest.mark.parametrize("interval_ms", [0, -5])
def test_an_interval_of_less_than_a_millisecond_is_refused(interval_ms: int) -> None:
    with pytest.raises(ProcessingError) as caught:
        Calls().add("a", interval_ms)
    expected = f"node 'a' schedules a punctuator every {interval_ms} ms: at least 1 is needed"
    assert str(caught.value) == expected
