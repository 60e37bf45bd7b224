"""Aggregations of grouped streams, over batches and over their cells."""

from __future__ import annotations

from typing import Any

from tests.processors.kit import Notes, batch_of, fails_on, opened, updates_of

from millstream.processors.aggregations.aggregate import aggregate_by
from millstream.processors.aggregations.keyed import KeyedAggregation
from millstream.processors.aggregations.reduce import reduce_by


def joined(key: str, value: str, so_far: str) -> str:
    return so_far + value


def aggregate(*, caching: bool = False, send_old: bool = True, fold: Any = joined) -> KeyedAggregation:
    return KeyedAggregation("table", aggregate_by(lambda: "0", fold), caching=caching, send_old=send_old)


def test_each_row_builds_on_the_one_before_it_within_a_batch() -> None:
    operator = aggregate()
    opened(operator)
    out = operator.process(batch_of(("k", "a"), ("l", "b"), ("k", "c")))
    assert updates_of(out) == [("k", "0a", None, 0), ("l", "0b", None, 1), ("k", "0ac", "0a", 2)]


def test_a_later_batch_builds_on_the_store() -> None:
    operator = aggregate()
    opened(operator)
    operator.process(batch_of(("k", "a")))
    assert updates_of(operator.process(batch_of(("k", "b")))) == [("k", "0ab", "0a", 0)]


def test_a_result_is_as_late_as_the_latest_record_in_it() -> None:
    operator = aggregate(send_old=False)
    opened(operator)
    out = operator.process(batch_of(("k", "a"), ("k", "b"), ("k", "c"), timestamps=[9, 3, 12]))
    assert [timestamp for _, _, _, timestamp in updates_of(out)] == [9, 9, 12]


def test_old_values_are_sent_only_if_somebody_wants_them() -> None:
    operator = aggregate(send_old=False)
    opened(operator)
    assert operator.process(batch_of(("k", "a"))).olds is None  # type: ignore[union-attr]


def test_rows_without_key_or_value_are_dropped_and_counted() -> None:
    operator = aggregate()
    notes = opened(operator)
    out = operator.process(batch_of((None, "a"), ("k", None), ("k", "b")))
    assert updates_of(out) == [("k", "0b", None, 2)]
    assert notes.drops == 2


def test_an_aggregator_that_answers_none_deletes_the_row_and_the_next_begins_anew() -> None:
    def until_stop(key: str, value: str, so_far: str) -> str | None:
        return None if value == "stop" else so_far + value

    operator = aggregate(fold=until_stop)
    opened(operator)
    out = operator.process(batch_of(("k", "a"), ("k", "stop"), ("k", "b"), timestamps=[9, 5, 3]))
    assert updates_of(out) == [("k", "0a", None, 9), ("k", None, "0a", 9), ("k", "0b", None, 3)]


def test_a_row_that_fails_leaves_the_aggregate_as_it_was() -> None:
    def fail_on_x(key: str, value: str, so_far: str) -> str:
        return str(fails_on("x", so_far + value)(value))

    operator = aggregate(fold=fail_on_x)
    notes = opened(operator)
    out = operator.process(batch_of(("k", "a"), ("k", "x"), ("k", "b")))
    assert updates_of(out) == [("k", "0a", None, 0), ("k", "0ab", "0a", 2)]
    assert notes.messages == [(1, "can't do x")]


def test_what_was_sent_does_not_change_when_the_aggregator_changes_its_list_in_place() -> None:
    def append(key: str, value: int, so_far: list[int]) -> list[int]:
        so_far.append(value)
        return so_far

    operator = KeyedAggregation("table", aggregate_by(list, append), caching=False, send_old=True)
    opened(operator)
    out = operator.process(batch_of(("k", 1), ("k", 2)))
    assert updates_of(out) == [("k", [1], None, 0), ("k", [1, 2], [1], 1)]


def test_with_caching_nothing_goes_on_before_the_flush() -> None:
    operator = aggregate(caching=True)
    opened(operator)
    assert operator.process(batch_of(("k", "a"), ("k", "b"))) is None
    assert updates_of(operator.flush()) == [("k", "0ab", None, 1)]


def test_reduce_begins_with_the_first_value() -> None:
    operator = KeyedAggregation(
        "table", reduce_by(lambda so_far, value: so_far + value), caching=False, send_old=True
    )
    opened(operator)
    out = operator.process(batch_of(("k", "a"), ("k", "b")))
    assert updates_of(out) == [("k", "a", None, 0), ("k", "ab", "a", 1)]


def test_a_reducer_that_answers_none_deletes_the_row() -> None:
    operator = KeyedAggregation("table", reduce_by(lambda so_far, value: None), caching=False, send_old=True)
    notes = Notes()
    opened(operator, notes)
    out = operator.process(batch_of(("k", "a"), ("k", "b"), ("k", "c")))
    assert updates_of(out) == [("k", "a", None, 0), ("k", None, "a", 1), ("k", "c", None, 2)]
    assert notes.table.load([b"k"]) == {b"k": ("c", 2)}
