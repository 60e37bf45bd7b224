"""What an epoch costs that has little to do, and how long a record takes to become a result.

Against the emptiest Spark job there is of as many Python stages, on the same Spark and in turns with it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyspark import SparkContext

from benchmarks.applications import (
    PARTITIONS,
    append,
    application,
    count_by_key,
    count_grouped,
    keyed_rows,
    spark_context,
    workplace,
)
from benchmarks.figures import Figure, Scale, at_most, measured, ratio
from benchmarks.timing import seconds
from millstream import Streams, Topology
from millstream.log import FileLog, Producer, TopicConfig, TopicPartition
from millstream.types import Offset, Partition

__all__ = ["small_epochs"]

_ROWS = 1_000
_KEYS = 20_000
_WARM_UP = 5
_RATE = 1_000
_BEAT_S = 0.02


def small_epochs(scale: Scale) -> list[Figure]:
    """1,000 records without and with a shuffle; then the way from append to visible."""
    rounds = scale.of(30, 8)
    with workplace() as folder, spark_context(folder) as spark:
        found = [
            *_compared(folder, spark, "no shuffle", count_by_key, 1, rounds, 0.15),
            *_compared(folder, spark, "one shuffle", count_grouped, 2, rounds, 0.2),
        ]
        waits = _waits(folder / "latency", spark, scale.of(15, 5))
    typical = measured("append to visible at 1,000 records/s: p50", waits)
    late = Figure("append to visible at 1,000 records/s: p99", sorted(waits)[len(waits) * 99 // 100], "s")
    return [*found, _without_runs(at_most(typical, 0.25)), late]


def _compared(
    folder: Path,
    spark: SparkContext,
    name: str,
    build: Callable[[], Topology],
    stages: int,
    rounds: int,
    goal: float,
) -> list[Figure]:
    place = folder / name.replace(" ", "-")
    log = FileLog(place / "log")
    append(log, "in", keyed_rows(_KEYS, _KEYS))
    ours: list[float] = []
    empty: list[float] = []
    with application(build(), place, spark=spark) as app:
        app.run(until="caught-up")
        app.on_epoch(lambda result: ours.append(result.seconds))
        for number in range(1, rounds + _WARM_UP + 1):
            append(log, "in", keyed_rows(_ROWS, _KEYS, number=number * _KEYS))
            app.run(until="caught-up")
            empty.append(seconds(lambda: _empty_job(spark, stages)))
    group = f"1,000 records, {name}"
    epoch = measured(f"{group}: epoch", ours[_WARM_UP:], group=group)
    job = measured(f"{group}: emptiest Spark job", empty[_WARM_UP:], group=group)
    return [at_most(epoch, goal), job, at_most(ratio(f"{group}: epoch to emptiest job", epoch, job), 2)]


def _empty_job(spark: SparkContext, stages: int) -> None:
    slots = spark.defaultParallelism
    rows = spark.parallelize([(slot, None) for slot in range(slots)], slots).mapPartitions(list)
    for _ in range(1, stages):
        rows = rows.partitionBy(slots).mapPartitions(list)
    rows.collect()


def _waits(folder: Path, spark: SparkContext, run_s: int) -> list[float]:
    """Seconds from the append of a record to the moment at which a reader sees its result."""
    log = FileLog(folder / "log")
    log.create_topic("in", TopicConfig(partitions=PARTITIONS))
    app = application(count_by_key(), folder, app_id="latency", spark=spark, commit_interval_ms=10)
    waits: list[float] = []
    over = threading.Event()
    with app:
        app.start()
        while app.state.value != "running":
            time.sleep(0.05)
        reader = threading.Thread(target=_read, args=(log, waits, over))
        reader.start()
        _produce(log, app, run_s)
        over.set()
        reader.join()
    return waits[len(waits) // 5 :]


def _produce(log: FileLog, app: Streams, run_s: int) -> None:
    producer = Producer(log, "in")
    count = int(_RATE * _BEAT_S)
    began = time.monotonic()
    for beat in range(int(run_s / _BEAT_S)):
        time.sleep(max(0.0, began + beat * _BEAT_S - time.monotonic()))
        for number in range(count):
            producer.send(b"key-%08d" % (beat * count + number), b"")
        producer.flush()
        if app.error is not None:
            raise app.error


def _read(log: FileLog, waits: list[float], over: threading.Event) -> None:
    places = [TopicPartition("out", Partition(number)) for number in range(PARTITIONS)]
    positions = dict.fromkeys(places, Offset(0))
    while not over.is_set():
        log.wait(positions, 100)
        now = time.time()
        for place, position in positions.items():
            for batch in log.read(place, position):
                waits += [now - timestamp / 1000 for timestamp in batch.timestamps()]
                positions[place] = batch.next_offset


def _without_runs(figure: Figure) -> Figure:
    """Thousands of waits need not be kept: their median is."""
    return Figure(figure.name, figure.value, figure.unit, [], figure.goal, figure.better, figure.group)
