"""The nine stages on hosts that are threads: every cell of every table. On a cluster: tests/spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from examples.nine_stages import PARTITIONS, Stage, World, nine_stages, topology
from tests.engine.hosts_in_threads import Hosts
from tests.engine.stage_checks import check_stages
from tests.spark.lab import Lab

from millstream.engine.assignment.view import AssignedTask
from millstream.engine.spark.resident.slot_pool import Member


class HostsWorld(World):
    """Hosts that are threads; epochs run when somebody waits for something."""

    def __init__(self, lab: Lab, app: Hosts) -> None:
        self.lab = lab
        self.app = app

    def host(self, instance: int) -> str:
        return f"h{instance}"

    def start(self, instance: int) -> None:
        self.app.bring_back(self.host(instance))

    def kill(self, instance: int) -> None:
        host, launcher = self.host(instance), self.app.engine.launcher
        self.app.lose(host)
        self.until(
            lambda: all(launcher.hosts[number] != host for number in self.app.engine.pool.live()),
            "it is gone",
        )

    def feed(self, records: int) -> None:
        feed(self.lab, records)
        self.app.run()

    def assigned(self) -> Sequence[AssignedTask]:
        return self.app.assigner.assigned()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < deadline, what
            self.app.loop.run_epoch(tick=False)
            time.sleep(0.01)


def feed(lab: Lab, records: int) -> None:
    for partition in range(PARTITIONS):
        lab.append("words", [(f"word-{partition}", "x")] * records, partition=partition)


@pytest.mark.parametrize("slots", [1, 2])
def test_every_cell_of_the_nine_stages(tmp_path: Path, slots: int) -> None:
    lab = Lab(tmp_path / "lab", None)
    stages = lived_through(lab, slots)
    check_stages(stages, lab.log, "app", ["h0", "h1", "h2", "h3"])
    counts = {key: values[-1] for key, values in lab.by_key("word-counts").items()}
    assert {counts[f"word-{partition}"] for partition in range(PARTITIONS)} == {5}


def lived_through(lab: Lab, slots: int) -> list[Stage]:
    """With so many slots on each host."""
    lab.topic("words", [[] for _ in range(PARTITIONS)])
    for partition in range(PARTITIONS):
        pairs = [(f"word-{partition}-{number}", "x") for number in range(20 * (partition + 1))]
        lab.append("words", pairs, partition=partition)
    lab.engine = "local"
    lab.run(topology())
    app = Hosts(
        lab,
        topology(),
        {number: f"h{number // slots}" for number in range(4 * slots)},
        num_standby_replicas=1,
        acceptable_recovery_lag=0,
    )
    app.engine.launcher.hosts_down |= {"h2", "h3"}
    app.engine.tasks.wait_for_slots = lambda: until_there(app, 2 * slots)  # type: ignore[method-assign]
    app.loop.open()
    try:
        shown: list[Stage] = []
        stages = nine_stages(HostsWorld(lab, app), shown.append)
        assert shown == stages
    finally:
        for host in ("h0", "h1", "h2", "h3"):
            app.bring_back(host)
        app.loop.close()
    return stages


def until_there(app: Hosts, slots: int) -> dict[int, Member]:
    deadline = time.monotonic() + 60
    while len(app.engine.pool.live()) < slots:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return dict(app.engine.pool.live())


@pytest.mark.parametrize("number", [3])
def test_a_stage_is_shown_as_a_table(number: int) -> None:
    one = AssignedTask(
        task="0_1", role="active", host="h0", instance="a", slot=0, version=7, position=3, lag=0
    )
    assert Stage(number, "an example", (one,)).table().splitlines() == [
        "(3) an example",
        "instance  active  standby  version  position  lag",
        "h0        0_1              7        3         0",
    ]
