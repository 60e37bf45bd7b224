"""Joins of two streams over batches: each rule by hand, and all of them against an oracle on random input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.processors.join_oracle import JoinOracle, SelfJoinOracle, Sent
from tests.processors.kit import Notes

from millstream import JoinWindows, serdes, stores
from millstream.processors.batch import Batch
from millstream.processors.joins import stream_stream
from millstream.processors.joins.self_join import SelfJoin
from millstream.processors.joins.stream_stream import StreamStreamJoin
from millstream.processors.operator import Operator
from millstream.serdes import Serde
from millstream.state.backends.memory import MemoryBackend
from millstream.state.stores.factory import open_store
from millstream.state.stores.segments import SEGMENT_BYTES, apply_changes
from millstream.state.stores.store import changes_of, epoch_committed

LEFT, RIGHT = 0, 1
INNER, LEFT_JOIN, OUTER = (False, False), (True, False), (True, True)
OUTERS = [INNER, LEFT_JOIN, OUTER]

Input = tuple[int, str | None, Any, int]
"""Side, key, value and timestamp."""


def plus(left: Any, right: Any) -> str:
    return f"{left}+{right}"


class JoinNotes(Notes):
    """The context of a join, over stores in memory."""

    def __init__(self, windows: JoinWindows, value: Serde[Any]) -> None:
        super().__init__()
        self._value = value
        self._specs = {
            name: stores.window(
                name,
                window_size_ms=windows.size_ms,
                retention_ms=windows.size_ms + windows.grace_ms,
                retain_duplicates=True,
                segment_interval_ms=max(7, windows.size_ms + windows.grace_ms),
            )
            for name in ("left", "right")
        }
        self._specs["unmatched"] = stores.list_value("unmatched")
        self._backends = {
            name: MemoryBackend(segment_bytes=SEGMENT_BYTES) if spec.is_segmented else MemoryBackend()
            for name, spec in self._specs.items()
        }
        self.reopen()

    def reopen(self) -> None:
        """A new task begins with what was committed."""
        self.stores = {
            name: open_store(
                spec,
                self._backends[name],
                serdes.string if spec.is_segmented else serdes.bytes,
                self._value if spec.is_segmented else serdes.bytes,
            )
            for name, spec in self._specs.items()
        }

    def store(self, name: str) -> Any:
        return self.stores[name]

    def commit(self) -> None:
        for name, store in self.stores.items():
            segmented = self._specs[name].is_segmented
            apply_changes(self._backends[name], changes_of(store), b"1", segmented=segmented)
            epoch_committed(store)

    def waiting(self) -> list[bytes]:
        """The keys of what waits for a partner: time, side and key."""
        unmatched: Any = self.stores["unmatched"]
        return [row for row, _ in unmatched.scan_encoded()]


class Join:
    """An operator at work."""

    def __init__(
        self,
        windows: JoinWindows,
        outer: tuple[bool, bool] = INNER,
        joiner: Callable[..., Any] = plus,
        *,
        with_key: bool = False,
        value: Serde[Any] = serdes.string,
        make: Callable[[], Operator] | None = None,
    ) -> None:
        self.notes = JoinNotes(windows, value)
        self._make = make or (
            lambda: StreamStreamJoin(
                ("left", "right"),
                windows,
                joiner,
                with_key=with_key,
                outer=outer,
                unmatched="unmatched" if any(outer) else None,
            )
        )
        self.sent: list[Sent] = []
        self.batches: list[Batch] = []
        self.restart()

    def restart(self) -> None:
        """A new task goes on with what was committed; times are kept with the commit."""
        self.notes.commit()
        self.notes.reopen()
        self.operator = self._make()
        self.operator.open(self.notes)

    def take(self, *rows: Input) -> list[Sent]:
        """What comes out for a batch."""
        batch = Batch(
            keys=[row[1] for row in rows],
            values=[row[2] for row in rows],
            timestamps=[row[3] for row in rows],
            headers=[(("from", str(row[2]).encode()),) for row in rows],
            origins=list(range(len(rows))),
            order=[(number,) for number in range(len(rows))],
            ports=[row[0] for row in rows],
        )
        out = self.operator.process(batch)
        if out is None:
            return []
        assert isinstance(out, Batch)
        self.batches.append(out)
        sent = list(zip(out.keys, out.values, out.timestamps, strict=True))
        self.sent += sent
        return sent


def left(value: Any, time: int, key: str | None = "k") -> Input:
    return LEFT, key, value, time


def right(value: Any, time: int, key: str | None = "k") -> Input:
    return RIGHT, key, value, time


def test_a_record_is_joined_with_those_of_the_other_side_that_came_before_it() -> None:
    join = Join(JoinWindows(10))
    assert join.take(left("a", 0), right("x", 5), right("y", 3), left("b", 4)) == [
        ("k", "a+x", 5),
        ("k", "a+y", 3),
        ("k", "b+y", 4),
        ("k", "b+x", 5),
    ]


@pytest.mark.parametrize(
    ("before", "after", "times"),
    [(10, 10, range(10, 31)), (0, 5, range(20, 26)), (5, 0, range(15, 21)), (-2, 4, range(22, 25))],
)
def test_both_bounds_are_inclusive(before: int, after: int, times: range) -> None:
    windows = JoinWindows(before, after, grace=100)
    rights = [right(str(time), time) for time in range(40)]
    expected = [("k", f"a+{time}", max(20, time)) for time in times]
    assert Join(windows).take(*rights, left("a", 20)) == expected
    assert Join(windows).take(left("a", 20), *rights) == expected


def test_values_of_one_time_are_all_kept_in_their_order() -> None:
    join = Join(JoinWindows(10))
    join.take(left("a", 5), left("b", 5))
    assert join.take(left("c", 5), right("x", 5)) == [("k", "a+x", 5), ("k", "b+x", 5), ("k", "c+x", 5)]


def test_a_late_record_is_joined_with_what_its_partners_store_has_not_let_go_of() -> None:
    join = Join(JoinWindows(10))
    join.take(right("x", 5), left("z", 1_000))
    assert join.take(left("late", 15)) == [("k", "late+x", 15)]
    join.take(right("y", 1_000))
    assert join.take(left("later", 15)) == []


@pytest.mark.parametrize(("latest", "found"), [(24, [("k", "late+x", 5)]), (25, [])])
def test_a_record_expires_when_its_own_store_is_a_retention_ahead(latest: int, found: list[Sent]) -> None:
    join = Join(JoinWindows(10))
    join.take(right("x", 5), right("y", latest))
    assert join.take(left("late", 5)) == found


def test_records_without_key_or_value_are_dropped_by_an_inner_join() -> None:
    join = Join(JoinWindows(10))
    assert join.take(left("a", 0), right("x", 1, key=None), right(None, 2), left("b", 1, key=None)) == []
    assert join.notes.drops == 3


def test_records_without_a_key_go_on_alone_where_their_side_is_outer() -> None:
    rows = (left("a", 1, key=None), right("x", 2, key=None), left(None, 3, key=None))
    assert Join(JoinWindows(10), LEFT_JOIN).take(*rows) == [(None, "a+None", 1)]
    assert Join(JoinWindows(10), OUTER).take(*rows) == [(None, "a+None", 1), (None, "None+x", 2)]


def test_an_unmatched_record_leaves_when_stream_time_is_beyond_its_window() -> None:
    join = Join(JoinWindows(10), LEFT_JOIN)
    assert join.take(left("a", 0), right("x", 5), left("b", 20), left("c", 30)) == [("k", "a+x", 5)]
    assert join.take(left("d", 31)) == [("k", "b+None", 20)]
    assert join.take(left("e", 16)) == [("k", "e+None", 16)]
    assert join.take(left("f", 15)) == [("k", "f+x", 15)]


@pytest.mark.parametrize("max_rows", [1, None])
def test_each_side_waits_for_its_own_bound_and_the_grace(max_rows: int | None) -> None:
    join = Join(JoinWindows(before=5, after=20, grace=3), OUTER)
    rows = [left("a", 0), right("x", 0, "other"), *(right(str(time), time, "z") for time in (8, 9, 23, 24))]
    for start in range(0, len(rows), max_rows or len(rows)):
        join.take(*rows[start : start + (max_rows or len(rows))])
    assert join.sent == [
        ("other", "None+x", 0),
        ("z", "None+8", 8),
        ("z", "None+9", 9),
        ("k", "a+None", 0),
    ]
    assert [headers for batch in join.batches for headers in batch.headers or ()] == [
        (("from", b"9"),),
        (("from", b"23"),),
        (("from", b"23"),),
        (("from", b"24"),),
    ]


def test_what_leaves_comes_before_the_pairs_right_before_left_then_by_key() -> None:
    join = Join(JoinWindows(10), OUTER)
    join.take(left("a", 0, "b"), right("x", 0, "c"), left("b", 0, "a"), right("y", 11, "d"))
    assert join.sent == [("c", "None+x", 0), ("a", "b+None", 0), ("b", "a+None", 0)]
    assert join.take(left("c", 22, "d")) == [("d", "None+y", 11)]
    assert join.take(right("z", 33, "d")) == [("d", "c+None", 22)]


def test_after_a_partial_release_the_last_record_that_was_looked_at_is_waited_for() -> None:
    join = Join(JoinWindows(10), LEFT_JOIN)
    join.take(*(left(str(time), time, f"k{time}") for time in (0, 5, 8)))
    assert join.take(left("-", 11, "k11")) == [("k0", "0+None", 0)]
    assert join.take(right("-", 18, "none")) == []
    assert join.take(right("-", 19, "none")) == [("k5", "5+None", 5), ("k8", "8+None", 8)]


def test_a_match_takes_back_all_that_waits_of_its_key_and_time() -> None:
    join = Join(JoinWindows(10), OUTER)
    join.take(left("a", 0), left("b", 0))
    assert join.take(right("x", 5)) == [("k", "a+x", 5), ("k", "b+x", 5)]
    assert join.notes.waiting() == []
    assert join.take(right("y", 100), left("c", 200)) == [("k", "None+y", 100)]


@pytest.mark.parametrize("outer", OUTERS)
def test_a_joiner_may_look_at_the_key(outer: tuple[bool, bool]) -> None:
    join = Join(JoinWindows(10), outer, lambda key, one, other: f"{key}:{one}+{other}", with_key=True)
    assert join.take(left("a", 0), right("x", 1)) == [("k", "k:a+x", 1)]


def test_each_result_gets_objects_of_its_own() -> None:
    def grow(one: Any, other: Any) -> Any:
        other.append(one)
        return other

    join = Join(JoinWindows(10), INNER, grow, value=serdes.json)
    join.take(right([0], 0))
    join.restart()
    out = join.take(left(1, 1), right([2], 2), left(3, 3))
    assert [str(value) for _, value, _ in out][-2:] == ["[0, 3]", "[2, 3]"]


def test_pairs_on_which_the_joiner_fails_are_left_out() -> None:
    def joiner(one: str, other: str) -> str:
        if one == "bad":
            raise ValueError(other)
        return f"{one}+{other}"

    join = Join(JoinWindows(10), INNER, joiner)
    rows = (left("a", 0), left("bad", 1), left("c", 2), right("x", 3))
    assert join.take(*rows) == [("k", "a+x", 3), ("k", "c+x", 3)]
    assert join.notes.messages == [(1, "x")]


def test_records_that_cannot_be_kept_are_left_out() -> None:
    join = Join(JoinWindows(10))
    assert join.take(left("a", 0), left(7, 1), right("x", 3)) == [("k", "a+x", 3)]
    assert [row for row, _ in join.notes.messages] == [1]
    assert "store 'left'" in join.notes.messages[0][1]


def test_keys_and_times_that_are_too_many_for_columns_are_joined_in_rows() -> None:
    join = Join(JoinWindows(10))
    rows = [left("a", 0, "first"), right("x", 2**61), left("b", 2**61)]
    with patch.object(stream_stream, "are_many", lambda _: True):
        assert join.take(*rows) == [("k", "b+x", 2**61)]


rows_of_both = st.lists(
    st.tuples(
        st.sampled_from([LEFT, RIGHT]),
        st.sampled_from(["a", "b", "ab", "c", None]),
        st.integers(-6, 4),  # how far time moves
        st.integers(0, 15),  # 0: no value
    ),
    max_size=60,
)
join_windows = st.builds(
    lambda before, size, grace: JoinWindows(before, size - before, grace),
    st.integers(-4, 8),
    st.integers(0, 9),
    st.integers(0, 4),
)


def numbered(drawn: Sequence[tuple[int, str | None, int, int]]) -> list[Input]:
    now, rows = 5, list[Input]()
    for number, (side, key, step, value) in enumerate(drawn):
        now = max(0, now + step)
        rows.append((side, key, f"{'lr'[side]}{number}" if value else None, now))
    return rows


def batches(rows: list[Input], cuts: Sequence[int]) -> list[list[Input]]:
    ends = sorted({min(cut, len(rows)) for cut in cuts} | {len(rows)})
    return [rows[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize("in_columns", [False, True])
@pytest.mark.parametrize("outer", OUTERS)
@settings(max_examples=300, deadline=None)
@given(
    drawn=rows_of_both,
    windows=join_windows,
    cuts=st.lists(st.integers(0, 60), max_size=12),
    restarts=st.booleans(),
)
@example(
    drawn=[(LEFT, "a", 0, 1), (RIGHT, "b", 0, 1), (RIGHT, "c", 4, 1), (LEFT, "c", 4, 1)],
    windows=JoinWindows(-4, 4),
    cuts=[2],
    restarts=True,
)
def test_batches_give_what_single_records_give(
    outer: tuple[bool, bool],
    in_columns: bool,
    drawn: list[tuple[int, str | None, int, int]],
    windows: JoinWindows,
    cuts: list[int],
    restarts: bool,
) -> None:
    rows = numbered(drawn)
    oracle = JoinOracle(windows.before_ms, windows.after_ms, windows.grace_ms, outer)
    for row in rows:
        oracle.take(*row)
    join = Join(windows, outer)
    with patch.object(stream_stream, "are_many", lambda rows: in_columns and rows > 0):
        for some in batches(rows, cuts):
            join.take(*some)
            if restarts:
                join.restart()
    assert join.sent == oracle.sent
    assert join.notes.drops == oracle.dropped
    join.notes.commit()
    assert join.notes.waiting() == sorted(
        time.to_bytes(8, "big") + bytes([place]) + key for time, place, key in oracle.unmatched
    )


@settings(max_examples=300, deadline=None)
@given(drawn=rows_of_both, windows=join_windows, cuts=st.lists(st.integers(0, 60), max_size=12))
def test_a_self_join_with_one_store_gives_what_single_records_give(
    drawn: list[tuple[int, str | None, int, int]], windows: JoinWindows, cuts: list[int]
) -> None:
    rows = numbered(drawn)
    oracle = SelfJoinOracle(windows.before_ms, windows.after_ms, windows.grace_ms)
    for _, key, value, time in rows:
        oracle.take(key, value, time)
    join = Join(windows, make=lambda: SelfJoin("left", windows, plus))
    for some in batches([(LEFT, *row[1:]) for row in rows], cuts):
        join.take(*some)
        join.restart()
    assert join.sent == oracle.sent


@settings(max_examples=200, deadline=None)
@given(drawn=rows_of_both, size=st.integers(1, 8), grace=st.integers(2, 4))
def test_a_self_join_gives_the_same_with_one_store_and_with_two(
    drawn: list[tuple[int, str | None, int, int]], size: int, grace: int
) -> None:
    windows = JoinWindows(size, grace=grace)
    rows = sorted(numbered(drawn), key=lambda row: row[3])
    two, one = Join(windows), Join(windows, make=lambda: SelfJoin("left", windows, plus))
    two.take(*((side, *row[1:]) for row in rows for side in (LEFT, RIGHT)))
    one.take(*((LEFT, *row[1:]) for row in rows))
    assert one.sent == two.sent
