"""The naive oracle, part three: the graph of nodes, and what operators hand to each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.properties.functions import Choose
from tests.properties.oracle_nodes import KeyFilter, Node, SinkNode, SourceNode
from tests.properties.spec import Group, TableGroup

N = TypeVar("N", bound=Node)


@dataclass(frozen=True)
class Stream:
    """A stream at a node; `rekeyed` means that its records may be in the wrong partition."""

    node: Node
    rekeyed: bool

    def moved(self) -> Stream:
        """The same with new keys."""
        return Stream(self.node, True)


@dataclass
class Grouped:
    """A grouped stream or table, and the repartition that its aggregations share if it has a name."""

    stream: Stream
    op: Group | TableGroup
    shared: Node | None = None


@dataclass
class Graph:
    """The compiled spec."""

    nodes: list[Node] = field(default_factory=list)
    global_stores: set[str] = field(default_factory=set)
    repartitions: dict[str, int | None] = field(default_factory=dict)
    """Topics, with the number of partitions that the user asked for."""
    handles: dict[int, Any] = field(default_factory=dict)
    _clock: int = 0

    def add(self, node: N, *parents: Node) -> N:
        self.nodes.append(node)
        self.touch(node)
        for parent in dict.fromkeys(parents):
            parent.children.append(node)
            node.parents.append(parent)
        return node

    def touch(self, node: Node) -> None:
        """Attached now, for the first time or again: its place in the order is here."""
        self._clock += 1
        node.number = self._clock

    def put_in_order(self) -> None:
        """Parents first, else by when nodes were attached last. Children run in the same order."""
        waiting, self.nodes = self.nodes, []
        while waiting:
            ready = [
                node for node in waiting if not any(one in waiting for one in (*node.parents, *node.after))
            ]
            chosen = min(ready, key=lambda node: node.number)
            waiting.remove(chosen)
            self.nodes.append(chosen)
        for number, node in enumerate(self.nodes):
            node.number = number
        for node in self.nodes:
            node.children.sort(key=lambda child: child.number)

    def let_null_keys_by(self) -> None:
        """Repartitions above those who have a use for records without a key leave none out."""
        for node in self.nodes:
            if isinstance(node, KeyFilter):
                node.lets_all_by = any(one.takes_null_keys for one in self._below(node))

    def _below(self, node: Node) -> set[Node]:
        found: set[Node] = set()
        waiting = [node]
        while waiting:
            one = waiting.pop()
            behind = [*one.children, *(other for other in self.nodes if one in other.after)]
            waiting += [other for other in behind if other not in found]
            found.update(behind)
        return found

    def repartition(self, parent: Node, name: str, partitioner: Choose | None = None) -> SourceNode:
        """Records without a key go no further; the others go to the partitions of their keys."""
        with_key = KeyFilter(f"{name}-filter")
        source = self.through_topic(self.add(with_key, parent), name, partitioner)
        source.after.insert(0, with_key)
        return source

    def through_topic(self, parent: Node, name: str, partitioner: Choose | None = None) -> SourceNode:
        """A sink, an internal topic and a source."""
        topic = f"{name}-repartition"
        self.repartitions[topic] = None
        sink = SinkNode(f"{name}-sink", topic_of=lambda _rec: topic, internal=True)
        if partitioner is not None:
            sink.partition_of = lambda rec, count: partitioner(rec.value, count)
        self.add(sink, parent)
        return self.add(SourceNode(f"{name}-source", topics=(topic,), after=[sink]))
