"""What grows with what: an epoch with the number of keys in its stores, of levels, of partitions."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark import SparkContext

from benchmarks.applications import append, application, run_to_the_end, spark_context, workplace
from benchmarks.applications import count_by_key as count_by_key_topology
from benchmarks.figures import Figure, Scale, at_most, measured
from millstream import StreamsBuilder, Topology, serdes
from millstream.log import FileLog, record_batch

__all__ = ["growth"]

_TOUCHED = 50_000
_ROUNDS = 6
_LOAD = 1_000_000
_ROWS = 1_000


def growth(scale: Scale) -> list[Figure]:
    """50,000 touched keys of more and more; one to four levels; 2, 8 and 32 partitions."""
    sizes = (20_000, 100_000) if scale.quick else (100_000, 1_000_000, 10_000_000)
    touched = scale.of(_TOUCHED, 10_000)
    with workplace() as folder, spark_context(folder) as spark:
        by_keys = [_with_keys(folder / f"keys-{size}", spark, size, touched) for size in sizes]
        by_levels = [_with_levels(folder / f"levels-{count}", spark, count) for count in (0, 1, 2, 3)]
        by_partitions = [
            _with_partitions(folder / f"partitions-{count}", spark, count) for count in (2, 8, 32)
        ]
    grown = Figure(
        f"epoch at {sizes[-1]:,} keys to epoch at {sizes[0]:,}", by_keys[-1].value / by_keys[0].value, "x"
    )
    per_level = (by_levels[-1].value - by_levels[0].value) / (len(by_levels) - 1)
    return [
        *by_keys,
        at_most(grown, 2),
        *by_levels,
        Figure("each further level", per_level, "s"),
        *by_partitions,
    ]


def _with_keys(folder: Path, spark: SparkContext, keys: int, touched: int) -> Figure:
    log = FileLog(folder / "log")
    for start in range(0, keys, _LOAD):
        append(log, "in", _rows(range(start, min(keys, start + _LOAD))))
    step = keys // touched
    rounds = [_rows(range(number, keys, step)[:touched]) for number in range(_ROUNDS)]
    taken = _epochs(folder, spark, count_by_key_topology(), rounds, max_records=_LOAD // 4)
    return measured(f"{touched:,} of {keys:,} keys touched", taken, group="epoch time by keys in the store")


def _with_levels(folder: Path, spark: SparkContext, levels: int) -> Figure:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    for _ in range(levels):
        stream = stream.repartition()
    stream.group_by_key().count(store="counts").to_stream().to("out", value=serdes.int64)
    rounds = [_rows(range(_ROWS))] * _ROUNDS
    append(FileLog(folder / "log"), "in", _rows(range(_ROWS)))
    taken = _epochs(folder, spark, builder.build(), rounds)
    return measured(f"1,000 records through {levels} shuffles", taken, group="epoch time by shuffles")


def _with_partitions(folder: Path, spark: SparkContext, partitions: int) -> Figure:
    log = FileLog(folder / "log")
    append(log, "in", _rows(range(_ROWS)), partitions=partitions)
    rounds = [_rows(range(_ROWS))] * _ROUNDS
    taken = _epochs(folder, spark, count_by_key_topology(), rounds, partitions=partitions)
    return measured(f"1,000 records in {partitions} partitions", taken, group="epoch time by partitions")


def _epochs(
    folder: Path,
    spark: SparkContext,
    topology: Topology,
    rounds: list[pa.RecordBatch],
    *,
    partitions: int = 4,
    max_records: int = 100_000,
) -> list[float]:
    """Take in what is there, then an epoch for each batch; how long those took, after two to warm up."""
    taken: list[float] = []
    log = FileLog(folder / "log")
    with application(topology, folder, spark=spark, max_records=max_records) as app:
        run_to_the_end(app)
        app.on_epoch(lambda result: taken.append(result.seconds))
        for batch in rounds:
            append(log, "in", batch, partitions=partitions)
            app.run(until="caught-up")
    return taken[2:]


def _rows(keys: range) -> pa.RecordBatch:
    data = [b"key-%010d" % key for key in keys]
    return record_batch(data, data, [0] * len(data))
