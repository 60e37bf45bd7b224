"""Updates of a table that wait."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.processors.kit import Notes, batch_of, opened, updates_of

from millstream import Suppressed, serdes, stores
from millstream.errors import ProcessingError
from millstream.processors.suppress import Suppress
from millstream.record import Window, Windowed
from millstream.state.stores.factory import open_store
from millstream.state.stores.store import changes_of, epoch_committed

BUFFER = stores.time_ordered_buffer("table")
WINDOWED = serdes.time_windowed(serdes.string, 10)


def suppressing(
    suppressed: Suppressed, duration: int = 0, *, send_old: bool = True
) -> tuple[Suppress, Notes]:
    """An operator, opened."""
    operator = Suppress(
        "table",
        suppressed,
        duration_ms=duration if suppressed.limit_ms is None else suppressed.limit_ms,
        send_old=send_old,
    )
    notes = Notes()
    key = WINDOWED if suppressed.limit_ms is None else serdes.string
    notes.table = open_store(BUFFER, notes.backend, key, serdes.json)
    return operator, opened(operator, notes)


def commit(notes: Notes) -> None:
    notes.backend.write(changes_of(notes.table), marker=b"1")
    epoch_committed(notes.table)


def updates(*rows: tuple[Any, Any, Any, int]) -> Any:
    """Rows by key, new value, old value and timestamp."""
    return batch_of(
        *((key, new) for key, new, _, _ in rows),
        olds=[old for _, _, old, _ in rows],
        timestamps=[timestamp for _, _, _, timestamp in rows],
    )


def at(start: int, key: str = "a") -> Windowed[str]:
    return Windowed(key, Window(start, start + 10))


def test_the_last_update_of_a_row_leaves_when_the_first_has_waited_long_enough() -> None:
    operator, _ = suppressing(Suppressed.until_time_limit(10))
    assert operator.process(updates(("a", 1, None, 0), ("a", 2, 1, 6), ("b", 1, None, 9))) is None
    assert updates_of(operator.process(updates(("b", 2, 1, 10)))) == [("a", 2, None, 6)]


def test_an_update_that_comes_after_its_time_leaves_at_once() -> None:
    operator, _ = suppressing(Suppressed.until_time_limit(10))
    out = operator.process(updates(("a", 1, None, 20), ("b", 1, None, 10), ("b", 2, 1, 11)))
    assert updates_of(out) == [("b", 1, None, 10)]


def test_a_limit_of_0_holds_nothing_back() -> None:
    operator, notes = suppressing(Suppressed.until_time_limit(0))
    rows = [("a", 1, None, 5), ("a", None, 1, 3), ("b", 2, None, 7)]
    assert (updates_of(operator.process(updates(*rows))), len(notes.table)) == (rows, 0)


def test_rows_that_leave_together_leave_in_the_order_of_their_times_and_then_of_their_keys() -> None:
    operator, _ = suppressing(Suppressed.until_time_limit(10))
    rows = [("c", 1, None, 2), ("b", 1, None, 1), ("a", 1, None, 2), ("d", 1, None, 50)]
    assert updates_of(operator.process(updates(*rows))) == [
        ("b", 1, None, 1),
        ("a", 1, None, 2),
        ("c", 1, None, 2),
    ]


def test_the_old_value_is_what_was_sent_last_and_not_what_the_last_update_replaced() -> None:
    operator, _ = suppressing(Suppressed.until_time_limit(10))
    operator.process(updates(("a", 1, None, 0)))
    out = operator.process(updates(("b", 0, None, 10), ("a", 2, 1, 11), ("a", 3, 2, 12), ("b", 9, 0, 30)))
    assert updates_of(out) == [("a", 1, None, 0), ("b", 9, None, 30), ("a", 3, 1, 12)]


def test_a_window_leaves_with_its_last_value_when_it_has_closed() -> None:
    operator, _ = suppressing(Suppressed.until_window_closes(), duration=5)
    rows = [(at(0), 1, None, 3), (at(0), 2, 1, 9), (at(10), 1, None, 14)]
    assert operator.process(updates(*rows)) is None
    assert updates_of(operator.process(updates((at(10), 2, 1, 15)))) == [(at(0), 2, None, 9)]


def test_a_tombstone_of_a_window_that_nobody_has_heard_of_does_not_leave() -> None:
    operator, _ = suppressing(Suppressed.until_window_closes())
    out = operator.process(updates((at(0), 1, None, 3), (at(0), None, 1, 4), (at(10), 1, None, 14)))
    assert out is None


@pytest.mark.parametrize(("send_old", "left"), [(True, [(at(0), None, 1, 10)]), (False, None)])
def test_a_tombstone_of_a_window_that_was_sent_leaves_for_those_who_take_it_back(
    send_old: bool, left: Any
) -> None:
    operator, _ = suppressing(Suppressed.until_window_closes(), send_old=send_old)
    operator.process(updates((at(0), 1, None, 10)))
    out = operator.process(updates((at(0), None, 1, 10)))
    assert (None if out is None else updates_of(out)) == left


def test_an_update_leaves_with_its_own_timestamp_and_headers() -> None:
    operator, _ = suppressing(Suppressed.until_time_limit(10))
    operator.process(batch_of(("a", 1), timestamps=[5], headers=[(("trace", b"1"), ("gone", None))]))
    out = operator.process(batch_of(("b", 1), timestamps=[30], headers=[(("trace", b"2"),)]))
    assert out is not None
    assert (list(out.timestamps), out.headers) == ([5], [(("trace", b"1"), ("gone", None))])


def test_old_values_are_left_out_if_nobody_asks_for_them() -> None:
    operator, _ = suppressing(Suppressed.until_time_limit(0), send_old=False)
    out = operator.process(updates(("a", 1, 7, 5)))
    assert out is not None
    assert out.olds is None


def test_what_has_waited_longest_leaves_early_if_too_many_wait() -> None:
    operator, notes = suppressing(Suppressed.until_time_limit(100, max_records=2))
    out = operator.process(
        updates(("a", 1, None, 3), ("b", 1, None, 1), ("c", 1, None, 2), ("d", 1, None, 9))
    )
    assert updates_of(out) == [("b", 1, None, 1), ("c", 1, None, 2)]
    assert [record.key for record in notes.table.all()] == ["a", "d"]


def test_what_has_waited_longest_leaves_early_if_what_waits_is_too_large() -> None:
    operator, notes = suppressing(Suppressed.until_time_limit(100, max_bytes=100))
    operator.process(updates(("a", "x", None, 1), ("b", "x", None, 2)))
    assert notes.table.num_bytes == 68
    out = operator.process(updates(("c", "x" * 50, None, 3)))
    assert updates_of(out) == [("a", "x", None, 1), ("b", "x", None, 2)]
    assert updates_of(operator.process(updates(("c", "y" * 90, "x" * 50, 4)))) == [("c", "y" * 90, None, 4)]


def test_a_full_buffer_that_must_not_let_go_ends_the_application() -> None:
    operator, _ = suppressing(Suppressed.until_window_closes(max_records=1))
    with pytest.raises(ProcessingError) as failure:
        operator.process(updates((at(0), 1, None, 3), (at(0, "b"), 1, None, 4)))
    assert str(failure.value) == (
        "suppress() at operator 'node' of task 0_0 is full: it holds 2 updates back, 80 bytes in all; its "
        "bound is max_records=1. Likely cause: more rows are open at a time than expected, or stream time "
        "stands still. Remedy: raise the bound, or leave it out: the buffer is in a store, not in memory"
    )


def test_what_leaves_in_time_makes_room_before_the_bound_is_looked_at() -> None:
    operator, _ = suppressing(Suppressed.until_window_closes(max_records=1))
    out = operator.process(updates((at(0), 1, None, 3), (at(10), 1, None, 14)))
    assert updates_of(out) == [(at(0), 1, None, 3)]


def test_a_value_that_cant_be_kept_is_left_out() -> None:
    operator, notes = suppressing(Suppressed.until_time_limit(0))
    out = operator.process(updates(("a", 1, None, 1), ("a", object(), 1, 2), ("b", 3, None, 3)))
    assert updates_of(out) == [("a", 1, None, 1), ("b", 3, None, 3)]
    assert [row for row, _ in notes.failures] == [1]
    assert "store 'table'" in notes.messages[0][1]


class Naive:
    """Kafka's operator, one update at a time, except for the old value."""

    def __init__(self, suppressed: Suppressed, duration: int) -> None:
        self.suppressed, self.duration = suppressed, duration
        self.rows: dict[Any, list[Any]] = {}
        self.time = -1

    def process(self, key: Any, new: Any, old: Any, timestamp: int) -> list[tuple[Any, Any, Any, int]]:
        self.time = max(self.time, timestamp)
        by_window = self.suppressed.limit_ms is None
        if key in self.rows:
            self.rows[key][1:3] = [new, timestamp]
        else:
            self.rows[key] = [key.window.end if by_window else timestamp, new, timestamp, old]
        left: list[tuple[Any, Any, Any, int]] = []
        bound = self.suppressed.max_records
        while self.rows:
            first = min(self.rows, key=lambda key: (self.rows[key][0], str(key)))
            time, value, last, prior = self.rows[first]
            if time > self.time - self.duration and (bound is None or len(self.rows) <= bound):
                break
            del self.rows[first]
            if not by_window or value is not None or prior is not None:
                left.append((first, value, prior, last))
        return left


