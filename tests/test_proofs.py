"""Documents prove what they say: the tests that they name exist, and their claims name them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
DOCUMENT = DOCS / "state.md"
PROVEN = {DOCUMENT: 40, DOCS / "guarantees.md": 15}
"""Each document, and how many proofs it has at least."""
PROOF = re.compile(r"\[`((?:test_|Test)\w+)`\]\(([^)\s]+\.py)\)")


def names_in(file: Path) -> set[str]:
    """The names that a file defines."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    machines = {
        target.id
        for node in body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return functions | machines


def tables(text: str) -> list[list[str]]:
    """The rows of each table, its header first."""
    blocks = re.findall(r"(?:^\|.*\|$\n?)+", text, re.MULTILINE)
    return [block.strip().splitlines() for block in blocks]


@pytest.mark.parametrize("document", PROVEN, ids=lambda document: document.stem)
def test_every_test_that_is_named_exists(document: Path) -> None:
    proofs = PROOF.findall(document.read_text(encoding="utf-8"))
    files = {path: names_in((document.parent / path).resolve()) for _, path in proofs}
    assert [f"{name} in {path}" for name, path in proofs if name not in files[path]] == []
    assert len(proofs) > PROVEN[document]


@pytest.mark.parametrize("document", PROVEN, ids=lambda document: document.stem)
def test_no_test_is_named_without_a_link(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    named = set(re.findall(r"\b(?:test_\w+|Test[A-Z]\w+)\b(?!\.py)", text))
    assert named == {name for name, _ in PROOF.findall(text)}


@pytest.mark.parametrize("document", PROVEN, ids=lambda document: document.stem)
def test_every_claim_in_a_table_has_a_proof(document: Path) -> None:
    claims = 0
    for header, _, *rows in tables(document.read_text(encoding="utf-8")):
        if header.endswith("| proof |"):
            assert [row for row in rows if not PROOF.search(row)] == []
            claims += len(rows)
    assert claims > 10


def test_every_item_of_a_list_has_a_proof() -> None:
    items = re.findall(r"^- .*(?:\n  .*)*", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert [item for item in items if not PROOF.search(item)] == []
    assert len(items) > 5
