"""A column is the same sequence whichever way it is looked at."""

from __future__ import annotations

import subprocess
import sys

import polars as pl
import pyarrow as pa
import pytest

from millstream.processors.aggregations.aggregation import PartialAggregate
from millstream.processors.batch import Batch, concatenate
from millstream.processors.columns import column as columns
from millstream.processors.columns.column import Column, repeated_rows

COLUMNS = {
    "rows": Column(["a", None, "c"]),
    "series": Column.of_series(pl.Series(["a", None, "c"])),
    "arrow": Column.of_arrow(pa.array(["a", None, "c"])),
    "pieces": Column.of_arrow(pa.chunked_array([["a"], [None, "c"]])),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=list(COLUMNS))
def test_a_column_is_a_sequence(column: Column) -> None:
    assert len(column) == 3
    assert list(column) == ["a", None, "c"]
    assert column[2] == "c"
    assert column.item(0) == "a"
    assert column[1:] == [None, "c"]
    assert None in column
    assert "b" not in column
    assert column.null_count == 1
    assert column.present() == [0, 2]
    assert column.series(pl.String()).to_list() == pa.array(column.arrow()).to_pylist() == column.rows()


def test_rows_of_columns_are_columns() -> None:
    rows = Column.of_series(pl.Series([2, 0]))
    assert COLUMNS["arrow"].take(rows).in_arrow
    assert COLUMNS["arrow"].take(Column((2, 0))) == ["c", "a"]
    assert Column(range(10, 20)).take(rows) == [12, 10]
    assert Column(["x", "y", "z"]).take(rows) == ["z", "x"]


def batch_of(keys: Column | list[str | None]) -> Batch:
    return Batch(keys, [1] * len(keys), range(len(keys)), None, range(len(keys)))


def test_columns_of_one_type_stay_columns_when_batches_are_joined() -> None:
    joined = concatenate([batch_of(COLUMNS["series"]), batch_of(COLUMNS["arrow"])])
    assert joined.keys.in_arrow
    assert joined.keys == ["a", None, "c"] * 2


def test_columns_and_lists_are_joined_as_lists() -> None:
    numbers = Column.of_series(pl.Series([1, 2]))
    assert concatenate([batch_of(COLUMNS["series"]), batch_of(["d"])]).keys == ["a", None, "c", "d"]
    assert concatenate([batch_of(COLUMNS["series"]), batch_of(numbers)]).keys == ["a", None, "c", 1, 2]


def test_polars_is_not_imported_before_somebody_needs_it() -> None:
    script = "import sys, millstream; sys.exit('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_pieces_stay_pieces_until_somebody_wants_one() -> None:
    column = Column.of_arrow(pa.chunked_array([["a"], [None, "c"]]))
    assert [piece.to_pylist() for piece in column.pieces()] == [["a"], [None, "c"]]
    assert column.arrow().to_pylist() == ["a", None, "c"]
    assert len(column.pieces()) == 1


def test_python_may_be_shown_something_else() -> None:
    column = Column.of_series(pl.Series([1, 2, 3]), PartialAggregate)
    assert list(column) == [PartialAggregate(1), PartialAggregate(2), PartialAggregate(3)]
    assert column.item(1) == PartialAggregate(2)
    for part in (
        column[1:],
        column.take(Column([1, 2])),
        column.take(Column.of_series(pl.Series([1, 2]))),
    ):
        assert part == [PartialAggregate(2), PartialAggregate(3)]
    assert Column.concat([column, column[:1]]) == [*column, PartialAggregate(1)]
    assert not Column.concat([column, Column.of_series(pl.Series([4]))]).in_arrow


def test_nulls_are_shown_as_none() -> None:
    assert Column.of_arrow(pa.nulls(2, pa.binary())) == [None, None]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (["a", "ü"], pl.String()),
        ([b"a", b""], pl.Binary()),
        (["a", None], None),
        (["a", b"a"], None),
        ([1, 2], None),
        (["\ud800", "a"], None),
        ([type("Word", (str,), {})("a"), "b"], None),
    ],
)
def test_only_text_or_only_bytes_become_a_column(
    values: list[object], dtype: pl.DataType | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    column = Column(values)
    assert column.packed() is column
    monkeypatch.setattr(columns, "MANY_ROWS", 0)
    found = column.packed()
    assert (found.dtype() if found.in_arrow else None) == dtype
    assert found == values


@pytest.mark.parametrize(("counts", "rows"), [([2, 0, 1], [0, 0, 2]), ([0, 0], []), ([], [])])
def test_rows_are_repeated(counts: list[int], rows: list[int]) -> None:
    assert repeated_rows(counts) == rows
