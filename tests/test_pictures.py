"""The pictures of the documents are what the library does today."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"pictures_of_{name}", PICTURES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for theirs
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PICTURES)  # where a script is, there is what it imports
        spec.loader.exec_module(module)
    return module


WINDOWS, JOINS = script("windows"), script("joins")
RECORDING = script("kill_and_resume")
STAGES = script("nine_stages")


@pytest.mark.parametrize("picture", WINDOWS.PICTURES, ids=lambda picture: str(picture.name))
def test_a_picture_of_windows_is_drawn_from_what_comes_out(picture: object) -> None:
    drawn = WINDOWS.drawn(picture, WINDOWS.outcome(picture))
    assert (PICTURES / f"{picture.name}.svg").read_text(encoding="utf-8") == drawn  # type: ignore[attr-defined]


@pytest.mark.parametrize("picture", JOINS.PICTURES, ids=lambda picture: str(picture.name))
def test_a_picture_of_a_join_is_drawn_from_what_comes_out(picture: object) -> None:
    drawn = JOINS.drawn(picture, JOINS.outcome(picture))
    assert (PICTURES / f"{picture.name}.svg").read_text(encoding="utf-8") == drawn  # type: ignore[attr-defined]


def test_a_versioned_table_gives_a_late_record_the_row_of_its_time() -> None:
    late = {
        picture.name: JOINS.outcome(picture)[-1].label
        for picture in JOINS.PICTURES
        if picture.name in {"stream_table", "versioned_table"}
    }
    assert late == {
        "stream_table": "bread: 3 loaves + 3.00 @6",
        "versioned_table": "bread: 3 loaves + 2.50 @6",
    }


def test_a_record_that_is_late_is_in_no_window() -> None:
    [tumbling] = [picture for picture in WINDOWS.PICTURES if picture.name == "tumbling"]
    found = WINDOWS.outcome(tumbling)
    assert found.late == {"f"}
    assert all("f" not in records for records in found.windows.values())


def test_the_recording_of_the_readme_ends_with_nothing_lost() -> None:
    recorded = (PICTURES / "kill_and_resume.svg").read_text(encoding="utf-8")
    assert "lost 0, counted twice 0" in recorded
    assert "kill -9" in recorded
    readme = (PICTURES.parents[1] / "README.md").read_text(encoding="utf-8")
    assert "docs/pictures/kill_and_resume.svg" in readme


def test_lines_of_a_recording_appear_one_after_the_other() -> None:
    svg = RECORDING.drawn([(0.0, "typed", "$ a <b>"), (1.5, "good", "done")])
    assert svg.count("<text ") == 2
    assert "$ a &lt;b&gt;" in svg
    assert "shown 0.05s 1.5s backwards" in svg


def test_of_a_long_run_a_few_lines_are_shown() -> None:
    lines = [
        (0.0, "typed", "$ run"),
        *((1.0 + at, "figures", f"line {at}") for at in range(31)),
        (32.0, "good", "done"),
    ]
    shown = RECORDING.shortened(lines)
    assert [text for _, _, text in shown] == ["$ run", "line 0", "line 10", "line 20", "line 30", "done"]
    assert [moment for moment, _, _ in shown] == [0.0, 1.0, 2.2, 3.4, 4.6, 5.6]


def test_the_nine_stages_are_drawn_from_the_tables_of_a_run() -> None:
    stages = json.loads((PICTURES / "nine_stages.json").read_text(encoding="utf-8"))
    assert [number for number, _, _ in stages] == [*range(1, 10)]
    assert (PICTURES / "nine_stages.svg").read_text(encoding="utf-8") == STAGES.drawn(stages)
