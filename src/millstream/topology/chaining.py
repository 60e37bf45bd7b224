"""Which nodes of a sub-topology run as one: chains of stateless operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from millstream.topology.execution_units import ExecutionUnit
from millstream.topology.nodes import Node, ProcessorNode
from millstream.topology.operator_spec import ChainingStrategy

__all__ = ["chains_of"]


def chains_of(
    nodes: Mapping[str, Node], children: Mapping[str, Sequence[str]], units: Iterable[ExecutionUnit]
) -> dict[str, tuple[str, ...]]:
    """The nodes of each chain of two and more operators, by its first node.

    Inside a chain each node has one child and each child one parent. Nodes that share a store, and those
    between them, take rows one at a time: they are in no chain.
    """
    strategies = {
        node.name: node.spec.chaining
        for node in (nodes[unit[0]] for unit in units if len(unit) == 1)
        if isinstance(node, ProcessorNode) and node.spec.chaining is not ChainingStrategy.NEVER
    }
    chains: dict[str, tuple[str, ...]] = {}
    taken: set[str] = set()
    for first in strategies:
        if first in taken:
            continue
        chain = [first]
        while strategies[chain[-1]] is not ChainingStrategy.TAIL:
            behind = children[chain[-1]]
            if len(behind) != 1 or behind[0] not in strategies or len(nodes[behind[0]].parents) != 1:
                break
            chain.append(behind[0])
        taken.update(chain)
        if len(chain) > 1:
            chains[first] = tuple(chain)
    return chains
