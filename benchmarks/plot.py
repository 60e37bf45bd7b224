"""Bar charts as SVG: no library needed, and a diff of them can be read."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from benchmarks.figures import Figure, shown

__all__ = ["bars"]

_SVG = "http://www.w3.org/2000/svg"
_WIDTH, _LABEL, _BAR, _GAP, _TOP = 760, 330, 22, 8, 34
_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1")


def bars(title: str, figures: Sequence[Figure]) -> str:
    """Horizontal bars, each with its name and value."""
    height = _TOP + len(figures) * (_BAR + _GAP) + _GAP
    longest = max(figure.value for figure in figures) or 1.0
    room = _WIDTH - _LABEL - 120
    lines = [
        f'<svg xmlns="{_SVG}" width="{_WIDTH}" height="{height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="8" y="20" font-weight="bold">{escape(title)}</text>',
    ]
    for number, figure in enumerate(figures):
        top = _TOP + number * (_BAR + _GAP)
        length = max(1, round(room * figure.value / longest))
        middle = top + _BAR // 2 + 5
        colour = _COLOURS[number % len(_COLOURS)]
        name = figure.name.removeprefix(f"{title}: ")
        lines += [
            f'<text x="{_LABEL - 8}" y="{middle}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{_LABEL}" y="{top}" width="{length}" height="{_BAR}" fill="{colour}"/>',
            f'<text x="{_LABEL + length + 6}" y="{middle}">{escape(shown(figure.value, figure.unit))}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])
