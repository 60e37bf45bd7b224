"""The documents: links lead somewhere, paths and functions that they name exist, and their Python runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "millstream"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

PATH = re.compile(r"`((?:[\w.-]+/)*[\w.-]+\.py)(?::([\w.]+))?`")
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")


@dataclass(frozen=True, slots=True)
class Fence:
    """A block between ``` lines."""

    line: int
    language: str
    text: str
    closed: bool


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def fences(document: Path) -> Iterator[Fence]:
    start, language, lines = 0, "", list[str]()
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("```"):
            lines.append(line)
        elif start and line == "```":
            yield Fence(start, language, "\n".join(lines), closed=True)
            start = 0
        elif not start:
            start, language, lines = number, line[3:], []
    if start:
        yield Fence(start, language, "\n".join(lines), closed=False)


def prose(document: Path) -> str:
    """The text without its blocks."""
    return re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(document: Path) -> set[str]:
    """The names that headings can be linked by, as code hosts make them."""
    headings = re.findall(r"^#+ (.*)$", prose(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def defines(source: Path, name: str) -> bool:
    """Whether a file has a class, function, method or variable of that dotted name."""
    body: list[ast.stmt] = ast.parse(source.read_text(encoding="utf-8")).body
    for part in name.split("."):
        found = next((node for node in body if part in names_bound_by(node)), None)
        if found is None:
            return False
        body = getattr(found, "body", [])
    return True


def names_bound_by(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(document: Path) -> None:
    for link in LINK.findall(prose(document)):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors(target), f"{link}: there is no such heading"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_paths_and_functions_exist(document: Path) -> None:
    for path, name in PATH.findall(document.read_text(encoding="utf-8")):
        files = [folder / path for folder in (PACKAGE, ROOT) if (folder / path).is_file()]
        if "/" not in path:
            files += ROOT.glob(f"src/**/{path}")
        assert files, f"there is no {path}"
        assert not name or any(defines(file, name) for file in files), f"{path} has no {name}"


def test_the_life_of_a_record_passes_the_stations() -> None:
    text = (ROOT / "docs" / "life_of_a_record.md").read_text(encoding="utf-8")
    stations = [
        "dsl/builder.py:StreamsBuilder.stream",
        "topology/plan.py:make_plan",
        "task/task.py:Task.process",
        "processors/stateless.py:FlatMapValues.process",
        "state/stores/overlay.py:Overlay.get_many",
        "commit/seal_group.py:SealGroup.seal",
    ]
    places = [text.index(f"`{station}`") for station in stations]
    assert places == sorted(places)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_blocks_are_closed(document: Path) -> None:
    for fence in fences(document):
        assert fence.closed, f"the block at line {fence.line} is not closed"
        if fence.language == "mermaid":
            assert fence.text.startswith("flowchart "), f"line {fence.line}"
            ends = re.findall(r"^\s*end$", fence.text, re.MULTILINE)
            assert fence.text.count("subgraph ") == len(ends), f"line {fence.line}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_python_runs(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": document.stem}
    for fence in fences(document):
        if fence.language == "python":
            program = compile("\n" * fence.line + fence.text, name_of(document), "exec", dont_inherit=True)
            exec(program, names)  # noqa: S102 - our own documents
    for name, thing in names.items():
        assert not name.startswith("test_") or callable(thing)


def test_every_document_is_listed() -> None:
    index = ROOT / "docs" / "index.md"
    listed = {(index.parent / link).resolve() for link in LINK.findall(prose(index))}
    unlisted = set(ROOT.glob("docs/**/*.md")) - {index} - listed
    assert not unlisted, "add them to docs/index.md"
