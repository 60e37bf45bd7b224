"""Joins of streams in the DSL: names and stores as Kafka has them, repartitions, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from tests.simulation.epochs import EpochRunner

from millstream import JoinWindows, KStream, StreamsBuilder, Topology, serdes
from millstream.errors import TopologyError
from millstream.task.records import RawBatch
from millstream.testing import TopologyTestDriver

STRINGS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
KINDS = ["join", "left_join", "outer_join"]

Row = tuple[str, str | None, str | None, int]
"""Topic, key, value and timestamp."""


def plus(left: Any, right: Any) -> str:
    return f"{left}+{right}"


def two_streams(builder: StreamsBuilder) -> tuple[KStream[Any, Any], KStream[Any, Any]]:
    return builder.stream("l", **STRINGS), builder.stream("r", **STRINGS)


def rekeyed(stream: KStream[Any, Any]) -> KStream[Any, Any]:
    return stream.select_key(lambda key, _: key)


def driven(topology: Topology, rows: Sequence[Row]) -> list[tuple[Any, Any, int]]:
    with TopologyTestDriver(topology) as driver:
        sink = driver.output_topic("out", **STRINGS)
        sources = {topic: driver.input_topic(topic, **STRINGS) for topic in {row[0] for row in rows}}
        for topic, key, value, time in rows:
            sources[topic].pipe(key, value, timestamp=time)
        return [(record.key, record.value, record.timestamp) for record in sink.read_all()]


def test_an_inner_join_is_described_as_kafka_does() -> None:
    builder = StreamsBuilder()
    left, right = two_streams(builder)
    left.join(right, plus, JoinWindows(5)).to("out")
    assert builder.build().describe() == INNER


def test_a_named_left_join_of_rekeyed_streams_is_described_as_kafka_does() -> None:
    builder = StreamsBuilder()
    left, right = two_streams(builder)
    left, right = rekeyed(left), rekeyed(right)
    left.left_join(right, plus, JoinWindows(5), name="nm", store="st").to("out")
    assert builder.build().describe() == NAMED_LEFT


def test_an_outer_join_of_one_rekeyed_stream_is_described_as_kafka_does() -> None:
    builder = StreamsBuilder()
    left, right = two_streams(builder)
    rekeyed(left).outer_join(right, plus, JoinWindows(5)).to("out")
    assert builder.build().describe() == OUTER


@pytest.mark.parametrize("kind", KINDS)
def test_a_self_join_has_one_store_if_that_is_asked_for(kind: str) -> None:
    builder = StreamsBuilder()
    stream: Any = builder.stream("l", **STRINGS)
    getattr(stream, kind)(stream, plus, JoinWindows(5)).to("out")
    described = builder.build(optimization="single_store_self_join").describe()
    assert described == SELF_JOIN.replace("JOINTHIS", "OUTERTHIS" if kind == "outer_join" else "JOINTHIS")


def test_two_streams_of_one_topic_are_one_stream() -> None:
    builder = StreamsBuilder()
    left, right = builder.stream("in", **STRINGS), builder.stream("in", **STRINGS)
    left.join(right, plus, JoinWindows(5)).to("out")
    assert len(builder.build(optimization="all").graph.stores) == 1


@pytest.mark.parametrize("optimization", ["none", "all"])
def test_a_self_join_gives_each_pair_once(optimization: str) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", **STRINGS)
    stream.join(stream, plus, JoinWindows(5)).to("out")
    rows: list[Row] = [("in", "k", "a", 0), ("in", "k", "b", 3), ("in", "k", "c", 1)]
    assert driven(builder.build(optimization=optimization), rows) == [
        ("k", "a+a", 0),
        ("k", "b+a", 3),
        ("k", "a+b", 3),
        ("k", "b+b", 3),
        ("k", "c+a", 1),
        ("k", "c+b", 3),
        ("k", "a+c", 1),
        ("k", "c+c", 1),
        ("k", "b+c", 3),
    ]


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("join", []),
        ("left_join", [(None, "a+None", 1)]),
        ("outer_join", [(None, "a+None", 1), (None, "None+x", 2)]),
    ],
)
def test_records_without_a_key_pass_the_repartition_in_front_of_an_outer_join(
    kind: str, found: list[Any]
) -> None:
    builder = StreamsBuilder()
    left, right = two_streams(builder)
    getattr(rekeyed(left), kind)(rekeyed(right), plus, JoinWindows(5)).to("out")
    assert driven(builder.build(), [("l", None, "a", 1), ("r", None, "x", 2)]) == found


def test_unnamed_joins_of_a_rekeyed_stream_share_its_repartition() -> None:
    builder = StreamsBuilder()
    left, right = two_streams(builder)
    left = rekeyed(left)
    for number in range(2):
        left.join(right, plus, JoinWindows(5)).to(f"out-{number}")
    assert list(builder.build().graph.internal_topics) == ["KSTREAM-KEY-SELECT-0000000002-repartition"]


def test_the_result_of_a_join_can_be_joined_and_grouped_as_it_is() -> None:
    builder = StreamsBuilder()
    left, right = two_streams(builder)
    pairs = left.join(right, plus, JoinWindows(5))
    pairs.join(right, plus, JoinWindows(5), value=serdes.string).to("out")
    pairs.group_by_key().count()
    topology = builder.build()
    assert topology.graph.internal_topics == {}
    assert driven(topology, [("l", "k", "a", 0), ("r", "k", "x", 2)]) == [("k", "a+x+x", 2)]


@pytest.mark.parametrize("logging", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_stores_keep_records_for_window_and_grace(kind: str, logging: bool) -> None:
    builder = StreamsBuilder()
    left, right = two_streams(builder)
    windows = JoinWindows(timedelta(seconds=1), timedelta(seconds=2), grace=500)
    getattr(left, kind)(right, plus, windows, store="st", logging=logging).to("out")
    specs = builder.build().graph.stores.values()
    assert [spec.has_changelog for spec in specs] == [logging] * (2 if kind == "join" else 3)
    assert {(spec.window_size_ms, spec.retention_ms) for spec in specs if spec.is_segmented} == {
        (3_000, 3_500)
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 7, 40])
def test_epochs_of_any_size_give_what_the_test_driver_gives(kind: str, size: int) -> None:
    builder = StreamsBuilder()
    left, right = two_streams(builder)
    getattr(left, kind)(right, plus, JoinWindows(3)).to("out", **STRINGS)
    topology = builder.build()
    rows: list[Row] = [
        ("lr"[number % 2], f"k{number % 3}", f"v{number}", 2 * number + number % 5 // 4)
        for number in range(40)
    ]
    with EpochRunner(topology, partitions={"l": 1, "r": 1, "out": 1}, fresh_tasks=True) as runner:
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            runner.run_epoch([raw(topic, start, [row for row in some if row[0] == topic]) for topic in "lr"])
        found = [
            ((record.key or b"").decode(), (record.value or b"").decode(), record.timestamp)
            for record in runner.outputs["out"]
        ]
    assert found == driven(topology, rows)


def raw(topic: str, first: int, rows: Sequence[Row]) -> RawBatch:
    return RawBatch(
        topic,
        0,
        range(first, first + len(rows)),
        [(row[1] or "").encode() for row in rows],
        [(row[2] or "").encode() for row in rows],
        [row[3] for row in rows],
    )


def test_windows_that_can_join_nothing_are_refused() -> None:
    with pytest.raises(TopologyError) as raised:
        JoinWindows(5, -6)
    assert str(raised.value) == (
        "join windows from 5 ms before a record to -6 ms after it: no record could ever be joined. Remedy: "
        "before + after of 0 or more milliseconds"
    )


def test_a_negative_grace_is_refused() -> None:
    with pytest.raises(TopologyError, match="the grace of windows is -1 ms"):
        JoinWindows(5, grace=-1)


def test_a_join_without_join_windows_is_refused() -> None:
    left, right = two_streams(StreamsBuilder())
    with pytest.raises(TopologyError) as raised:
        left.left_join(right, plus, 5)  # type: ignore[call-overload]
    assert str(raised.value) == (
        "left_join() of two streams with the windows 5. Remedy: say how far apart in time records may be, "
        "as in JoinWindows(timedelta(minutes=5))"
    )


def test_streams_of_two_builders_are_refused() -> None:
    left, right = StreamsBuilder().stream("l"), StreamsBuilder().stream("r")
    with pytest.raises(TopologyError) as raised:
        left.outer_join(right, plus, JoinWindows(5))
    assert str(raised.value) == (
        "outer_join() of streams from two StreamsBuilders: build both with the same one"
    )


def test_keys_of_different_serdes_are_refused() -> None:
    builder = StreamsBuilder()
    left: Any = builder.stream("l", key=serdes.int64)
    with pytest.raises(TopologyError) as raised:
        left.join(builder.stream("r", key=serdes.string), plus, JoinWindows(5))
    assert str(raised.value) == (
        "join() of keys of serdes.int64 with keys of serdes.string: equal keys would have different bytes, "
        "and never meet. Remedy: read both sides with the same key serde, or give the one that fits both "
        "with key=, if their bytes are the same"
    )


def test_different_explicit_numbers_of_partitions_are_refused_at_build() -> None:
    builder = StreamsBuilder()
    left, right = two_streams(builder)
    left.repartition(name="left", partitions=2).join(
        right.repartition(name="right", partitions=3), plus, JoinWindows(5)
    ).to("out")
    with pytest.raises(TopologyError) as raised:
        builder.build()
    assert "left-repartition: 2 partitions" in str(raised.value)
    assert "right-repartition: 3 partitions" in str(raised.value)
    assert str(raised.value).endswith(
        "joins the stream of left-repartition (2) with the stream of right-repartition (3): records of one "
        "key would be in different tasks."
    )


def test_topics_with_different_numbers_of_partitions_are_refused_at_start() -> None:
    builder = StreamsBuilder()
    left, right = two_streams(builder)
    left.join(right, plus, JoinWindows(5)).to("out")
    with pytest.raises(TopologyError, match="l has 2, r has 3") as raised:
        builder.build().plan().partitions({"l": 2, "r": 3})
    assert "Remedy: repartition() one of the streams" in str(raised.value)
    assert f"\n  join() at {__file__}:" in str(raised.value)
    assert str(raised.value).endswith(
        " joins the stream of l (2) with the stream of r (3): records of one key would be in different "
        "tasks. It runs with .repartition(partitions=3) on the stream of l."
    )


def test_topics_of_one_side_are_named_together() -> None:
    builder = StreamsBuilder()
    left, right = two_streams(builder)
    both = left.merge(builder.stream("more", key=serdes.string, value=serdes.string))
    both.join(right, plus, JoinWindows(5)).to("out")
    with pytest.raises(TopologyError) as raised:
        builder.build().plan().partitions({"l": 2, "more": 3, "r": 3})
    assert " joins the stream of l (2), more (3) with the stream of r (3): " in str(raised.value)
    assert str(raised.value).endswith("It runs with .repartition(partitions=3) on the stream of l, more.")


def test_what_the_message_says_runs() -> None:
    builder = StreamsBuilder()
    left, right = two_streams(builder)
    left.repartition(partitions=3).join(right, plus, JoinWindows(5)).to("out")
    assert set(builder.build().plan().partitions({"l": 2, "r": 3}).values()) == {2, 3}


def test_two_joins_of_one_name_are_refused() -> None:
    builder = StreamsBuilder()
    left, right = two_streams(builder)
    for _ in range(2):
        left.join(right, plus, JoinWindows(5), name="paid")
    with pytest.raises(TopologyError, match="two operators have the name 'paid-this-windowed'"):
        builder.build()


INNER = """\
Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [l])
      --> KSTREAM-WINDOWED-0000000002
    Source: KSTREAM-SOURCE-0000000001 (topics: [r])
      --> KSTREAM-WINDOWED-0000000003
    Processor: KSTREAM-WINDOWED-0000000002 (stores: [KSTREAM-JOINTHIS-0000000004-store])
      --> KSTREAM-JOINTHIS-0000000004
      <-- KSTREAM-SOURCE-0000000000
    Processor: KSTREAM-WINDOWED-0000000003 (stores: [KSTREAM-JOINOTHER-0000000005-store])
      --> KSTREAM-JOINOTHER-0000000005
      <-- KSTREAM-SOURCE-0000000001
    Processor: KSTREAM-JOINOTHER-0000000005 (stores: [KSTREAM-JOINTHIS-0000000004-store])
      --> KSTREAM-MERGE-0000000006
      <-- KSTREAM-WINDOWED-0000000003
    Processor: KSTREAM-JOINTHIS-0000000004 (stores: [KSTREAM-JOINOTHER-0000000005-store])
      --> KSTREAM-MERGE-0000000006
      <-- KSTREAM-WINDOWED-0000000002
    Processor: KSTREAM-MERGE-0000000006 (stores: [])
      --> KSTREAM-SINK-0000000007
      <-- KSTREAM-JOINTHIS-0000000004, KSTREAM-JOINOTHER-0000000005
    Sink: KSTREAM-SINK-0000000007 (topic: out)
      <-- KSTREAM-MERGE-0000000006

