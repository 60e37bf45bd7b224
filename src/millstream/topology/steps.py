"""The steps of an epoch: which nodes run together, and at which level.

Mostly a step is a sub-topology, at the level behind all that it gets repartitioned rows from. A sub-topology
that feeds itself through repartitions can't run at one level: a foreign-key join leads from the left table to
the right one and back, and `stream.repartition().merge(stream)` leads back at once. It is cut into steps,
each at its own level; its tasks run once per step. What goes from an earlier step to a later one:

- *rows*, where an edge leads from one to the other: they are handed to the same partition of the later step,
  and merged with all others by time, but for the changes of tables that it has copies of: these come first;
- *copies of stores*, where the later step looks something up that the earlier one has to write: the later
  step has a store of its own, and gets the writes of the epoch before it begins. So it sees the table as it
  is at the end of the epoch, and never one that is half done.

A cycle of writes can't be cut: nodes in front of and behind a repartition that both write to a store. It is
refused, with the cycle shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.errors import TopologyError
from millstream.topology.graph import TopologyGraph
from millstream.topology.grouping import UnionFind
from millstream.topology.nodes import ProcessorNode, SinkNode

__all__ = ["Step", "steps_of", "undivided_steps", "writers_and_readers"]

_STRIDE: Final = 10_000
"""The later steps of sub-topology 3 have the numbers 10003, 20003 and so on, whatever else a program has."""


@dataclass(frozen=True, slots=True)
class Step:
    """Nodes that run in one task per partition, at one level of the epoch."""

    number: int
    """That of the sub-topology; a later step of it has a number of its own."""
    level: int
    names: tuple[str, ...]


def steps_of(graph: TopologyGraph, groups: Sequence[Sequence[str]]) -> list[Step]:
    """The steps of all sub-topologies, the first ones of each in their order, then the later ones."""
    edges = _Edges(graph)
    edges.refuse_cycles()
    together = [*edges.writers_together, *groups]
    levels = edges.levels(together)
    if levels is None:
        levels = _divided(edges, groups)
    by_place: dict[int, list[Step]] = {}
    for number, names in enumerate(groups):
        for place, level in enumerate(sorted({levels[name] for name in names})):
            step = Step(
                number + place * _STRIDE, level, tuple(name for name in names if levels[name] == level)
            )
            by_place.setdefault(place, []).append(step)
    return [step for _, steps in sorted(by_place.items()) for step in steps]


def undivided_steps(graph: TopologyGraph, groups: Sequence[Sequence[str]]) -> list[Step]:
    """Every sub-topology as one step: for who takes one record at a time, and each to its end.

    The level of one that feeds itself means nothing there.
    """
    levels = {name: step.level for step in steps_of(graph, groups) for name in step.names}
    return [
        Step(number, min(levels[name] for name in names), tuple(names)) for number, names in enumerate(groups)
    ]


def _divided(edges: _Edges, groups: Sequence[Sequence[str]]) -> dict[str, int]:
    """Levels where some sub-topology has to be cut: as few are as can be, and as late as can be."""
    together: list[Sequence[str]] = [*edges.writers_together]

    def keep_together(names: Sequence[str]) -> bool:
        if edges.levels([*together, names]) is None:
            return False
        together.append(names)
        return True

    for names in groups:
        if not keep_together(names):
            inside = set(names)
            # Rows that cross are merged by time, copies show a table as it is at the end: rows cross first.
            for before, behind in (*reversed(edges.reads), *reversed(edges.rows)):
                if {before, behind} <= inside:
                    keep_together((before, behind))
    levels = edges.levels(together)
    assert levels is not None  # cycles were refused
    return levels


class _Edges:
    """What has to come behind what."""

    def __init__(self, graph: TopologyGraph) -> None:
        self._graph = graph
        self.writers_together: list[list[str]] = []
        """Nodes that write to one store."""
        self.reads: list[tuple[str, str]] = []
        """Who writes to a store, and who looks it up."""
        for store, users in graph.store_users.items():
            writers, readers = writers_and_readers(store, users)
            self.writers_together.append(writers)
            self.reads += [(writers[0], reader) for reader in readers]
        self.rows = [(parent, node.name) for node in graph.nodes.values() for parent in node.parents]
        repartitions = [(sink.name, source.name, True) for sink, source in graph.repartition_edges]
        self.all = [*((one, other, False) for one, other in (*self.reads, *self.rows)), *repartitions]
        """One node, one that comes not before it, and whether it comes behind a repartition."""

    def levels(self, together: Iterable[Sequence[str]]) -> dict[str, int] | None:
        """The lowest levels of all nodes, if some are to be at one level; None if that can't be."""
        sets: UnionFind[str] = UnionFind()
        for names in together:
            sets.unite(names)
        roots = {name: sets.find(name) for name in self._graph.nodes}
        found = dict.fromkeys(roots.values(), 0)
        highest = sum(through_repartition for _, _, through_repartition in self.all)
        changed = True
        while changed:
            changed = False
            for before, behind, through_repartition in self.all:
                level = found[roots[before]] + through_repartition
                if level > found[roots[behind]]:
                    if level > highest:
                        return None
                    found[roots[behind]] = level
                    changed = True
        return {name: found[root] for name, root in roots.items()}

    def refuse_cycles(self) -> None:
        """A row that went through a repartition must not lead back in front of it."""
        after: dict[str, list[str]] = {name: [] for name in self._graph.nodes}
        for before, behind, _ in self.all:
            after[before].append(behind)
        for writers in self.writers_together:
            for writer in writers:
                after[writer] += [other for other in writers if other != writer]
        for sink, source in self._graph.repartition_edges:
            path = _path(after, source.name, sink.name)
            if path is not None:
                raise _cycle(self._graph, sink, path)


def writers_and_readers(store: str, users: Sequence[ProcessorNode]) -> tuple[list[str], list[str]]:
    """Who writes to a store, and who only looks at it; if all do that, the first one counts as a writer."""
    writers = [user.name for user in users if user.spec.writes(store)]
    readers = [user.name for user in users if not user.spec.writes(store)]
    return (writers, readers) if writers else (readers[:1], readers[1:])


def _path(after: Mapping[str, Sequence[str]], start: str, end: str) -> list[str] | None:
    """The shortest way from one node to another."""
    came_from: dict[str, str | None] = {start: None}
    waiting = deque([start])
    while waiting:
        name = waiting.popleft()
        if name == end:
            path = [name]
            while (before := came_from[path[-1]]) is not None:
                path.append(before)
            return path[::-1]
        for child in after[name]:
            if child not in came_from:
                came_from[child] = name
                waiting.append(child)
    return None


def _cycle(graph: TopologyGraph, sink: SinkNode, path: Sequence[str]) -> TopologyError:
    places = "".join(f"\n  {name!r} ({graph.nodes[name].site})" for name in path)
    return TopologyError(
        f"the topology has a cycle through the repartition {sink.topic!r}: these operators wait for each "
        f"other within one epoch.{places}\n"
        "  Likely cause: an operator in front of the repartition and one behind it share a state store.\n"
        "  Remedy: give each a store of its own, or send the records through a topic with to() and stream()."
    )
