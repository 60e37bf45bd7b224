"""Kafka's `single.store.self.join`: a join of a stream with itself keeps its records once.

Both sides of such a join see the same records, so two stores would hold the same. The results are the same,
and in the same order; the topology has one store and fewer nodes.
"""

from __future__ import annotations

from millstream.dsl.graph import Graph
from millstream.dsl.joins import StreamJoinNode

__all__ = ["single_store_self_join"]


def single_store_self_join(graph: Graph) -> None:
    """Find the joins of a stream with itself."""
    for node in graph.nodes:
        if isinstance(node, StreamJoinNode) and len(node.parents) == 1 and node.other_windowed is not None:
            node.parents[0].detach(node.other_windowed)
            node.self_join = True