"""

NAMED_LEFT = """\
Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [l])
      --> KSTREAM-KEY-SELECT-0000000002
    Processor: KSTREAM-KEY-SELECT-0000000002 (stores: [])
      --> nm-left-repartition-filter
      <-- KSTREAM-SOURCE-0000000000
    Processor: nm-left-repartition-filter (stores: [])
      --> nm-left-repartition-sink
      <-- KSTREAM-KEY-SELECT-0000000002
    Sink: nm-left-repartition-sink (topic: nm-left-repartition)
      <-- nm-left-repartition-filter

  Sub-topology: 1
    Source: KSTREAM-SOURCE-0000000001 (topics: [r])
      --> KSTREAM-KEY-SELECT-0000000003
    Processor: KSTREAM-KEY-SELECT-0000000003 (stores: [])
      --> nm-right-repartition-filter
      <-- KSTREAM-SOURCE-0000000001
    Processor: nm-right-repartition-filter (stores: [])
      --> nm-right-repartition-sink
      <-- KSTREAM-KEY-SELECT-0000000003
    Sink: nm-right-repartition-sink (topic: nm-right-repartition)
      <-- nm-right-repartition-filter

  Sub-topology: 2
    Source: nm-left-repartition-source (topics: [nm-left-repartition])
      --> nm-this-windowed
    Source: nm-right-repartition-source (topics: [nm-right-repartition])
      --> nm-other-windowed
    Processor: nm-other-windowed (stores: [st-outer-other-join-store])
      --> nm-outer-other-join
      <-- nm-right-repartition-source
    Processor: nm-this-windowed (stores: [st-this-join-store])
      --> nm-this-join
      <-- nm-left-repartition-source
    Processor: nm-outer-other-join (stores: [st-left-shared-join-store, st-this-join-store])
      --> nm-merge
      <-- nm-other-windowed
    Processor: nm-this-join (stores: [st-outer-other-join-store, st-left-shared-join-store])
      --> nm-merge
      <-- nm-this-windowed
    Processor: nm-merge (stores: [])
      --> KSTREAM-SINK-0000000015
      <-- nm-this-join, nm-outer-other-join
    Sink: KSTREAM-SINK-0000000015 (topic: out)
      <-- nm-merge

