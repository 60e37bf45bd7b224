"""Operators that keep nothing."""

from __future__ import annotations

from typing import Any

import pytest
from tests.processors.kit import batch_of, fails_on, opened, pairs_of

from millstream.processors import stateless
from millstream.processors.columns import column
from millstream.processors.columns.column import Column
from millstream.processors.operator import Operator

ROWS = batch_of(("a", 1), (None, 2), ("b", None), ("a", 3))


def result_of(operator: Operator) -> list[tuple[Any, Any]]:
    opened(operator)
    return pairs_of(operator.process(ROWS))


def has_value(key: Any, value: Any) -> bool:
    return value is not None


def test_filter_keeps_rows_for_which_the_predicate_holds() -> None:
    assert result_of(stateless.Filter(has_value)) == [("a", 1), (None, 2), ("a", 3)]


def test_filter_not_keeps_the_others() -> None:
    assert result_of(stateless.FilterNot(has_value)) == [("b", None)]


@pytest.mark.parametrize("answer", [1, "yes", [0]])
def test_a_predicate_may_answer_with_anything_true(answer: Any) -> None:
    assert len(result_of(stateless.Filter(lambda k, v: answer))) == 4


def test_filter_that_keeps_everything_hands_the_batch_on() -> None:
    operator = stateless.Filter(lambda k, v: True)
    opened(operator)
    assert operator.process(ROWS) is ROWS


def test_drop_null_keys_keeps_null_values() -> None:
    assert result_of(stateless.DropNullKeys()) == [("a", 1), ("b", None), ("a", 3)]


def test_map_makes_key_and_value() -> None:
    expected = [(1, "a"), (2, None), (None, "b"), (3, "a")]
    assert result_of(stateless.Map(lambda k, v: (v, k))) == expected


def test_select_key_makes_the_key_only() -> None:
    assert result_of(stateless.SelectKey(lambda k, v: v)) == [(1, 1), (2, 2), (None, None), (3, 3)]


def second(key: Any, value: Any) -> Any:
    return value


def needs_more(key: Any, value: Any, *, more: Any) -> Any:
    return value


class Second:
    def __call__(self, key: Any, value: Any) -> Any:
        return value


def gives_values(key: Any, value: Any) -> Any:
    yield value


async def promises_a_value(key: Any, value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    ("mapper", "known"),
    [
        (lambda _, word: word, True),
        (second, True),
        (lambda key, _: key, False),
        (lambda *both: both[1], False),
        (lambda _, word: word.lower(), False),
        (lambda _, word, again=None: word, False),
        (gives_values, False),
        (needs_more, False),
        (promises_a_value, False),
        (Second(), False),
        (max, False),
    ],
)
def test_a_function_that_only_answers_the_value_is_known(mapper: Any, known: bool) -> None:
    assert stateless.answers_the_value(mapper) is known


def test_many_keys_become_a_column_in_front_of_a_repartition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column, "MANY_ROWS", 0)
    words = batch_of(("", "to"), ("", "be"))
    by_word, dropping = stateless.SelectKey(second), stateless.DropNullKeys()
    opened(by_word)
    opened(dropping)
    sent = dropping.process(by_word.process(words))
    assert isinstance(sent.keys, Column)
    assert sent.values is sent.keys
    assert pairs_of(sent) == [("to", "to"), ("be", "be")]


def test_map_values_sees_null_values() -> None:
    expected = [("a", "1"), (None, "2"), ("b", "None"), ("a", "3")]
    assert result_of(stateless.MapValues(str)) == expected


def test_map_values_with_key_sees_both() -> None:
    operator = stateless.MapValuesWithKey(lambda k, v: f"{k}{v}")
    assert result_of(operator) == [("a", "a1"), (None, "None2"), ("b", "bNone"), ("a", "a3")]


def test_flat_map_makes_any_number_of_rows() -> None:
    operator = stateless.FlatMap(lambda k, v: [(v, copy) for copy in range(v or 0)])
    assert result_of(operator) == [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]


