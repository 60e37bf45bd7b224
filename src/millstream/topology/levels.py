"""At which level of an epoch each sub-topology runs: after all that it gets repartitioned rows from.

A sub-topology may feed itself through a repartition, as long as no node waits for itself: the topology
is cut at the repartition. What can't be cut is a cycle of writes, when nodes in front of and behind a
repartition share a store: it is refused, with the cycle shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from millstream.errors import TopologyError
from millstream.topology.graph import TopologyGraph
from millstream.topology.nodes import SinkNode


def levels(graph: TopologyGraph, groups: Sequence[Sequence[str]]) -> list[int]:
    """The level of each group of nodes."""
    _refuse_cycles(graph)
    number_of = {name: number for number, names in enumerate(groups) for name in names}
    feeds: dict[int, set[int]] = {}
    for sink, source in graph.repartition_edges:
        writer, reader = number_of[sink.name], number_of[source.name]
        if writer != reader:
            feeds.setdefault(reader, set()).add(writer)
    found: dict[int, int] = {}

    def level_of(number: int, above: frozenset[int]) -> int:
        if number not in found:
            writers = [writer for writer in feeds.get(number, ()) if writer not in above]
            deepest = max((level_of(writer, above | {number}) for writer in writers), default=-1)
            found[number] = deepest + 1
        return found[number]

    return [level_of(number, frozenset()) for number in range(len(groups))]


def _refuse_cycles(graph: TopologyGraph) -> None:
    """A row that went through a repartition must not lead back in front of it."""
    after: dict[str, list[str]] = {name: [] for name in graph.nodes}
    for node in graph.nodes.values():
        for parent in node.parents:
            after[parent].append(node.name)
    for sink, source in graph.repartition_edges:
        after[sink.name].append(source.name)
    for sharing in graph.store_users.values():
        for user in sharing:
            after[user.name] += [other.name for other in sharing if other is not user]
    for sink, source in graph.repartition_edges:
        path = _path(after, source.name, sink.name)
        if path is not None:
            raise _cycle(graph, sink, path)


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
