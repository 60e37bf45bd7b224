"""`TopologyGraph`: nodes, stores and topics as data. `Topology` fills one; plan and descriptions read it.

It checks nothing: what is in it was checked by `Topology`, or is by `make_plan`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from millstream.state.specs import StoreBuilder
from millstream.topology.copartition import Copartition
from millstream.topology.frame_sources import FrameSource
from millstream.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode


def is_described(node: Node) -> bool:
    """Whether descriptions show a node."""
    return not isinstance(node, ProcessorNode) or node.spec.described


@dataclass(slots=True)
class TopologyGraph:
    """What a topology is made of."""

    nodes: dict[str, Node] = field(default_factory=dict)
    """In the order in which they were added, parents first."""
    stores: dict[str, StoreBuilder] = field(default_factory=dict)
    global_stores: dict[str, StoreBuilder] = field(default_factory=dict)
    global_sources: set[str] = field(default_factory=set)
    internal_topics: dict[str, int | None] = field(default_factory=dict)
    """Repartition topics and their explicit number of partitions, if they have one."""
    copartition_groups: list[Copartition] = field(default_factory=list)
    """Sources that need the same number of partitions."""
    frames: dict[str, FrameSource] = field(default_factory=dict)
    """Streaming frames of Spark, by the topic that they feed."""
    row_serdes: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """Of nodes whose rows may have to go to a later step: the serdes of keys and values, where known."""

    @property
    def processors(self) -> list[ProcessorNode]:
        """The nodes that run operators."""
        return [node for node in self.nodes.values() if isinstance(node, ProcessorNode)]

    @property
    def store_users(self) -> dict[str, list[ProcessorNode]]:
        """Each store that is connected, with its processors."""
        users: dict[str, list[ProcessorNode]] = {}
        for node in self.processors:
            for store in node.spec.stores:
                users.setdefault(store, []).append(node)
        return users

    @property
    def repartition_edges(self) -> list[tuple[SinkNode, SourceNode]]:
        """Each sink that writes to a repartition, with the source behind it."""
        nodes = self.nodes.values()
        sources = {
            topic: node
            for node in nodes
            if isinstance(node, SourceNode)
            for topic in node.topics
            if topic in self.internal_topics
        }
        return [
            (node, sources[node.topic])
            for node in nodes
            if isinstance(node, SinkNode) and node.topic is not None and node.topic in sources
        ]


def described_parents(graph: TopologyGraph, node: Node) -> list[str]:
    """The parents that descriptions show."""
    return [
        name
        for parent in node.parents
        for name in (
            [parent] if is_described(graph.nodes[parent]) else described_parents(graph, graph.nodes[parent])
        )
    ]
