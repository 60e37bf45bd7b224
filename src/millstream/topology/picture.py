"""A topology as a picture, for notebooks: an SVG without scripts, fonts or links.

A block per sub-topology, from the top to the bottom; in it a row for each step away from a source. Dashed
lines are repartitions: what leaves one block and comes into another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Final

from millstream.topology.graph import TopologyGraph, described_parents, is_described
from millstream.topology.grouping import node_groups
from millstream.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode

__all__ = ["picture"]

_LETTER: Final = 6.7
_HEIGHT: Final = 38
_GAP: Final = 24
_MARGIN: Final = 16
_TITLE: Final = 18
_FILLS: Final = {SourceNode: "#e3f0ff", ProcessorNode: "#ffffff", SinkNode: "#e6f6e6"}
_STYLE: Final = "font-family:monospace;font-size:11px"


@dataclass(frozen=True, slots=True)
class _Box:
    node: Node
    left: float
    top: float
    width: float

    @property
    def above(self) -> tuple[float, float]:
        """Where lines end."""
        return self.left + self.width / 2, self.top

    @property
    def below(self) -> tuple[float, float]:
        """Where lines begin."""
        return self.left + self.width / 2, self.top + _HEIGHT


def picture(graph: TopologyGraph) -> str:
    """The topology as SVG."""
    boxes: dict[str, _Box] = {}
    frames: list[tuple[str, float, float, float]] = []
    top, right = float(_MARGIN), 0.0
    for number, names in enumerate(node_groups(graph)):
        shown = [name for name in names if is_described(graph.nodes[name])]
        placed = list(_placed(graph, shown, top + _TITLE))
        boxes.update({box.node.name: box for box in placed})
        bottom = max(box.top for box in placed) + _HEIGHT + _MARGIN
        width = max(box.left + box.width for box in placed) + _MARGIN
        frames.append((f"Sub-topology {number}", top, width, bottom - top))
        top, right = bottom + _GAP, max(right, width)
    parts = [*_frames(frames), *_lines(graph, boxes), *map(_drawn, boxes.values())]
    size = f'width="{right + _MARGIN:.0f}" height="{top:.0f}"'
    arrow = (
        '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>'
    )
    body = "".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} style="{_STYLE}">{arrow}{body}</svg>'


def _placed(graph: TopologyGraph, names: list[str], top: float) -> Iterator[_Box]:
    depth: dict[str, int] = {}
    ends: dict[int, float] = {}
    for name in names:
        node = graph.nodes[name]
        row = 1 + max(
            (depth[parent] for parent in described_parents(graph, node) if parent in depth), default=-1
        )
        depth[name] = row
        left = ends.get(row, float(_MARGIN)) + _MARGIN
        width = _LETTER * max(len(line) for line in _texts(node)) + 16
        ends[row] = left + width
        yield _Box(node, left, top + row * (_HEIGHT + _GAP) + 8, width)


def _frames(frames: list[tuple[str, float, float, float]]) -> Iterator[str]:
    for title, top, width, height in frames:
        yield (
            f'<rect x="{_MARGIN}" y="{top:.0f}" width="{width - _MARGIN:.0f}" height="{height:.0f}" rx="6" '
            'fill="#fafafa" stroke="#bbb"/>'
            f'<text x="{_MARGIN + 8}" y="{top + 14:.0f}" fill="#777">{title}</text>'
        )


def _lines(graph: TopologyGraph, boxes: dict[str, _Box]) -> Iterator[str]:
    for name, box in boxes.items():
        for parent in described_parents(graph, graph.nodes[name]):
            if parent in boxes:
                yield _line(boxes[parent], box, "")
    for sink, source in graph.repartition_edges:
        yield _line(boxes[sink.name], boxes[source.name], ' stroke-dasharray="4 3"')


def _line(one: _Box, other: _Box, style: str) -> str:
    (x1, y1), (x2, y2) = one.below, other.above
    return (
        f'<line x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}" stroke="#555" '
        f'marker-end="url(#a)"{style}/>'
    )


def _drawn(box: _Box) -> str:
    first, second = _texts(box.node)
    fill = _FILLS[type(box.node)]
    return (
        f'<rect x="{box.left:.0f}" y="{box.top:.0f}" width="{box.width:.0f}" height="{_HEIGHT}" rx="4" '
        f'fill="{fill}" stroke="#555"/>'
        f'<text x="{box.left + 8:.0f}" y="{box.top + 16:.0f}">{escape(first)}</text>'
        f'<text x="{box.left + 8:.0f}" y="{box.top + 30:.0f}" fill="#666">{escape(second)}</text>'
    )


def _texts(node: Node) -> tuple[str, str]:
    """What stands in a box: the node's name, and its topics or stores."""
    if isinstance(node, SourceNode):
        topics = node.pattern.pattern if node.pattern else ", ".join(node.topics)
        return node.name, f"from {topics}"
    if isinstance(node, SinkNode):
        return node.name, f"to {node.topic if node.topic is not None else '(chosen per record)'}"
    stores = ", ".join(node.spec.shown_stores)
    return node.name, f"store {stores}" if stores else ""
