"""Which nodes belong together: sub-topologies, as connected components over edges and shared stores."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from millstream.topology.graph import TopologyGraph

T = TypeVar("T", bound=Hashable)


class UnionFind(Generic[T]):
    """Disjoint sets."""

    def __init__(self) -> None:
        self._parent: dict[T, T] = {}

    def find(self, item: T) -> T:
        """The representative of the item's set."""
        root = item
        while (above := self._parent.setdefault(root, root)) != root:
            root = above
        while item != root:
            self._parent[item], item = root, self._parent[item]
        return root

    def unite(self, items: Iterable[T]) -> None:
        """Put all items into one set."""
        first: T | None = None
        for item in items:
            if first is None:
                first = item
            self._parent[self.find(item)] = self.find(first)


def node_groups(graph: TopologyGraph) -> list[list[str]]:
    """Names of the nodes of each sub-topology, both in the order in which the nodes were added.

    The position in the list is Kafka's sub-topology id; global stores have ids of their own.
    """
    sets: UnionFind[str] = UnionFind()
    for node in graph.nodes.values():
        sets.unite((node.name, *node.parents))
    for users in graph.store_users.values():
        sets.unite(node.name for node in users)
    groups: dict[str, list[str]] = {}
    for name in graph.nodes:
        groups.setdefault(sets.find(name), []).append(name)
    return list(groups.values())
