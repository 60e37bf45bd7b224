"""A second process of an application that waits for its turn, and one that does not."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.spark.lab import Lab
from tests.spark.programs import check_exact, one_level, words

from millstream import State, Streams, StreamsConfig
from millstream.commit.lease import LeaseHeldError

ROUNDS = 10 if os.environ.get("MILLSTREAM_SOAK") else 1


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path / "lab", None)
    lab.engine = "local"
    return lab


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def standby(lab: Lab) -> Streams:
    config = StreamsConfig(state_dir=lab.state_dir, default_partitions=2, max_records_per_epoch=20)
    return Streams(
        one_level(), app_id="app", log=lab.folder / "log", engine="local", config=config, standby=True
    )


def test_a_killed_process_is_followed_by_its_standby_at_any_time(lab: Lab) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    chance, parts = random.Random(seed), words(400 * ROUNDS, seed=seed)
    lab.topic("in", [[] for _ in parts])
    fed = [0, 0]

    def feed(count: int) -> None:
        for number, part in enumerate(parts):
            lab.append("in", part[fed[number] : fed[number] + count], partition=number)
            fed[number] += count

    for _ in range(ROUNDS):
        before = lab.committed()
        first = subprocess.Popen([sys.executable, "-m", "tests.engine.local_child", str(lab.folder)])
        try:
            feed(100)
            until(lambda before=before: lab.committed() > before)  # type: ignore[misc]
            with standby(lab) as second:
                second.start()
                until(lambda: second.state is State.REBALANCING)
                time.sleep(chance.random() / 2)
                assert second.state is State.REBALANCING, "the first one lives"
                first.kill()
                first.wait()
                until(lambda: second.state is State.RUNNING)
                feed(50)
                until(lambda: sum(second.metrics()["lag"].values()) == 0)
        finally:
            first.kill()
            first.wait()
    check_exact(lab, "one_level", [part[:count] for part, count in zip(parts, fed, strict=True)])


def test_without_standby_a_second_process_is_refused_and_with_it_can_be_told_to_end(lab: Lab) -> None:
    lab.topic("in", words(20, seed=5))
    with lab.app(one_level()) as first:
        first.run(until="caught-up")
        with lab.app(one_level()) as refused, pytest.raises(LeaseHeldError, match="already"):
            refused.run(until="caught-up")
        waiting = standby(lab)
        waiting.start()
        until(lambda: waiting.state is State.REBALANCING)
        waiting.close()
        assert waiting.state is State.NOT_RUNNING
        assert first.state is State.RUNNING
