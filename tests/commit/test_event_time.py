"""Event time from end to end on the local engine: order, late records, ingestion time, restarts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.executor import InProcessExecutor
from tests.task.late_operator import drop_late

from millstream import (
    Processor,
    PunctuationType,
    Record,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    Topology,
    failpoints,
    handlers,
    serdes,
    timestamps,
)
from millstream.commit.coordinator import CoordinatorSettings
from millstream.commit.manifest import Manifest
from millstream.errors import InvalidTimestampError
from millstream.log import FileLog, Producer, TimestampType, TopicConfig, TopicPartition, record_batch
from millstream.log.api import LogRecordBatch
from millstream.testing import TopologyTestDriver
from millstream.timestamps import TimestampExtractor
from millstream.types import Offset, Partition

DAY_MS, HOUR_MS = 86_400_000, 3_600_000


def by_value(record: Any, partition_time: int) -> int:
    """The time is in the value, and nowhere else."""
    del partition_time
    return int(record.value.split()[-1])


@dataclass
class Lab:
    """Topics, an application, and a clock that stands still."""

    folder: Path
    now_ms: int = 1_000

    def __post_init__(self) -> None:
        self.log = FileLog(self.folder / "log", now_ms=lambda: self.now_ms)

    def topic(self, name: str, parts: Sequence[Sequence[int]], *, in_log: bool = True) -> None:
        """A topic with records at these times; if not `in_log`, only their values tell it."""
        self.log.create_topic(name, TopicConfig(partitions=len(parts)))
        for number, times in enumerate(parts):
            self.append(name, times, partition=number, in_log=in_log)

    def append(self, name: str, times: Sequence[int], *, partition: int = 0, in_log: bool = True) -> None:
        if not times:
            return
        keys = [f"k{time % 5}".encode() for time in times]
        values = [f"{name}-{partition} {time}".encode() for time in times]
        stored = list(times) if in_log else [7] * len(times)
        self.log.append(TopicPartition(name, Partition(partition)), record_batch(keys, values, stored))

    def open(self, topology: Topology, app_id: str = "app", **settings: Any) -> InProcessExecutor:
        config = StreamsConfig(late_record_handler=handlers.dead_letter, dead_letter_topic=f"late-{app_id}")
        return InProcessExecutor(
            topology,
            application_id=app_id,
            log_root=self.folder / "log",
            state_dir=self.folder / "state",
            config=config,
            settings=CoordinatorSettings(**settings),
            clock=lambda: self.now_ms,
        )

    def run(self, topology: Topology, app_id: str = "app", **settings: Any) -> int:
        with self.open(topology, app_id, **settings) as app:
            return app.run_until_caught_up()

    def read(self, topic: str) -> list[str]:
        """The values of a topic, if it is there, partition by partition."""
        return [(value or b"").decode() for batch in self._batches(topic) for value in batch.values()]

    def times(self, topic: str) -> list[int]:
        return [time for batch in self._batches(topic) for time in batch.timestamps()]

    def _batches(self, topic: str) -> Iterator[LogRecordBatch]:
        count = self.log.config(topic).partitions if topic in self.log.topics() else 0
        for number in range(count):
            yield from self.log.read(TopicPartition(topic, Partition(number)), Offset(0))


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def orders_and_clicks(
    out: str, extractor: TimestampExtractor | None = None, *, grace_ms: int = 0, repartitioned: bool = False
) -> Topology:
    """What is late by the operator's own stream time is dropped."""
    builder = StreamsBuilder()
    orders, clicks = (
        builder.stream(name, key=serdes.string, value=serdes.string, timestamp_extractor=extractor)
        for name in ("orders", "clicks")
    )
    merged = orders.merge(clicks)
    if repartitioned:
        merged = merged.select_key(lambda _, value: value[-1]).repartition(
            partitions=2, key=serdes.string, value=serdes.string
        )
    merged.map_values(str, name="all")
    topology = drop_late(builder.build(), "all", grace_ms=grace_ms)
    return topology.add_sink("sink", out, "drop-late", key=serdes.string, value=serdes.string)


