"""`describe()`: the text format of Kafka Streams, character for character.

Within a sub-topology Kafka sorts nodes by the size of what hangs below them, largest first, then by
name. Successors and predecessors are sorted by the sizes known *while the description is being built*,
so the order in which nodes are connected shows in the text, and the shape of the trees that keep them; both
are repeated here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from millstream.topology.graph import TopologyGraph, described_parents, is_described
from millstream.topology.grouping import node_groups
from millstream.topology.java_order import TreeSet, hash_order
from millstream.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode


def describe(graph: TopologyGraph) -> str:
    """The whole topology as text."""
    parts = ["Topologies:\n "]
    for number, names in enumerate(node_groups(graph)):
        if any(name in graph.global_sources for name in names):
            parts.append(_global_store(graph, number, names))
        else:
            parts.append(_subtopology(graph, number, names))
    return "".join(parts)


@dataclass(eq=False)
class _Described:
    node: Node
    size: int = 1
    predecessors: TreeSet[_Described] = field(default_factory=lambda: TreeSet(_rank))
    successors: TreeSet[_Described] = field(default_factory=lambda: TreeSet(_rank))

    def grow(self, delta: int) -> None:
        self.size += delta
        for predecessor in self.predecessors:
            predecessor.grow(delta)


def _subtopology(graph: TopologyGraph, number: int, names: list[str]) -> str:
    shown = [name for name in names if is_described(graph.nodes[name])]
    described = {name: _Described(graph.nodes[name]) for name in hash_order(shown)}
    for one in described.values():
        for parent_name in described_parents(graph, one.node):
            parent = described[parent_name]
            one.predecessors.add(parent)
            parent.successors.add(one)
            parent.grow(one.size)
    ordered = sorted(described.values(), key=_rank)
    nodes = "".join(f"    {_node(one)}\n" for one in ordered)
    return f"  Sub-topology: {number}\n{nodes}\n"


def _global_store(graph: TopologyGraph, number: int, names: list[str]) -> str:
    source = next(name for name in names if name in graph.global_sources)
    processor = next(name for name in names if name != source)
    reading, writing = graph.nodes[source], graph.nodes[processor]
    assert isinstance(reading, SourceNode)
    assert isinstance(writing, ProcessorNode)
    return (
        f"  Sub-topology: {number} for global store (will not generate tasks)\n"
        f"    Source: {source} (topics: [{reading.topics[0]}])\n      --> {processor}\n"
        f"    Processor: {processor} (stores: [{writing.spec.stores[0]}])\n"
        f"      --> none\n      <-- {source}\n"
    )


def _node(one: _Described) -> str:
    node, after, before = one.node, _names(one.successors), _names(one.predecessors)
    if isinstance(node, SourceNode):
        topics = node.pattern.pattern if node.pattern else f"[{', '.join(hash_order(node.topics))}]"
        return f"Source: {node.name} (topics: {topics})\n      --> {after}"
    if isinstance(node, SinkNode):
        target = f"topic: {node.topic}" if node.topic is not None else f"extractor class: {node.extractor}"
        return f"Sink: {node.name} ({target})\n      <-- {before}"
    stores = ", ".join(hash_order(node.spec.shown_stores))
    return f"Processor: {node.name} (stores: [{stores}])\n      --> {after}\n      <-- {before}"


def _names(nodes: Iterable[_Described]) -> str:
    return ", ".join(one.node.name for one in nodes) or "none"


def _rank(one: _Described) -> tuple[int, str]:
    return (-one.size, one.node.name)
