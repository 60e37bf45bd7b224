"""What an epoch costs that has little to do, and how long a record takes to become a result: on both engines.

Against the emptiest Spark job there is of as many Python stages, on the same Spark and in turns with the job
engine's epochs. The resident engine comes next, on the same Spark: its slots hold all cores while it runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from pyspark import SparkContext

from benchmarks.applications import (
    ENGINES,
    PARTITIONS,
    EngineName,
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
from millstream import Topology
from millstream.frozen_heap import FROZEN_HEAP
from millstream.log import FileLog, Producer, TopicConfig, TopicPartition
from millstream.types import Offset, Partition

__all__ = ["small_epochs"]

_ROWS = 1_000
_KEYS = 20_000
_WARM_UP = 5


@dataclass(frozen=True, slots=True)
class _Feed:
    """How records come, and how soon the resident engine and the job engine should show results."""

    name: str
    per_beat: int
    beat_s: float
    p50_s: dict[EngineName, float]
    p99_s: dict[EngineName, float]


_FEEDS = (
    _Feed("at 1,000 records/s", 20, 0.02, {"jobs": 0.25, "resident": 0.020}, {"resident": 0.060}),
    _Feed("a lone record every 50 ms", 1, 0.05, {"resident": 0.012}, {}),
)


def small_epochs(scale: Scale) -> list[Figure]:
    """1,000 records without and with a shuffle; then the way from append to visible."""
    rounds = scale.of(30, 8)
    with workplace() as folder, spark_context(folder) as spark:
        found = [
            *_compared(
                folder, spark, "no shuffle", count_by_key, 1, rounds, {"jobs": 0.15, "resident": 0.015}
            ),
            *_compared(
                folder, spark, "one shuffle", count_grouped, 2, rounds, {"jobs": 0.2, "resident": 0.025}
            ),
        ]
        for feed in _FEEDS:
            for engine in ENGINES:
                place = folder / f"latency-{feed.per_beat}-{engine}"
                found += _latency(feed, engine, _waits(place, spark, feed, engine, scale.of(15, 5)))
    return found


def _compared(
    folder: Path,
    spark: SparkContext,
    name: str,
    build: Callable[[], Topology],
    stages: int,
    rounds: int,
    goals: dict[EngineName, float],
) -> list[Figure]:
    group = f"1,000 records, {name}"
    empty: list[float] = []
    jobs = _epochs(folder, spark, "jobs", build, rounds, lambda: empty.append(_empty_job_s(spark, stages)))
    resident = _epochs(folder, spark, "resident", build, rounds, lambda: None)
    job = measured(f"{group}: emptiest Spark job", empty[_WARM_UP:], group=group)
    on_jobs = measured(f"{group}: epoch, job engine", jobs, group=group)
    on_slots = measured(f"{group}: epoch, resident engine", resident, group=group)
    return [
        at_most(on_jobs, goals["jobs"]),
        at_most(on_slots, goals["resident"]),
        job,
        at_most(ratio(f"{group}: job engine to emptiest job", on_jobs, job), 2),
        at_most(ratio(f"{group}: resident engine to emptiest job", on_slots, job), 0.4),
        at_most(ratio(f"{group}: resident engine to job engine", on_slots, on_jobs), 0.25),
    ]


def _epochs(
    folder: Path,
    spark: SparkContext,
    engine: EngineName,
    build: Callable[[], Topology],
    rounds: int,
    in_turns: Callable[[], object],
) -> list[float]:
    """How long each epoch takes; after each of them something else has its turn."""
    place = folder / f"{build.__name__}-{engine}"
    log = FileLog(place / "log")
    append(log, "in", keyed_rows(_KEYS, _KEYS))
    taken: list[float] = []
    with application(build(), place, spark=spark, engine=engine) as app:
        app.run(until="caught-up")
        app.on_epoch(lambda result: taken.append(result.seconds))
        for number in range(1, rounds + _WARM_UP + 1):
            append(log, "in", keyed_rows(_ROWS, _KEYS, number=number * _KEYS))
            app.run(until="caught-up")
            in_turns()
    return taken[_WARM_UP:]


def _empty_job_s(spark: SparkContext, stages: int) -> float:
    return seconds(lambda: _empty_job(spark, stages))


def _empty_job(spark: SparkContext, stages: int) -> None:
    slots = spark.defaultParallelism
    rows = spark.parallelize([(slot, None) for slot in range(slots)], slots).mapPartitions(list)
    for _ in range(1, stages):
        rows = rows.partitionBy(slots).mapPartitions(list)
    rows.collect()


def _latency(feed: _Feed, engine: EngineName, waits: list[float]) -> list[Figure]:
    name = f"append to visible, {feed.name}, {engine} engine"
    found: list[Figure] = []
    for part, goals in ((50, feed.p50_s), (99, feed.p99_s)):
        # Thousands of waits need not be kept.
        figure = Figure(f"{name}: p{part}", sorted(waits)[len(waits) * part // 100], "s")
        found.append(at_most(figure, goals[engine]) if engine in goals else figure)
    return found


def _waits(folder: Path, spark: SparkContext, feed: _Feed, engine: EngineName, run_s: int) -> list[float]:
    """Seconds from the append of a record to the moment at which a reader sees its result.

    Producer and reader are a process of their own, as they are in life: in that of the coordinator they would
    wait for each other.
    """
    log = FileLog(folder / "log")
    for topic in ("in", "out"):
        log.create_topic(topic, TopicConfig(partitions=PARTITIONS))
    app = application(
        count_by_key(), folder, app_id="latency", spark=spark, commit_interval_ms=10, engine=engine
    )
    with app, ProcessPoolExecutor(1, get_context("spawn")) as others:
        app.start()
        while app.state.value != "running":
            time.sleep(0.05)
        waits = others.submit(_fed, log, feed, run_s).result()
        if app.error is not None:
            raise app.error
    return waits[len(waits) // 5 :]


def _fed(log: FileLog, feed: _Feed, run_s: int) -> list[float]:
    """Produce for so long, and read the results beside it; how long each took."""
    waits: list[float] = []
    over = threading.Event()
    reader = threading.Thread(target=_read, args=(log, waits, over))
    # Else this process stands still for a tenth of a second now and then, to look for garbage among all that
    # it has imported, and that would be measured.
    with FROZEN_HEAP:
        reader.start()
        try:
            _produce(log, feed, run_s)
        finally:
            over.set()
            reader.join()
    return waits


def _produce(log: FileLog, feed: _Feed, run_s: int) -> None:
    producer = Producer(log, "in")
    began = time.monotonic()
    for beat in range(int(run_s / feed.beat_s)):
        time.sleep(max(0.0, began + beat * feed.beat_s - time.monotonic()))
        for number in range(feed.per_beat):
            producer.send(b"key-%08d" % (beat * feed.per_beat + number), b"")
        producer.flush()


def _read(log: FileLog, waits: list[float], over: threading.Event) -> None:
    """Read what comes as soon as the log tells of it: to look for it now and then would be measured, too."""
    places = [TopicPartition("out", Partition(number)) for number in range(PARTITIONS)]
    positions = dict.fromkeys(places, Offset(0))
    watch = log.watch(places)
    while not over.is_set():
        if watch is None:
            log.wait(positions, 100)
        elif watch.wait(0.1):
            watch.changed()
        now = time.time()
        for place, position in positions.items():
            for batch in log.read(place, position):
                waits += [now - timestamp / 1000 for timestamp in batch.timestamps()]
                positions[place] = batch.next_offset
    if watch is not None:
        watch.close()
