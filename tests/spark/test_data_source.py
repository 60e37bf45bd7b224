"""Topics and stores as frames of Spark, frames into topics, and streaming frames as streams."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from tests.spark import frame_child
from tests.spark.lab import Lab

from millstream import Consumer, Producer, Streams, StreamsBuilder, StreamsConfig, serdes
from millstream import spark as millstream_spark
from millstream.engine.spark.datasource.options import OPTIONS, SourceOptions
from millstream.engine.spark.datasource.topics import TopicReader
from millstream.engine.spark.session import check_context
from millstream.errors import ConfigError, TopologyError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def session(spark: SparkContext) -> SparkSession:
    session = SparkSession(spark)
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    millstream_spark.register(session)
    return session


def numbers(log: Path, topic: str, count: int) -> None:
    with Producer(log, topic, key=serdes.string, value=serdes.int64, partitions=2) as producer:
        for number in range(count):
            producer.send(f"k{number % 5}", number, timestamp=1000 * number)


def source(session: SparkSession, log: Path) -> Any:
    return session.read.format("millstream").option("log", str(log)).option("key", "string")


def test_a_topic_is_a_frame_by_offset_and_by_time(session: SparkSession, tmp_path: Path) -> None:
    with Producer(tmp_path, "orders", key=serdes.string, value=serdes.json, partitions=2) as orders:
        for number in range(10):
            orders.send(f"k{number}", {"shop": f"s{number % 2}", "amount": number}, timestamp=1000 * number)
    typed = serdes.json({"shop": str, "amount": int})
    expected = Consumer(tmp_path, "orders", key=serdes.string, value=typed).to_polars()

    class Order(TypedDict):  # of a function: its class has to be moved to the workers, too
        shop: str
        amount: int

    frame = Consumer(tmp_path, "orders", key=serdes.string, value=serdes.json(Order)).to_spark(session)
    assert frame.rdd.getNumPartitions() == 2
    by_shop = {row[0]: row[1] for row in frame.groupBy("value.shop").sum("value.amount").collect()}
    assert by_shop == {"s0": 20, "s1": 25}

    read = (
        source(session, tmp_path)
        .option("value", "json")
        .option("value_schema", "shop STRING, amount BIGINT")
        .option("startingTimestamp", "1970-01-01T00:00:02Z")
        .option("endingOffsets", "latest")
        .load("orders")
    )
    assert read.columns == expected.columns
    found = sorted(
        (row.partition, row.offset, row.key, row.value.amount, row.timestamp.second) for row in read.collect()
    )
    assert found == sorted(
        (row["partition"], row["offset"], row["key"], row["value"]["amount"], row["timestamp"].second)
        for row in expected.to_dicts()
        if row["timestamp"].second >= 2
    )


@pytest.mark.parametrize("given", [{"startingOffsets": "99"}, {"startingOffsets": "2", "endingOffsets": "1"}])
def test_a_start_behind_the_end_is_an_error_and_no_empty_frame(tmp_path: Path, given: dict[str, str]) -> None:
    numbers(tmp_path, "numbers", 10)
    options = SourceOptions({"log": str(tmp_path), "path": "numbers", "key": "string", **given})
    with pytest.raises(ConfigError, match="startingOffsets is behind the end"):
        TopicReader(options, StructType()).partitions()


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("value_shema", "value_schema"),
        ("keyColumn", "key_column"),
        ("Topics", "topic"),
    ],
)
def test_a_misspelt_option_is_refused_with_the_one_that_was_meant(misspelt: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f'"{misspelt}".*did you mean "{meant}"'):
        SourceOptions({"log": "here", misspelt: "x"})


def test_options_are_known_in_any_case_and_those_of_others_are_left_to_them() -> None:
    given = {name.upper(): "x" for name in OPTIONS} | {"header": "true", "mergeSchema": "true"}
    assert SourceOptions(given).given == given


def test_a_frame_is_written_once_however_often_its_number_comes(
    session: SparkSession, tmp_path: Path
) -> None:
    Producer(tmp_path, "orders", partitions=2)
    frame = session.range(6).selectExpr("CAST(id AS STRING) AS key", "id AS value", "id AS timestamp")
    for version in (1, 1, 2):
        writer = frame.write.format("millstream").option("log", str(tmp_path)).option("txnAppId", "nightly")
        writer.option("txnVersion", version).mode("append").save("orders")
    found = sorted(
        (one.key, one.value, one.timestamp)
        for one in Consumer(tmp_path, "orders", key=serdes.string, value=serdes.int64)
    )
    assert found == sorted((str(n), n, n) for n in range(6) for _ in range(2))


def test_a_store_is_a_frame_at_a_commit_and_a_stream_of_changes(session: SparkSession, lab: Lab) -> None:
    numbers(lab.log.root, "numbers", 20)
    builder = StreamsBuilder()
    builder.stream("numbers", key=serdes.string, value=serdes.int64).group_by_key().count(store="counts")
    config = StreamsConfig(state_dir=lab.state_dir)
    with Streams(builder.build(), app_id="app", log=lab.log.root, engine="local", config=config) as app:
        app.run(until="caught-up")
        store = app.store("counts")
        expected = {(row["key"], row["value"]) for row in store.to_arrow().to_pylist()}
        assert {(row.key, row.value) for row in store.to_spark(session).collect()} == expected
        changes = (
            session.readStream.format("millstream")
            .option("log", str(lab.log.root))
            .option("app_id", "app")
            .option("store", "counts")
            .load()
        )
        rows = read_available(changes, lab.folder / "checkpoint")
        assert {(row.key, row.value) for row in rows} == expected
        numbers(lab.log.root, "numbers", 1)
        app.run(until="caught-up")
        rows = read_available(changes, lab.folder / "checkpoint")
        assert [(row.key, row.value) for row in rows] == [("k0", 5)]


def read_available(frame: Any, checkpoint: Path) -> list[Any]:
    """The rows that a streaming query gets from where its checkpoint is."""
    rows: list[Any] = []
    query = (
        frame.writeStream.foreachBatch(lambda batch, _number: rows.extend(batch.collect()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    return rows


def test_a_rate_is_a_stream_and_goes_on_where_it_was(session: SparkSession, lab: Lab) -> None:
    rate = session.readStream.format("rate").option("rowsPerSecond", 10).load()
    for run in (1, 2):
        builder = StreamsBuilder()
        builder.stream_from(rate, value="value", timestamp="timestamp").to("out", value=serdes.int64)
        app = Streams(
            builder.build(),
            app_id="rates",
            log=lab.log.root,
            engine="local",
            config=StreamsConfig(state_dir=lab.state_dir),
        )
        with app:
            app.run(until=partial(has_out, lab, 10 * run))
    found = out(lab)
    assert found == list(range(len(found)))


def has_out(lab: Lab, count: int, _app: Streams) -> bool:
    return len(out(lab)) >= count


def out(lab: Lab) -> list[int]:
    if "out" not in (lab.log.topics() if (lab.log.root / "topics").is_dir() else ()):
        return []
    return sorted(one.value for one in Consumer(lab.log, "out", value=serdes.int64) if one.value is not None)


def test_streams_of_frames_and_of_topics_are_exact_over_a_kill(session: SparkSession, tmp_path: Path) -> None:
    numbers(tmp_path / "log", "numbers", 60)
    Producer(tmp_path / "log", "copies", partitions=2)
    (tmp_path / "in").mkdir()
    rows = [{"sensor": f"s{n % 3}", "number": n, "at": "2026-01-31T08:00:00Z"} for n in range(40)]
    for file in range(8):
        lines = [json.dumps(row) for row in rows[5 * file : 5 * file + 5]]
        (tmp_path / "in" / f"{file}.json").write_text("\n".join(lines))

    def copied() -> int:
        return len(list(Consumer(tmp_path / "log", "copies")))

    def ingested() -> int:
        topics = tmp_path / "log" / "topics"
        there = (topics / "readings-frame").is_dir()
        return len(list(Consumer(tmp_path / "log", "readings-frame"))) if there else 0

    killed_when(tmp_path, lambda: copied() >= 10 and ingested() >= 5)
    assert copied() < 60 or ingested() < 40
    frame_child.copying(session, tmp_path).trigger(availableNow=True).start().awaitTermination(300)
    with frame_child.application(session, tmp_path) as app:
        app.run(until="caught-up")

    log = tmp_path / "log"
    expected = [(one.key, one.value, one.timestamp) for one in Consumer(log, "numbers", key=serdes.string)]
    found = [(one.key, one.value, one.timestamp) for one in Consumer(log, "copies", key=serdes.string)]
    assert sorted(found) == sorted(expected)
    readings = serdes.json({"number": int})
    taken = [one.value["number"] for one in Consumer(log, "readings-frame", value=readings) if one.value]
    assert sorted(taken) == list(range(40))
    tens = Consumer(log, "tens", key=serdes.string, value=serdes.int64)
    assert sorted((str(one.key), one.value or 0) for one in tens) == sorted(
        (f"s{number % 3}", 10 * number) for number in range(40)
    )


def killed_when(folder: Path, condition: Callable[[], bool]) -> None:
    """Run the child until a condition holds, and kill all its processes."""
    said = folder / "said"
    with said.open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, frame_child.__file__, str(folder)],
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "SPARK_LOCAL_IP": "127.0.0.1"},
            cwd=folder,
            start_new_session=True,
            stdout=output,
            stderr=output,
        )
    deadline = time.monotonic() + 600
    try:
        while not condition():
            assert child.poll() is None, said.read_text()
            assert time.monotonic() < deadline, said.read_text()
            time.sleep(0.02)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def test_the_blocks_of_the_document_run(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of docs/data.md that need a session, in a folder with the topics and files that they read."""
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "millstream-data"
    Producer(log, "payments", partitions=1)
    with Producer(log, "orders", key=serdes.string, value=serdes.json, partitions=1) as orders:
        orders.send("ann", {"shop": "north", "amount": 3})
    builder = StreamsBuilder()
    builder.stream("orders", key=serdes.string).group_by_key().count(store="orders-of-shops")
    config = StreamsConfig(state_dir=tmp_path / "state")
    with Streams(builder.build(), app_id="shops", log=log, engine="local", config=config) as app:
        app.run(until="caught-up")
    (tmp_path / "readings").mkdir()
    reading = {"sensor": "a", "celsius": 21.5, "at": "2026-01-31T08:00:00Z"}
    (tmp_path / "readings" / "1.json").write_text(json.dumps(reading))

    text = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python no-run\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        # Spark was started elsewhere, and a relative folder means one there.
        here = block.replace("file:./millstream-data", f"file:{log}").replace(
            "readings/", f"{tmp_path}/readings/"
        )
        exec(compile(here, "docs/data.md", "exec"), names)  # noqa: S102 - our own document
    assert [(row.key, row.value) for row in names["counts"].collect()] == [("ann", 1)]
    payments = Consumer(log, "payments", key=serdes.string, value=serdes.json)
    assert [(one.key, one.value) for one in payments] == [("ann", {"amount": 5})]
    readings = Consumer(log, "readings-frame", key=serdes.string, value=serdes.double)
    assert [(one.key, one.value) for one in readings] == [("a", 21.5)]


def test_a_frame_that_is_no_stream_is_refused(session: SparkSession) -> None:
    with pytest.raises(TopologyError, match=r"Remedy: make it with spark\.readStream"):
        StreamsBuilder().stream_from(session.range(3))
    rate = session.readStream.format("rate").load()
    with pytest.raises(TopologyError, match="the frame has no column 'sensor'"):
        StreamsBuilder().stream_from(rate, key="sensor")


def test_a_session_that_leaves_settings_out_is_no_refusal(
    spark: SparkContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = spark.getConf()
    left_out = {
        name: value for name, value in conf.getAll() if name not in millstream_spark.session_settings()
    }
    plain = type(conf)(loadDefaults=False)
    for name, value in {**left_out, "spark.master": "local[2]"}.items():
        plain.set(name, value)
    monkeypatch.setattr(spark, "getConf", lambda: plain)
    check_context(spark)
    assert millstream_spark.session_settings()["spark.speculation"] == "false"
