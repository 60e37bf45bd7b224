"""The plan: sub-topologies, levels, internal topics, fingerprint."""

from __future__ import annotations

import re
from typing import Any

import pytest

from millstream import KStream, Processor, Store, StreamsBuilder, Topology, serdes, stores
from millstream.errors import TopologyError
from millstream.topology.plan import Plan

STRINGS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}


def word_count(store: str = "counts", *, logging: bool = True) -> Plan:
    builder = StreamsBuilder()
    words = builder.stream("lines", **STRINGS).flat_map_values(str.split)
    counts = words.group_by(lambda key, word: word).count(store=Store(store, logging=logging))
    counts.to_stream().to("word-counts")
    return builder.build().plan()


def test_a_sub_topology_runs_a_level_below_the_one_that_feeds_it() -> None:
    plan = word_count()
    assert [(sub.number, sub.level) for sub in plan.subtopologies] == [(0, 0), (1, 1)]
    assert [[sub.number for sub in level] for level in plan.levels] == [[0], [1]]


def test_independent_sub_topologies_share_a_level() -> None:
    builder = StreamsBuilder()
    builder.stream("a").to("x")
    builder.stream("b").to("y")
    plan = builder.build().plan()
    assert [[sub.number for sub in level] for level in plan.levels] == [[0, 1]]


def test_a_sub_topology_waits_for_the_deepest_one_that_feeds_it() -> None:
    builder = StreamsBuilder()
    once = builder.stream("a", **STRINGS).repartition(name="once")
    twice = once.repartition(name="twice")
    builder.stream("b", **STRINGS).repartition(name="other").merge(twice).to("out")
    plan = builder.build().plan()
    assert [[sub.number for sub in level] for level in plan.levels] == [[0, 3], [1], [2]]


def test_an_empty_topology_has_no_steps() -> None:
    plan = Topology().plan()
    assert (plan.subtopologies, plan.levels) == ((), ())


def test_tasks_are_named_as_kafka_names_them() -> None:
    assert word_count().subtopologies[1].task_id(3) == "1_3"


def test_stores_belong_to_the_sub_topology_that_uses_them() -> None:
    assert [list(sub.stores) for sub in word_count().subtopologies] == [[], ["counts"]]


def test_repartition_topics_are_internal_and_carry_the_number_asked_for() -> None:
    builder = StreamsBuilder()
    builder.stream("a").repartition(name="wide", partitions=8).to("x")
    builder.stream("b").repartition(name="any").to("y")
    plan = builder.build().plan()
    assert plan.repartition_topics == {"wide-repartition": 8, "any-repartition": None}


def test_only_logged_stores_have_a_changelog() -> None:
    assert word_count().changelog_topics("app") == {"counts": "app-counts-changelog"}
    assert word_count(logging=False).changelog_topics("app") == {}


def test_a_source_is_found_by_topic_and_by_pattern() -> None:
    topology = Topology().add_source("one", "a", "b").add_source("many", re.compile("c-.*"))
    subs = topology.plan().subtopologies
    assert [sub.source_of("b") is not None for sub in subs] == [True, False]
    assert [sub.source_of("c-7") is not None for sub in subs] == [False, True]
    assert [sub.source_of("d") for sub in subs] == [None, None]


def test_global_tables_have_no_tasks() -> None:
    builder = StreamsBuilder()
    builder.global_table("rates", store="rates", **STRINGS)
    builder.stream("a").to("x")
    plan = builder.build().plan()
    assert [list(sub.stores) for sub in plan.global_subtopologies] == [["rates"]]
    assert len(plan.subtopologies) == 1


def test_order_keys_are_carried_only_where_edges_meet() -> None:
    builder = StreamsBuilder()
    builder.stream("a").map_values(len).to("x")
    stream = builder.stream("b")
    stream.merge(stream.map_values(lambda value: value)).to("y")
    plain, merged = builder.build().plan().subtopologies
    assert (plain.ordered, merged.ordered) == (False, True)


def test_the_fingerprint_of_a_program_never_changes() -> None:
    assert word_count().fingerprint == word_count().fingerprint


@pytest.mark.parametrize("other", [word_count("tallies"), word_count(logging=False)])
def test_a_program_whose_state_differs_has_another_fingerprint(other: Plan) -> None:
    assert other.fingerprint != word_count().fingerprint


def test_what_functions_do_is_not_part_of_the_fingerprint() -> None:
    def program(limit: int) -> Plan:
        builder = StreamsBuilder()
        builder.stream("a").filter(lambda key, value: len(value) > limit).to("x")
        return builder.build().plan()

    assert program(1).fingerprint == program(2).fingerprint


def test_a_cycle_of_writes_is_shown_with_the_users_lines() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("seen"))
    front: KStream[Any, Any] = builder.stream("a", **STRINGS).process(Processor, "seen", name="front")
    front.repartition(name="moved").process(Processor, "seen", name="behind")
    with pytest.raises(TopologyError) as caught:
        builder.build()
    message = str(caught.value)
    assert message.startswith("the topology has a cycle through the repartition 'moved-repartition': ")
    assert "'front' (" in message
    assert "'behind' (" in message
    assert f"{__file__}:" in message
    assert (
        "Likely cause: an operator in front of the repartition and one behind it share a state store"
        in message
    )
    assert "Remedy: give each a store of its own, or send the records through a topic" in message
