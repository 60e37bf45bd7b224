"""The examples run, say the truth, and are what the README shows."""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.example_programs import EXAMPLES, FOLDER, Example

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
EXAMPLE = ROOT / "examples" / "wordcount.py"
TEXT = ROOT / "examples" / "river.txt"

MOST_LINES = 15
MOST_EXAMPLE_LINES = 40

Program = list[ast.stmt]


def run_example(example: Path = EXAMPLE, **environment: str) -> str:
    """What the example prints when its output is a pipe."""
    done = subprocess.run(
        [sys.executable, str(example)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
        capture_output=True,
        check=True,
        timeout=60,
    )
    return done.stdout.decode()


def printed_rows(printed: str) -> list[tuple[str, int]]:
    return [(word, int(count)) for word, count in re.findall(r"(\w+)\s*[│|]\s*(\d+)", printed)]


def readme_program() -> str:
    """The first Python block of the README."""
    match = re.search(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert match is not None
    return match[1]


def imports_and_rest(program: str) -> tuple[set[str], list[str]]:
    """The names that a program imports, and its other statements in a form that formatting leaves alone."""
    body: Program = ast.parse(program).body
    names = {
        f"{statement.module}.{alias.name}" if isinstance(statement, ast.ImportFrom) else alias.name
        for statement in body
        if isinstance(statement, ast.Import | ast.ImportFrom)
        for alias in statement.names
    }
    rest = [
        ast.dump(statement) for statement in body if not isinstance(statement, ast.Import | ast.ImportFrom)
    ]
    return names, rest


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_word_count_prints_the_counts_that_another_way_of_counting_gives(encoding: str) -> None:
    words = Counter(re.findall(r"\w+", TEXT.read_text(encoding="utf-8").lower()))
    expected = sorted(words.items(), key=lambda item: (-item[1], item[0]))[:10]
    printed = run_example(PYTHONIOENCODING=encoding)
    assert expected == printed_rows(printed)
    assert f"{words.total()} words, {len(words)} of them different" in printed


def test_the_shops_took_in_what_their_orders_say() -> None:
    rows = re.findall(r"(\w+)\s*[│|]\s*(\d+\.\d+)", run_example(ROOT / "examples" / "shop_totals.py"))
    assert rows == [("harbour", "5.00"), ("north", "7.50"), ("south", "18.50")]


def test_the_visits_are_those_that_the_clicks_make() -> None:
    printed = run_example(ROOT / "examples" / "click_sessions.py")
    rows = re.findall(r"(\w+) *[│|] (\S+) [│|] (\S+) [│|] (.*?) *[│|]\n", printed)
    assert rows == [
        ("bob", "09:05", "09:05", "home"),
        ("ann", "09:00", "09:50", "home pay cart"),
        ("bob", "11:00", "11:00", "search"),
    ]


def test_each_minute_that_was_too_hot_raises_one_alarm() -> None:
    printed = run_example(ROOT / "examples" / "sensor_alarms.py")
    rows = re.findall(r"(\w+)\s*[│|]\s*(\d+)\s*[│|]\s*(\d+\.\d+)", printed)
    assert rows == [("boiler", "0", "82.0"), ("boiler", "1", "90.0")]
    assert "1 reading came too late" in printed


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_gives_what_it_promises(example: Example) -> None:
    assert example.run_by_the_driver() == {topic: dict(rows) for topic, rows in example.expected.items()}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_is_short_and_prints_its_results(
    example: Example, capsys: pytest.CaptureFixture[str]
) -> None:
    path = FOLDER / f"{example.name}.py"
    text = path.read_text(encoding="utf-8").splitlines()
    program = [
        one for one in ast.parse("\n".join(text)).body[1:] if not isinstance(one, ast.Import | ast.ImportFrom)
    ]
    lines = [line for one in program for line in text[one.lineno - 1 : one.end_lineno] if line.strip()]
    assert 15 <= len(lines) <= MOST_EXAMPLE_LINES
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize(
    ("example", "printed"),
    [
        (
            "late_payments.py",
            "o-1: a book, by card\no-3: a pen, by cheque\no-2: a lamp, unpaid\no-4: a chair, unpaid\n",
        ),
        (
            "price_at_the_time.py",
            "09:00  bread    5.00\n13:00  bread    3.00\n11:00  milk     4.80\n10:00  bread   25.00\n",
        ),
        (
            "orders_of_customers.py",
            (
                "o-1: book to Rome\no-3: pen to Rome\no-2: lamp to Lima\n"
                "o-1: book to Oslo\no-3: pen to Oslo\no-1: book to Lima\n"
            ),
        ),
        ("fan_out.py", "bob: no oil in hall-1\ndora: no oil in hall-1\ncid: hot in hall-2\n"),
    ],
)
def test_the_joins_give_what_their_data_says(example: str, printed: str) -> None:
    assert run_example(ROOT / "examples" / example) == printed


def test_the_readme_shows_the_word_count_in_few_lines() -> None:
    assert len(readme_program().splitlines()) <= MOST_LINES


def test_the_readme_shows_what_the_example_runs() -> None:
    shown_imports, shown = imports_and_rest(readme_program())
    run_imports, run = imports_and_rest(EXAMPLE.read_text(encoding="utf-8"))
    start = run.index(shown[0])
    assert shown == run[start : start + len(shown)]
    assert shown_imports <= run_imports


def test_make_knows_the_commands_that_the_readme_names() -> None:
    named = set(re.findall(r"^make (\w+)", README.read_text(encoding="utf-8"), re.MULTILINE))
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


def test_the_notebook_has_the_outputs_that_its_cells_give() -> None:
    notebook = json.loads((FOLDER / "shops.ipynb").read_text(encoding="utf-8"))
    cells = runpy.run_path(str(FOLDER / "run_notebook.py"))["executed"](notebook)["cells"]
    assert [cell.get("outputs") for cell in cells] == [cell.get("outputs") for cell in notebook["cells"]]
    assert sum(bool(cell.get("outputs")) for cell in cells) == 4
