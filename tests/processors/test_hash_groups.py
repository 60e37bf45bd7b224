"""Many keys are grouped by Arrow: nobody can tell it from Polars."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.processors.aggregations import hash_groups
from millstream.processors.aggregations.column_form import ColumnForm
from millstream.processors.aggregations.count import CountColumns
from millstream.processors.aggregations.hash_groups import are_many_groups, grouped_by_arrow
from millstream.processors.aggregations.sum import SumColumns

ROWS = st.lists(st.tuples(st.sampled_from(["", "a", "b", "ab", "é"]), st.integers(-9, 9), st.integers(0, 9)))


@pytest.mark.parametrize("form", [CountColumns(), SumColumns()])
@pytest.mark.parametrize("dtype", [pl.String(), pl.Binary()])
@settings(max_examples=40, deadline=None)
@given(rows=ROWS)
def test_arrow_groups_rows_as_polars_does(
    form: ColumnForm, dtype: pl.DataType, rows: list[tuple[str, int, int]]
) -> None:
    schema: dict[str, pl.DataType] = {"key": pl.String(), "value": pl.Int64(), "time": pl.Int64()}
    frame = pl.DataFrame(rows, schema, orient="row").with_row_index("row").cast({"key": dtype})
    assert form.arrow_function is not None
    by_arrow = grouped_by_arrow(frame, form.arrow_function).sort("key")
    assert by_arrow.equals(form.grouped(frame).sort("key"))
    assert by_arrow.schema == form.grouped(frame).schema


@pytest.mark.parametrize(
    ("distinct", "rows", "expected"),
    [(20_000, 200_000, True), (20_000, 20_000, False), (20, 200_000, False)],
)
def test_arrow_is_asked_for_many_rows_with_many_keys(distinct: int, rows: int, expected: bool) -> None:
    keys = (pl.int_range(rows, eager=True) % distinct).cast(pl.String)
    assert are_many_groups(keys) is expected
    assert are_many_groups(keys.cast(pl.Binary)) is expected
    assert not are_many_groups(keys.cast(pl.Int64))


def test_keys_too_long_for_its_hash_table_are_left_to_polars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_groups, "_MOST_BYTES", 1000)
    assert not are_many_groups(pl.int_range(200_000, eager=True).cast(pl.String))


def test_a_form_groups_many_keys_by_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def noted(frame: pl.DataFrame, function: hash_groups.ArrowFunction) -> pl.DataFrame:
        asked.append(function)
        return grouped_by_arrow(frame, function)

    monkeypatch.setattr(hash_groups, "grouped_by_arrow", noted)
    numbers = pl.int_range(150_000, eager=True)
    frame = pl.DataFrame(
        {"key": (numbers % 50_000).cast(pl.String).cast(pl.Binary), "time": numbers}
    ).with_row_index("row")
    grouped = CountColumns().grouped(frame)
    assert asked == ["count_all"]
    assert grouped["new"].to_list() == [3] * 50_000
    assert sorted(grouped["row"]) == sorted(grouped["time"]) == list(range(100_000, 150_000))
