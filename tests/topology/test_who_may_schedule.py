"""Which nodes may schedule punctuators: those that give a context to code of the user's. An engine asks."""

from __future__ import annotations

from typing import Any

import pytest

from millstream import FixedKeyProcessor, Processor, StreamsBuilder, Topology
from millstream.engine.ticks import Ticks
from millstream.topology.nodes import ProcessorNode


class Same:
    """A transformer that changes nothing."""

    def init(self, context: Any) -> None:
        """Take no notice."""

    def transform(self, key: object, value: object) -> object:
        del key
        return value

    def close(self) -> None:
        """Nothing to close."""


def processing() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").map_values(lambda value: value).process(Processor, name="user")
    return builder.build()


def processing_values() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").process_values(FixedKeyProcessor, name="user").to("out")
    return builder.build()


def transforming() -> Topology:
    builder = StreamsBuilder()
    builder.table("in").transform_values(Same, name="user").to_stream().to("out")
    return builder.build()


def transforming_into_a_store() -> Topology:
    builder = StreamsBuilder()
    builder.table("in").transform_values(Same, store="kept", name="user").to_stream().to("out")
    return builder.build()


def by_hand() -> Topology:
    return Topology().add_source("source", "in").add_processor("user", Processor, "source")


def only_operators() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("in").filter(lambda _, value: bool(value)).group_by(lambda _, value: value)
    words.count(store="counts").filter(lambda _, count: count > 1).to_stream().to("out")
    return builder.build()


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        (processing(), ["user"]),
        (processing_values(), ["user"]),
        (transforming(), ["user"]),
        (transforming_into_a_store(), ["user"]),
        (by_hand(), ["user"]),
        (only_operators(), []),
    ],
)
def test_only_nodes_with_code_that_is_given_a_context_may_schedule(
    topology: Topology, expected: list[str]
) -> None:
    nodes = [
        name
        for sub in topology.plan().subtopologies
        for name, node in sub.nodes.items()
        if isinstance(node, ProcessorNode) and node.spec.may_schedule
    ]
    assert nodes == expected
    assert Ticks(topology.plan(), tick_ms=1).due() is bool(expected)
