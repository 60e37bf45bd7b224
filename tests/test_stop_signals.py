"""Ctrl-C once, twice, and while the end is at work: what is said, and what is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millstream import Streams, StreamsBuilder, StreamsConfig, serdes
from millstream.log import Producer, open_log
from millstream.log.api import TopicConfig, TopicPartition
from millstream.types import Partition

PROGRAM = """
import sys, time
from pathlib import Path
from millstream import Streams, StreamsBuilder, StreamsConfig, serdes

here = Path(sys.argv[1])

def slowly(text):
    (here / "at-work").touch()
    while not (here / "go-on").exists():
        time.sleep(0.01)
    return text

builder = StreamsBuilder()
stream = builder.stream("in", key=serdes.string, value=serdes.string)
stream.map_values(slowly).to("out", value=serdes.string)
config = StreamsConfig(state_dir=here / "state")
app = Streams(builder.build(), app_id="slow", log=here / "log", engine="local", config=config)
app.on_state(lambda before, after: print(f"{before.value} -> {after.value}", flush=True))

def close_slowly(close=app._loop.close):
    (here / "at-its-end").touch()
    while not (here / "end").exists():
        time.sleep(0.01)
    close()

app._loop.close = close_slowly
with app:
    app.run()
print("ended", flush=True)
"""


@contextmanager
def slow_program(folder: Path) -> Iterator[subprocess.Popen[str]]:
    log = open_log(folder / "log")
    log.create_topic("in", TopicConfig())
    with Producer(log, "in") as producer:
        producer.send(b"k", b"v")
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ,
    ) as process:
        try:
            wait_for((folder / "at-work").exists, process)
            yield process
        finally:
            process.kill()


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


def outputs(folder: Path) -> int:
    log = open_log(folder / "log")
    return log.latest(TopicPartition("out", Partition(0))) if "out" in log.topics() else 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_lets_the_epoch_end(tmp_path: Path, number: signal.Signals) -> None:
    with slow_program(tmp_path) as process:
        process.send_signal(number)
        (tmp_path / "go-on").touch()
        (tmp_path / "end").touch()
        said = process.communicate()[0].splitlines()
    assert process.returncode == 0
    assert said[2:] == [
        "stopping slow, after what is at work",
        "running -> pending shutdown",
        "pending shutdown -> not running",
        "ended",
    ]
    assert outputs(tmp_path) == 1


def test_the_second_signal_gives_the_epoch_up_and_the_next_start_does_it(tmp_path: Path) -> None:
    with slow_program(tmp_path) as process:
        process.send_signal(signal.SIGINT)
        first = lines(process, 3)
        process.send_signal(signal.SIGINT)
        (tmp_path / "end").touch()
        said = process.communicate()[0].splitlines()
    assert process.returncode == 0
    assert first[2] == "stopping slow, after what is at work"
    assert said == [
        "stopping slow at once: what is at work is given up, and done again next time",
        "running -> pending shutdown",
        "pending shutdown -> not running",
        "ended",
    ]
    assert outputs(tmp_path) == 0
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    stream.map_values(str.upper).to("out", value=serdes.string)
    config = StreamsConfig(state_dir=tmp_path / "state")
    with Streams(
        builder.build(), app_id="slow", log=tmp_path / "log", engine="local", config=config
    ) as again:
        again.run(until="caught-up")
    assert outputs(tmp_path) == 1


def test_signals_at_its_end_are_told_of_and_the_third_one_kills_it(tmp_path: Path) -> None:
    with slow_program(tmp_path) as process:
        process.send_signal(signal.SIGINT)
        (tmp_path / "go-on").touch()
        assert lines(process, 4)[2:] == [
            "stopping slow, after what is at work",
            "running -> pending shutdown",
        ]
        wait_for((tmp_path / "at-its-end").exists, process)
        process.send_signal(signal.SIGTERM)
        assert lines(process, 1) == ["stopping slow, after what is at work"]
        process.send_signal(signal.SIGTERM)
        assert lines(process, 1) == ["stopping slow: it is at its end; once more kills it"]
        process.send_signal(signal.SIGTERM)
        assert process.communicate()[0] == ""
    assert process.returncode == -signal.SIGTERM
    assert outputs(tmp_path) == 1
