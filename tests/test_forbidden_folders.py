"""Folders that may not be read or written, as the system itself refuses them: in a process without rights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from tempfile import TemporaryDirectory

import pytest

PROGRAM = """
import json, os, sys
from pathlib import Path
from click.testing import CliRunner
from millstream import Streams, StreamsBuilder, StreamsConfig, serdes
from millstream.cli.main import millstream
from millstream.errors import MillstreamError
from millstream.log import Producer, open_log

def prepared(here):
    here.mkdir()
    log = open_log(here / "log")
    log.create_topic("in")
    with Producer(log, "in") as producer:
        producer.send(b"k", b"v")

def run(here, state_dir):
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    stream.group_by_key().count(store="counts")
    config = StreamsConfig(state_dir=state_dir)
    with Streams(builder.build(), app_id="app", log=here / "log", engine="local", config=config) as app:
        app.run(until="caught-up")

def listed(here):
    return sorted(str(path.relative_to(here)) for path in here.rglob("*"))

def tried(here, forbid, mode, state="state"):
    prepared(here)
    (here / "own").mkdir()
    before = listed(here)
    (here / forbid).chmod(mode)
    try:
        run(here, here / state)
        said = "nothing"
    except MillstreamError as error:
        said = str(error)
    told = CliRunner().invoke(millstream, ["topics", "create", "more", "--log", f"file:{here}/log"])
    (here / forbid).chmod(0o700)
    left = [name for name in listed(here) if name not in before and "more" not in name]
    return {"said": said, "cli": told.output, "exit": told.exit_code, "left": left}

root = Path(sys.argv[1])
prepared(root / "first")
run(root / "first", root / "first" / "state")  # everything is imported
CliRunner().invoke(millstream, ["topics", "list", "--log", f"file:{root}/first/log"])
if os.geteuid() == 0:
    os.chown(root, 65534, 65534)
    os.seteuid(65534)
print(json.dumps({
    "log, read only": tried(root / "a", "log", 0o500),
    "log, forbidden": tried(root / "b", "log", 0o000),
    "topics, read only": tried(root / "c", "log/topics", 0o500),
    "state, read only": tried(root / "d", "own", 0o500, "own/state"),
    "records, forbidden": tried(root / "e", "log/topics/in/0", 0o000),
}))
"""


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, object]]:
    with TemporaryDirectory() as folder:  # pytest's own folders are in one that only this user may enter
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, folder],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, object]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("log, read only", "log/applications"),
        ("log, forbidden", "log"),
        ("state, read only", "own"),
        ("records, forbidden", "log/topics/in/0"),
    ],
)
def test_an_application_says_which_folder_and_leaves_nothing(
    answers: dict[str, dict[str, object]], name: str, place: str
) -> None:
    said = str(answers[name]["said"])
    assert f"/{place}" in said
    assert "can't be used: Permission denied. Likely cause: it belongs to another user" in said
    assert "Remedy: give it to this user (chown, chmod), or name another folder." in said
    assert len(said.splitlines()) == 1
    assert answers[name]["left"] == []


@pytest.mark.parametrize("name", ["log, forbidden", "topics, read only"])
def test_the_command_line_says_it_in_one_line(answers: dict[str, dict[str, object]], name: str) -> None:
    assert answers[name]["exit"] == 1
    said = str(answers[name]["cli"]).splitlines()
    assert len(said) == 1
    assert said[0].startswith("Error: ")
    assert "can't be used: Permission denied" in said[0]


def test_what_may_be_used_is_used(answers: dict[str, dict[str, object]]) -> None:
    assert answers["state, read only"]["exit"] == 0
