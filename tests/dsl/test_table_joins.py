"""Joins with tables in programs: names, stores, co-partitioning, and mistakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millstream import JoinWindows, Store, StreamsBuilder, TimeWindows, Topology, serdes
from millstream.errors import TopologyError
from millstream.testing import TopologyTestDriver

WORDS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}

NUMBER: Any = serdes.int64


def pair(left: object, right: object) -> str:
    return f"{left}+{right}"


def processors(topology: Topology) -> list[str]:
    lines = [line.strip() for line in topology.describe().splitlines()]
    return [line.removeprefix("Processor: ") for line in lines if line.startswith("Processor: ")]


def built(build: Callable[[StreamsBuilder], Any]) -> Topology:
    builder = StreamsBuilder()
    build(builder)
    return builder.build()


def test_nodes_of_a_table_join_are_numbered_as_in_kafka() -> None:
    topology = built(lambda b: b.table("l").join(b.table("r"), pair))
    assert processors(topology) == [
        "KTABLE-SOURCE-0000000002 (stores: [l-STATE-STORE-0000000000])",
        "KTABLE-SOURCE-0000000005 (stores: [r-STATE-STORE-0000000003])",
        "KTABLE-JOINOTHER-0000000008 (stores: [l-STATE-STORE-0000000000])",
        "KTABLE-JOINTHIS-0000000007 (stores: [r-STATE-STORE-0000000003])",
        "KTABLE-MERGE-0000000006 (stores: [])",
    ]


def test_a_given_name_names_all_nodes_and_store_the_result() -> None:
    topology = built(lambda b: b.table("l").outer_join(b.table("r"), pair, name="both", store="result"))
    assert processors(topology) == [
        "KTABLE-SOURCE-0000000002 (stores: [l-STATE-STORE-0000000000])",
        "KTABLE-SOURCE-0000000005 (stores: [r-STATE-STORE-0000000003])",
        "both-join-other (stores: [l-STATE-STORE-0000000000])",
        "both-join-this (stores: [r-STATE-STORE-0000000003])",
        "both (stores: [result])",
    ]


def test_serdes_alone_make_a_numbered_store_as_in_kafka() -> None:
    topology = built(lambda b: b.table("l").join(b.table("r"), pair, value=serdes.string))
    assert processors(topology)[-1] == (
        "KTABLE-MERGE-0000000007 (stores: [KTABLE-MERGE-STATE-STORE-0000000006])"
    )


def test_a_view_is_looked_up_in_the_stores_that_it_is_computed_from() -> None:
    def build(b: StreamsBuilder) -> None:
        left, right = b.table("l").filter(lambda key, value: True), b.table("r")
        both = left.left_join(right.map_values(str), pair)
        b.stream("s").join(both, pair, name="joining")

    stores = "[l-STATE-STORE-0000000000, r-STATE-STORE-0000000004]"
    assert f"joining (stores: {stores})" in processors(built(build))


def test_a_stream_whose_key_was_changed_is_repartitioned_first() -> None:
    def build(b: StreamsBuilder) -> None:
        b.stream("s").select_key(lambda key, value: value).join(b.table("t"), pair, name="joining")

    assert built(build).plan().repartition_topics == {"joining-repartition": None}


def test_a_join_with_a_global_table_repartitions_nothing() -> None:
    def build(b: StreamsBuilder) -> None:
        stream = b.stream("s").select_key(lambda key, value: value)
        assert stream.join(b.global_table("t"), pair, key_of=lambda k, v: v).needs_repartition

    assert built(build).plan().repartition_topics == {}


def test_both_sides_must_have_as_many_partitions() -> None:
    topology = built(lambda b: b.stream("s").join(b.table("t"), pair).to("out"))
    with pytest.raises(TopologyError, match=r"s has 2, t has 3.\n  Remedy: repartition\(\)"):
        topology.plan().partitions({"s": 2, "t": 3, "out": 1})
    assert topology.plan().partitions({"s": 3, "t": 3})["t"] == 3


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda b: b.stream("s").left_join(b.table("t"), pair).to("out"),
            (
                " joins the stream of s (4) with the table of t (3): records of one key would be in "
                "different tasks. It runs with .repartition(partitions=3) on the stream of s."
            ),
        ),
        (
            lambda b: b.table("s").outer_join(b.table("t"), pair),
            (
                " joins the table of s (4) with the table of t (3): records of one key would be in "
                "different tasks. It runs with .to_stream().repartition(partitions=4).to_table() on the "
                "table of t."
            ),
        ),
    ],
)
def test_what_makes_both_sides_equal_is_told(build: Callable[[StreamsBuilder], Any], message: str) -> None:
    with pytest.raises(TopologyError) as raised:
        built(build).plan().partitions({"s": 4, "t": 3})
    assert str(raised.value).endswith(message)
    assert f"_join() at {__file__}:" in str(raised.value)


def test_a_repartition_takes_the_number_of_the_table() -> None:
    def build(b: StreamsBuilder) -> None:
        b.stream("s").select_key(lambda key, value: value).join(b.table("t"), pair, name="joining")

    assert built(build).plan().partitions({"s": 2, "t": 3})["joining-repartition"] == 3


def test_a_join_reads_its_table_in_bulk_and_takes_no_turns() -> None:
    def build(b: StreamsBuilder) -> None:
        left, right = b.table("l"), b.stream("r").group_by_key().count()
        b.stream("s").join(left.join(right, pair), pair)

    (sub,) = built(build).plan().subtopologies
    assert [unit for unit in sub.units if len(unit) > 1] == []


MISTAKES: list[tuple[Callable[[StreamsBuilder], Any], str]] = [
    (
        lambda b: b.stream("s").join(b.table("t"), pair, grace=5),
        r"join\(\) with grace= needs a versioned table.*Remedy: Store\(versioned=...\)",
    ),
    (
        lambda b: b.stream("s").left_join(
            b.table("t", store=Store("t", versioned=10)).map_values(str, store="plain"), pair, grace=5
        ),
        r"left_join\(\) with grace= needs a versioned table, but the one at 'KTABLE-MAPVALUES-",
    ),
    (
        lambda b: b.stream("s").join(b.table("t", store=Store("t", versioned=10)), pair, grace=-1),
        r"join\(\) with a grace of -1 ms. Remedy: 0 or more",
    ),
    (
        lambda b: b.stream("s").join(b.global_table("t"), pair),  # type: ignore[call-overload]
        r"join\(\) with the global table .* without key_of.*Remedy: key_of=",
    ),
    (
        lambda b: b.stream("s").join(b.table("t"), pair, JoinWindows(5)),  # type: ignore[call-overload]
        r"join\(\) with a table has no use for windows=",
    ),
    (
        lambda b: b.stream("s").join(b.table("t"), pair, key_of=pair),  # type: ignore[call-overload]
        r"join\(\) with a table has no use for key_of=. Remedy: leave it out; it takes grace=, key=, name=",
    ),
    (
        lambda b: b.stream("s").join("t", pair),  # type: ignore[call-overload]
        r"join\(\) with 't'. Remedy: join a stream with a stream, a table or a global table",
    ),
    (
        lambda b: b.table("l").join(b.stream("s"), pair),  # type: ignore[arg-type]
        r"join\(\) with KStream\(.*Remedy: join a table with a table; a stream becomes one by to_table\(\)",
    ),
    (
        lambda b: b.stream("s").outer_join(b.table("t"), pair),  # type: ignore[call-arg,arg-type]
        r"outer_join\(\) of a stream with KTable\(.* Remedy: left_join\(\) .*to_table\(\).outer_join\(",
    ),
    (
        lambda b: b.stream("s").outer_join(b.table("t"), pair, JoinWindows(5)),  # type: ignore[arg-type]
        r"outer_join\(\) of a stream with KTable\(",
    ),
    (
        lambda b: b.stream("s").outer_join(
            b.global_table("t"),  # type: ignore[arg-type]
            pair,
            key_of=lambda k, v: v,  # type: ignore[call-arg]
        ),
        r"outer_join\(\) of a stream with GlobalKTable\(.*Remedy: left_join\(\) .* with their row or None$",
    ),
    (
        lambda b: b.stream("s").outer_join("t", pair, JoinWindows(5)),  # type: ignore[arg-type]
        r"outer_join\(\) with 't'. Remedy: join a stream with a stream$",
    ),
    (
        lambda b: b.stream("s").outer_join(b.stream("t"), pair),  # type: ignore[call-arg]
        r"outer_join\(\) of two streams with the windows None. Remedy: .* JoinWindows\(",
    ),
    (
        lambda b: b.stream("s").outer_join(b.stream("t"), pair, JoinWindows(5), grace=5),  # type: ignore[call-arg]
        r"outer_join\(\) with a stream has no use for grace=. Remedy: leave it out; it takes key=, logging=",
    ),
    (
        lambda b: b.stream("s").join(b.stream("t"), pair, JoinWindows(5), name=5),  # type: ignore[call-overload]
        r"5 can't be a name. Remedy: use letters",
    ),
    (
        lambda b: b.stream("s", key=NUMBER).join(b.table("t", key=serdes.string), pair),
        r"join\(\) of keys of serdes.int64 with keys of serdes.string: equal keys would have different bytes",
    ),
    (
        lambda b: b.table("l", key=NUMBER).left_join(b.table("r", key=serdes.string), pair),
        r"left_join\(\) of keys of serdes.int64 with keys of serdes.string",
    ),
    (
        lambda b: b.table("l").join(StreamsBuilder().table("r"), pair),
        r"join\(\) of streams from two StreamsBuilders",
    ),
    (
        lambda b: b.stream("s").join(StreamsBuilder().table("t"), pair),
        r"join\(\) of streams from two StreamsBuilders",
    ),
    (
        lambda b: b.stream("s").join(StreamsBuilder().global_table("t"), pair, key_of=lambda k, v: v),
        r"join\(\) of streams from two StreamsBuilders",
    ),
]


@pytest.mark.parametrize(("build", "message"), MISTAKES)
def test_mistakes_are_told_when_the_join_is_written(
    build: Callable[[StreamsBuilder], Any], message: str
) -> None:
    with pytest.raises(TopologyError, match=f"(?s){message}"):
        build(StreamsBuilder())


def test_two_joins_under_one_name_are_refused() -> None:
    def build(b: StreamsBuilder) -> None:
        table = b.table("t")
        for topic in ("one", "two"):
            b.stream(topic).join(table, pair, name="joining")

    with pytest.raises(TopologyError, match="two operators have the name 'joining'"):
        built(build)


class Shout:
    """A transformer that also has a word for rows that are not there."""

    def init(self, context: object) -> None: ...

    def transform(self, key: str, value: str | None) -> str:
        return "nobody" if value is None else value.upper()

    def close(self) -> None: ...


def test_a_transformed_table_without_a_store_is_transformed_again_for_each_lookup() -> None:
    builder = StreamsBuilder()
    table = builder.table("t", **WORDS).transform_values(Shout)
    builder.stream("s", **WORDS).join(table, pair).to("out", **WORDS)
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("t", **WORDS).pipe("a", "ann", timestamp=1)
        stream = driver.input_topic("s", **WORDS)
        stream.pipe("a", "1", timestamp=2)
        stream.pipe("b", "2", timestamp=3)
        records = driver.output_topic("out", **WORDS).read_all()
    assert [record.value for record in records] == ["1+ANN", "2+nobody"]


def test_a_mean_is_joined_as_the_number_that_it_is() -> None:
    builder = StreamsBuilder()
    numbers: dict[str, Any] = {"key": serdes.string, "value": serdes.int64}
    table = builder.stream("t", **numbers).group_by_key().mean()
    builder.stream("s", **WORDS).join(table, pair).to("out", **WORDS)
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("t", **numbers).pipe("a", 1, timestamp=1)
        driver.input_topic("t", **numbers).pipe("a", 2, timestamp=1)
        driver.input_topic("s", **WORDS).pipe("a", "1", timestamp=2)
        (record,) = driver.output_topic("out", **WORDS).read_all()
    assert record.value == "1+1.5"


def test_windowed_tables_are_joined_by_key_and_window() -> None:
    builder = StreamsBuilder()
    counts = [
        builder.stream(topic, **WORDS).group_by_key().windowed_by(TimeWindows(10)).count()
        for topic in ("l", "r")
    ]
    both = counts[0].join(counts[1], pair)
    both.to_stream(lambda windowed, value: f"{windowed.key}@{windowed.window.start}").to("out", **WORDS)
    with TopologyTestDriver(builder.build()) as driver:
        left, right = (driver.input_topic(topic, **WORDS) for topic in ("l", "r"))
        left.pipe("a", "x", timestamp=1)
        right.pipe("a", "x", timestamp=11)
        right.pipe("a", "x", timestamp=12)
        left.pipe("a", "x", timestamp=13)
        records = driver.output_topic("out", **WORDS).read_all()
    assert [(record.key, record.value) for record in records] == [("a@10", "1+2")]