@pytest.mark.parametrize("repartitioned", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_a_backfill_of_topics_of_different_density_drops_nothing(
    lab: Lab, own: bool, repartitioned: bool
) -> None:
    """Orders of one day in 100,000 records, clicks of one hour, and small epochs."""
    orders = [number * DAY_MS // 100_000 for number in range(100_000)]
    clicks = [5 * HOUR_MS + number * HOUR_MS // 10_000 for number in range(10_000)]
    lab.topic("orders", [orders], in_log=not own)
    lab.topic("clicks", [clicks], in_log=not own)
    made = [
        orders_and_clicks(out, by_value if own else None, repartitioned=repartitioned)
        for out in ("one", "many")
    ]
    assert lab.run(made[0], "one", max_records=10**6, default_partitions=2) == 1
    epochs = lab.run(made[1], "many", max_records=5_000, default_partitions=2)
    assert epochs >= 20
    assert "late-many" not in lab.log.topics()
    assert len(lab.read("many")) == 110_000
    assert lab.read("many") == lab.read("one")


def test_cut_along_the_times_of_the_log_the_same_backfill_would_lose_records(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.topic("orders", [range(0, 10_000, 10)], in_log=False)
    lab.topic("clicks", [range(5_000, 6_000)], in_log=False)
    monkeypatch.setattr("millstream.commit.source_times.TimestampPlanner.is_extracted", lambda *_: False)
    lab.run(orders_and_clicks("out", by_value), max_records=50)
    assert len(lab.read("late-app")) > 400


@pytest.mark.parametrize("seed", range(20))
def test_any_epochs_give_what_a_single_one_gives_with_any_extractor(lab: Lab, seed: int) -> None:
    rng = random.Random(seed)
    own = rng.choice([by_value, by_value_or_before])
    for name in ("orders", "clicks"):
        parts = [
            [0, *(rng.randint(-1, rng.choice([5, 500])) for _ in range(rng.randint(0, 60)))] for _ in range(2)
        ]
        lab.topic(name, parts, in_log=False)
    lab.run(orders_and_clicks("one", own, grace_ms=50), "one")
    lab.run(orders_and_clicks("many", own, grace_ms=50), "many", max_records=rng.randint(1, 20))
    for task in ("-0 ", "-1 "):
        for one, many in (("one", "many"), ("late-one", "late-many")):
            of_task = [[value for value in lab.read(topic) if task in value] for topic in (one, many)]
            assert of_task[0] == of_task[1]


@pytest.mark.parametrize("seed", range(10))
def test_behind_a_repartition_too_if_each_partition_is_in_order(lab: Lab, seed: int) -> None:
    """Also where many records have the same time."""
    rng = random.Random(seed)
    for name in ("orders", "clicks"):
        parts = [sorted(rng.choices(range(rng.choice([5, 90])), k=rng.randint(1, 60))) for _ in range(3)]
        lab.topic(name, parts, in_log=False)
    for out, quota in (("one", 1_000), ("many", rng.randint(1, 20))):
        topology = orders_and_clicks(out, by_value, repartitioned=True)
        lab.run(topology, out, max_records=quota, default_partitions=2)
    assert lab.read("many") == lab.read("one")
    assert "late-many" not in lab.log.topics()


@pytest.mark.parametrize(
    ("max_task_idle_ms", "expected"),
    [
        (0, ["orders-0 10", "orders-0 20"]),
        (500, ["clicks-0 5", "orders-0 10", "clicks-0 15", "orders-0 20"]),
    ],
)
def test_records_wait_for_a_topic_whose_producer_is_late(
    lab: Lab, max_task_idle_ms: int, expected: list[str]
) -> None:
    """Without waiting they go on, and what comes too late is dropped."""
    lab.topic("orders", [[10, 20]])
    lab.topic("clicks", [[]])
    with lab.open(orders_and_clicks("out"), max_task_idle_ms=max_task_idle_ms) as app:
        app.run_epoch()
        lab.now_ms += 499
        app.run_epoch()
        lab.append("clicks", [5, 15])
        app.run_epoch()
    assert lab.read("out") == expected
    assert len(lab.read("late-app")) == 4 - len(expected)


def test_after_the_idle_time_the_rest_is_processed_and_a_quiet_topic_is_not_waited_for_again(
    lab: Lab,
) -> None:
    lab.topic("orders", [[10, 20]])
    lab.topic("clicks", [[]])
    with lab.open(orders_and_clicks("out"), max_task_idle_ms=500) as app:
        assert app.run_epoch() is None
        assert (app.coordinator.is_idling, app.coordinator.has_backlog) == (True, False)
        lab.now_ms += 500
        assert app.run_epoch() is not None
        lab.append("orders", [30])
        assert app.run_epoch() is not None
    assert lab.read("out") == ["orders-0 10", "orders-0 20", "orders-0 30"]


def test_a_run_until_it_is_caught_up_ends_after_the_idle_time_and_counts_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.topic("orders", [[10, 20]])
    lab.topic("clicks", [[]])
    config = StreamsConfig(state_dir=tmp_path / "state", max_task_idle_ms=50, commit_interval_ms=10)
    with Streams(
        orders_and_clicks("out"), app_id="app", log=tmp_path / "log", engine="local", config=config
    ) as app:
        app.run(until="caught-up")
        metrics = app.metrics()
    assert lab.read("out") == ["orders-0 10", "orders-0 20"]
    assert (metrics["epochs"], metrics["enforced_processing"]) == (1, 1)


def by_value_or_before(record: Any, partition_time: int) -> int:
    """The same, and of a record without a time the one of its partition so far."""
    timed = replace(record, timestamp=by_value(record, partition_time))
    return timestamps.use_partition_time_on_invalid_timestamp(timed, partition_time)


def copying(extractor: TimestampExtractor, out: str = "out") -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", value=serdes.string, timestamp_extractor=extractor).to(out, value=serdes.string)
    return builder.build()


def test_processing_time_is_the_epochs_clock_and_a_replay_gives_it_again(lab: Lab) -> None:
    lab.topic("in", [[10, 20]])
    with lab.open(copying(timestamps.wall_clock_timestamp)) as app:

        def later() -> None:
            lab.now_ms += 77

        with failpoints.armed("commit.planned", later):
            app.run_epoch()
    assert lab.times("out") == [1_000, 1_000]


def test_ingestion_time_is_the_logs_clock(lab: Lab) -> None:
    lab.log.create_topic("in", TopicConfig(timestamp_type=TimestampType.LOG_APPEND_TIME))
    lab.log.create_topic("arrived", TopicConfig(timestamp_type=TimestampType.LOG_APPEND_TIME))
    for now, time in ((2_000, 5), (3_000, 4)):
        lab.now_ms = now
        with Producer(lab.log, "in") as producer:
            producer.send(None, b"x", timestamp=time)
    lab.now_ms = 9_000
    lab.run(copying(timestamps.fail_on_invalid_timestamp))
    lab.run(copying(timestamps.fail_on_invalid_timestamp, "arrived"), "again")
    assert lab.times("in") == [2_000, 3_000]
    assert lab.times("out") == [2_000, 3_000]
    assert lab.times("arrived") == [9_000, 9_000]


def test_a_producer_refuses_a_record_without_a_time(lab: Lab) -> None:
    lab.log.create_topic("in")
    with Producer(lab.log, "in") as producer:
        with pytest.raises(InvalidTimestampError) as caught:
            producer.send(b"k", b"x", timestamp=-1)
        producer.send(b"k", b"y", timestamp=5)
    assert str(caught.value) == (
        "A record for topic 'in' has the timestamp -1, which is negative. Nothing of it was taken. Likely "
        "cause: a library that says so for a record without a time. Remedy: leave the timestamp out, and the "
        "record is from now; or give its time in milliseconds since 1970."
    )
    assert lab.times("in") == [5]


@pytest.mark.parametrize(
    ("extractor", "expected"),
    [
        (timestamps.skip_invalid_timestamp, [5, 9]),
        (timestamps.use_partition_time_on_invalid_timestamp, [5, 5, 9, 9]),
        (timestamps.wall_clock_timestamp, [700] * 4),
    ],
)
def test_a_record_without_a_timestamp_is_refused_and_the_remedies_help(
    extractor: TimestampExtractor, expected: list[int]
) -> None:
    def run(extractor: TimestampExtractor) -> list[int]:
        with TopologyTestDriver(copying(extractor), start_ms=700) as driver:
            source = driver.input_topic("in", key=serdes.string, value=serdes.string)
            for time in (5, -1, 9, -1):
                source.pipe("k", "x", timestamp=time)
            copies = driver.output_topic("out", key=serdes.string, value=serdes.string)
            return [record.timestamp for record in copies.read_all()]

    with pytest.raises(InvalidTimestampError) as caught:
        run(timestamps.fail_on_invalid_timestamp)
    assert str(caught.value) == (
        "topic 'in', partition 0, offset 1: the timestamp is -1, which is negative. Likely cause: the "
        "producer set none. Remedy: choose another timestamp_extractor, such as "
        "timestamps.skip_invalid_timestamp or timestamps.use_partition_time_on_invalid_timestamp"
    )
    assert run(extractor) == expected


class Beats(Processor[str, str, str, str]):
    """Tells stream time every 100 ms of it."""

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(100, PunctuationType.STREAM_TIME, self.beat)

    def beat(self, timestamp: int) -> None:
        self.context.forward(Record("beat", str(timestamp), timestamp))

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(Record("at", str(self.context.current_stream_time_ms()), record.timestamp))


def beating() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream(
        "in", key=serdes.string, value=serdes.string, timestamp_extractor=by_value_or_before
    )
    stream.process(Beats).to("out", key=serdes.string, value=serdes.string)
    return builder.build()


TIMES = [50, 130, -1, 120, 260, -1, 90, 310]


def _with_restarts(lab: Lab, crash: Callable[[InProcessExecutor], Manifest | None] | None) -> None:
    """An epoch of two records in each life."""
    lab.topic("in", [TIMES], in_log=False)
    for _ in range(4):
        with lab.open(beating(), max_records=2) as app:
            (crash or InProcessExecutor.run_epoch)(app)
    lab.run(beating(), max_records=2)


BEATS = ["50", "50", "130", "130", "130", "130", "260", "260", "260", "260", "310", "310"]
"""Kafka's: a punctuator counts from 0, is first due at the first record, and runs after it."""


def test_partition_time_stream_time_and_punctuators_go_on_after_a_restart(lab: Lab) -> None:
    _with_restarts(lab, None)
    assert lab.times("out") == [50, 50, 130, 130, 130, 120, 260, 260, 260, 90, 310, 310]
    assert lab.read("out") == BEATS


STEPS = [name for name in failpoints.REGISTRY if name.startswith("commit.")]


@pytest.mark.parametrize("step", STEPS)
def test_times_are_the_same_if_every_life_ends_at_a_step_of_the_commit(lab: Lab, step: str) -> None:
    def crash(app: InProcessExecutor) -> Manifest | None:
        with failpoints.armed(step), suppress(failpoints.InjectedCrash):
            return app.run_epoch()
        return None

    _with_restarts(lab, crash)
    assert lab.read("out") == BEATS


@pytest.mark.parametrize("step", STEPS)
def test_an_operators_own_time_survives_a_crash_at_each_step(lab: Lab, step: str) -> None:
    lab.topic("orders", [[100, 90, 95, 30, 120, 110]])
    lab.topic("clicks", [[]])
    for _ in range(6):
        app = lab.open(orders_and_clicks("out", grace_ms=10), max_records=1)
        with app, failpoints.armed(step), suppress(failpoints.InjectedCrash):
            app.run_epoch()
    lab.run(orders_and_clicks("out", grace_ms=10), max_records=1)
    assert [int(value.split()[-1]) for value in lab.read("out")] == [100, 90, 95, 120, 110]
    assert [int(value.split()[-1]) for value in lab.read("late-app")] == [30]
