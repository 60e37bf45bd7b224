"""Repartitions: a filter and a sink in front of an internal topic, and the source behind it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from millstream.dsl.graph import Graph, GraphNode
from millstream.processors.stateless import DropNullKeys, PassThrough
from millstream.topology.operator_spec import PLAIN
from millstream.topology.topology import Topology

SUFFIX = "-repartition"
_NUMBERED = re.compile(r"KSTREAM.*-[0-9]{10}")


@dataclass(frozen=True, slots=True)
class Repartition:
    """A stream on its way to the partitions of its new keys."""

    topic: str
    filter_name: str
    sink_name: str
    source_name: str
    key: Any
    value: Any
    partitions: int | None = None
    partitioner: Any = None

    def write(self, topology: Topology, parents: tuple[str, ...], *, null_keys: bool) -> None:
        """Add topic, filter, sink and source to the topology; the filter may let records without a key by."""
        topology.add_internal_topic(self.topic, self.partitions)
        null_filter = PassThrough if null_keys else DropNullKeys
        topology.add_operator(self.filter_name, null_filter, parents, PLAIN)
        topology.add_sink_node(
            self.sink_name, self.topic, (self.filter_name,), self.key, self.value, self.partitioner
        )
        topology.add_repartition_source(
            self.source_name, self.topic, self.key, self.value, carries_changes=False
        )


@dataclass(eq=False)
class RepartitionNode(GraphNode):
    """A repartition in the graph. One that an operator needs may be merged with others, one by hand never."""

    repartition: Repartition | None = None
    by_hand: bool = False


def repartition_node(
    graph: Graph,
    prefix: str,
    key: Any,
    value: Any,
    *,
    partitions: int | None = None,
    partitioner: Any = None,
    by_hand: bool = False,
) -> RepartitionNode:
    """A repartition through the topic `<prefix>-repartition`, not yet behind anything.

    Three numbers are used up even where a given prefix makes them unnecessary, as Kafka does.
    """
    topic = prefix if prefix.endswith(SUFFIX) else prefix + SUFFIX
    sink = graph.new_name("KSTREAM-SINK-")
    null_filter = graph.new_name("KSTREAM-FILTER-")
    source = graph.new_name("KSTREAM-SOURCE-")
    if not _NUMBERED.fullmatch(prefix):
        sink, null_filter, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"
    repartition = Repartition(topic, null_filter, sink, source, key, value, partitions, partitioner)

    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        repartition.write(topology, parents, null_keys=node.leads_to_null_keys())

    node = RepartitionNode(source, write, repartition=repartition, by_hand=by_hand)
    return node