@given(
    kind=st.sampled_from(["limit", "bounded", "window"]),
    rows=st.lists(
        st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 9)), st.integers(0, 60)),
        max_size=40,
    ),
    sizes=st.lists(st.integers(1, 8), min_size=1),
    commits=st.booleans(),
)
def test_batches_of_any_size_and_commits_between_them_change_nothing(
    kind: str, rows: list[tuple[str, Any, int]], sizes: list[int], commits: bool
) -> None:
    suppressed = {
        "limit": Suppressed.until_time_limit(10),
        "bounded": Suppressed.until_time_limit(30, max_records=2),
        "window": Suppressed.until_window_closes(),
    }[kind]
    duration = 5 if kind == "window" else suppressed.limit_ms or 0
    table: dict[Any, Any] = {}
    changes = []
    for name, new, timestamp in rows:
        key = at(timestamp // 10 * 10, name) if kind == "window" else name
        changes.append((key, new, table.get(key), timestamp))
        table[key] = new
    naive = Naive(suppressed, duration)
    expected = [left for change in changes for left in naive.process(*change)]

    operator, notes = suppressing(suppressed, duration)
    actual: list[Any] = []
    start, number = 0, 0
    while start < len(changes):
        size = sizes[number % len(sizes)]
        out = operator.process(updates(*changes[start : start + size]))
        actual += [] if out is None else updates_of(out)
        start, number = start + size, number + 1
        if commits:
            commit(notes)
    assert actual == expected
    assert len(notes.table) == len(naive.rows)
    assert notes.table.num_bytes == sum(one.num_bytes for one in notes.table.waiting())


@given(rows=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 60)), max_size=40))
def test_whoever_takes_old_values_back_has_what_was_sent(rows: list[tuple[str, int, int]]) -> None:
    operator, _ = suppressing(Suppressed.until_time_limit(10, max_records=2))
    table: dict[str, int] = {}
    sent: dict[str, int] = {}
    for key, new, timestamp in rows:
        out = operator.process(updates((key, new, table.get(key), timestamp)))
        table[key] = new
        for sent_key, value, old, _ in [] if out is None else updates_of(out):
            assert old == sent.get(sent_key)
            sent[sent_key] = value


