"""Tables and plots out of raw results: `docs/benchmarks.md` between its markers, and SVG files beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, shown
from benchmarks.plot import bars

__all__ = ["write_report"]

_BEGIN, _END = "<!-- generated: begin -->", "<!-- generated: end -->"


def write_report(results: Mapping[str, Mapping[str, Any]], titles: Mapping[str, str], document: Path) -> None:
    """Put what was found into the document."""
    text = document.read_text(encoding="utf-8")
    before, after = text[: text.index(_BEGIN) + len(_BEGIN)], text[text.index(_END) :]
    parts = [_summary(results, titles)]
    for name, title in titles.items():
        if name in results:
            parts.append(_section(name, title, results[name], document.parent))
    document.write_text(f"{before}\n\n" + "\n".join(parts) + f"\n{after}", encoding="utf-8")


def _summary(results: Mapping[str, Mapping[str, Any]], titles: Mapping[str, str]) -> str:
    lines = ["## Goals", "", "| figure | measured | goal |", "|---|---:|---|"]
    for name in titles:
        figures = _figures(results.get(name, {}))
        lines += [_row(figure) for figure in figures if figure.goal is not None]
    return "\n".join(lines) + "\n"


def _section(name: str, title: str, result: Mapping[str, Any], folder: Path) -> str:
    figures = _figures(result)
    machine = "; ".join(f"{key} {value}" for key, value in result["machine"].items())
    lines = [f"## {title}", ""]
    groups: dict[str, list[Figure]] = {}
    for figure in figures:
        if figure.group:
            groups.setdefault(figure.group, []).append(figure)
    for group, members in groups.items():
        file = f"{name}-{re.sub(r'[^a-z0-9]+', '-', group.lower()).strip('-')}.svg"
        (folder / "plots").mkdir(exist_ok=True)
        (folder / "plots" / file).write_text(bars(group, members), encoding="utf-8")
        lines += [f"![{group}](plots/{file})", ""]
    lines += ["| figure | measured | goal |", "|---|---:|---|", *map(_row, figures), ""]
    lines.append(f"Measured {result['at']}. {machine}.")
    return "\n".join(lines) + "\n"


def _row(figure: Figure) -> str:
    return f"| {figure.name} | {shown(figure.value, figure.unit)} | {figure.verdict} |"


def _figures(result: Mapping[str, Any]) -> list[Figure]:
    return [Figure(**figure) for figure in result.get("figures", ())]
