"""The benchmarks' own machinery, and that the document shows the results that are committed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.__main__ import CASES, DOCUMENT, RESULTS
from benchmarks.figures import Figure, Scale, at_least, at_most, measured, ratio, shown
from benchmarks.plot import bars
from benchmarks.report import write_report
from benchmarks.row_tier import row_tier

ROOT = Path(__file__).parents[1]


def test_a_figure_is_the_median_of_its_runs() -> None:
    assert measured("epoch", [3.0, 1.0, 2.0]).value == 2.0


def test_a_missed_goal_is_called_missed() -> None:
    assert at_most(Figure("epoch", 0.2, "s"), 0.15).verdict == "at most 150 ms: MISSED"
    assert at_least(Figure("speed", 5.0, "x"), 5).verdict == "at least 5.00x: met"


def test_a_ratio_compares_medians() -> None:
    assert ratio("times", measured("a", [4.0]), measured("b", [2.0])).value == 2.0


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (0.0312, "s", "31 ms"),
        (0.00072, "s", "0.72 ms"),
        (0.0095, "s", "10 ms"),
        (2.0, "s", "2.00 s"),
        (1_234_567.0, "records/s", "1.23M records/s"),
        (3.14159, "x", "3.14x"),
    ],
)
def test_values_are_shown_as_people_read_them(value: float, unit: str, expected: str) -> None:
    assert shown(value, unit) == expected


def test_a_plot_has_a_bar_for_every_figure() -> None:
    drawn = bars("group", [Figure("group: a", 1.0, "s"), Figure("group: b & c", 2.0, "s")])
    assert drawn.count("<rect") == 3  # the ground and two bars
    assert "b &amp; c" in drawn


def test_the_report_stands_between_its_markers(tmp_path: Path) -> None:
    document = tmp_path / "benchmarks.md"
    document.write_text("before\n<!-- generated: begin -->\nold\n<!-- generated: end -->\nafter\n")
    figure = at_most(Figure("row tier", 1.25, "x"), 1.6).as_dict()
    result = {"at": "2026-01-01", "machine": {"cores": "2"}, "figures": [figure]}
    write_report({"row_tier": result}, {"row_tier": "The row tier"}, document)
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "| row tier | 1.25x | at most 1.60x: met |" in text
    assert "old" not in text


def test_the_document_shows_the_committed_results(tmp_path: Path) -> None:
    results = {path.stem: json.loads(path.read_text()) for path in RESULTS.glob("*.json")}
    copy = tmp_path / "benchmarks.md"
    copy.write_text(DOCUMENT.read_text())
    write_report(results, CASES, copy)
    assert copy.read_text() == DOCUMENT.read_text()
    for plot in (tmp_path / "plots").glob("*.svg"):
        assert plot.read_text() == (DOCUMENT.parent / "plots" / plot.name).read_text()


def test_every_case_is_a_function_in_a_module_of_its_name() -> None:
    for name in CASES:
        assert f"def {name}(scale: Scale)" in (ROOT / "benchmarks" / f"{name}.py").read_text()


def test_the_loop_and_the_row_tier_give_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Scale, "of", lambda self, full, quick: 500 if full == 1_000_000 else 1)
    assert len(row_tier(Scale(quick=True))) == 9
