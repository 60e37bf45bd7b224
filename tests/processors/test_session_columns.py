"""Sessions found in columns are those that records one by one give, in state and in updates."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.processors.session_oracle import SessionOracle
from tests.processors.test_session_windows import Sessions, merger_of

from millstream import SessionWindows, serdes
from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.aggregations.count import COUNT
from millstream.processors.aggregations.min_max import min_max
from millstream.processors.aggregations.sum import sum_of
from millstream.processors.windows import session_windows

Row = tuple[str, int, int]
AGGREGATIONS = {"count": COUNT, "sum": sum_of(None), "min": min_max("min", None), "max": min_max("max", None)}


@pytest.fixture(autouse=True, scope="module")
def few_rows_are_many() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_windows, "are_many", bool)
        yield


def cached(windows: SessionWindows, aggregation: Aggregation, retention: int, **options: Any) -> Sessions:
    return Sessions(windows, aggregation, caching=True, retention=retention, value=serdes.int64, **options)


def in_turn(rows: Sequence[Row]) -> list[Row]:
    """Each so much after the one before it."""
    times = accumulate(step for _, _, step in rows)
    return [(key, value, time) for (key, value, _), time in zip(rows, times, strict=True)]


def out_of_turn(rows: Sequence[Row]) -> list[Row]:
    """Each so much before or after its time."""
    return [(key, value, max(0, 2 * number + step)) for number, (key, value, step) in enumerate(rows)]


in_order = st.lists(
    st.tuples(st.sampled_from(["a", "b", "b\0"]), st.integers(-5, 5), st.sampled_from([0, 0, 0, 1, 2, 5, 9])),
    max_size=40,
).map(in_turn)
jumps = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(-5, 5), st.integers(-9, 12)), max_size=40
).map(out_of_turn)


@settings(max_examples=200, deadline=None)
@given(
    rows=in_order | jumps,
    sizes=st.lists(st.integers(1, 15), min_size=1, max_size=4),
    epoch=st.integers(1, 4),
    gap=st.integers(1, 12),
    grace=st.sampled_from([0, 5, 30]),
    spare=st.sampled_from([0, 1, 100]),
    how=st.sampled_from(sorted(AGGREGATIONS)),
    send_old=st.booleans(),
)
def test_any_input_in_any_batches_gives_what_the_oracle_gives(
    rows: list[Row],
    sizes: list[int],
    epoch: int,
    gap: int,
    grace: int,
    spare: int,
    how: str,
    send_old: bool,
) -> None:
    retention, aggregation = gap + grace + spare, AGGREGATIONS[how]
    fold, merge = aggregation.fold, merger_of(aggregation)
    oracle = SessionOracle(gap, grace, retention, lambda: None, fold, merge, caching=True)
    sessions = cached(SessionWindows(gap, grace=grace), aggregation, retention, send_old=send_old)
    taken = batches = 0
    while taken < len(rows):
        some = rows[taken : taken + sizes[batches % len(sizes)]]
        sessions.take(*some)
        for row in some:
            oracle.take(*row)
        taken, batches = taken + len(some), batches + 1
        if batches % epoch == 0:
            sessions.commit()
            oracle.commit()
        sent = [(row, new, old if send_old else None, time) for row, new, old, time in oracle.sent]
        assert sessions.sent == sent
        assert sessions.notes.stored() == oracle.visible()
    assert (len(sessions.notes.late_rows), sessions.notes.failures) == (oracle.late, [])


def test_rows_in_order_are_done_in_columns_without_grace_and_with_equal_timestamps() -> None:
    sessions = cached(SessionWindows(5), COUNT, 5)
    sessions.take(("a", 1, 0), ("b", 1, 5), ("a", 1, 5), ("b", 1, 8))
    assert sessions.commit() == [
        (("a", 0, 0), 1, None, 0),
        (("a", 5, 5), 1, None, 5),
        (("b", 5, 8), 2, None, 8),
    ]
    assert sessions.notes.fallen_back == {}


def test_rows_out_of_order_within_the_grace_are_done_in_columns() -> None:
    sessions = cached(SessionWindows(5, grace=10), COUNT, 15)
    sessions.take(("a", 1, 0), ("a", 1, 10))
    sessions.commit()
    sessions.take(("a", 1, 6), ("b", 1, 12), ("a", 1, 5))
    assert sessions.commit() == [
        (("a", 10, 10), None, 1, 10),
        (("b", 12, 12), 1, None, 12),
        (("a", 0, 0), None, 1, 0),
        (("a", 0, 10), 4, None, 10),
    ]
    assert sessions.notes.fallen_back == {}


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([("a", 1, 100), ("a", 1, 50)], "a late row"),
        ([("a", 1, 100), ("a", 1, 95)], "a session that may have expired"),
        ([("a", 2**62, 0), ("a", 2**62, 1)], "a sum that may be too large"),
    ],
)
def test_what_columns_can_not_do_falls_back_to_rows_and_is_counted(rows: list[Row], why: str) -> None:
    sessions = cached(SessionWindows(5, grace=2), sum_of(None), 7)
    sessions.take(*rows)
    assert sessions.notes.fallen_back == {"columns": len(rows)}, why


def test_sessions_that_a_smaller_gap_kept_apart_stay_apart_unless_a_record_joins_them() -> None:
    sessions = cached(SessionWindows(1), COUNT, 100)
    sessions.take(("a", 1, 0), ("a", 1, 4))
    sessions.commit()
    sessions.arguments = (SessionWindows(10, grace=50), *sessions.arguments[1:])
    sessions.restart()
    sessions.take(("a", 1, 30))
    assert sessions.notes.stored() == {("a", 0, 0): 1, ("a", 4, 4): 1, ("a", 30, 30): 1}
    sessions.take(("a", 1, 13))
    assert sessions.notes.stored() == {("a", 0, 0): 1, ("a", 4, 13): 2, ("a", 30, 30): 1}
