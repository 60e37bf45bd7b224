"""Many tasks: what an epoch costs with a thousand partitions, and a coordinator with ten thousand tasks.

Epochs on resident slots, one per core; and, without Spark, a coordinator whose slots only report. Active are
those partitions and tasks that have a record in the epoch.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark import SparkContext

from benchmarks.applications import spark_context, workplace
from benchmarks.fake_slots import FakeSlots, NotSynced, TimedCoordinator, counts_by_key
from benchmarks.figures import Figure, Scale, at_most, measured
from millstream import Streams, StreamsBuilder, StreamsConfig, Topology, serdes
from millstream.clock import now_ms
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.epoch import run_epoch
from millstream.commit.publisher import EmbeddedPublisher
from millstream.engine.epoch_result import EpochResult
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.maintenance.maintenance import Maintenance
from millstream.types import Partition

__all__ = ["scale"]

_WARM_UP = 2
_COPIES = 3
"""Topics of the coordinator's application: one has 4,096 partitions at most."""
_HOSTS = 100


def scale(scale: Scale) -> list[Figure]:
    """Partitions without and with a repartition; a coordinator with fake slots."""
    rounds = scale.of(10, 4)
    many, square, tasks = scale.of(1_024, 256), scale.of(256, 64), scale.of(10_000, 1_000)
    with workplace() as folder:
        with spark_context(folder) as spark:
            found = [
                *_partitions(folder / "count", spark, _count, many, rounds, "no repartition"),
                *_partitions(
                    folder / "grouped", spark, _count_grouped, square, rounds, f"repartition of {square}"
                ),
                _all_pairs(folder / "pairs", spark, square, rounds),
            ]
        return [*found, *_coordinator(folder / "coordinator", tasks, rounds)]


def _count() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.bytes, value=serdes.bytes)
    stream.group_by_key().count(store="counts").to_stream().to("out", value=serdes.int64)
    return builder.build()


def _count_grouped() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.bytes, value=serdes.bytes)
    grouped = stream.group_by(lambda _, value: value, key=serdes.bytes)
    grouped.count(store="counts").to_stream().to("out", value=serdes.int64)
    return builder.build()


def _partitions(
    folder: Path, spark: SparkContext, build: Callable[[], Topology], partitions: int, rounds: int, name: str
) -> list[Figure]:
    """Epochs on resident slots: with records in a few partitions, then in all."""
    config = StreamsConfig(engine="resident", state_dir=folder / "state", default_partitions=partitions)
    quick = FileLog(folder / "log", files=NotSynced())
    for topic in ("in", "out"):
        quick.create_topic(topic, TopicConfig(partitions))
    found: list[Figure] = []
    number = 0
    with Streams(build(), app_id="many", log=folder / "log", spark=spark, config=config) as app:
        for active in (max(1, partitions // 64), partitions):
            taken: list[float] = []
            app._epoch_listeners.clear()
            app.on_epoch(partial(_note, taken))
            for _ in range(rounds + _WARM_UP):
                for place in range(active):
                    key = b"key-%08d" % number
                    quick.append(TopicPartition("in", Partition(place)), record_batch([key], [key], [number]))
                    number += 1
                app.run(until="caught-up")
            figure = measured(
                f"{partitions:,} partitions, {name}: epoch, {active:,} active", taken[_WARM_UP:]
            )
            found.append(at_most(figure, 0.4))
    return found


def _all_pairs(folder: Path, spark: SparkContext, partitions: int, rounds: int) -> Figure:
    """Epochs in which each task sends rows to each task behind the repartition."""
    config = StreamsConfig(engine="resident", state_dir=folder / "state", default_partitions=partitions)
    quick = FileLog(folder / "log", files=NotSynced())
    for topic in ("in", "out"):
        quick.create_topic(topic, TopicConfig(partitions))
    keys = [b"key-%08d" % number for number in range(4 * partitions)]
    taken: list[float] = []
    with Streams(_count_grouped(), app_id="pairs", log=folder / "log", spark=spark, config=config) as app:
        app.on_epoch(partial(_note, taken))
        for number in range(rounds + _WARM_UP):
            rows = record_batch(keys, keys, [number] * len(keys))
            for place in range(partitions):
                quick.append(TopicPartition("in", Partition(place)), rows)
            app.run(until="caught-up")
    name = f"{partitions:,} partitions, repartition of {partitions:,}: epoch, rows for every pair"
    return measured(f"{name} ({len(keys) * partitions:,} records)", taken[_WARM_UP:])


def _note(taken: list[float], result: EpochResult) -> None:
    taken.append(result.seconds)


def _coordinator(folder: Path, tasks: int, rounds: int) -> list[Figure]:
    partitions = -(-tasks // _COPIES)
    topology = counts_by_key(_COPIES)
    quick = FileLog(folder / "log", files=NotSynced())
    changelogs = topology.plan().changelog_topics("many").values()
    for topic in changelogs:
        quick.create_topic(topic, TopicConfig(partitions, is_compacted=True))
    for number in range(_COPIES):
        for topic in (f"in-{number}", f"out-{number}"):
            quick.create_topic(topic, TopicConfig(partitions))
    log = FileLog(folder / "log")
    storage = ApplicationStorage(log.root, "many")
    coordinator = TimedCoordinator(
        storage, log, EmbeddedPublisher(storage, log), topology.plan(), clock=now_ms
    )
    slots = FakeSlots(storage, _HOSTS)
    coordinator.open()
    found = [Figure(f"{tasks:,} tasks: take over", coordinator.seconds["open"], "s")]
    # All once, so that the manifest names every task; then few, as in an ordinary epoch.
    for active, count, goal in ((tasks, 1, None), (100, rounds, 1.0)):
        taken: list[float] = []
        sizes: list[int] = []
        steps: dict[str, list[float]] = {}
        for number in range(count):
            for place in range(active):
                at = (place * 7919 + number * active) % tasks
                where = TopicPartition(f"in-{at % _COPIES}", Partition(at // _COPIES))
                quick.append(where, record_batch([b"key"], [b""], [0]))
            coordinator.seconds.clear()
            epoch = run_epoch(coordinator, slots)
            assert epoch is not None  # there are records
            for step, took in coordinator.seconds.items():
                steps.setdefault(step, []).append(took)
            taken.append(sum(coordinator.seconds.values()))
            sizes.append((storage.manifests / f"{epoch.manifest.epoch:020d}").stat().st_size)
        name = f"{tasks:,} tasks, {active:,} active"
        figure = measured(f"{name}: coordinator's part of an epoch", taken)
        found.append(figure if goal is None else at_most(figure, goal))
        found += [measured(f"{name}: {step}", took) for step, took in steps.items()]
        found.append(Figure(f"{name}: manifest", statistics.median(sizes), "bytes"))
    maintenance = Maintenance(coordinator, log)
    for which in ("first", "second"):
        began = time.perf_counter()
        maintenance.run()
        found.append(Figure(f"{tasks:,} tasks: {which} maintenance", time.perf_counter() - began, "s"))
    coordinator.close()
    return found
