"""Topics to measure with, and applications run over them on a Spark that several may share."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pyarrow as pa
from pyspark import SparkContext

from millstream import Streams, StreamsBuilder, StreamsConfig, Topology, serdes, value
from millstream.engine.epoch_result import EpochResult
from millstream.engine.spark.session import make_context
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.log.errors import TopicExistsError
from millstream.log.partitioner import partitions_for_keys
from millstream.types import Partition

__all__ = [
    "ENGINES",
    "PARTITIONS",
    "EngineName",
    "append",
    "application",
    "count_by_key",
    "count_grouped",
    "keyed_rows",
    "lines",
    "run_to_the_end",
    "spark_context",
    "word_count",
    "word_count_in_columns",
    "workplace",
]

EngineName = Literal["jobs", "resident"]
ENGINES: tuple[EngineName, ...] = ("jobs", "resident")
"""Both that run on Spark."""
PARTITIONS = 4
_WORDS_PER_LINE = 8


@contextmanager
def workplace() -> Iterator[Path]:
    """A folder that is gone afterwards."""
    with TemporaryDirectory(prefix="millstream-bench-") as folder:
        yield Path(folder)


@contextmanager
def spark_context(folder: Path) -> Iterator[SparkContext]:
    """The Spark that Millstream makes, on two cores, kept for several applications."""
    context = make_context("bench", _settings(folder))
    try:
        yield context
    finally:
        context.stop()


def _settings(folder: Path) -> dict[str, str]:
    return {
        "spark.master": "local[2,4]",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder / "spark"),
        "spark.driver.memory": "2g",
    }


def application(
    topology: Topology,
    folder: Path,
    *,
    app_id: str = "bench",
    spark: Any = None,
    max_records: int = 100_000,
    commit_interval_ms: int = 100,
    engine: EngineName = "jobs",
) -> Streams:
    """An application over the topics in a folder."""
    config = StreamsConfig(
        engine=engine,
        state_dir=folder / "state",
        max_records_per_epoch=max_records,
        default_partitions=PARTITIONS,
        commit_interval_ms=commit_interval_ms,
        spark_settings=_settings(folder) if spark is None else {},
    )
    return Streams(topology, app_id=app_id, log=folder / "log", spark=spark, config=config)


def run_to_the_end(app: Streams) -> list[EpochResult]:
    """Run until everything is committed; what each epoch did."""
    results: list[EpochResult] = []
    app.on_epoch(results.append)
    app.run(until="caught-up")
    return results


# Topics.


def keyed_rows(count: int, keys: int, *, number: int = 0) -> pa.RecordBatch:
    """The batch of that number of records whose value repeats their key."""
    chance = random.Random(number)
    data = [b"key-%08d" % chance.randrange(keys) for _ in range(count)]
    return record_batch(data, data, range(number * count, (number + 1) * count))


def lines(count: int, *, words: int = 50_000, number: int = 0) -> pa.RecordBatch:
    """The batch of that number of lines of eight words."""
    chance = random.Random(number)
    vocabulary = [b"word%05d" % number for number in range(words)]
    text = [b" ".join(chance.choices(vocabulary, k=_WORDS_PER_LINE)) for _ in range(count)]
    return record_batch([None] * count, text, range(number * count, (number + 1) * count))


def append(log: FileLog, topic: str, rows: pa.RecordBatch, *, partitions: int = PARTITIONS) -> None:
    """Append rows, each to the partition of its key, or in equal shares if they have none."""
    with suppress(TopicExistsError):
        log.create_topic(topic, TopicConfig(partitions=partitions))
    for number, part in enumerate(split(rows, partitions)):
        if part.num_rows:
            log.append(TopicPartition(topic, Partition(number)), part)


def split(rows: pa.RecordBatch, partitions: int) -> Sequence[pa.RecordBatch]:
    """The rows of each partition."""
    keys = rows.column(0)
    if keys.null_count == len(keys):
        return [rows.take(pa.array(range(number, rows.num_rows, partitions))) for number in range(partitions)]
    where = partitions_for_keys(keys, partitions, null_keys_to=0)
    return [rows.filter((where == number).to_arrow()) for number in range(partitions)]


# Topologies.


def count_by_key() -> Topology:
    """A count of a topic that is partitioned by its key: no shuffle."""
    builder = StreamsBuilder()
    counts = builder.stream("in").group_by_key().count(store="counts")
    counts.to_stream().to("out", value=serdes.int64)
    return builder.build()


def count_grouped() -> Topology:
    """A count by a part of the value: one shuffle."""
    builder = StreamsBuilder()
    counts = builder.stream("in").group_by(lambda _, value: value[4:]).count(store="counts")
    counts.to_stream().to("out", value=serdes.int64)
    return builder.build()


def word_count() -> Topology:
    """The classic one, with Python's own `split`."""
    builder = StreamsBuilder()
    (
        builder.stream("lines", value=serdes.string)
        .flat_map_values(str.split)
        .group_by(lambda _, word: word)
        .count(store="counts")
        .to_stream()
        .to("out", key=serdes.string, value=serdes.int64)
    )
    return builder.build()


def word_count_in_columns() -> Topology:
    """The same with expressions in place of Python functions."""
    builder = StreamsBuilder()
    (
        builder.stream("lines", value=serdes.string)
        .flat_map_values(value.str.split(" "))
        .group_by(value)
        .count(store="counts")
        .to_stream()
        .to("out", key=serdes.string, value=serdes.int64)
    )
    return builder.build()
