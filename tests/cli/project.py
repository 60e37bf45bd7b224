"""A small project in a folder, and the command line as a user of it types it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from millstream.cli.main import millstream
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.types import Partition

Run = Callable[..., Result]

PROGRAM = """
from millstream import StreamsBuilder, TimeWindows, serdes

builder = StreamsBuilder()
words = builder.stream("words", key=serdes.string, value=serdes.string)
grouped = words.group_by(lambda _, word: word, key=serdes.string)
grouped.count(store="counts").to_stream().to("word-counts", key=serdes.string, value=serdes.int64)
grouped.windowed_by(TimeWindows(10)).count(store="per-window")
topology = builder.build()


def build():
    return topology
"""
MODULE = "counting"
WORDS = ["to", "the", "river", "the", "river", "river"]


def run_command(*words: str, stdin: str = "", status: int = 0) -> Result:
    """What a command printed; it must end with ``status``."""
    result = CliRunner().invoke(millstream, list(words), input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == status, result.output
    return result


def rows_of(result: Result) -> list[dict[str, Any]]:
    """The objects that a command printed with ``--json``."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def append(words: list[str], *, start: int = 0, folder: Path = Path("millstream-data")) -> None:
    """Records with the times 0, 10, 20 and so on, in turn to both partitions of topic "words"."""
    log = FileLog(folder)
    if not folder.exists():
        log.create_topic("words", TopicConfig(partitions=2))
    for number in range(2):
        mine = [(word, 10 * at) for at, word in enumerate(words, start) if at % 2 == number]
        rows = record_batch(
            [b"k"] * len(mine), [word.encode() for word, _ in mine], [time for _, time in mine]
        )
        log.append(TopicPartition("words", Partition(number)), rows)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a program and some words."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{MODULE}.py").write_text(PROGRAM)
    append(WORDS)
    yield tmp_path
    sys.modules.pop(MODULE, None)
    if str(tmp_path) in sys.path:
        sys.path.remove(str(tmp_path))


@pytest.fixture
def counted(project: Path) -> Path:
    """The same after a run."""
    run_local()
    return project


def run_local(*words: str, status: int = 0) -> Result:
    """Run the program to its end, in this process."""
    return run_command(
        "run", f"{MODULE}:topology", "--engine", "local", "--until", "caught-up", *words, status=status
    )


def counts() -> list[tuple[str, int]]:
    """What the output topic has, in the order of time."""
    lines = run_command(
        "topics", "consume", "word-counts", "--key-separator", "=", "--value-format", "int64"
    ).stdout
    return [(word, int(count)) for word, _, count in (line.partition("=") for line in lines.splitlines())]
