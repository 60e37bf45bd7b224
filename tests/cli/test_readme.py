"""The commands of the README, typed one after the other; what they need of Spark is run in this process."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
from functools import partial
from pathlib import Path

import pytest
from tests.cli.project import run_command

import millstream

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_word_count_of_the_readme_runs_as_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    topology, application = re.findall(
        r"^```python(?: no-run)?\n(.*?)^```$", README, re.DOTALL | re.MULTILINE
    )[:2]
    (tmp_path / "counting.py").write_text(topology + application)
    (tmp_path / "examples").mkdir()
    shutil.copy(ROOT / "examples" / "river.txt", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(millstream, "Streams", partial(millstream.Streams, engine="local"))
    block = next(
        text
        for text in re.findall(r"^```\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
        if "produce" in text
    )
    shown = ""
    for line in block.splitlines():
        words = shlex.split(line)
        if words[0] == "millstream":
            shown = run_command(*words[1:]).stdout
        elif words == ["python", "counting.py"]:
            runpy.run_path("counting.py", run_name="__main__")
    river = (tmp_path / "examples" / "river.txt").read_text(encoding="utf-8").lower()
    count = len(re.findall(r"\briver\b", river))
    assert capsys.readouterr().out.splitlines()[-1] == str(count)
    assert f"river = {count}" in shown.splitlines()
