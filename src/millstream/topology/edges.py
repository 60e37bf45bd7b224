"""How rows get from a node to those behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millstream.processors.batch import Batch
from millstream.topology.nodes import Node, ProcessorNode

__all__ = ["Edge", "edges_of"]


@dataclass(frozen=True, slots=True)
class Edge:
    """From a node to one of its children."""

    child: str
    position: int | None
    """Which of several children it is."""
    port: int | None
    """By which of several ports of the child its rows come."""

    def carry(self, batch: Batch) -> Batch:
        """The rows as they arrive."""
        if self.position is not None:
            batch = batch.for_child(self.position)
        return batch.for_port(self.port)


def edges_of(nodes: Mapping[str, Node], children: Mapping[str, Sequence[str]]) -> dict[str, tuple[Edge, ...]]:
    """The edges from each node, in the order in which its children were attached."""
    return {
        name: tuple(
            Edge(child, position if len(behind) > 1 else None, _port(nodes[child], name))
            for position, child in enumerate(behind)
        )
        for name, behind in children.items()
    }


def _port(child: Node, parent: str) -> int | None:
    has_ports = isinstance(child, ProcessorNode) and child.spec.ports > 1
    return child.parents.index(parent) if has_ports else None
