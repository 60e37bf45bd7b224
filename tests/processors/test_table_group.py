"""Grouping a table: out of the old group, into the new one."""

from __future__ import annotations

from operator import add, sub
from typing import Any

import pytest
from tests.processors.kit import Notes, batch_of, fails_on, opened, updates_of

from millstream.processors.aggregations.aggregate import aggregate_by
from millstream.processors.aggregations.reduce import reduce_by
from millstream.processors.table_group import TableAggregation, TableGroupBy


def by_tens(key: str, value: int) -> tuple[str, int]:
    return f"tens{value // 10}", value


def regrouped(mapper: Any, *pairs: tuple[Any, Any], olds: list[Any]) -> tuple[list[Any], Notes]:
    operator = TableGroupBy(mapper)
    notes = opened(operator)
    return updates_of(operator.process(batch_of(*pairs, olds=olds))), notes


def test_a_new_row_joins_its_group() -> None:
    assert regrouped(by_tens, ("a", 5), olds=[None])[0] == [("tens0", 5, None, 0)]


def test_a_row_that_stays_in_its_group_is_one_update_with_both_values() -> None:
    assert regrouped(by_tens, ("a", 7), olds=[5])[0] == [("tens0", 7, 5, 0)]


def test_a_row_that_moves_leaves_before_it_joins() -> None:
    expected = [("tens0", None, 5, 0), ("tens1", 12, None, 0)]
    assert regrouped(by_tens, ("a", 12), olds=[5])[0] == expected


def test_a_deleted_row_leaves_its_group() -> None:
    assert regrouped(by_tens, ("a", None), olds=[5])[0] == [("tens0", None, 5, 0)]


@pytest.mark.parametrize("pair", [(None, 5), ("group", None), None])
def test_a_row_that_maps_to_no_group_or_no_value_takes_no_part(pair: Any) -> None:
    assert regrouped(lambda key, value: pair, ("a", 5), olds=[4])[0] == []


def test_rows_that_leave_and_join_are_in_order() -> None:
    operator = TableGroupBy(by_tens)
    opened(operator)
    out = operator.process(batch_of(("a", 12), ("b", 3), olds=[5, None]))
    assert out.order == [(0, 0), (0, 1), (1, 0)]


def test_a_row_whose_mapper_fails_takes_no_part_with_either_value() -> None:
    rows, notes = regrouped(fails_on(5, ("group", 1)), ("a", 7), ("b", 8), olds=[5, None])
    assert rows == [("group", 1, None, 1)]
    assert notes.messages == [(0, "can't do 5")]


def test_a_mapper_that_returns_no_pair_is_told_so() -> None:
    _, notes = regrouped(lambda key, value: 5, ("a", 7), olds=[None])
    assert notes.messages == [(0, "the mapper must return a (key, value) pair, but it returned 5")]


def plus(key: str, value: int, so_far: int) -> int:
    return so_far + value


def minus(key: str, value: int, so_far: int) -> int:
    return so_far - value


def aggregated(operator: Any, *pairs: tuple[Any, Any], olds: list[Any], **columns: Any) -> list[Any]:
    opened(operator)
    return updates_of(operator.process(batch_of(*pairs, olds=olds, **columns)))


def summing(**settings: Any) -> TableAggregation:
    aggregation = aggregate_by(lambda: 0, plus, minus)
    return TableAggregation("table", aggregation, **{"caching": False, "send_old": True, **settings})


def test_subtract_comes_before_add() -> None:
    def trace(sign: str) -> Any:
        return lambda key, value, so_far: f"{so_far}{sign}{value}"

    operator = TableAggregation(
        "table", aggregate_by(lambda: "0", trace("+"), trace("-")), caching=False, send_old=False
    )
    rows = aggregated(operator, ("g", 1), ("g", 3), olds=[None, 1])
    assert [new for _, new, _, _ in rows] == ["0+1", "0+1-1+3"]


def test_a_group_is_not_deleted_when_its_last_row_leaves() -> None:
    rows = aggregated(summing(), ("g", 5), ("g", None), olds=[None, 5])
    assert rows == [("g", 5, None, 0), ("g", 0, 5, 1)]


def test_nothing_is_subtracted_from_a_group_that_is_not_there() -> None:
    assert aggregated(summing(), ("g", None), olds=[5]) == [("g", None, None, 0)]


def test_after_a_subtraction_to_none_the_group_begins_anew() -> None:
    aggregation = aggregate_by(lambda: 100, plus, lambda key, value, so_far: None)
    operator = TableAggregation("table", aggregation, caching=False, send_old=True)
    rows = aggregated(operator, ("g", 1), ("g", 2), olds=[None, 1])
    assert rows == [("g", 101, None, 0), ("g", 102, 101, 1)]


def test_the_time_of_a_group_never_goes_back() -> None:
    rows = aggregated(summing(), ("g", 1), ("g", 2), ("g", 3), olds=[None] * 3, timestamps=[9, 3, 12])
    assert [timestamp for _, _, _, timestamp in rows] == [9, 9, 12]


def test_an_update_that_fails_leaves_the_group_as_it_was() -> None:
    operator = TableAggregation(
        "table", aggregate_by(lambda: 0, plus, fails_on(7)), caching=False, send_old=True
    )
    notes = opened(operator)
    out = operator.process(batch_of(("g", 7), ("g", 1), ("g", 2), olds=[None, 7, None]))
    assert updates_of(out) == [("g", 7, None, 0), ("g", 9, 7, 2)]
    assert notes.messages == [(1, "can't do 7")]


def test_cached_groups_send_one_update() -> None:
    operator = summing(caching=True)
    opened(operator)
    assert operator.process(batch_of(("g", 1), ("g", 2), olds=[None, 1])) is None
    assert updates_of(operator.flush()) == [("g", 2, None, 1)]


def test_reduce_begins_with_the_first_value() -> None:
    operator = TableAggregation("table", reduce_by(add, sub), caching=False, send_old=True)
    rows = aggregated(operator, ("g", 5), ("g", 3), ("g", None), olds=[None, None, 5])
    assert rows == [("g", 5, None, 0), ("g", 8, 5, 1), ("g", 3, 8, 2)]
