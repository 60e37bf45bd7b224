"""Topics that get more partitions: used from the next epoch on, unless state would be torn apart."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.simulation.executor import InProcessExecutor
from tests.task.kit import STRINGS

from millstream import Processor, Record, StreamsBuilder, Topology, stores
from millstream.commit.coordinator import CoordinatorSettings
from millstream.commit.plan_changes import PlanChangedError
from millstream.errors import TopologyError
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.types import Offset, Partition


class Bench:
    """A log, and the application that runs on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = FileLog(folder / "log")

    def topic(self, name: str, partitions: int) -> None:
        self.log.create_topic(name, TopicConfig(partitions=partitions))

    def append(self, topic: str, partition: int, *keys: str) -> None:
        place = TopicPartition(topic, Partition(partition))
        encoded = [key.encode() for key in keys]
        self.log.append(place, record_batch(encoded, encoded, [5] * len(keys)))

    def open(self, topology: Topology, *, offset_reset: str = "earliest") -> InProcessExecutor:
        return InProcessExecutor(
            topology,
            application_id="app",
            log_root=self.folder / "log",
            state_dir=self.folder / "state",
            settings=CoordinatorSettings(default_partitions=2, offset_reset=offset_reset),  # type: ignore[arg-type]
        )

    def values(self, topic: str) -> list[str]:
        """All values, partition by partition."""
        return [
            (value or b"").decode()
            for number in range(self.log.config(topic).partitions)
            for batch in self.log.read(TopicPartition(topic, Partition(number)), Offset(0))
            for value in batch.values()
        ]

    def everything(self) -> dict[str, list[str]]:
        return {topic: self.values(topic) for topic in self.log.topics()}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def copying(topics: str | re.Pattern[str] = "in") -> Topology:
    builder = StreamsBuilder()
    builder.stream(topics, **STRINGS).to("out", **STRINGS)
    return builder.build()


def counting() -> Topology:
    builder = StreamsBuilder()
    counts = builder.stream("in", **STRINGS).group_by_key().count(store="counts")
    counts.to_stream().map_values(str).to("out", **STRINGS)
    return builder.build()


def regrouping() -> Topology:
    builder = StreamsBuilder()
    counts = builder.stream("in", **STRINGS).group_by(lambda _, value: value, **STRINGS).count(store="counts")
    counts.to_stream().map(lambda key, count: (key, f"{key}{count}")).to("out", **STRINGS)
    return builder.build()


class Remembers(Processor[str, str, str, str]):
    """Keeps something in a store without a changelog."""

    def process(self, record: Record[str, str]) -> None:
        self.context.state_store("seen").put(record.key, record.value)


def remembering() -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("seen", **STRINGS, logging=False))
    builder.stream("in", **STRINGS).process(Remembers, "seen")
    return builder.build()


@pytest.mark.parametrize("offset_reset", ["earliest", "latest"])
def test_a_stateless_application_reads_all_of_a_new_partition_while_it_runs(
    bench: Bench, offset_reset: str
) -> None:
    """Also if it began at the end: what is in a partition that was not there before is new."""
    bench.topic("in", 1)
    with bench.open(copying(), offset_reset=offset_reset) as app:
        assert app.run_epoch() is None
        bench.append("in", 0, "a")
        app.run_until_caught_up()
        bench.log.add_partitions("in", 3)
        bench.append("in", 2, "b", "c")
        app.run_until_caught_up()
    assert sorted(bench.values("out")) == ["a", "b", "c"]
    with bench.open(copying(), offset_reset=offset_reset) as app:
        bench.append("in", 1, "d")
        app.run_until_caught_up()
    assert sorted(bench.values("out")) == ["a", "b", "c", "d"]


def test_results_go_to_the_new_partitions_of_an_output(bench: Bench) -> None:
    bench.topic("in", 1)
    bench.topic("out", 1)
    keys = [f"k{number}" for number in range(20)]
    with bench.open(copying()) as app:
        bench.append("in", 0, *keys)
        app.run_until_caught_up()
        bench.log.add_partitions("out", 3)
        bench.append("in", 0, *keys)
        app.run_until_caught_up()
    ends = [part.latest for part in bench.log.describe("out").partitions]
    assert ends[0] >= 20
    assert min(ends) > 0
    assert Counter(bench.values("out")) == dict.fromkeys(keys, 2)


def test_a_new_topic_of_a_pattern_with_more_partitions_is_read(bench: Bench) -> None:
    bench.topic("in-1", 1)
    with bench.open(copying(re.compile("in-.*"))) as app:
        bench.append("in-1", 0, "a")
        app.run_until_caught_up()
        bench.topic("in-2", 3)
        bench.append("in-2", 2, "b")
        app.run_until_caught_up()
    assert sorted(bench.values("out")) == ["a", "b"]


def test_a_repartition_keeps_its_partitions_so_that_state_stays_where_it_is(bench: Bench) -> None:
    bench.topic("in", 2)
    for _ in range(2):
        with bench.open(regrouping()) as app:
            bench.append("in", 0, "a", "b", "c")
            app.run_until_caught_up()
            partitions = bench.log.config("in").partitions
            bench.log.add_partitions("in", partitions + 1)
            bench.append("in", partitions, "a", "b", "c")
            app.run_until_caught_up()
            assert app.coordinator.counts["app-counts-changelog"] == 2
    assert {value[0]: value[1:] for value in bench.values("out")} == {"a": "4", "b": "4", "c": "4"}


@pytest.mark.parametrize(("program", "store"), [(counting, "counts"), (remembering, "seen")])
def test_a_store_that_would_be_spread_otherwise_is_refused_and_nothing_is_changed(
    bench: Bench, program: Callable[[], Topology], store: str
) -> None:
    bench.topic("in", 2)
    with bench.open(program()) as app:
        bench.append("in", 0, "a")
        app.run_until_caught_up()
        bench.log.add_partitions("in", 3)
        bench.append("in", 2, "b")
        before = bench.everything()
        for _ in range(2):
            with pytest.raises(PlanChangedError) as refusal:
                app.run_epoch()
    message = str(refusal.value)
    assert f"Store {store!r} of application 'app' is spread over 2 partitions, but the topics" in message
    assert "now ask for 3. Nothing was changed." in message
    assert "Remedy: start the program under another app_id" in message
    with pytest.raises(PlanChangedError):
        bench.open(program())
    assert bench.everything() == before


def test_topics_that_are_read_together_must_grow_together(bench: Bench) -> None:
    bench.topic("a", 2)
    bench.topic("b", 2)
    builder = StreamsBuilder()
    left = builder.stream("a", **STRINGS).group_by_key()
    both = left.cogroup(lambda _, value, total: total + value)
    both = both.cogroup(builder.stream("b", **STRINGS).group_by_key(), lambda _, value, total: total + value)
    both.aggregate(lambda: "", store="both")
    with bench.open(builder.build()) as app:
        bench.append("a", 0, "x")
        app.run_until_caught_up()
        bench.log.add_partitions("b", 3)
        with pytest.raises((TopologyError, PlanChangedError), match="a has 2, b has 3"):
            app.run_epoch()
