"""``millstream run``, ``describe``, ``new``, ``doctor``, ``log verify``, ``completion`` and ``python -m``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from tests.cli.project import MODULE, WORDS, counted, counts, project, rows_of, run_command, run_local

from millstream.cli.main import millstream

__all__ = ["counted", "project"]

SOURCE = Path(__file__).parents[2] / "src"


def test_a_program_is_run_from_its_module(project: Path) -> None:
    result = run_local()
    assert dict(counts()) == {"to": 1, "the": 2, "river": 3}
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"{MODULE}: ")
    assert f" {len(WORDS)} records" in last


def test_a_quiet_run_says_nothing(project: Path) -> None:
    assert run_local("--quiet").output == ""


def test_json_gives_the_figures_at_the_end(project: Path) -> None:
    (row,) = rows_of(run_local("--json", "--app-id", "other"))
    assert (row["application"], row["records"], row["state"]) == ("other", len(WORDS), "running")


@pytest.mark.parametrize("place", [f"{MODULE}:topology", MODULE, f"{MODULE}:build", f"{MODULE}.py:builder"])
def test_a_topology_may_be_a_variable_a_builder_or_a_function(project: Path, place: str) -> None:
    assert run_command("describe", place).stdout.startswith("Topologies:\n   Sub-topology: 0")


def test_a_topology_is_drawn_or_described_as_data(project: Path) -> None:
    assert run_command("describe", MODULE, "--mermaid").stdout.startswith("flowchart ")
    (plan,) = rows_of(run_command("describe", MODULE, "--json"))
    assert [sub["number"] for sub in plan["subtopologies"]] == [0, 1, 2]


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("nowhere:topology", "There is no module 'nowhere' in "),
        (f"{MODULE}:nothing", f"Module '{MODULE}' has no 'nothing'. Topologies in it: builder, topology."),
        (f"{MODULE}:serdes", "'serdes' in counting is a module, and no topology."),
        ("broken:topology", "Module 'broken' can't be imported: ZeroDivisionError: division by zero ("),
        (
            "unread",
            "Module 'unread' can't be imported: SyntaxError: '(' was never closed (unread.py, line 1). ",
        ),
        ("ended", "Module 'ended' can't be imported: SystemExit: 3 ("),
        (
            "makers:of_size",
            "'of_size' in makers can't be called without arguments: missing a required argument",
        ),
        ("makers:failing", "Function 'failing' of module 'makers' failed: KeyError: 'size' ("),
    ],
)
def test_what_is_no_program_is_explained(project: Path, place: str, told: str) -> None:
    (project / "broken.py").write_text("1 / 0\n")
    (project / "unread.py").write_text("topology = (\n")
    (project / "ended.py").write_text("raise SystemExit(3)\n")
    (project / "makers.py").write_text("def of_size(size): ...\n\n\ndef failing():\n    {}['size']\n")
    refused = run_command("describe", place, status=1).stderr
    assert told in refused
    assert "Traceback" not in refused


@pytest.mark.parametrize("place", ["/srv/shop.py", "../shop.py:topology"])
def test_a_program_outside_of_the_working_folder_is_refused(project: Path, place: str) -> None:
    assert "is outside of the working folder" in run_command("describe", place, status=2).stderr


def test_an_end_that_is_none_is_refused(project: Path) -> None:
    refused = run_command("run", MODULE, "--until", "tomorrow", status=2).stderr
    assert "'tomorrow' is neither caught-up nor a number of seconds." in refused


def test_a_new_project_s_test_and_program_run(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "MILLSTREAM_LOG": "file:./data"}

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=tmp_path / "my-words", env=environment, capture_output=True,
            text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    told = run_command("new", str(tmp_path / "my-words")).stderr
    assert "millstream run my_words:topology --until caught-up" in told
    assert "1 passed" in run("pytest", "-q", "-p", "no:cacheprovider")
    run("millstream", "topics", "create", "lines")
    run("millstream", "topics", "produce", "lines", "lines.txt")
    run("millstream", "run", "my_words:topology", "--engine", "local", "--until", "caught-up")
    assert run("millstream", "state", "top", "my_words", "counts", "-n", "2").splitlines() == [
        "key    value",
        "the        5",
        "river      4",
    ]


def test_a_new_project_says_how_to_get_what_its_test_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.cli.new.find_spec", lambda _name: None)
    said = run_command("new", str(tmp_path / "words")).stderr.splitlines()
    assert said[3:5] == ["  python -m pip install pytest", "  python -m pytest"]


def test_a_project_is_not_made_over_another_one(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "work.py").touch()
    assert (
        "is there already. Nothing was written."
        in run_command("new", str(tmp_path / "mine"), status=1).stderr
    )
    assert "can't name a Python module" in run_command("new", str(tmp_path / "1st"), status=2).stderr
    for taken in ("class", "json", "millstream"):
        assert "has already" in run_command("new", str(tmp_path / taken), status=2).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_the_doctor_finds_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    rows = {row["check"]: row for row in rows_of(run_command("doctor", "--json"))}
    assert {"python", "packages", "java", "settings", "machine", "log", "state", "scratch"} <= rows.keys()
    assert {rows[name]["verdict"] for name in ("python", "packages", "java", "settings")} == {"ok"}
    assert "(not there yet)" in rows["log"]["found"]
    assert not list(tmp_path.iterdir())


def test_the_doctor_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MILLSTREAM_TICK_MS", "none")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("# ours\nspark.speculation true\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    (tmp_path / "shared").mkdir(mode=0o777)
    (tmp_path / "shared").chmod(0o777)
    result = run_command("doctor", "--state-dir", "shared", status=1)
    assert "tick_ms is 'none', but it must be a whole number" in result.stdout
    assert "other users may write into it" in result.stdout
    assert "chmod 700 shared" in result.stdout
    assert "spark-defaults.conf has spark.speculation true" in result.stdout
    assert "checks failed; what to do is said above." in result.stderr


def test_a_log_that_is_whole_is_verified(counted: Path) -> None:
    assert run_command("log", "verify").stderr.startswith("The log is whole: 8 partitions and applications, ")
    rows = rows_of(run_command("log", "verify", "--json"))
    assert [row["damage"] for row in rows] == [None] * len(rows)


def test_a_flipped_bit_is_found_and_it_is_said_what_to_do(counted: Path) -> None:
    segment = max(
        (counted / "millstream-data" / "topics" / "words" / "1").iterdir(), key=lambda p: p.stat().st_size
    )
    data = bytearray(segment.read_bytes())
    data[-100] ^= 1
    segment.write_bytes(data)
    result = run_command("log", "verify", status=1)
    assert result.stdout.startswith("words-1: The block at ")
    assert "checksum" in result.stdout
    assert "Remedy: stop the applications that use them, restore the log's folder" in result.stderr


def test_a_missing_sealed_file_is_found(counted: Path) -> None:
    for path in (counted / "millstream-data" / "sealed").rglob("1_0*"):
        path.unlink()
    result = run_command("log", "verify", status=1)
    assert "is missing" in result.stdout
    assert f"application {MODULE}" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete(shell: str) -> None:
    assert "_MILLSTREAM_COMPLETE" in run_command("completion", shell).stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["topics", "describe", ""], ["word-counts", "words"]),
        (["topics", "consume", "word-"], ["word-counts"]),
        (["topics", "compact", "words", ""], ["word-counts"]),
        (["apps", "lag", ""], [MODULE]),
        (["apps", "reset", MODULE, "--topic", "words"], ["words"]),
        (["state", "get", MODULE, ""], ["counts", "per-window"]),
        (["state", "clean", ""], [MODULE]),
        (["state", "show", MODULE, "0"], ["0_0", "0_1"]),
        (["state", "top", "nobody", ""], []),
        (["topics", "describe", "--log", "file:nowhere", ""], []),
        (["run", "--engine", "r"], ["resident"]),
    ],
)
def test_names_are_completed_that_are_there(counted: Path, typed: list[str], offered: list[str]) -> None:
    shell = ShellComplete(millstream, {}, "millstream", "_MILLSTREAM_COMPLETE")
    assert [one.value for one in shell.get_completions(typed[:-1], typed[-1])] == offered


def test_a_shell_is_asked_for_the_files_of_programs() -> None:
    shell = ShellComplete(millstream, {}, "millstream", "_MILLSTREAM_COMPLETE")
    assert [(one.value, one.type) for one in shell.get_completions(["run"], "wo")] == [("wo", "file")]


def commands(group: click.Group, *words: str) -> dict[str, click.Command]:
    context = click.Context(group)
    found: dict[str, click.Command] = {}
    for name in group.list_commands(context):
        one = group.get_command(context, name)
        assert one is not None
        found |= (
            commands(one, *words, name) if isinstance(one, click.Group) else {" ".join([*words, name]): one}
        )
    return found


def test_every_command_has_an_example_and_speaks_json() -> None:
    every = commands(millstream)
    assert [name for name, one in every.items() if "Example" not in (one.help or "")] == []
    mute = [name for name, one in every.items() if not any("--json" in option.opts for option in one.params)]
    assert mute == ["completion"]  # prints a program


def test_the_command_is_a_module_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "millstream", "--help"],
        env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    for command in ("apps", "completion", "describe", "doctor", "log", "new", "run", "state", "topics"):
        assert f"\n  {command} " in done.stdout
