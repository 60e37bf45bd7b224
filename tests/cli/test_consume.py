"""``topics consume``: where it begins, which keys, every format, several partitions; ``topics alter``."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest
from tests.cli.project import rows_of, run_command

from millstream import serdes
from millstream.cli.formats import FORMATS
from millstream.cli.options import parse_time
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.record import Window, Windowed
from millstream.types import Partition


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileLog:
    """Three records in one partition, two in another; the times of both run beside each other."""
    monkeypatch.chdir(tmp_path)
    log = FileLog("millstream-data")
    log.create_topic("events", TopicConfig(partitions=2))
    for number, rows in enumerate(
        ([(b"a", b"1", 10), (b"b", b"2", 30), (b"a", b"3", 50)], [(b"b", b"4", 20), (b"a", b"5", 40)])
    ):
        columns = [list(column) for column in zip(*rows, strict=True)]
        log.append(TopicPartition("events", Partition(number)), record_batch(*columns))
    return log


def lines(*options: str) -> list[str]:
    return run_command("topics", "consume", "events", *options).stdout.split()


def test_partitions_are_merged_by_time(log: FileLog) -> None:
    assert lines() == ["1", "4", "2", "5", "3"]
    assert lines("--max-messages", "2") == ["1", "4"]
    assert lines("--partition", "1") == ["4", "5"]


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("30", ["2", "5", "3"]),
        ("1970-01-01T00:00:00.041+00:00", ["3"]),
        ("1d", []),
        ("0", ["1", "4", "2", "5", "3"]),
    ],
)
def test_it_begins_at_a_time(log: FileLog, time: str, expected: list[str]) -> None:
    assert lines("--from", time) == expected


def test_a_time_that_is_none_is_refused(log: FileLog) -> None:
    refused = run_command("topics", "consume", "events", "--from", "yesterday", status=2).stderr
    assert "'yesterday' is no time. Use milliseconds since 1970" in refused
    assert parse_time("90s", now_ms=100_000) == 10_000


def test_only_the_records_of_a_key_are_shown(log: FileLog) -> None:
    assert lines("--key", "a", "--key-separator", "=") == ["a=1", "a=5", "a=3"]
    assert [
        row["offset"] for row in rows_of(run_command("topics", "consume", "events", "--key", "a", "--json"))
    ] == [
        0,
        1,
        2,
    ]


def test_a_windowed_key_is_filtered_by_its_key(log: FileLog) -> None:
    log.create_topic("windows")
    serde = serdes.time_windowed(serdes.string, 10)
    keys = [
        serde.serialize(Windowed(key, Window(start, start + 10)))
        for key, start in (("a", 0), ("b", 0), ("a", 10))
    ]
    log.append(TopicPartition("windows", Partition(0)), record_batch(keys, [b"x", b"y", b"z"], [1, 2, 3]))
    words = ("--windows", "10", "--key", "a", "--key-separator", " ")
    assert run_command("topics", "consume", "windows", *words).stdout.splitlines() == [
        "0\t10\ta x",
        "10\t20\ta z",
    ]


@pytest.mark.parametrize(
    ("form", "text", "data"),
    [
        ("int16", "-7", serdes.int16.serialize(-7)),
        ("int32", "70000", serdes.int32.serialize(70_000)),
        ("int64", "42", serdes.int64.serialize(42)),
        ("float32", "2.5", serdes.float32.serialize(2.5)),
        ("double", "0.1", serdes.double.serialize(0.1)),
        ("boolean", "true", serdes.boolean.serialize(True)),
        ("uuid", "00000000-0000-0000-0000-000000000007", serdes.uuid.serialize(UUID(int=7))),
    ],
)
def test_every_format_is_read_and_shown(log: FileLog, form: str, text: str, data: bytes) -> None:
    run_command("topics", "create", "typed")
    run_command("topics", "produce", "typed", "--value-format", form, stdin=f"{text}\n")
    (batch,) = log.read(
        TopicPartition("typed", Partition(0)), log.earliest(TopicPartition("typed", Partition(0)))
    )
    assert batch.values() == [data]
    assert run_command("topics", "consume", "typed", "--value-format", form).stdout == f"{text}\n"
    (row,) = rows_of(run_command("topics", "consume", "typed", "--value-format", form, "--json"))
    run_command("topics", "produce", "typed", "--value-format", form, "--json", stdin=json.dumps(row))
    assert run_command("topics", "consume", "typed", "--value-format", form).stdout == f"{text}\n" * 2
    assert FORMATS[form].name == form


@pytest.mark.parametrize("schema_id", [None, 7])
def test_avro_is_read_by_the_schema_in_a_file(log: FileLog, schema_id: int | None) -> None:
    schema = {"type": "record", "name": "Order", "fields": [{"name": "shop", "type": "string"}]}
    Path("order.avsc").write_text(json.dumps(schema))
    log.create_topic("orders")
    data = serdes.avro(schema, schema_id=schema_id).serialize({"shop": "north"})
    log.append(TopicPartition("orders", Partition(0)), record_batch([None], [data], [1]))
    form = "avro:order.avsc" if schema_id is None else f"avro:order.avsc@{schema_id}"
    assert run_command("topics", "consume", "orders", "--value-format", form).stdout == '{"shop":"north"}\n'
    Path("broken.avsc").write_text('{"type": "recordd"}')
    refused = run_command(
        "topics", "consume", "orders", "--value-format", "avro:broken.avsc", status=2
    ).stderr
    assert "broken.avsc is no Avro schema" in refused


def test_retention_and_compaction_are_altered(log: FileLog) -> None:
    told = run_command("topics", "alter", "events", "--retention-ms", "60000", "--compact").stderr
    assert told == (
        "Topic 'events' is altered: 2 partitions, create-time, keeps for 60,000 ms and the last of each "
        "key.\n"
    )
    (row,) = rows_of(
        run_command("topics", "alter", "events", "--retention-ms", "-1", "--no-compact", "--json")
    )
    assert (row["retention_ms"], row["is_compacted"], row["partitions"]) == (None, False, 2)
    assert "Nothing to alter" in run_command("topics", "alter", "events", status=2).stderr


def test_an_altered_topic_is_compacted_at_the_next_maintenance(log: FileLog) -> None:
    run_command("topics", "alter", "events", "--compact")
    run_command("topics", "compact", "events")
    assert lines("--key-separator", "=") == ["b=4", "b=2", "a=5", "a=3"]


def test_commands_tell_what_they_did_in_json(log: FileLog) -> None:
    assert rows_of(run_command("topics", "create", "x", "--json"))[0]["created"] is True
    assert rows_of(run_command("topics", "list", "--json"))[0]["topic"] == "events"
    assert rows_of(run_command("topics", "describe", "events", "--json"))[0]["offsets"][0]["latest"] == 3
    assert rows_of(run_command("topics", "delete", "x", "--yes", "--json")) == [
        {"topic": "x", "deleted": True, "records": 0}
    ]
