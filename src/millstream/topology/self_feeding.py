"""How a sub-topology feeds itself: the way from a repartition back to itself, drawn for errors.

Its nodes are one sub-topology because edges or stores lead from those behind the repartition to those in
front of it. The shortest such way is what a user has to cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from millstream.topology.nodes import ProcessorNode, SinkNode, SourceNode

if TYPE_CHECKING:
    from millstream.topology.plan import SubTopology


def drawn_cycle(sub: SubTopology) -> str:
    """One node a line, with an arrow in the direction of the records, and the user's line that made it."""
    source, sink = next(
        (source, sink) for sink in sub.sinks for source in sub.sources if sink.topic in source.topics
    )
    lines = [
        f"\n  {arrow:>3} {name!r} ({sub.nodes[name].site})"
        for arrow, name in _shortest_way(sub, source, sink)
    ]
    return "".join(lines) + f"\n  --> {sink.topic!r}, which the first of them reads"


def _shortest_way(sub: SubTopology, start: SourceNode, end: SinkNode) -> list[tuple[str, str]]:
    """Each node with how it is reached: an edge down, an edge up, or a store that both use."""
    came_by: dict[str, tuple[str, str]] = {start.name: ("", "")}
    waiting = deque([start.name])
    while end.name not in came_by:
        name = waiting.popleft()
        for arrow, other in _neighbours(sub, name):
            if other not in came_by:
                came_by[other] = (arrow, name)
                waiting.append(other)
    way, name = list[tuple[str, str]](), end.name
    while name:
        arrow, before = came_by[name]
        way.append((arrow, name))
        name = before
    return way[::-1]


def _neighbours(sub: SubTopology, name: str) -> Iterator[tuple[str, str]]:
    node = sub.nodes[name]
    for child in sub.children[name]:
        yield "-->", child
    for parent in node.parents:
        yield "<--", parent
    stores = node.spec.stores if isinstance(node, ProcessorNode) else ()
    for other, connected in sub.connections.items():
        if other != name and not {*stores}.isdisjoint(connected):
            yield "<->", other
