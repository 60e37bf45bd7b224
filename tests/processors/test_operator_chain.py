"""A run of operators in one pass gives what they give one after the other, and blames the same rows."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.processors.kit import Notes, batch_of, opened

from millstream.processors import stateless
from millstream.processors.batch import Batch
from millstream.processors.operator import Operator
from millstream.processors.operator_chain import OperatorChain


def touchy(result: Callable[..., Any]) -> Callable[..., Any]:
    """A function that fails on some values, in several ways."""

    def call(*arguments: Any) -> Any:
        value = arguments[-1]
        if value == 3:
            raise ValueError("can't do 3")
        if value == 5:
            raise StopIteration
        return result(*arguments)

    return call


def untyped(function: Any) -> Any:
    """A function that answers what no checker would allow."""
    return function


MAKERS: dict[str, Callable[[], Operator]] = {
    "pass": stateless.PassThrough,
    "filter": lambda: stateless.Filter(touchy(lambda _key, value: value % 2)),
    "filter_not": lambda: stateless.FilterNot(touchy(lambda _key, value: value % 3 == 0)),
    "map": lambda: stateless.Map(touchy(lambda key, value: (value, value + 1))),
    "map_to_no_pair": lambda: stateless.Map(untyped(lambda key, value: "ab" if value == 2 else (key, value))),
    "map_to_three": lambda: stateless.Map(
        untyped(lambda key, value: (1, 2, 3) if value == 4 else [key, value])
    ),
    "select_key": lambda: stateless.SelectKey(touchy(lambda key, value: None if value == 1 else f"{key}!")),
    "map_values": lambda: stateless.MapValues(touchy(lambda value: value + 2)),
    "map_values_with_key": lambda: stateless.MapValuesWithKey(touchy(lambda key, value: value + bool(key))),
    "peek": lambda: stateless.Peek(touchy(lambda key, value: None)),
}
ENDS: dict[str, Callable[[], Operator]] = {
    "flat_map": lambda: stateless.FlatMap(touchy(lambda key, value: [(key, n) for n in range(value % 3)])),
    "flat_map_no_iterable": lambda: stateless.FlatMap(
        untyped(lambda key, value: 7 if value == 2 else [(1, 2)])
    ),
    "flat_map_values": lambda: stateless.FlatMapValues(touchy(lambda value: range(value % 3))),
    "flat_map_values_with_key": lambda: stateless.FlatMapValuesWithKey(
        touchy(lambda key, value: [key, value])
    ),
    "foreach": lambda: stateless.Foreach(touchy(lambda key, value: None)),
}


class Blame(Notes):
    """Remembers which operator failed on which record."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.told: list[tuple[Any, ...]] = []

    def failed(self, batch: Batch, row: int, error: Exception) -> None:
        kind = type(error).__name__
        self.told.append(
            (batch.origins[row], self.number, batch.keys[row], batch.values[row], kind, str(error))
        )


def made(names: list[str]) -> tuple[list[Operator], list[Blame]]:
    operators = [(MAKERS | ENDS)[name]() for name in names]
    blames = [Blame(number) for number in range(len(operators))]
    for operator, blame in zip(operators, blames, strict=True):
        opened(operator, blame)
    return operators, blames


def told(blames: list[Blame]) -> list[Any]:
    return sorted((one for blame in blames for one in blame.told), key=repr)


def one_after_the_other(names: list[str], batch: Batch) -> Any:
    operators, blames = made(names)
    emission: Any = batch
    counts: list[tuple[int, int]] = []
    for operator in operators:
        taken = len(emission)
        emission = operator.process(emission)
        counts.append((taken, 0 if emission is None else len(emission)))
    return emission, counts, told(blames)


@settings(deadline=None)  # a busy machine is no failure
@given(
    names=st.lists(st.sampled_from(sorted(MAKERS)), min_size=1, max_size=5),
    end=st.sampled_from([None, *sorted(ENDS)]),
    rows=st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 7)), max_size=8),
    headers=st.booleans(),
)
def test_one_pass_is_the_same_as_one_operator_after_the_other(
    names: list[str], end: str | None, rows: list[tuple[Any, int]], headers: bool
) -> None:
    names = names if end is None else [*names, end]
    given_headers: Any = [(("n", b"%d" % row),) for row in range(len(rows))] if headers else None
    batch = batch_of(*rows, headers=given_headers)
    operators, blames = made(names)
    emission, counts = OperatorChain(operators).process(batch)
    expected, expected_counts, expected_blames = one_after_the_other(names, batch)
    assert _plain(emission) == _plain(expected)
    assert counts == expected_counts
    assert told(blames) == expected_blames


def _plain(emission: Any) -> Any:
    """A batch as lists, whatever sequences its columns are."""
    if emission is None:
        return None
    columns = (
        emission.keys,
        emission.values,
        emission.timestamps,
        emission.headers,
        emission.origins,
        emission.order,
    )
    return [None if column is None else list(column) for column in columns]


def test_nothing_is_called_twice_when_a_row_fails() -> None:
    seen: list[int] = []
    operators: list[Operator] = [
        stateless.Peek(lambda _key, value: seen.append(value)),
        stateless.MapValues(touchy(lambda value: value)),
    ]
    for operator in operators:
        opened(operator)
    emission, _ = OperatorChain(operators).process(batch_of(("a", 1), ("a", 3), ("a", 4)))
    assert isinstance(emission, Batch)
    assert (seen, list(emission.values)) == ([1, 3, 4], [1, 4])


def test_a_debugger_can_show_the_lines_of_the_pass() -> None:
    operators: list[Operator] = [
        stateless.MapValues(lambda value: value),
        stateless.Filter(touchy(lambda _key, value: True)),
    ]

    class Raises(Notes):
        def failed(self, batch: Batch, row: int, error: Exception) -> None:
            raise error

    for operator in operators:
        opened(operator, Raises())
    with pytest.raises(ValueError, match="can't do 3") as caught:
        OperatorChain(operators).process(batch_of(("a", 3)))
    lines = [frame.line for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "if not f1(key, value):  # Filter" in lines
    assert "        value = f0(value)  # MapValues\n" in linecache.getlines("<millstream: MapValues, Filter>")
