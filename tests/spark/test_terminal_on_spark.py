"""What a user sees of a run on Spark in a terminal, where Ctrl-C is heard by every process of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.project import MODULE, project
from tests.cli.terminal import Terminal

__all__ = ["project"]

pytestmark = pytest.mark.xdist_group("spark")


def test_a_run_is_shown_from_its_start_to_ctrl_c_and_spark_says_nothing(project: Path) -> None:
    with Terminal(project, "-m", "millstream", "run", MODULE) as terminal:
        terminal.wait_for(rf"{MODULE}: starting Spark, \d+ s")
        terminal.wait_for(r"records committed +│ +6 │")
        terminal.press("\x03")
        assert terminal.end() == 0
        stopping, ended = terminal.screen
        assert stopping == f"stopping {MODULE}, after what is at work"
        assert ended.startswith(f"{MODULE}: caught up, 6 records in ")
