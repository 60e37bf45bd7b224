"""``millstream state get``, ``top`` and ``export``: committed rows, without the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.cli.project import MODULE, counted, project, rows_of, run_command

from millstream import Streams, StreamsBuilder, StreamsConfig, serdes
from millstream.log import FileLog, TopicPartition, record_batch
from millstream.types import Partition

__all__ = ["counted", "project"]


def test_a_row_is_found_by_its_key(counted: Path) -> None:
    assert run_command("state", "get", MODULE, "counts", "river").stdout == "key    value\nriver      3\n"
    assert rows_of(run_command("state", "get", MODULE, "counts", "to", "--json")) == [
        {"key": "to", "value": 1}
    ]


def test_a_key_has_a_row_per_window(counted: Path) -> None:
    assert rows_of(run_command("state", "get", MODULE, "per-window", "the", "--json")) == [
        {"key": "the", "start": 10, "end": 20, "value": 1},
        {"key": "the", "start": 30, "end": 40, "value": 1},
    ]
    assert len(rows_of(run_command("state", "export", MODULE, "per-window", "-"))) == 6


def test_what_is_not_there_is_told(counted: Path) -> None:
    assert "has no row of key 'sea'" in run_command("state", "get", MODULE, "counts", "sea", status=1).stderr
    assert (
        f"Application '{MODULE}' has no store 'x'. Stores: counts, per-window."
        in run_command("state", "get", MODULE, "x", "y", status=1).stderr
    )


def test_the_largest_come_first(counted: Path) -> None:
    assert run_command("state", "top", MODULE, "counts", "-n", "2").stdout.splitlines() == [
        "key    value",
        "river      3",
        "the        2",
    ]


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_rows_are_exported(counted: Path, ending: str) -> None:
    told = run_command("state", "export", MODULE, "counts", f"counts.{ending}").stderr
    assert told.startswith("Wrote 3 rows of 'counts' (epoch ")
    readers: dict[str, Any] = {"parquet": pl.read_parquet, "csv": pl.read_csv, "jsonl": pl.read_ndjson}
    read = readers[ending]
    rows = read(counted / f"counts.{ending}").sort("key").rows()
    assert rows == [("river", 3), ("the", 2), ("to", 1)]
    assert (
        "ends in none of .csv"
        in run_command("state", "export", MODULE, "counts", "counts.doc", status=2).stderr
    )


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_a_file_that_can_t_be_written_is_told(counted: Path, ending: str) -> None:
    refused = run_command("state", "export", MODULE, "counts", f"nowhere/counts.{ending}", status=1).stderr
    assert refused.startswith(f"Error: nowhere/counts.{ending} can't be written: No such file or directory")


def test_structured_keys_and_values_are_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = FileLog("millstream-data")
    log.create_topic("orders")
    values = [b'{"shop": "north", "amount": 2}', b'{"shop": "south", "amount": 9}']
    log.append(TopicPartition("orders", Partition(0)), record_batch([b"k"] * 2, values, [1, 2]))
    builder = StreamsBuilder()
    orders = builder.stream("orders", value=serdes.json)
    orders.group_by(lambda _, order: {"shop": order["shop"]}, key=serdes.json).reduce(
        lambda _, order: order, store="last"
    )
    orders.group_by(lambda _, order: order["amount"], key=serdes.int32).count(store="by-amount")
    with Streams(builder.build(), app_id="shop", engine="local", config=StreamsConfig()) as app:
        app.run(until="caught-up")
    assert rows_of(run_command("state", "get", "shop", "last", '{"shop": "north"}', "--json")) == [
        {"key": {"shop": "north"}, "value": {"amount": 2, "shop": "north"}}
    ]
    top = run_command("state", "top", "shop", "last", "--by", "amount").stdout.splitlines()
    assert ["south" in line for line in top] == [False, True, False]
    assert rows_of(run_command("state", "get", "shop", "by-amount", "9", "--json")) == [
        {"key": 9, "value": 1}
    ]
    refused = run_command("state", "get", "shop", "by-amount", "nine", status=2).stderr
    assert "can't be a key of store 'by-amount', whose keys are of serdes.int32" in refused
