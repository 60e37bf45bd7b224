"""What a user sees in a terminal: `run`, `new`, `doctor` and `apps`, read back from the screen."""

from __future__ import annotations

from pathlib import Path

from tests.cli.project import MODULE, append, counted, project
from tests.cli.terminal import Terminal

__all__ = ["counted", "project"]

MILLSTREAM = ("-m", "millstream")


def test_a_run_shows_a_table_and_then_that_it_caught_up(project: Path) -> None:
    words = (*MILLSTREAM, "run", f"{MODULE}:topology", "--engine", "local", "--until", "caught-up")
    with Terminal(project, *words) as terminal:
        terminal.wait_for("starting the local engine")
        assert terminal.end() == 0
        assert len(terminal.screen) == 1, terminal.screen
        assert terminal.screen[0].startswith(f"{MODULE}: caught up, 6 records in ")


def test_a_run_for_ever_shows_a_live_table_until_ctrl_c(project: Path) -> None:
    with Terminal(project, *MILLSTREAM, "run", MODULE, "--engine", "local") as terminal:
        terminal.wait_for("records committed")
        terminal.wait_for("lag of words")
        append(["more"], start=6)
        terminal.wait_for(r"records committed +│ +7 │")
        assert any("records committed" in line for line in terminal.screen)
        terminal.press("\x03")
        assert terminal.end() == 0
        stopping, ended = terminal.screen  # the table is put away
        assert stopping == f"stopping {MODULE}, after what is at work"
        assert ended.startswith(f"{MODULE}: caught up, 7 records in ")
        assert "Traceback" not in terminal.plain


def test_a_quiet_run_shows_nothing(project: Path) -> None:
    words = (*MILLSTREAM, "run", MODULE, "--engine", "local", "--until", "caught-up", "--quiet")
    with Terminal(project, *words) as terminal:
        assert terminal.end() == 0
        assert terminal.plain == ""


def test_a_program_s_own_run_shows_it_as_well_and_its_prints_stay(project: Path) -> None:
    (project / "main.py").write_text(
        f"from {MODULE} import topology\n"
        "from millstream import Streams\n"
        "with Streams(topology, app_id='mine', engine='local') as app:\n"
        "    app.on_epoch(lambda result: print('epoch of', result.records))\n"
        "    app.run(until='caught-up')\n"
        "print('river', app.store('counts').get('river'))\n"
    )
    with Terminal(project, "main.py") as terminal:
        assert terminal.end() == 0
        assert terminal.screen[0] == "epoch of 6"
        assert terminal.screen[1].startswith("mine: caught up, 6 records in ")
        assert terminal.screen[2] == "river 3"


def test_a_project_is_made_and_the_doctor_looks_at_the_machine(tmp_path: Path) -> None:
    with Terminal(tmp_path, *MILLSTREAM, "new", "words") as terminal:
        assert terminal.end() == 0
        assert terminal.screen[0].startswith("Made words: words.py, test_words.py")
        assert "  millstream run words:topology --until caught-up" in terminal.screen
    with Terminal(tmp_path / "words", *MILLSTREAM, "doctor") as terminal:
        assert terminal.end() == 0
        assert terminal.screen[0].split()[:2] == ["ok", "python"]
        assert terminal.screen[-1].startswith("Millstream can run here")


def test_applications_are_listed_and_reset_after_a_question(counted: Path) -> None:
    with Terminal(counted, *MILLSTREAM, "apps", "list") as terminal:
        assert terminal.end() == 0
        assert terminal.screen[1].split()[:2] == [MODULE, "stopped"]
    with Terminal(counted, *MILLSTREAM, "apps", "reset", MODULE, "--to-earliest") as terminal:
        terminal.wait_for(r"Its state will be deleted. \[y/N\]: ")
        terminal.press("y\n")
        assert terminal.end() == 0
        assert f"Application '{MODULE}' is reset" in terminal.screen[-1]
