"""Joins on Spark, against the nearest thing that Spark offers itself.

Both sides get the same records in batches of the same size, as in :mod:`.throughput`.

- **Stream with stream**: orders with keys of their own, and a payment for each, up to 66 seconds later; the
  windows are 60 seconds long, so that nine of ten are paid. Spark's own join of streams, with watermarks
  and its state in RocksDB, writes the pairs to Parquet files.
- **Stream with table**: a table with changes between the records of the stream. Spark has no such join: a
  table is what it is when a micro-batch begins. The nearest thing is a snapshot in Parquet files: each
  micro-batch takes the last change of each key into a new snapshot, and joins its records with that. Records
  see the end of their batch there, and not the table as of each of them. Beside that there is Spark's
  join with a snapshot that never changes.
- **Table with table by foreign key**: Spark has nothing. Ours alone, with what it holds in memory.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession, functions

from benchmarks.applications import (
    PARTITIONS,
    append,
    application,
    run_to_the_end,
    spark_context,
    split,
    workplace,
)
from benchmarks.figures import Figure, Scale, at_least, ratio
from benchmarks.memory import megabytes_held
from benchmarks.spark_native import appended_to, native_session, seconds_of, stream_of, write_files
from millstream import JoinWindows, StreamsBuilder, Topology, other, serdes, value
from millstream.engine.epoch_result import EpochResult
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.types import Partition

__all__ = ["joins"]

_TURNS = 2
_SECOND = 1_000
_SPAN = 100 * _SECOND
"""A batch covers so much time."""
_WINDOW = 60 * _SECOND
_LONGEST = 66 * _SECOND
_TABLE_SCHEMA = "key string, value long, timestamp long, side string"


def joins(scale: Scale) -> list[Figure]:
    """A stream with a stream, a stream with a table, a table with another by foreign key."""
    return [*_streams(scale), *_table(scale), *_foreign_keys(scale)]


def _runs(results: list[EpochResult], at_least_records: int) -> list[float]:
    """Records per second of whole epochs: the first one warms up, and rests are small."""
    return [one.records / one.seconds for one in results[1:] if one.records >= at_least_records]


def _best(name: str, runs: list[float], group: str) -> Figure:
    """The best batch counts: whatever else runs there only slows them."""
    return Figure(name, max(runs), "records/s", runs, group=f"{group}: records per second")


def _records_in(log: FileLog, topic: str) -> int:
    return sum(log.latest(TopicPartition(topic, Partition(number))) for number in range(PARTITIONS))


def _check(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise RuntimeError(f"{what}: {found:,} results, and not {expected:,}")


# A stream with a stream.


@dataclass(frozen=True, slots=True)
class _Streams:
    """Batches of both sides, and how many pairs they have."""

    orders: list[pa.RecordBatch]
    payments: list[pa.RecordBatch]
    pairs: int

    @property
    def records(self) -> int:
        """How many of both there are in a batch."""
        return self.orders[0].num_rows + self.payments[0].num_rows


def _streams(scale: Scale) -> list[Figure]:
    work = _orders_and_payments(scale.of(250_000, 50_000), scale.of(5, 3))
    ours, native = list[float](), list[float]()
    with workplace() as root:
        for number in range(scale.of(_TURNS, 1)):
            folder = root / str(number)
            folder.mkdir()
            with spark_context(folder) as spark:
                ours += _ours_of_streams(folder, spark, work)
            with native_session(folder) as session:
                native += _native_of_streams(folder, session, work)
    name = "stream-stream join"
    figures = [
        _best(f"{name}: Spark native", native, name),
        _best(f"{name}: Millstream", ours, name),
    ]
    return [*figures, at_least(ratio(f"{name}: times Spark native", figures[1], figures[0]), 2)]


def _orders_and_payments(count: int, batches: int) -> _Streams:
    chance = random.Random(1)
    total = count * batches
    keys = [b"order-%08d" % number for number in range(total)]
    times = [_SECOND + number * _SPAN // count for number in range(total)]
    delays = [chance.randrange(_LONGEST) for _ in range(total)]
    paid = sorted((time + delay, key) for time, delay, key in zip(times, delays, keys, strict=True))
    return _Streams(
        [
            record_batch(keys[at : at + count], keys[at : at + count], times[at : at + count])
            for at in range(0, total, count)
        ],
        [
            record_batch([key for _, key in part], [b"card"] * count, [time for time, _ in part])
            for part in (paid[at : at + count] for at in range(0, total, count))
        ],
        sum(delay <= _WINDOW for delay in delays),
    )


def _paid() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=serdes.string, value=serdes.string)
    payments = builder.stream("payments", key=serdes.string, value=serdes.string)
    within = JoinWindows(0, after=_WINDOW, grace=5 * _SECOND)
    orders.join(payments, lambda order, payment: order + payment, within).to("out", value=serdes.string)
    return builder.build()


def _ours_of_streams(folder: Path, spark: SparkContext, work: _Streams) -> list[float]:
    place = folder / "streams"
    log = FileLog(place / "log")
    for orders, payments in zip(work.orders, work.payments, strict=True):
        append(log, "orders", orders)
        append(log, "payments", payments)
    per_partition = int(1.02 * work.orders[0].num_rows / PARTITIONS)
    with application(_paid(), place, spark=spark, max_records=per_partition) as app:
        results = run_to_the_end(app)
    _check("stream-stream join", _records_in(log, "out"), work.pairs)
    return _runs(results, work.records // 2)


def _native_of_streams(folder: Path, session: SparkSession, work: _Streams) -> list[float]:
    write_files(work.orders, folder / "orders")
    write_files(work.payments, folder / "payments")
    left = _timed(stream_of(session, folder / "orders"), "order")
    right = _timed(stream_of(session, folder / "payments"), "payment")
    near = functions.expr(
        "order_key = payment_key AND payment_time >= order_time "
        f"AND payment_time <= order_time + INTERVAL {_WINDOW // _SECOND} SECONDS"
    )
    pairs = left.join(right, near).select(
        functions.col("order_key").alias("key"),
        functions.concat("order_value", "payment_value").alias("value"),
    )
    output = folder / "pairs"
    taken = seconds_of(pairs, folder / "streams-checkpoint", appended_to(output), mode="append")
    _check("Spark's stream-stream join", session.read.parquet(str(output)).count(), work.pairs)
    return [work.records / one for one in taken[1 : len(work.orders)]]


def _timed(rows: DataFrame, side: str) -> DataFrame:
    event = functions.timestamp_millis("timestamp").alias(f"{side}_time")
    columns = (functions.col(name).alias(f"{side}_{name}") for name in ("key", "value"))
    return rows.select(*columns, event).withWatermark(f"{side}_time", "5 seconds")


# A stream with a table.


@dataclass(frozen=True, slots=True)
class _Table:
    """The rows of a table, and batches of the stream and of changes of the table."""

    rows: pa.RecordBatch
    stream: list[pa.RecordBatch]
    changes: list[pa.RecordBatch]

    @property
    def records(self) -> int:
        """How many of the stream there are in a batch."""
        return self.stream[0].num_rows


def _table(scale: Scale) -> list[Figure]:
    work = _stream_and_table(scale.of(1_000_000, 100_000), scale.of(1_000_000, 100_000), scale.of(5, 3))
    name = "stream-table join"
    kept: dict[str, list[float]] = {}
    with workplace() as root:
        for number in range(scale.of(_TURNS, 1)):
            folder = root / str(number)
            folder.mkdir()
            with spark_context(folder) as spark:
                for tier, build in (("row tier", _priced), ("column tier", _priced_in_columns)):
                    runs = _ours_of_table(folder, spark, work, tier, build)
                    kept.setdefault(f"{name}, {tier}: Millstream", []).extend(runs)
            with native_session(folder) as session:
                for snapshot, run in (
                    ("a new snapshot per batch", _native_changing),
                    ("one snapshot", _native),
                ):
                    kept.setdefault(f"{name}: Spark, {snapshot}", []).extend(run(folder, session, work))
    figures = {one: _best(one, runs, name) for one, runs in kept.items()}
    rows, columns, changing, fixed = figures.values()
    times = [
        at_least(ratio(f"{name}, row tier: times Spark, a new snapshot per batch", rows, changing), 2),
        at_least(ratio(f"{name}, column tier: times Spark, a new snapshot per batch", columns, changing), 4),
        ratio(f"{name}, row tier: times Spark, one snapshot", rows, fixed),
        ratio(f"{name}, column tier: times Spark, one snapshot", columns, fixed),
    ]
    return [changing, fixed, rows, columns, *times]


def _stream_and_table(keys: int, count: int, batches: int) -> _Table:
    """One change of the table for twenty records of the stream."""
    chance = random.Random(1)
    names = [b"item-%08d" % number for number in range(keys)]

    def some(count: int, number: int) -> pa.RecordBatch:
        picked = [names[chance.randrange(keys)] for _ in range(count)]
        times = [_SPAN * (number + 1) + place * _SPAN // count for place in range(count)]
        return record_batch(picked, [chance.randrange(1_000).to_bytes(8) for _ in range(count)], times)

    return _Table(
        record_batch(names, [number.to_bytes(8) for number in range(keys)], [0] * keys),
        [some(count, number) for number in range(batches)],
        [some(count // 20, number) for number in range(batches)],
    )


def _priced() -> Topology:
    builder = StreamsBuilder()
    prices = builder.table("prices", key=serdes.string, value=serdes.int64, store="prices")
    orders = builder.stream("orders", key=serdes.string, value=serdes.int64)
    orders.join(prices, lambda count, price: count * price).to("out", value=serdes.int64)
    return builder.build()


def _priced_in_columns() -> Topology:
    builder = StreamsBuilder()
    prices = builder.table("prices", key=serdes.string, value=serdes.int64, store="prices")
    orders = builder.stream("orders", key=serdes.string, value=serdes.int64)
    orders.join(prices, value * other).to("out", value=serdes.int64)
    return builder.build()


def _ours_of_table(
    folder: Path, spark: SparkContext, work: _Table, tier: str, build: Callable[[], Topology]
) -> list[float]:
    place = folder / tier.replace(" ", "-")
    log = FileLog(place / "log")
    append(log, "prices", work.rows)
    for stream, changes in zip(work.stream, work.changes, strict=True):
        append(log, "prices", changes)
        append(log, "orders", stream)
    per_partition = int(1.02 * max(work.records, work.rows.num_rows) / PARTITIONS)
    with application(build(), place, spark=spark, max_records=per_partition) as app:
        results = run_to_the_end(app)
    _check("stream-table join", _records_in(log, "out"), work.records * len(work.stream))
    # The first epoch loads the table. Its changes are no records of the stream, and do not count.
    share = work.records / (work.records + work.changes[0].num_rows)
    return [share * run for run in _runs(results, work.records // 2)]


def _native(folder: Path, session: SparkSession, work: _Table) -> list[float]:
    """A snapshot that never changes, in the form that Spark is best at: a join of a stream with a frame."""
    snapshot, files, output = folder / "fixed", folder / "fixed-stream", folder / "fixed-output"
    _write_side([work.rows], snapshot, "table")
    _write_side(work.stream, files, "stream")
    rows = session.read.schema(_TABLE_SCHEMA).parquet(str(snapshot))
    joined = _priced_frame(stream_of(session, files, schema=_TABLE_SCHEMA), rows)
    taken = seconds_of(joined, folder / "fixed-checkpoint", appended_to(output), mode="append")
    _check("Spark's join", session.read.parquet(str(output)).count(), work.records * len(work.stream))
    return [work.records / one for one in taken[1:]]


def _native_changing(folder: Path, session: SparkSession, work: _Table) -> list[float]:
    """Each micro-batch writes the next snapshot of the table, and joins its records with that."""
    snapshots, files, output = folder / "snapshots", folder / "changing-stream", folder / "changing-output"
    _write_side([work.rows], snapshots / "0", "table")
    for number, (stream, changes) in enumerate(zip(work.stream, work.changes, strict=True)):
        _write_side([stream], files, "stream", first=number)
        _write_side([changes], files, "table", first=number)

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()
        last = functions.max_by("value", "timestamp").alias("value")
        changes = batch.where("side = 'table'").groupBy("key").agg(last)
        before = session.read.parquet(str(snapshots / str(number))).select("key", "value")
        after = str(snapshots / str(number + 1))
        before.join(changes, "key", "left_anti").unionByName(changes).write.parquet(after)
        joined = _priced_frame(batch.where("side = 'stream'"), session.read.parquet(after))
        joined.write.mode("append").parquet(str(output))
        batch.unpersist()

    rows = stream_of(session, files, schema=_TABLE_SCHEMA, per_trigger=2 * PARTITIONS)
    taken = seconds_of(rows, folder / "changing-checkpoint", write, mode="append")
    _check("Spark's join", session.read.parquet(str(output)).count(), work.records * len(work.stream))
    return [work.records / one for one in taken[1:]]


def _priced_frame(stream: DataFrame, table: DataFrame) -> DataFrame:
    prices = table.select("key", functions.col("value").alias("price"))
    return stream.join(prices, "key").select(
        "key", (functions.col("value") * functions.col("price")).alias("v")
    )


def _write_side(batches: list[pa.RecordBatch], folder: Path, side: str, *, first: int = 0) -> None:
    """A file per partition and batch; values are numbers here."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, batch in enumerate(batches, first):
        for partition, rows in enumerate(split(batch, PARTITIONS)):
            numbers = [int.from_bytes(data) for data in rows.column(1).to_pylist()]
            columns: dict[str, Any] = {
                "key": rows.column(0).cast(pa.string()),
                "value": pa.array(numbers, pa.int64()),
                "timestamp": rows.column(2),
                "side": pa.array([side] * rows.num_rows),
            }
            pq.write_table(pa.table(columns), folder / f"{number:04}-{side}-{partition}.parquet")


