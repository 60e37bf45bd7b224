"""The steps of an epoch: where sub-topologies are cut, and what leads from one step to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream import StreamsBuilder, Topology, serdes

WORDS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}


def pair(left: object, right: object) -> str:
    return f"{left}+{right}"


def reference(_key: str, value: str) -> str:
    return value


def built(build: Callable[[StreamsBuilder], Any]) -> Topology:
    builder = StreamsBuilder()
    build(builder).to("out", **WORDS)
    return builder.build()


def tables(builder: StreamsBuilder, *topics: str) -> list[Any]:
    return [builder.table(topic, store=topic, **WORDS) for topic in topics]


def foreign_key_join(builder: StreamsBuilder) -> Any:
    left, right = tables(builder, "l", "r")
    return left.foreign_key_join(right, reference, pair, name="fk").to_stream()


def joined_back(builder: StreamsBuilder) -> Any:
    left, right = tables(builder, "l", "r")
    return left.foreign_key_join(right, reference, pair, name="fk").join(left, pair, name="back").to_stream()


def of_itself(builder: StreamsBuilder) -> Any:
    (rows,) = tables(builder, "l")
    return rows.foreign_key_join(rows, reference, pair, name="fk").to_stream()


def merged_with_its_repartition(builder: StreamsBuilder) -> Any:
    stream = builder.stream("s", **WORDS).map_values(str.upper, name="upper")
    return stream.repartition(name="again", **WORDS).merge(stream, name="both")


def steps(topology: Topology) -> list[tuple[int, int]]:
    return [(sub.number, sub.level) for sub in topology.plan().subtopologies]


def stores(topology: Topology) -> list[list[str]]:
    return [sorted(sub.stores) for sub in topology.plan().subtopologies]


def test_a_foreign_key_join_goes_from_the_left_table_to_the_right_one_and_back() -> None:
    topology = built(foreign_key_join)
    assert steps(topology) == [(0, 0), (1, 1), (10_000, 2)]
    assert stores(topology) == [["l"], ["fk-subscription-store", "r"], ["l-copy-10000"]]


def test_who_takes_one_record_at_a_time_needs_no_steps() -> None:
    plan = built(foreign_key_join).undivided_plan()
    assert [(sub.number, sorted(sub.stores)) for sub in plan.subtopologies] == [
        (0, ["l"]),
        (1, ["fk-subscription-store", "r"]),
    ]


def test_a_copy_is_fed_by_the_step_that_writes_the_store() -> None:
    first, _, last = built(foreign_key_join).plan().subtopologies
    assert first.copied == {"l": ("l-copy-10000-changes",)}
    assert last.copies == {"l-copy-10000-changes": "l-copy-10000"}
    assert last.store_name("l") == "l-copy-10000"
    assert first.store_name("l") == "l"
    assert last.stores["l-copy-10000"].copy_of == "l"


def test_a_result_that_is_joined_back_shares_the_copy_and_gets_the_rows_of_the_table() -> None:
    topology = built(joined_back)
    assert steps(topology) == [(0, 0), (1, 1), (10_000, 2)]
    assert stores(topology)[2] == ["KTABLE-FK-JOIN-OUTPUT-STATE-STORE-0000000017", "l-copy-10000"]
    last = topology.plan().subtopologies[2]
    assert last.nodes["back-join-other"].parents == ("KTABLE-SOURCE-0000000001-to-10000-source",)
    source: Any = last.nodes["KTABLE-SOURCE-0000000001-to-10000-source"]
    assert (source.key, source.value, source.from_earlier_step) == (serdes.string, serdes.string, True)


def test_a_table_that_refers_to_itself_runs_in_three_steps() -> None:
    topology = built(of_itself)
    assert steps(topology) == [(0, 0), (10_000, 1), (20_000, 2)]
    assert stores(topology) == [["l"], ["fk-subscription-store", "l-copy-10000"], ["l-copy-20000"]]


def test_a_stream_that_is_merged_with_its_own_repartition_runs_in_two_steps() -> None:
    topology = built(merged_with_its_repartition)
    assert steps(topology) == [(0, 0), (10_000, 1)]
    assert sorted(topology.plan().repartition_topics) == ["again-repartition", "upper-to-10000"]


def test_a_table_that_only_the_later_step_needs_runs_there() -> None:
    def build(builder: StreamsBuilder) -> Any:
        left, right, other = tables(builder, "l", "r", "x")
        return left.foreign_key_join(right, reference, pair, name="fk").join(other, pair).to_stream()

    topology = built(build)
    assert stores(topology)[0] == ["l"]
    assert "x" in stores(topology)[2]


def test_descriptions_show_no_steps() -> None:
    text = built(joined_back).describe()
    assert "10000" not in text
    assert "responder" not in text
    assert "responder" not in built(joined_back).to_mermaid()


def test_partitions_of_steps_are_those_of_the_topics_that_feed_them() -> None:
    plan = built(joined_back).plan()
    counts = plan.partitions({"l": 2, "r": 3, "out": 1})
    assert [plan.task_count(sub, counts) for sub in plan.subtopologies] == [2, 3, 2]
