"""How operators call user functions: at full speed, and still exact about the row that failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.processors.kit import Notes, batch_of, fails_on, pairs_of

from millstream.processors.batch import Batch
from millstream.processors.operator import as_pair, collect, each_row, rest


def collected(batch: Batch, function: Callable[[Any], Any]) -> tuple[list[Any], Batch, Notes]:
    notes = Notes()
    results, left = collect(notes, batch, lambda start: map(function, rest(batch.values, start)))
    return results, left, notes


def test_list_extend_keeps_what_it_took_before_the_iterator_raised() -> None:
    """`collect` rests on this: Python promises it nowhere in so many words."""

    def numbers() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError

    taken: list[int] = [0]
    with pytest.raises(ValueError):
        taken.extend(numbers())
    assert taken == [0, 1, 2]


def test_list_extend_keeps_what_a_map_object_gave_before_its_function_raised() -> None:
    taken: list[int] = []
    with pytest.raises(ZeroDivisionError):
        taken.extend(map(lambda number: 6 // number, [3, 2, 0, 1]))  # noqa: C417 - a map object is the point
    assert taken == [2, 3]


def test_results_of_all_rows_belong_to_the_batch_itself() -> None:
    batch = batch_of(("a", 1), ("b", 2))
    results, left, notes = collected(batch, lambda value: value * 10)
    assert (results, notes.failures) == ([10, 20], [])
    assert left is batch


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_a_row_that_fails_is_named_and_left_out(bad: int) -> None:
    batch = batch_of(("a", 0), ("b", 1), ("c", 2))
    results, left, notes = collected(batch, fails_on(bad))
    expected = [value for value in (0, 1, 2) if value != bad]
    assert results == expected
    assert left.values == expected
    assert notes.messages == [(bad, f"can't do {bad}")]


def test_every_row_may_fail() -> None:
    def fail(value: Any) -> Any:
        raise ValueError(value)

    results, left, notes = collected(batch_of(("a", 0), ("b", 1)), fail)
    assert (results, len(left)) == ([], 0)
    assert notes.messages == [(0, "0"), (1, "1")]


def test_each_row_is_shown_to_the_function_once_though_some_fail() -> None:
    shown: list[int] = []

    def note(value: int) -> int:
        shown.append(value)
        if value % 2:
            raise ValueError(value)
        return value

    collected(batch_of(*[("k", number) for number in range(6)]), note)
    assert shown == [0, 1, 2, 3, 4, 5]


def test_stop_iteration_is_an_error_like_any_other_and_not_the_end_of_the_rows() -> None:
    def first_of_nothing(value: int) -> int:
        return next(iter([])) if value == 1 else value

    results, left, notes = collected(batch_of(("a", 0), ("b", 1), ("c", 2)), first_of_nothing)
    assert results == [0, 2]
    assert pairs_of(left) == [("a", 0), ("c", 2)]
    assert notes.messages == [(1, "the function raised StopIteration: next() needs a default, or a try")]


def test_an_error_can_be_explained() -> None:
    batch = batch_of(("a", 1))
    notes = Notes()
    collect(
        notes,
        batch,
        lambda start: map(fails_on(1), rest(batch.values, start)),
        lambda error: TypeError(f"in other words: {error}"),
    )
    assert notes.messages == [(0, "in other words: can't do 1")]


def test_rest_from_the_beginning_is_no_copy() -> None:
    column = [1, 2, 3]
    assert rest(column, 0) is column
    assert rest(column, 1) == [2, 3]


def test_each_row_goes_on_behind_the_one_that_failed() -> None:
    handled: list[int] = []

    def handle(row: int) -> None:
        if row == 1:
            raise ValueError(row)
        handled.append(row)

    notes = Notes()
    each_row(notes, batch_of(("a", 0), ("b", 1), ("c", 2)), handle)
    assert handled == [0, 2]
    assert notes.messages == [(1, "1")]


def test_a_pair_is_a_pair() -> None:
    assert as_pair(("a", 1)) == ("a", 1)
    assert as_pair([None, None]) == (None, None)


@pytest.mark.parametrize("answer", [None, 5, ("a",), ("a", 1, 2)])
def test_anything_but_a_pair_is_refused_with_what_came_instead(answer: Any) -> None:
    with pytest.raises(TypeError) as caught:
        as_pair(answer)
    assert str(caught.value) == f"the mapper must return a (key, value) pair, but it returned {answer!r}"
