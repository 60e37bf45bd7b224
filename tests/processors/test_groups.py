"""Built-in aggregations fold a batch key by key: nobody can tell it from row by row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.processors.kit import TABLE, Notes, batch_of, opened, updates_of

from millstream import serdes
from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.aggregations.count import COUNT
from millstream.processors.aggregations.groups import group_rows
from millstream.processors.aggregations.keyed import KeyedAggregation
from millstream.processors.aggregations.min_max import min_max
from millstream.processors.aggregations.sum import sum_of
from millstream.processors.batch import Batch
from millstream.processors.columns.column import Column
from millstream.state.stores.factory import open_store

KEYS = st.one_of(
    st.sampled_from(["a", "b", "c", None]),
    st.sampled_from([1, 2, True, 1.0]),
    st.sampled_from([b"a", b"b"]),
)
VALUES = st.one_of(
    st.integers(-5, 5),
    st.sampled_from([2**62, 2**63, -(2**63)]),
    st.sampled_from([0.1, 0.2, -0.0, 0.0, 1.0, float("inf")]),
    st.sampled_from(["x", "y", "", None, True]),
)
ROWS = st.one_of(
    st.lists(st.tuples(KEYS, VALUES, st.integers(0, 9)), max_size=12),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(-9, 9), st.integers(0, 9)), max_size=12),
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(0, 9)), max_size=12),
)
FOLDS: dict[str, Aggregation] = {
    "count": COUNT,
    "sum": sum_of(None),
    "min": min_max("min", None),
    "max": min_max("max", None),
    "sum of": sum_of(lambda value: value + 1),
    "max of": min_max("max", lambda value: value * 2),
}


class _NotesOfOrigins(Notes):
    """Remembers which input record failed: a batch of groups has fewer rows than the input."""

    def failed(self, batch: Batch, row: int, error: Exception) -> None:
        super().failed(batch, batch.origins[row], error)


def outcome(name: str, batches: list[list[tuple[Any, Any, int]]], *, combines: bool, old: bool) -> Any:
    """What goes on, what is kept, what failed."""
    aggregation = FOLDS[name] if combines else replace(FOLDS[name], combiner=None)
    operator = KeyedAggregation("table", aggregation, caching=True, send_old=old)
    notes = _NotesOfOrigins()
    bind = serdes.auto.bind
    notes.table = open_store(TABLE, notes.backend, bind("keys"), bind("values"))
    opened(operator, notes)
    for rows in batches:
        batch = batch_of(*((key, value) for key, value, _ in rows), timestamps=[time for _, _, time in rows])
        assert operator.process(batch) is None
    flushed = operator.flush()
    sent = None if flushed is None else ([repr(row) for row in updates_of(flushed)], list(flushed.origins))
    kept = [(key, repr(value)) for key, value in operator.store.overlay.sorted_entries()]
    return sent, kept, notes.messages, notes.drops


@pytest.mark.parametrize("many", [0, 2_000])
@pytest.mark.parametrize("name", FOLDS)
@settings(deadline=None)  # a busy machine is no failure
@given(batches=st.lists(ROWS, max_size=3), old=st.booleans())
@example(batches=[[("a", 1, 5), ("b", 2, 3), ("a", 3, 4)]], old=True)
@example(batches=[[("a", 0.1, 0), ("a", 0.2, 0), ("a", 0.3, 0)]], old=False)
@example(batches=[[("a", 2**63 - 1, 0), ("a", 1, 0), ("a", -1, 0)]], old=False)
def test_key_by_key_is_the_same_as_row_by_row(
    name: str, many: int, batches: list[list[tuple[Any, Any, int]]], old: bool
) -> None:
    with patch("millstream.processors.columns.column.MANY_ROWS", many):
        by_key = outcome(name, batches, combines=True, old=old)
    assert by_key == outcome(name, batches, combines=False, old=old)


def test_groups_stand_in_the_order_of_their_last_rows_with_the_largest_timestamp() -> None:
    batch = batch_of(("a", 1), ("b", 2), ("a", 3), timestamps=[7, 5, 6])
    groups = group_rows(batch, serdes.string, sum_of(None))
    assert groups is not None
    assert (list(groups.rows), list(groups.combined), list(groups.timestamps)) == ([1, 2], [2, 4], [5, 7])


@pytest.mark.parametrize("keys", [["a", "b", "a"], [b"a", b"", b"a"]])
def test_a_count_of_a_column_needs_no_python_objects(keys: list[Any]) -> None:
    column = Column.of_series(pl.Series(keys))
    batch = replace(batch_of(*((key, 1) for key in keys), timestamps=[7, 5, 6]), keys=column)
    with patch("millstream.processors.columns.column.MANY_ROWS", 0):
        groups = group_rows(batch, serdes.auto.bind("store"), COUNT)
    assert groups is not None
    assert (list(groups.rows), list(groups.combined), list(groups.timestamps)) == ([1, 2], [1, 2], [5, 7])
    assert column._rows is None


@pytest.mark.parametrize(
    "rows",
    [
        [(1, 1), (True, 1)],  # equal, but not the same bytes
        [(0.0, 1), (-0.0, 1)],
        [("a", 1), (b"a", 1)],
    ],
)
def test_keys_that_may_be_equal_without_the_same_bytes_are_taken_one_by_one(rows: list[Any]) -> None:
    assert group_rows(batch_of(*rows), serdes.auto.bind("store"), COUNT) is None


def test_a_sum_of_floats_is_taken_in_order() -> None:
    batch: Batch = batch_of(("a", 0.1), ("a", 0.2))
    assert group_rows(batch, serdes.string, sum_of(None)) is None