"""

OUTER = """\
Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [l])
      --> KSTREAM-KEY-SELECT-0000000002
    Processor: KSTREAM-KEY-SELECT-0000000002 (stores: [])
      --> KSTREAM-FILTER-0000000004
      <-- KSTREAM-SOURCE-0000000000
    Processor: KSTREAM-FILTER-0000000004 (stores: [])
      --> KSTREAM-SINK-0000000003
      <-- KSTREAM-KEY-SELECT-0000000002
    Sink: KSTREAM-SINK-0000000003 (topic: KSTREAM-KEY-SELECT-0000000002-repartition)
      <-- KSTREAM-FILTER-0000000004

  Sub-topology: 1
    Source: KSTREAM-SOURCE-0000000001 (topics: [r])
      --> KSTREAM-WINDOWED-0000000007
    Source: KSTREAM-SOURCE-0000000005 (topics: [KSTREAM-KEY-SELECT-0000000002-repartition])
      --> KSTREAM-WINDOWED-0000000006
    Processor: KSTREAM-WINDOWED-0000000006 (stores: [KSTREAM-OUTERTHIS-0000000008-store])
      --> KSTREAM-OUTERTHIS-0000000008
      <-- KSTREAM-SOURCE-0000000005
    Processor: KSTREAM-WINDOWED-0000000007 (stores: [KSTREAM-OUTEROTHER-0000000009-store])
      --> KSTREAM-OUTEROTHER-0000000009
      <-- KSTREAM-SOURCE-0000000001
    Processor: KSTREAM-OUTEROTHER-0000000009 (stores: [\
KSTREAM-OUTERSHARED-0000000008-store, KSTREAM-OUTERTHIS-0000000008-store])
      --> KSTREAM-MERGE-0000000010
      <-- KSTREAM-WINDOWED-0000000007
    Processor: KSTREAM-OUTERTHIS-0000000008 (stores: [\
KSTREAM-OUTERSHARED-0000000008-store, KSTREAM-OUTEROTHER-0000000009-store])
      --> KSTREAM-MERGE-0000000010
      <-- KSTREAM-WINDOWED-0000000006
    Processor: KSTREAM-MERGE-0000000010 (stores: [])
      --> KSTREAM-SINK-0000000011
      <-- KSTREAM-OUTERTHIS-0000000008, KSTREAM-OUTEROTHER-0000000009
    Sink: KSTREAM-SINK-0000000011 (topic: out)
      <-- KSTREAM-MERGE-0000000010

"""

SELF_JOIN = """\
Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [l])
      --> KSTREAM-WINDOWED-0000000001
    Processor: KSTREAM-WINDOWED-0000000001 (stores: [KSTREAM-JOINTHIS-0000000003-store])
      --> KSTREAM-MERGE-0000000005
      <-- KSTREAM-SOURCE-0000000000
    Processor: KSTREAM-MERGE-0000000005 (stores: [KSTREAM-JOINTHIS-0000000003-store])
      --> KSTREAM-SINK-0000000006
      <-- KSTREAM-WINDOWED-0000000001
    Sink: KSTREAM-SINK-0000000006 (topic: out)
      <-- KSTREAM-MERGE-0000000005

"""
