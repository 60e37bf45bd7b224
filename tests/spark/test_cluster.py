"""Both engines on a standalone cluster: tasks stay with their state, and go on elsewhere when it is gone."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.spark.child import EPOCHS
from tests.spark.cluster import CORES, STATE_DIR, Cluster, Host
from tests.spark.lab import Lab
from tests.spark.processes import Child, alive, descendants, processes, until
from tests.spark.programs import check_exact, words

pytestmark = pytest.mark.xdist_group("spark")

SOAK = os.environ.get("MILLSTREAM_SOAK") == "1"
PARTITIONS = 8
ROUNDS = 30 if SOAK else 10
"""Epochs in which nothing may move."""
ENGINES = ["jobs", "resident"] if SOAK else ["resident"]


@dataclass(frozen=True, slots=True)
class Noted:
    """An epoch as the child has noted it."""

    epoch: int
    at: float
    homes: dict[str, str]


class Running:
    """An application on a cluster, fed step by step."""

    def __init__(
        self,
        lab: Lab,
        cluster: Cluster,
        engine: str,
        *,
        session: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        cluster.forget_state()
        seed = random.SystemRandom().randrange(1 << 32)
        print(f"seed {seed}, engine {engine}")
        self.lab = lab
        self.parts = words(20_000, seed=seed, partitions=PARTITIONS)
        self.fed = [0] * PARTITIONS
        lab.topic("in", [[] for _ in range(PARTITIONS)])
        given: dict[str, Any] = {"engine": engine, "state_dir": STATE_DIR, "default_partitions": PARTITIONS}
        given |= {"until_caught_up": False, "slot_timeout_ms": 3_000, **settings}
        self.child = Child(lab, "two_levels", session={**cluster.settings(), **(session or {})}, **given)

    def feed(self, count: int) -> None:
        """More input in each partition, and wait until it is committed."""
        for number, part in enumerate(self.parts):
            first = self.fed[number]
            more = part[first : first + count]
            self.lab.append("in", more, partition=number)
            self.fed[number] += len(more)
        goal = sum(self.fed)
        self.child.wait_for(lambda: self.lab.committed() == goal, f"{goal} records are committed")

    def epochs(self) -> list[Noted]:
        path = self.lab.folder / EPOCHS
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [Noted(**json.loads(line)) for line in lines]

    def homes(self) -> dict[str, str]:
        """Where each task ran last."""
        found: dict[str, str] = {}
        for epoch in self.epochs():
            found |= epoch.homes
        return found

    def feed_until(self, condition: Any, what: str) -> None:
        """Feed a little again and again, until something is so."""

        def met() -> bool:
            self.feed(1)
            return bool(condition())

        until(met, what, self.child.said)

    def is_spread(self, cluster: Cluster) -> bool:
        """Whether all hosts have tasks."""
        return len({*self.homes().values()}) >= len(cluster.alive())

    def moves(self, epochs: list[Noted]) -> int:
        """How often a task ran elsewhere than the last time."""
        moved, at = 0, dict[str, str]()
        for epoch in epochs:
            moved += sum(at.get(task, home) != home for task, home in epoch.homes.items())
            at |= epoch.homes
        return moved

    def check(self) -> None:
        fed = [part[:count] for part, count in zip(self.parts, self.fed, strict=True)]
        check_exact(self.lab, "two_levels", fed)


@pytest.fixture(scope="module")
def cluster(memory_folder: Path, import_path: None) -> Iterator[Cluster]:
    with Cluster(memory_folder / "cluster", workers=3) as cluster:
        yield cluster


def instances(cluster: Cluster) -> dict[int, str]:
    """The instance of each host of the cluster, as far as it has one."""
    files = {host.number: host.state_dir / ".instance" for host in cluster.hosts}
    return {
        number: json.loads(file.read_text())["instance_id"] for number, file in files.items() if file.exists()
    }


@pytest.mark.parametrize("engine", ENGINES)
def test_tasks_stay_and_survive_the_loss_of_executors_and_workers(
    cluster: Cluster, bare_lab: Lab, engine: str
) -> None:
    running = Running(bare_lab, cluster, engine)
    with running.child:
        running.feed_until(lambda: running.is_spread(cluster), "all hosts have tasks")
        quiet = len(running.epochs())
        while len(running.epochs()) < quiet + ROUNDS:
            running.feed(3)
        assert running.moves(running.epochs()[quiet - 1 :]) == 0

        victim = cluster.alive()[0]
        began = time.time()
        cluster.kill_executor(victim)
        running.feed(5)
        print(f"{engine}: an executor killed, all committed after {time.time() - began:.2f} s")
        home = instances(cluster)[victim.number]
        running.feed_until(lambda: home in running.homes().values(), "its successor has tasks")

        victim = cluster.alive()[-1]
        gone = instances(cluster)[victim.number]
        began = time.time()
        cluster.kill_worker(victim)
        running.feed(5)
        print(f"{engine}: a worker and its executor killed, all committed after {time.time() - began:.2f} s")
        running.feed(5)
        assert gone not in running.homes().values()

        fresh = cluster.add_worker()
        running.feed_until(
            lambda: instances(cluster).get(fresh.number) in running.homes().values(), "the new host has tasks"
        )
        running.feed(5)
        running.check()
        running.child.kill()
    assert_nothing_is_left(cluster)


SHORT_OF_PATIENCE = {
    "spark.network.timeout": "12s",
    "spark.network.timeoutInterval": "2s",
    "spark.executor.heartbeatInterval": "2s",
}
"""Of Spark, for executors that say nothing."""


@pytest.mark.skipif(not SOAK, reason="takes minutes")
@pytest.mark.parametrize("engine", ENGINES)
def test_an_executor_that_stands_still_and_wakes_up_changes_nothing(
    cluster: Cluster, bare_lab: Lab, engine: str
) -> None:
    """Its slots work on until Spark gives the executor up; then they are fenced, and others take over."""
    running = Running(bare_lab, cluster, engine, session=SHORT_OF_PATIENCE)
    with running.child:
        running.feed_until(lambda: running.is_spread(cluster), "all hosts have tasks")
        host = cluster.alive()[0]
        executor = host.executors()[0]
        below = {executor: processes()[executor][1], **descendants(executor)}
        workers = {pid: below[pid] for pid in host.python_workers()}
        began = time.time()
        os.kill(executor, signal.SIGSTOP)
        running.feed(5)
        print(f"{engine}: an executor stopped, all committed after {time.time() - began:.2f} s")
        until(lambda: not alive(workers), "the workers of the executor have ended", running.child.said)
        running.feed(5)
        with suppress(ProcessLookupError):
            os.kill(executor, signal.SIGCONT)
        until(lambda: not alive(below), "the executor has ended, and all that it has started")
        running.feed_until(lambda: running.is_spread(cluster), "its successor has tasks")
        running.check()
        running.child.kill()
    assert_nothing_is_left(cluster)


@pytest.mark.skipif(not SOAK, reason="takes minutes")
def test_slots_and_daemons_that_stand_still_and_wake_up_change_nothing(
    cluster: Cluster, bare_lab: Lab
) -> None:
    """As if they were on other machines: nobody kills them by process id."""
    running = Running(bare_lab, cluster, "resident", slots_are_elsewhere=True)
    with running.child:
        running.feed_until(lambda: running.is_spread(cluster), "all hosts have tasks")
        host = cluster.alive()[0]
        slot = holders(host)[0]
        began = time.time()
        os.kill(slot, signal.SIGSTOP)
        running.feed(5)
        print(f"a slot stopped, all committed after {time.time() - began:.2f} s")
        with suppress(
            ProcessLookupError
        ):  # Spark may have ended it; else the process may become a slot again
            os.kill(slot, signal.SIGCONT)
        running.feed_until(lambda: running.is_spread(cluster), "its successor has tasks")
        running.feed_until(lambda: len(holders(host)) >= CORES, "all slots are back")

        daemon = host.daemons()[0]
        os.kill(daemon, signal.SIGSTOP)
        running.feed(5)  # its slots do not need it
        os.kill(holders(host)[0], signal.SIGKILL)
        running.feed(5)
        os.kill(daemon, signal.SIGCONT)
        running.feed_until(lambda: len(holders(host)) >= CORES, "all slots are back")
        running.check()
        running.child.kill()
    assert_nothing_is_left(cluster)


def holders(host: Host) -> list[int]:
    """The processes on a host that have stores open: slots, if they have tasks."""
    return [pid for pid in host.python_workers() if any(_files_below(pid, host.state_dir))]


def _files_below(pid: int, folder: Path) -> list[Path]:
    try:
        links = [link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return []
    return [link for link in links if link.is_relative_to(folder)]


def assert_nothing_is_left(cluster: Cluster) -> None:
    """No executor, and nothing that one has started."""
    until(lambda: not any(host.executors() for host in cluster.hosts), "no executor is left")
    until(lambda: not cluster.left_behind(), "nothing that an executor has started is left")
