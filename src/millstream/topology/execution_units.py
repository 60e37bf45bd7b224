"""Which nodes a batch may pass one after the other, and which must take turns row by row.

A batch normally passes node by node: the first node handles all rows, then the second. That gives what
one row at a time gives, as long as no two nodes share state. Nodes that share a store do, so they and
all nodes between them are one *execution unit*, through which rows go one at a time, depth first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from millstream.topology.grouping import UnionFind

ExecutionUnit = tuple[str, ...]
"""Nodes that run together, in topological order: mostly one, several if they share a store."""


def units_of(
    children: Mapping[str, Sequence[str]], shared: Iterable[Sequence[str]]
) -> tuple[ExecutionUnit, ...]:
    """The nodes of a sub-topology as units, in an order in which parents come first.

    `children` maps each node, in topological order, to the nodes behind it; each item of `shared` lists
    the nodes that use one store.
    """
    below = _descendants(children)
    sets: UnionFind[str] = UnionFind()
    for group in shared:
        sets.unite(group)
    while _unite_enclosed(children, below, sets):
        pass
    members: dict[str, list[str]] = {}
    for name in children:
        members.setdefault(sets.find(name), []).append(name)
    return _sorted_units(children, sets, members)


def _descendants(children: Mapping[str, Sequence[str]]) -> dict[str, frozenset[str]]:
    below: dict[str, frozenset[str]] = {}
    for name in reversed(list(children)):
        below[name] = frozenset().union(children[name], *(below[child] for child in children[name]))
    return below


def _unite_enclosed(
    children: Mapping[str, Sequence[str]], below: Mapping[str, frozenset[str]], sets: UnionFind[str]
) -> bool:
    """Take in every node that lies on a path out of a set and back into it. True if that changed sets."""
    reach: dict[str, set[str]] = {}
    for name in children:
        reach.setdefault(sets.find(name), set()).update(sets.find(child) for child in below[name])
    changed = False
    for root, others in reach.items():
        for other in others:
            if other != root and root in reach[other] and sets.find(other) != sets.find(root):
                sets.unite((root, other))
                changed = True
    return changed


def _sorted_units(
    children: Mapping[str, Sequence[str]], sets: UnionFind[str], members: Mapping[str, list[str]]
) -> tuple[ExecutionUnit, ...]:
    waiting = dict.fromkeys(members, 0)
    edges = {
        (sets.find(name), sets.find(child))
        for name, behind in children.items()
        for child in behind
        if sets.find(name) != sets.find(child)
    }
    for _, after in edges:
        waiting[after] += 1
    ordered: list[ExecutionUnit] = []
    while waiting:
        ready = next(root for root, count in waiting.items() if count == 0)
        del waiting[ready]
        ordered.append(tuple(members[ready]))
        for before, after in edges:
            if before == ready:
                waiting[after] -= 1
    return tuple(ordered)
