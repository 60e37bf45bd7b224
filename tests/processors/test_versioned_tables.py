"""Tables that keep the history of their rows: updates may come out of order, and say so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.processors.kit import Notes, batch_of, opened, pairs_of, updates_of

from millstream import serdes, stores
from millstream.processors.aggregations.aggregate import aggregate_by
from millstream.processors.aggregations.keyed import KeyedAggregation
from millstream.processors.batch import concatenate
from millstream.processors.operator import Operator
from millstream.processors.table_group import TableAggregation, TableGroupBy
from millstream.processors.table_source import StoredTableSource
from millstream.processors.table_values import KeepIf, MapIfPresent, TableToStream, TableValues
from millstream.state.stores.factory import open_store
from millstream.state.stores.store import changes_of, epoch_committed

HISTORY = stores.versioned_key_value("table", history_retention_ms=30)


def versioned(operator: Operator, value: Any = serdes.json) -> Notes:
    """Open an operator over a versioned store."""
    notes = Notes()
    notes.table = open_store(HISTORY, notes.backend, serdes.string, value)
    return opened(operator, notes)


def source(*, send_old: bool = True) -> StoredTableSource:
    return StoredTableSource("table", caching=False, send_old=send_old)


def out_of_order() -> Any:
    """Three updates of a row, of which the second is older than the first."""
    operator = source()
    versioned(operator)
    return operator.process(batch_of(("a", 1), ("a", 2), ("a", 3), timestamps=[20, 10, 30]))


@pytest.mark.parametrize("send_old", [True, False])
def test_an_update_that_is_not_the_latest_goes_on_and_says_so(send_old: bool) -> None:
    operator = source(send_old=send_old)
    notes = versioned(operator)
    out = operator.process(batch_of(("a", 1), ("a", 2), ("a", 3), timestamps=[20, 10, 30]))
    olds = [None, 1, 1] if send_old else [None, None, None]
    assert updates_of(out) == list(zip("aaa", [1, 2, 3], olds, [20, 10, 30], strict=True))
    assert out is not None
    assert out.latest == [True, False, True]
    assert [notes.table.get("a", as_of=time).value for time in (15, 25, 30)] == [2, 1, 3]


def test_updates_in_order_need_no_mark() -> None:
    operator = source()
    versioned(operator)
    out = operator.process(batch_of(("a", 1), ("b", 2), ("a", 3), timestamps=[10, 10, 10]))
    assert out is not None
    assert out.latest is None


def test_an_update_older_than_the_history_does_not_go_on_and_is_counted() -> None:
    operator = source()
    notes = versioned(operator)
    out = operator.process(batch_of(("a", 1), ("b", 2), ("b", 3), ("b", 4), timestamps=[50, 19, 20, 21]))
    assert updates_of(out) == [("a", 1, None, 50), ("b", 3, None, 20), ("b", 4, 3, 21)]
    assert notes.drops == 1


def test_a_deletion_has_a_time_too() -> None:
    operator = source()
    versioned(operator)
    out = operator.process(batch_of(("a", 1), ("a", None), ("a", 2), timestamps=[10, 20, 15]))
    assert updates_of(out) == [("a", 1, None, 10), ("a", None, 1, 20), ("a", 2, None, 15)]
    assert out is not None
    assert out.latest == [True, True, False]


def test_what_is_computed_without_a_store_hands_the_marks_on() -> None:
    for send_old in (True, False):
        keep = TableValues(KeepIf(lambda _, value: value > 1), send_old=send_old, skip_if_both_null=False)
        double = TableValues(
            MapIfPresent(lambda value: 2 * value), send_old=send_old, skip_if_both_null=False
        )
        opened(keep)
        opened(double)
        out = double.process(keep.process(out_of_order()))
        assert (pairs_of(out), out.latest) == ([("a", None), ("a", 4), ("a", 6)], [True, False, True])


def test_a_stream_of_the_updates_has_them_all_and_no_marks() -> None:
    operator = TableToStream()
    opened(operator)
    out = operator.process(out_of_order())
    assert (pairs_of(out), out.olds, out.latest) == ([("a", 1), ("a", 2), ("a", 3)], None, None)


def test_a_group_sees_only_the_latest() -> None:
    operator = TableGroupBy(lambda key, value: ("all", value))
    opened(operator)
    out = operator.process(out_of_order())
    assert [update[:3] for update in updates_of(out)] == [("all", 1, None), ("all", 3, 1)]


def test_batches_with_and_without_marks_become_one() -> None:
    one = out_of_order()
    both = concatenate([batch_of(("b", 1), olds=[None]), one])
    assert both.latest == [True, True, False, True]
    assert both.take([2, 0]).latest == [False, True]


def test_a_value_that_cant_be_kept_is_left_out() -> None:
    operator = source()
    notes = versioned(operator, serdes.int64)
    out = operator.process(batch_of(("a", 1), ("a", 2**70), ("a", 3)))
    assert updates_of(out) == [("a", 1, None, 0), ("a", 3, 1, 2)]
    assert [row for row, _ in notes.failures] == [1]


class History:
    """A versioned table, one update at a time."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[int, Any]] = {}
        self.time = -1

    def latest(self, key: str) -> tuple[Any, int]:
        versions = self.rows.get(key)
        return (None, -1) if not versions else (versions[max(versions)], max(versions))

    def put(self, key: str, value: Any, timestamp: int) -> bool | None:
        """Whether it is the latest; None if it is refused."""
        if timestamp < self.time - 30:
            return None
        self.time = max(self.time, timestamp)
        self.rows.setdefault(key, {})[timestamp] = value
        return timestamp == self.latest(key)[1]


ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.one_of(st.none(), st.integers(0, 9)), st.integers(0, 80)), max_size=40
)
SIZES = st.lists(st.integers(1, 8), min_size=1)


