"""What leads from an earlier step of a sub-topology to a later one, as nodes and topics of the plan.

No description shows them: they are there because an epoch runs level by level. An edge between two steps is a
sink in the one and a source in the other; a store that the later step looks up, these two and a copy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from millstream.serdes import bytes as raw_bytes
from millstream.state.specs import StoreBuilder
from millstream.topology.graph import TopologyGraph
from millstream.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode
from millstream.topology.steps import Step, writers_and_readers

__all__ = ["StepLinks", "StoreCopy", "step_links"]


@dataclass(frozen=True, slots=True)
class StoreCopy:
    """A store of an earlier step, once more, in a later one."""

    store: str
    written_in: int
    read_in: int

    @property
    def name(self) -> str:
        """The name of the copy."""
        return f"{self.store}-copy-{self.read_in}"

    @property
    def topic(self) -> str:
        """By which it gets what is written."""
        return f"{self.name}-changes"

    def builder(self, original: StoreBuilder) -> StoreBuilder:
        """The copy as a store of the later step."""
        return replace(original, name=self.name, source_topic=None, copy_of=self.store)


@dataclass(frozen=True, slots=True)
class StepLinks:
    """The nodes of each step, with those that lead to others."""

    nodes: Mapping[int, Mapping[str, Node]]
    copies: Sequence[StoreCopy]
    topics: Sequence[str]

    def copies_in(self, number: int) -> dict[str, StoreCopy]:
        """The copies that a step has, by the names of the stores."""
        return {copy.store: copy for copy in self.copies if copy.read_in == number}

    def copied_from(self, number: int) -> dict[str, tuple[str, ...]]:
        """The stores of a step of which others have copies, with the topics of these."""
        topics: dict[str, tuple[str, ...]] = {}
        for copy in self.copies:
            if copy.written_in == number:
                topics[copy.store] = (*topics.get(copy.store, ()), copy.topic)
        return topics


def step_links(graph: TopologyGraph, steps: Sequence[Step], changed: Mapping[str, Node]) -> StepLinks:
    """Connect the steps. `changed` has nodes to be taken in place of those of the graph."""
    step_of = {name: step.number for step in steps for name in step.names}
    nodes: dict[int, dict[str, Node]] = {
        step.number: {name: changed.get(name, graph.nodes[name]) for name in step.names} for step in steps
    }
    copies = _copies(graph, step_of)
    topics = _edges_between(graph, step_of, nodes, _rows_of_copied(graph, copies))
    for copy in copies:
        site = graph.nodes[graph.store_users[copy.store][0].name].site
        # Nothing goes through these two: the task sends and takes what was written to the store.
        _link(
            nodes, copy.topic, (), (copy.written_in, copy.read_in), (raw_bytes, raw_bytes), site, first=True
        )
        topics.append(copy.topic)
    return StepLinks(nodes, copies, topics)


def _edges_between(
    graph: TopologyGraph,
    step_of: Mapping[str, int],
    nodes: Mapping[int, dict[str, Node]],
    rows_of_copied: Mapping[int, Collection[str]],
) -> list[str]:
    topics: list[str] = []
    for node in list(graph.nodes.values()):
        here = step_of[node.name]
        for parent in node.parents:
            before = step_of[parent]
            if before == here:
                continue
            topic = f"{parent}-to-{here}"
            if topic not in topics:
                site = graph.nodes[parent].site
                serdes = graph.row_serdes.get(parent, (None, None))
                first = parent in rows_of_copied.get(here, ())
                _link(nodes, topic, (parent,), (before, here), serdes, site, first=first)
                topics.append(topic)
            behind = nodes[here][node.name]
            assert isinstance(behind, ProcessorNode | SinkNode)  # a source has no parents
            parents = tuple(f"{topic}-source" if name == parent else name for name in behind.parents)
            nodes[here][node.name] = replace(behind, parents=parents)
    return topics


def _link(
    nodes: Mapping[int, dict[str, Node]],
    topic: str,
    parents: tuple[str, ...],
    steps: tuple[int, int],
    serdes: tuple[object, object],
    site: str,
    *,
    first: bool,
) -> None:
    sink, source = f"{topic}-sink", f"{topic}-source"
    key, value = serdes
    nodes[steps[0]][sink] = SinkNode(
        sink, parents, topic, None, key, value, None, site, carries_changes=True, to_later_step=True
    )
    reading = SourceNode(
        source,
        (topic,),
        None,
        key,
        value,
        None,
        None,
        site,
        carries_changes=True,
        from_earlier_step=True,
        comes_first=first,
    )
    # Parents come first.
    inside = nodes[steps[1]]
    rest = dict(inside)
    inside.clear()
    inside.update({source: reading, **rest})


def _rows_of_copied(graph: TopologyGraph, copies: Sequence[StoreCopy]) -> dict[int, set[str]]:
    """By step, the nodes that send rows of tables of which the step has copies.

    A copy shows its table as it is at the end of the earlier step, so the rows that lead there come before.
    """
    found: dict[int, set[str]] = {}
    for copy in copies:
        sending = found.setdefault(copy.read_in, set())
        sending.update(writers_and_readers(copy.store, graph.store_users[copy.store])[0])
        for node in graph.nodes.values():  # parents come first
            if not sending.isdisjoint(node.parents):
                sending.add(node.name)
    return found


def _copies(graph: TopologyGraph, step_of: Mapping[str, int]) -> list[StoreCopy]:
    copies: dict[StoreCopy, None] = {}
    for store, users in graph.store_users.items():
        writers, readers = writers_and_readers(store, users)
        for reader in readers:
            if step_of[reader] != step_of[writers[0]]:
                copies[StoreCopy(store, step_of[writers[0]], step_of[reader])] = None
    return list(copies)
