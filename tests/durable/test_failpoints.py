"""Failpoints: armed in process and by the environment, and a registry that can't rot."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from millstream import failpoints
from millstream.durable import create_exclusive

SOURCE = Path(failpoints.__file__).parent


def environment_of(armed: str) -> dict[str, str]:
    return {**os.environ, failpoints.ENVIRONMENT_VARIABLE: armed, "PYTHONPATH": str(SOURCE.parent)}


def run_armed(armed: str, code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = environment_of(armed)
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_hit_does_nothing_when_nothing_is_armed() -> None:
    failpoints.hit("durable.linked")


def test_every_name_has_one_sentence_of_meaning() -> None:
    for name, meaning in failpoints.REGISTRY.items():
        assert re.fullmatch(r"[a-z]+(\.[a-z_]+)+", name), name
        assert re.fullmatch(r"[A-Z][^.]+\.", meaning), (name, meaning)


def test_every_hit_in_the_source_is_registered_and_every_registered_name_is_hit() -> None:
    hit: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if ast.unparse(node.func) == "failpoints.hit" and isinstance(node.args[0], ast.Constant):
                hit.add(str(node.args[0].value))
    assert set(failpoints.REGISTRY) == hit


def test_hitting_or_arming_an_unregistered_name_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"'no\.such' is not a failpoint"):
        failpoints.hit("no.such")
    with pytest.raises(ValueError, match=r"'no\.such' is not a failpoint"), failpoints.armed("no.such"):
        pass


def test_an_armed_failpoint_raises_what_no_handler_of_errors_catches() -> None:
    assert not issubclass(failpoints.InjectedCrash, Exception)
    with failpoints.armed("durable.linked") as point, pytest.raises(failpoints.InjectedCrash):
        failpoints.hit("durable.linked")
    assert point.fired
    failpoints.hit("durable.linked")


def test_the_first_hits_can_be_skipped_and_a_process_dies_once() -> None:
    with failpoints.armed("durable.linked", skip=2) as point:
        failpoints.hit("durable.linked")
        failpoints.hit("durable.linked")
        with pytest.raises(failpoints.InjectedCrash):
            failpoints.hit("durable.linked")
        failpoints.hit("durable.linked")
    assert point.hits == 4


def test_arming_inside_arming_is_undone_in_order() -> None:
    calls: list[str] = []
    with failpoints.armed("durable.linked", lambda: calls.append("outer")):
        with failpoints.armed("durable.linked", lambda: calls.append("inner")):
            failpoints.hit("durable.linked")
        failpoints.hit("durable.linked")
    assert calls == ["inner", "outer"]


def test_a_torn_write_leaves_a_prefix(tmp_path: Path) -> None:
    create_exclusive(tmp_path / "first", [b"0123456789"])
    with failpoints.armed("durable.folder_synced", "torn-raise"):
        create_exclusive(tmp_path / "second", [b"0123456789"])
        with pytest.raises(failpoints.InjectedCrash):
            create_exclusive(tmp_path / "third", [b"0123456789"])
    assert (tmp_path / "third").read_bytes() == b"01234"
    create_exclusive(tmp_path / "fourth", [b"0123456789"])


def test_a_tear_that_met_no_write_is_forgotten_with_its_failpoint(tmp_path: Path) -> None:
    with failpoints.armed("durable.folder_synced", "torn-raise"):
        create_exclusive(tmp_path / "first", [b"0123456789"])
    create_exclusive(tmp_path / "second", [b"0123456789"])
    assert (tmp_path / "second").read_bytes() == b"0123456789"


CREATE_TWO = """
from pathlib import Path
from millstream.durable import create_exclusive
for name in ("first", "second"):
    create_exclusive(Path(name), [b"0123456789"])
    print(name, flush=True)
"""


@pytest.mark.parametrize(
    ("armed", "printed", "second"),
    [
        ("durable.file_written=kill", "", None),
        ("durable.file_written=kill@1", "first\n", b"0123456789"),
        ("durable.folder_synced=torn", "first\n", b"01234"),
    ],
)
def test_the_environment_arms_child_processes(
    tmp_path: Path, armed: str, printed: str, second: bytes | None
) -> None:
    done = run_armed(armed, CREATE_TWO, tmp_path)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, printed)
    path = tmp_path / "second"
    assert (path.read_bytes() if path.exists() else None) == second


def test_a_stopped_process_goes_on_when_it_is_told_and_is_stopped_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CREATE_TWO]
    child = subprocess.Popen(command, cwd=tmp_path, env=environment_of("durable.file_written=stop"))
    try:
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert [path.name for path in tmp_path.iterdir()] == ["first"]
        os.kill(child.pid, signal.SIGCONT)
        assert child.wait(60) == 0
    finally:
        child.kill()
    assert (tmp_path / "second").read_bytes() == b"0123456789"


@pytest.mark.parametrize("armed", ["durable.linked", "durable.linked=explode", "durable.linked=kill@x"])
def test_a_wrong_order_in_the_environment_says_what_is_right(armed: str) -> None:
    with pytest.raises(ValueError, match="not of the form name=action@skip"):
        failpoints.arm_from_environment(armed)


def test_an_unknown_action_is_an_error() -> None:
    with pytest.raises(ValueError, match="'explode' is not an action"):
        failpoints.armed("durable.linked", "explode").__enter__()  # type: ignore[arg-type]
