"""Which nodes of a sub-topology run as one: linear runs of stateless operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millstream.processors.operator import Operator
from millstream.processors.operator_chain import OperatorChain, can_be_fused, ends_a_run
from millstream.topology.plan import SubTopology

__all__ = ["Run", "runs_of"]


@dataclass(frozen=True, slots=True)
class Run:
    """Nodes that rows pass one after the other, and the one pass that does the work of them all."""

    nodes: tuple[str, ...]
    fused: OperatorChain


def runs_of(sub: SubTopology, operators: Mapping[str, Operator]) -> dict[str, Run]:
    """The runs of two and more operators, by their first node.

    Inside a run each node has one child and each child one parent. Nodes that share a store, and those
    between them, take rows one at a time: they are in no run.
    """
    alone = {unit[0] for unit in sub.units if len(unit) == 1}
    fit = {name for name in alone if name in operators and can_be_fused(operators[name])}
    runs: dict[str, Run] = {}
    taken: set[str] = set()
    for unit in sub.units:
        if unit[0] not in fit or unit[0] in taken:
            continue
        nodes = [unit[0]]
        while not ends_a_run(operators[nodes[-1]]):
            children = sub.children[nodes[-1]]
            if len(children) != 1 or children[0] not in fit or len(sub.nodes[children[0]].parents) != 1:
                break
            nodes.append(children[0])
        taken.update(nodes)
        if len(nodes) > 1:
            runs[nodes[0]] = Run(tuple(nodes), OperatorChain([operators[node] for node in nodes]))
    return runs