def test_flat_map_takes_a_generator() -> None:
    operator = stateless.FlatMap(lambda k, v: ((k, part) for part in (v, v)))
    assert len(result_of(operator)) == 8


def test_flat_map_values_keeps_the_key() -> None:
    operator = stateless.FlatMapValues(lambda v: [v] * (v or 0))
    assert result_of(operator) == [("a", 1), (None, 2), (None, 2), ("a", 3), ("a", 3), ("a", 3)]


def test_flat_map_values_with_key_sees_both() -> None:
    operator = stateless.FlatMapValuesWithKey(lambda k, v: [k, v])
    assert result_of(operator)[:3] == [("a", "a"), ("a", 1), (None, None)]


def test_peek_shows_each_row_and_hands_it_on() -> None:
    seen: list[Any] = []
    assert result_of(stateless.Peek(lambda k, v: seen.append((k, v)))) == seen == pairs_of(ROWS)


def test_foreach_hands_nothing_on() -> None:
    seen: list[Any] = []
    operator = stateless.Foreach(lambda k, v: seen.append((k, v)))
    opened(operator)
    assert operator.process(ROWS) is None
    assert seen == pairs_of(ROWS)


FAILING: list[Operator] = [
    stateless.Filter(fails_on(2, result=True)),
    stateless.FilterNot(fails_on(2, result=0)),
    stateless.Map(fails_on(2, result=("k", 0))),
    stateless.SelectKey(fails_on(2)),
    stateless.MapValues(fails_on(2)),
    stateless.MapValuesWithKey(fails_on(2)),
    stateless.FlatMap(fails_on(2, result=[("k", 0)])),
    stateless.FlatMapValues(fails_on(2, result=[0])),
    stateless.FlatMapValuesWithKey(fails_on(2, result=[0])),
    stateless.Peek(fails_on(2)),
    stateless.Foreach(fails_on(2)),
]


@pytest.mark.parametrize("operator", FAILING, ids=lambda operator: type(operator).__name__)
def test_a_failing_row_is_reported_and_the_others_go_on(operator: Operator) -> None:
    notes = opened(operator)
    out = operator.process(ROWS)
    assert notes.messages == [(1, "can't do 2")]
    assert out is None or len(pairs_of(out)) >= 2


def test_rows_behind_a_failing_one_keep_their_own_time_and_origin() -> None:
    operator = stateless.MapValues(fails_on(2))
    opened(operator)
    out = operator.process(ROWS)
    assert (list(out.timestamps), list(out.origins), out.order) == ([0, 2, 3], [0, 2, 3], [(0,), (2,), (3,)])


def test_a_mapper_that_returns_none_is_told_what_it_should_return() -> None:
    operator = stateless.Map(lambda k, v: None)  # type: ignore[arg-type, return-value]
    notes = opened(operator)
    operator.process(batch_of(("a", 1)))
    assert notes.messages == [(0, "the mapper must return a (key, value) pair, but it returned None")]


@pytest.mark.parametrize(
    "operator",
    [
        stateless.FlatMap(lambda k, v: None),  # type: ignore[arg-type, return-value]
        stateless.FlatMapValues(lambda v: None),  # type: ignore[arg-type, return-value]
        stateless.FlatMapValuesWithKey(lambda k, v: None),  # type: ignore[arg-type, return-value]
    ],
    ids=lambda operator: type(operator).__name__,
)
def test_a_flat_mapper_that_returns_none_is_told_what_it_should_return(operator: Operator) -> None:
    notes = opened(operator)
    operator.process(batch_of(("a", 1)))
    expected = "the mapper must return an iterable of results (an empty one for none): "
    assert notes.messages == [(0, f"{expected}'NoneType' object is not iterable")]


def test_a_flat_map_of_something_else_than_pairs_is_refused() -> None:
    operator = stateless.FlatMap(lambda k, v: [1])  # type: ignore[list-item]
    notes = opened(operator)
    operator.process(batch_of(("a", 1)))
    assert notes.messages == [(0, "the mapper must return a (key, value) pair, but it returned 1")]
