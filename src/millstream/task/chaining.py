"""Which nodes of a sub-topology run as one: chains of stateless operators."""

from __future__ import annotations

from millstream.topology.nodes import ProcessorNode
from millstream.topology.operator_spec import ChainingStrategy
from millstream.topology.plan import SubTopology

__all__ = ["chains_of"]


def chains_of(sub: SubTopology) -> dict[str, tuple[str, ...]]:
    """The nodes of each chain of two and more operators, by its first node.

    Inside a chain each node has one child and each child one parent. Nodes that share a store, and those
    between them, take rows one at a time: they are in no chain.
    """
    strategies = {
        node.name: node.spec.chaining
        for node in (sub.nodes[unit[0]] for unit in sub.units if len(unit) == 1)
        if isinstance(node, ProcessorNode) and node.spec.chaining is not ChainingStrategy.NEVER
    }
    chains: dict[str, tuple[str, ...]] = {}
    taken: set[str] = set()
    for first in strategies:
        if first in taken:
            continue
        nodes = [first]
        while strategies[nodes[-1]] is not ChainingStrategy.TAIL:
            children = sub.children[nodes[-1]]
            if (
                len(children) != 1
                or children[0] not in strategies
                or len(sub.nodes[children[0]].parents) != 1
            ):
                break
            nodes.append(children[0])
        taken.update(nodes)
        if len(nodes) > 1:
            chains[first] = tuple(nodes)
    return chains