# A table with a table, by foreign key.


def _foreign_keys(scale: Scale) -> list[Figure]:
    lefts, rights, changes = scale.of(1_000_000, 100_000), scale.of(10_000, 1_000), scale.of(100_000, 2_000)
    name = f"foreign-key join, {lefts:,} rows with {rights:,}"
    at_once = changes // scale.of(10, 2)
    chance = random.Random(2)
    with workplace() as folder, spark_context(folder) as spark:
        log = FileLog(folder / "log")
        log.create_topic("orders", TopicConfig(partitions=PARTITIONS))
        append(log, "customers", _customers(chance, range(rights)))
        with application(_by_customer(), folder, spark=spark, max_records=lefts // PARTITIONS // 4) as app:
            app.run(until="caught-up")
            results: list[EpochResult] = []
            app.on_epoch(results.append)
            append(log, "orders", _orders(lefts, rights))
            app.run(until="caught-up")
            loads, before = _runs(results, lefts // 8), _records_in(log, "out")
            _check("foreign-key join", before, lefts)
            speeds: list[float] = []
            for first in range(0, changes, at_once):
                results.clear()
                changed = [chance.randrange(rights) for _ in range(at_once)]
                append(log, "customers", _customers(chance, changed, since=rights + lefts + first))
                app.run(until="caught-up")
                now = _records_in(log, "out")
                speeds.append((now - before) / sum(one.seconds for one in results))
                before = now
            held = megabytes_held()
    group = f"{name}: per second"
    return [
        Figure(f"{name}: left rows", max(loads), "records/s", loads, group=group),
        Figure(f"{name}: results of changes on the right", max(speeds), "records/s", speeds, group=group),
        *(Figure(f"{name}: memory of the {part}", size, "MB") for part, size in held.items()),
    ]


def _by_customer() -> Topology:
    builder = StreamsBuilder()
    orders = builder.table("orders", key=serdes.string, value=serdes.string)
    customers = builder.table("customers", key=serdes.string, value=serdes.string)
    joined = orders.foreign_key_join(
        customers, lambda _key, order: order[:17], lambda order, customer: order + customer
    )
    joined.to_stream().to("out", value=serdes.string)
    return builder.build()


def _customers(chance: random.Random, numbers: Sequence[int], *, since: int = 0) -> pa.RecordBatch:
    keys = [b"customer-%08d" % number for number in numbers]
    times = range(since, since + len(keys))
    return record_batch(keys, [b"%08d" % chance.randrange(10**8) for _ in keys], times)


def _orders(count: int, rights: int) -> pa.RecordBatch:
    """They are later than the first customers, and in order of time, so that partitions are read abreast."""
    keys = [b"order-%08d" % number for number in range(count)]
    values = [b"customer-%08d" % (number % rights) for number in range(count)]
    return record_batch(keys, values, range(rights, rights + count))
