"""What the handles of a builder share: sources that become one, and stores without operators."""

from __future__ import annotations

import re
from typing import Any

from millstream import StreamsBuilder, serdes, stores
from millstream.topology.nodes import SourceNode

STRINGS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}


def sources(builder: StreamsBuilder) -> list[str]:
    return [node.name for node in builder.build().graph.nodes.values() if isinstance(node, SourceNode)]


def test_a_topic_that_is_read_twice_has_one_source() -> None:
    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).to("x")
    builder.stream("in", **STRINGS).to("y")
    assert sources(builder) == ["KSTREAM-SOURCE-0000000000"]


def test_the_same_list_and_the_same_pattern_are_read_once() -> None:
    builder = StreamsBuilder()
    for _ in range(2):
        builder.stream(["a", "b"], **STRINGS).to("x")
        builder.stream(re.compile("c-.*"), **STRINGS).to("y")
    assert len(sources(builder)) == 2


def test_a_merge_of_a_topic_with_itself_has_both_edges_as_one() -> None:
    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).merge(builder.stream("in", **STRINGS), name="merged").to("out")
    assert builder.build().graph.nodes["merged"].parents == ("KSTREAM-SOURCE-0000000000",)


def test_a_topic_in_a_list_twice_counts_once() -> None:
    builder = StreamsBuilder()
    builder.stream(["a", "a"], **STRINGS)
    (source,) = builder.build().graph.nodes.values()
    assert isinstance(source, SourceNode)
    assert source.topics == ("a",)


def test_a_store_that_nobody_uses_is_part_of_no_sub_topology() -> None:
    builder = StreamsBuilder().add_state_store(stores.key_value("idle"))
    builder.stream("in", **STRINGS).to("out")
    topology = builder.build()
    assert list(topology.graph.stores) == ["idle"]
    assert [list(sub.stores) for sub in topology.plan().subtopologies] == [[]]
