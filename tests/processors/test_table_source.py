"""A topic read as a table."""

from __future__ import annotations

from tests.processors.kit import batch_of, opened, updates_of

from millstream.processors.table_source import StoredTableSource, TableSource


def test_without_a_store_updates_go_on_as_they_are() -> None:
    operator = TableSource()
    notes = opened(operator)
    out = operator.process(batch_of(("a", 1), (None, 2), ("a", None)))
    assert updates_of(out) == [("a", 1, None, 0), ("a", None, None, 2)]
    assert notes.drops == 1


def test_a_store_knows_the_value_that_each_update_replaces() -> None:
    operator = StoredTableSource("table", caching=False, send_old=True)
    opened(operator)
    out = operator.process(batch_of(("a", 1), ("a", 2), ("a", None), ("a", 3)))
    assert updates_of(out) == [("a", 1, None, 0), ("a", 2, 1, 1), ("a", None, 2, 2), ("a", 3, None, 3)]


def test_a_late_update_wins_and_takes_its_own_time_along() -> None:
    operator = StoredTableSource("table", caching=False, send_old=False)
    notes = opened(operator)
    operator.process(batch_of(("a", "new"), ("a", "late"), timestamps=[10, 4]))
    assert notes.table.load([b"a"]) == {b"a": ("late", 4)}


def test_a_tombstone_for_nothing_is_sent_all_the_same() -> None:
    operator = StoredTableSource("table", caching=False, send_old=True)
    opened(operator)
    assert updates_of(operator.process(batch_of(("a", None)))) == [("a", None, None, 0)]


def test_an_equal_value_is_sent_again() -> None:
    operator = StoredTableSource("table", caching=False, send_old=True)
    opened(operator)
    out = operator.process(batch_of(("a", 1), ("a", 1)))
    assert updates_of(out) == [("a", 1, None, 0), ("a", 1, 1, 1)]


def test_null_keys_are_dropped_and_counted() -> None:
    operator = StoredTableSource("table", caching=False, send_old=True)
    notes = opened(operator)
    operator.process(batch_of((None, 1), (None, None)))
    assert notes.drops == 2
