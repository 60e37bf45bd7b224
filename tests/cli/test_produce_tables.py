"""``millstream topics produce`` of tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner

from millstream import Consumer, Producer, serdes
from millstream.cli.main import millstream

ORDERS = pl.DataFrame({"shop": ["north", "south"], "amount": [3, 4], "number": [1, 2]})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    Producer(tmp_path / "log", "orders", partitions=1)
    ORDERS.write_csv(tmp_path / "orders.csv")
    ORDERS.write_parquet(tmp_path / "orders.parquet")
    (tmp_path / "lines.txt").write_text("one\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def produce(*arguments: str) -> Any:
    return CliRunner().invoke(millstream, ["topics", "produce", "orders", "--log", "file:log", *arguments])


@pytest.mark.parametrize("file", ["orders.csv", "orders.parquet"])
def test_rows_of_a_table_are_records_of_all_columns(folder: Path, file: str) -> None:
    done = produce(file, "--key-column", "number", "--timestamp-column", "amount")
    assert (done.exit_code, done.stderr) == (0, "Appended 2 records to 'orders'.\n")
    found = Consumer(folder / "log", "orders", key=serdes.string, value=serdes.json)
    assert [(one.key, one.value, one.timestamp) for one in found] == [
        (str(row["number"]), row, row["amount"]) for row in ORDERS.to_dicts()
    ]


def test_columns_are_chosen_and_written_by_their_format(folder: Path) -> None:
    produce("orders.csv", "--value-column", "amount", "--value-format", "int64")
    produce("orders.csv", "--value-column", "amount", "--value-column", "shop")
    values = [one.value for one in Consumer(folder / "log", "orders")]
    assert values[0] == serdes.int64.serialize(3)
    assert values[2] == b'{"amount":3,"shop":"north"}'


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["orders.csv", "lines.txt"], "orders.csv is a table and lines.txt is not"),
        (["orders.csv", "--key-separator", ":"], "--key-separator is for lines, and orders.csv is a table"),
        (["orders.csv", "--json"], "--json is for lines, and orders.csv is a table"),
        (["orders.csv", "-H", "host=a"], "--header is for lines, and orders.csv is a table"),
        (["orders.csv", "--timestamp", "0"], "--timestamp is for lines, and orders.csv is a table"),
        (["orders.csv", "--value-format", "int64"], "--value-format int64 is for one column; name it with"),
        (["lines.txt", "--key-column", "shop"], "are for tables: files that end in .csv or .parquet"),
        (["orders.csv", "--key-column", "store"], "The table has no column 'store', which the key needs"),
    ],
)
def test_options_that_do_not_fit_are_refused(folder: Path, arguments: list[str], message: str) -> None:
    done = produce(*arguments)
    assert done.exit_code in {1, 2}
    assert message in done.output
    assert list(Consumer(folder / "log", "orders")) == []
