"""A topology as a Mermaid flow chart, for documents and pull requests."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.topology.graph import TopologyGraph, described_parents, is_described
from millstream.topology.grouping import node_groups
from millstream.topology.nodes import Node, SinkNode, SourceNode


def mermaid(graph: TopologyGraph) -> str:
    """Sub-topologies as boxes; topics as rounded nodes; stores as cylinders."""
    shown = [name for name, node in graph.nodes.items() if is_described(node)]
    identity = {name: f"n{number}" for number, name in enumerate(shown)}
    lines = ["flowchart TD"]
    for number, names in enumerate(node_groups(graph)):
        lines.append(f'  subgraph s{number}["Sub-topology {number}"]')
        lines += [f'    {identity[name]}["{name}"]' for name in names if is_described(graph.nodes[name])]
        lines.append("  end")
    for node in filter(is_described, graph.nodes.values()):
        parents = described_parents(graph, node)
        lines += [f"  {identity[parent]} --> {identity[node.name]}" for parent in parents]
        lines += [f"  {line}" for line in _topics(node, identity[node.name])]
    for node in filter(is_described, graph.processors):
        stores = node.spec.shown_stores
        lines += [f'  {identity[node.name]} --- store_{_identifier(store)}[("{store}")]' for store in stores]
    return "\n".join(lines) + "\n"


def _topics(node: Node, identity: str) -> Iterator[str]:
    if isinstance(node, SourceNode):
        for topic in node.topics or (node.pattern.pattern if node.pattern else "",):
            yield f'topic_{_identifier(topic)}(["{topic}"]) --> {identity}'
    elif isinstance(node, SinkNode):
        topic = node.topic if node.topic is not None else "chosen per record"
        yield f'{identity} --> topic_{_identifier(topic)}(["{topic}"])'


def _identifier(text: str) -> str:
    return "".join(letter if letter.isalnum() else f"_{ord(letter):x}_" for letter in text)
