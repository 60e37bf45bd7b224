"""The naive oracle, part five: sub-topologies, levels, partition counts, and the order of flushes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.properties.oracle_graph import Graph
from tests.properties.oracle_nodes import GlobalKeeper, Node, Rec, SinkNode, SourceNode
from tests.properties.spec import Spec


@dataclass(frozen=True)
class SubTopology:
    """Nodes that are connected, by edges or by stores, in the order in which they were added."""

    number: int
    nodes: tuple[Node, ...]
    is_global: bool

    @property
    def sources(self) -> list[SourceNode]:
        return [node for node in self.nodes if isinstance(node, SourceNode)]

    @property
    def sinks(self) -> list[SinkNode]:
        return [node for node in self.nodes if isinstance(node, SinkNode)]

    def source_of(self, topic: str) -> SourceNode | None:
        return next((source for source in self.sources if topic in source.topics), None)


def subtopologies(graph: Graph) -> list[SubTopology]:
    """Connected nodes, numbered by their first node."""
    groups = _grouped_by(graph.nodes, _connected(graph))
    return [
        SubTopology(number, tuple(nodes), any(isinstance(node, GlobalKeeper) for node in nodes))
        for number, nodes in enumerate(groups)
    ]


def levels(graph: Graph) -> list[list[SubTopology]] | None:
    """Sub-topologies by how many repartitions are in front of them; None if one feeds itself."""
    subs = subtopologies(graph)
    feeds = {
        (writer.number, reader.number)
        for writer in subs
        for reader in subs
        for sink in writer.sinks
        if sink.internal and reader.source_of(sink.topic_of(Rec(None, None, 0)))
    }
    level = dict.fromkeys(range(len(subs)), 0)
    for _ in subs:
        for writer, reader in feeds:
            level[reader] = max(level[reader], level[writer] + 1)
    if any(level[reader] <= level[writer] for writer, reader in feeds) or max(
        level.values(), default=0
    ) >= max(1, len(subs)):
        return None
    return [
        [sub for sub in subs if level[sub.number] == depth]
        for depth in range(max(level.values(), default=0) + 1)
    ]


def partition_counts(spec: Spec, graph: Graph, by_level: list[list[SubTopology]]) -> dict[str, int]:
    """Partitions of every topic: a repartition has as many as the sub-topology in front of it has tasks."""
    counts = dict.fromkeys(spec.input_topics, spec.partitions)
    for level in by_level:
        for sub in level:
            tasks = task_count(sub, counts)
            for sink in sub.sinks:
                if sink.internal:
                    topic = sink.topic_of(Rec(None, None, 0))
                    counts[topic] = graph.repartitions[topic] or tasks
    return counts


def task_count(sub: SubTopology, counts: dict[str, int]) -> int:
    """As many tasks as the widest topic has partitions."""
    return max(counts[topic] for source in sub.sources for topic in source.topics)


def flush_order(sub: SubTopology) -> list[Node]:
    """Parents first, else in the order of addition; nodes that share a store, and all between, together."""
    # Code of the user's own does not tell what each record does to a store: who looks it up takes turns.
    unknown = {store for node in sub.nodes if node.runs_user_code for store in node.stores}
    same: list[tuple[Node, Node]] = [
        (one, other)
        for one in sub.nodes
        for other in sub.nodes
        if set(one.stores) & {*other.stores, *(unknown & set(other.looks_up))}
    ]
    while True:
        groups = _grouped_by(sub.nodes, same)
        group_of = {node: position for position, nodes in enumerate(groups) for node in nodes}
        around = [
            (one, other)
            for one in sub.nodes
            for other in sub.nodes
            if group_of[one] != group_of[other]
            and _leads(one, other, group_of)
            and _leads(other, one, group_of)
        ]
        if not around:
            break
        same += around
    ordered: list[Node] = []
    while groups:
        ready = next(
            nodes
            for nodes in groups
            if all(parent in ordered or parent in nodes for node in nodes for parent in node.parents)
        )
        groups.remove(ready)
        ordered += ready
    return ordered


def _leads(one: Node, other: Node, group_of: dict[Node, int]) -> bool:
    """Whether some node in the group of `one` is above some node in the group of `other`."""
    above = [node for node, group in group_of.items() if group == group_of[one]]
    reached: set[Node] = set()
    while above:
        for child in above.pop().children:
            if child not in reached:
                reached.add(child)
                above.append(child)
    return any(group_of[node] == group_of[other] for node in reached)


def _connected(graph: Graph) -> list[tuple[Node, Node]]:
    shared = [
        (one, other)
        for one in graph.nodes
        for other in graph.nodes
        if (set(one.stores) & {*other.stores, *other.looks_up}) - graph.global_stores
    ]
    return [(node, parent) for node in graph.nodes for parent in node.parents] + shared


def _grouped_by(nodes: Iterable[Node], pairs: list[tuple[Node, Node]]) -> list[list[Node]]:
    group = {node: {node} for node in nodes}
    for one, other in pairs:
        if group[one] is not group[other]:
            joined = group[one] | group[other]
            group.update((node, joined) for node in joined)
    distinct = {id(members): members for members in group.values()}.values()
    return [sorted(members, key=lambda node: node.number) for members in distinct]