def closing(after_idle: int = 60, duration: int = 5) -> tuple[Suppress, Notes]:
    """An operator whose windows close by the clock, at wall clock 1000, with a window [0, 10) open at 9."""
    operator, notes = suppressing(Suppressed.until_window_closes(after_idle=after_idle), duration)
    notes.now = 1000
    operator.process(updates((at(0), 1, None, 9)))
    return operator, notes


def test_a_window_closes_when_no_record_has_come_for_long_enough() -> None:
    operator, notes = closing()
    notes.now = 1059
    assert operator.flush() is None
    notes.now = 1060
    assert updates_of(operator.flush()) == [(at(0), 1, None, 9)]
    assert notes.times.observed == 69


def test_stream_time_moves_on_by_the_clock_and_not_further() -> None:
    operator, notes = closing(after_idle=2, duration=5)
    left = []
    for now in (1002, 1005, 1006):
        notes.now = now
        left.append((operator.flush() is not None, notes.times.observed))
    assert left == [(False, 11), (False, 14), (False, 14)]
    notes.now = 1007
    assert updates_of(operator.flush()) == [(at(0), 1, None, 9)]


def test_a_record_starts_the_wait_anew() -> None:
    operator, notes = closing()
    notes.now = 1059
    operator.process(updates((at(0), 2, 1, 9)))
    notes.now = 1118
    assert operator.flush() is None
    notes.now = 1119
    assert updates_of(operator.flush()) == [(at(0), 2, None, 9)]


def test_while_records_wait_to_be_read_it_is_not_quiet() -> None:
    operator, notes = closing()
    notes.now, notes.caught_up = 5000, False
    assert operator.flush() is None
    notes.caught_up = True
    assert updates_of(operator.flush()) == [(at(0), 1, None, 9)]


def test_a_window_that_the_clock_has_closed_stays_closed() -> None:
    operator, notes = closing(duration=0)
    notes.now = 1060
    operator.flush()
    late = [(at(0), 2, 1, 9), (at(0), None, 2, 9), (at(0, "b"), 1, None, 9), (at(50), 1, None, 50)]
    out = operator.process(updates(*late, (at(60), 1, None, 61)))
    assert (out, notes.late_rows) == (None, [0, 1, 2, 3])
    assert [record.key for record in notes.table.all()] == [at(60)]


def test_the_clock_is_needed_only_while_something_is_open() -> None:
    operator, notes = closing()
    before = operator.waits_for_clock
    notes.now = 1060
    operator.flush()
    assert (before, operator.waits_for_clock) == (True, False)
    notes.now = 9999
    assert (operator.flush(), notes.times.observed) == (None, 69)


def test_without_after_idle_the_clock_closes_nothing() -> None:
    operator, notes = suppressing(Suppressed.until_window_closes())
    operator.process(updates((at(0), 1, None, 9)))
    notes.now = 10**9
    assert (operator.flush(), operator.waits_for_clock) == (None, False)


def test_windows_that_were_open_before_count_from_the_first_look_at_the_clock() -> None:
    operator, notes = closing()
    notes.times.active = -1
    notes.now = 2000
    assert operator.flush() is None
    notes.now = 2060
    assert updates_of(operator.flush()) == [(at(0), 1, None, 9)]
