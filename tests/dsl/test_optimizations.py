"""`build(optimization=...)`: which optimisations run, and what they never do. Golden cases show the rest."""

from __future__ import annotations

from typing import Any

import pytest

from millstream import FixedKeyProcessor, FixedKeyRecord, KStream, StreamsBuilder, Topology, serdes
from millstream.dsl.optimizations import OPTIMIZATIONS, chosen
from millstream.errors import TopologyError
from millstream.testing import TopologyTestDriver


def two_counts() -> StreamsBuilder:
    builder = StreamsBuilder()
    stream: KStream[str, str] = builder.stream("in", key=serdes.string, value=serdes.string)
    rekeyed = stream.select_key(lambda _key, value: value)
    rekeyed.group_by_key().count(store="one")
    rekeyed.filter(lambda _key, value: value != "x").group_by_key().count(store="two")
    return builder


def repartitions(topology: Topology) -> list[str]:
    return list(topology.plan().repartition_topics)


def test_nothing_is_optimised_unless_it_is_asked_for() -> None:
    assert repartitions(two_counts().build()) == ["one-repartition", "two-repartition"]
    assert repartitions(two_counts().build(optimization="none")) == ["one-repartition", "two-repartition"]


@pytest.mark.parametrize("optimization", ["all", "merge_repartition_topics", ["merge_repartition_topics"]])
def test_what_is_asked_for_is_done(optimization: Any) -> None:
    assert repartitions(two_counts().build(optimization=optimization)) == ["one-repartition"]


def test_all_means_all() -> None:
    assert chosen("all") == OPTIMIZATIONS
    assert chosen([]) == chosen("none") == ()


@pytest.mark.parametrize("wrong", ["everything", ["all", "merge_repartition_topics"], ["none", "x"]])
def test_what_does_not_exist_is_refused(wrong: Any) -> None:
    with pytest.raises(TopologyError) as raised:
        two_counts().build(optimization=wrong)
    assert str(raised.value) == (
        f"build(optimization={wrong!r}): give 'none', 'all', or some of reuse_ktable_source_topics, "
        "merge_repartition_topics, single_store_self_join"
    )


def test_a_builder_can_build_again() -> None:
    builder = two_counts()
    first = builder.build(optimization="all").describe()
    assert repartitions(builder.build(optimization="all")) == ["one-repartition"]
    assert "two-repartition" not in first


def test_both_ways_count_the_same() -> None:
    found = []
    for optimization in ("none", "all"):
        with TopologyTestDriver(two_counts().build(optimization=optimization)) as driver:
            topic = driver.input_topic("in", key=serdes.string, value=serdes.string)
            for value in ("x", "y", "x", "y", "z"):
                topic.pipe("k", value)
            found.append([dict(driver.store(store).all()) for store in ("one", "two")])
    assert found[0] == found[1]
    assert [sorted(counts) for counts in found[0]] == [["x", "y", "z"], ["y", "z"]]


def test_repartitions_behind_the_same_filter_are_merged() -> None:
    builder = StreamsBuilder()
    stream: KStream[str, str] = builder.stream("in", key=serdes.string, value=serdes.string)
    filtered = stream.select_key(lambda _key, value: value).filter(lambda _key, value: value != "x")
    filtered.group_by_key().count(store="one")
    filtered.group_by_key().reduce(lambda one, other: one + other, store="two")
    topology = builder.build(optimization="all")
    assert repartitions(topology) == ["one-repartition"]
    with TopologyTestDriver(topology) as driver:
        driver.input_topic("in", key=serdes.string, value=serdes.string).pipe_all(
            [("k", "x"), ("k", "y"), ("k", "y")]
        )
        assert [list(driver.store(store).all()) for store in ("one", "two")] == [[("y", 2)], [("y", "yy")]]


class Echo(FixedKeyProcessor[Any, Any, Any]):
    def process(self, record: FixedKeyRecord[Any, Any]) -> None:
        self.context.forward(record)


def test_nothing_is_moved_in_front_of_a_processor() -> None:
    builder = StreamsBuilder()
    stream: KStream[str, str] = builder.stream("in", key=serdes.string, value=serdes.string)
    rekeyed = stream.select_key(lambda _key, value: value)
    rekeyed.process_values(Echo).group_by_key().count(store="one")
    rekeyed.process_values(Echo).group_by_key().count(store="two")
    assert repartitions(builder.build(optimization="all")) == ["one-repartition", "two-repartition"]


def test_repartitions_behind_two_merges_are_merged_behind_the_last() -> None:
    builder = StreamsBuilder()
    streams: list[KStream[Any, Any]] = [
        builder.stream(topic, key=serdes.string, value=serdes.string).select_key(lambda _key, value: value)
        for topic in ("a", "b", "c")
    ]
    merged = streams[0].merge(streams[1]).merge(streams[2], name="last")
    merged.group_by_key().count(store="one")
    merged.group_by_key().count(store="two")
    topology = builder.build(optimization="all")
    assert repartitions(topology) == ["one-repartition"]
    assert "Processor: last (stores: [])\n      --> one-repartition-filter" in topology.describe()
