"""Kafka's `merge.repartition.topics`: one repartition right behind the operator that changes the key.

A stream with a new key is repartitioned by each operator that needs its records together: two aggregations
move every record twice. Where nothing in between changes values, one repartition behind the operator that
changed the key does for all of them. Its topic has the name of the first one. The rules, and what they do to
merged streams, are Kafka's; unlike in Kafka 4.1.0, a processor of the user's own counts as changing values,
and repartitions may be behind the same operator between (Kafka refuses to build that).
"""

from __future__ import annotations

from collections.abc import Callable

from millstream.dsl.graph import Graph, GraphNode, first_given
from millstream.dsl.repartition import RepartitionNode, repartition_node

__all__ = ["merge_repartition_topics"]

_Anchors = dict[GraphNode, list[RepartitionNode]]
"""The operators that change keys, each with the repartitions that can be moved right behind it."""


def merge_repartition_topics(graph: Graph) -> None:
    """Replace repartitions behind one change of the key by a single one."""
    for anchor, repartitions in _anchors(graph).items():
        if repartitions:
            _merge(graph, anchor, repartitions)


def _anchors(graph: Graph) -> _Anchors:
    anchors: _Anchors = {node: [] for node in graph.nodes if node.changes == "key"}
    for node in graph.nodes:
        if isinstance(node, RepartitionNode) and node.parents and not node.by_hand:
            anchor = _upwards(node, lambda one: one.changes is not None)
            if anchor is not None and anchor is _upwards(node, lambda one: one.changes == "key"):
                anchors[anchor].append(node)
    return _with_merges(graph, anchors)


def _with_merges(graph: Graph, anchors: _Anchors) -> _Anchors:
    """Where all repartitions of some anchors are behind a merge of theirs, the merge is their anchor."""
    for merge in [node for node in graph.nodes if node.merges]:
        above = [
            anchor
            for anchor, repartitions in anchors.items()
            if all(_child_on_the_way(node, merge) for node in repartitions)
            and _child_on_the_way(merge, anchor)
        ]
        moved = [node for anchor in above for node in anchors.pop(anchor)]
        anchors[merge] = list(dict.fromkeys(moved))
    return anchors


def _merge(graph: Graph, anchor: GraphNode, repartitions: list[RepartitionNode]) -> None:
    olds = [node.repartition for node in repartitions if node.repartition is not None]
    single = repartition_node(
        graph,
        olds[0].topic,
        first_given(*(old.key for old in olds)),
        first_given(*(old.value for old in olds)),
    )
    single.priority = anchor.priority
    for node in repartitions:
        child = _child_on_the_way(node, anchor)
        if child is not None:  # else it was moved with a repartition before, on the same way
            single.attach(child)
            anchor.detach(child)
        parents = list(node.parents)
        for below in list(node.children):
            node.detach(below)
            for parent in parents:
                parent.attach(below)
        for parent in parents:
            parent.detach(node)
        graph.rename_copartitioned(node.name, single.name)
    anchor.attach(single)


def _child_on_the_way(node: GraphNode, ancestor: GraphNode) -> GraphNode | None:
    """The child of an ancestor through which records come to a node: the node itself, perhaps."""
    return _upwards(node, lambda one: ancestor in one.parents)


def _upwards(node: GraphNode, matches: Callable[[GraphNode], bool]) -> GraphNode | None:
    """The node, or the first above it that matches; of several ways up, Kafka takes the last."""
    if matches(node):
        return node
    found: GraphNode | None = None
    for parent in node.parents:
        if matches(parent):
            return parent
        found = _upwards(parent, matches)
    return found