def marked(operator: Any, rows: list[Any], sizes: list[int], notes: Notes, *, commits: bool) -> list[Any]:
    """The updates that leave an operator, with their marks."""
    updates: list[Any] = []
    start, number = 0, 0
    while start < len(rows):
        size = sizes[number % len(sizes)]
        part = rows[start : start + size]
        out = operator.process(
            batch_of(*(row[:2] for row in part), timestamps=[row[2] for row in part], olds=[None] * len(part))
        )
        updates += zip(updates_of(out), out.latest or [True] * len(out), strict=True)
        start, number = start + size, number + 1
        if commits:
            notes.backend.write(changes_of(notes.table), marker=b"1")
            epoch_committed(notes.table)
    return updates


@given(rows=ROWS, sizes=SIZES, commits=st.booleans())
def test_a_source_in_batches_of_any_size_is_the_same(
    rows: list[Any], sizes: list[int], commits: bool
) -> None:
    history, expected = History(), []
    for key, value, timestamp in rows:
        old, _ = history.latest(key)
        latest = history.put(key, value, timestamp)
        if latest is not None:
            expected.append(((key, value, old, timestamp), latest))
    operator = source()
    assert marked(operator, rows, sizes, versioned(operator), commits=commits) == expected


def _add(_: str, value: int, so_far: list[int]) -> list[int] | None:
    so_far.append(value)
    return None if value == 0 else so_far


@pytest.mark.parametrize("of_table", [False, True])
@given(rows=ROWS, sizes=SIZES, commits=st.booleans())
def test_an_aggregate_in_batches_of_any_size_is_the_same(
    of_table: bool, rows: list[Any], sizes: list[int], commits: bool
) -> None:
    rows = [row for row in rows if row[1] is not None]
    history, expected = History(), []
    for key, value, timestamp in rows:
        old, since = history.latest(key)
        new = _add(key, value, list(old or []))
        time = timestamp if old is None else max(timestamp, since)
        latest = history.put(key, new, time)
        if latest is not None:
            expected.append(((key, new, old, time), latest))
    aggregation = aggregate_by(list, _add, _add)
    make: Any = TableAggregation if of_table else KeyedAggregation
    operator = make("table", aggregation, caching=False, send_old=True)
    assert marked(operator, rows, sizes, versioned(operator), commits=commits) == expected
