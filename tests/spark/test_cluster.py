"""Both engines on a standalone cluster: tasks stay with their state, and go on elsewhere when it is gone."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.spark.child import EPOCHS, REBALANCES
from tests.spark.cluster import CORES, STATE_DIR, Cluster, Host
from tests.spark.lab import Lab
from tests.spark.processes import Child, alive, descendants, processes, until
from tests.spark.programs import PROGRAMS, check_exact, words

from millstream import StreamsConfig
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.epoch_job import PlannedTask
from millstream.commit.manifest import ManifestChain
from millstream.commit.store_opening import apply_commit
from millstream.engine.assignment.view import AssignedTask, AssignmentFile
from millstream.engine.program import Program, make_worker
from millstream.state.backends import supplier
from millstream.types import Partition

pytestmark = pytest.mark.xdist_group("spark")

SOAK = os.environ.get("MILLSTREAM_SOAK") == "1"
PARTITIONS = 8
ROUNDS = 30
"""Epochs in which nothing may move."""
ENGINES = ["jobs", "resident"] if SOAK else ["resident"]
EXECUTOR_CORES = [CORES, 1] if SOAK else [CORES]
KILLS = {"jobs": 50, "resident": 50} if SOAK else {"jobs": 3, "resident": 3}
BEHIND = re.compile(r"(\d+) (?:records behind|records were missing|of \d+ records are missing)")
"""How an assignment says that a copy takes over."""


@dataclass(frozen=True, slots=True)
class Noted:
    """An epoch as the child has noted it."""

    epoch: int
    at: float
    homes: dict[str, str]
    restored: dict[str, int]
    """How many records of changelogs each task had to read first."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A task that got another place, as the child has noted it."""

    task: str
    before: str
    after: str
    instance: str
    why: str


class Running:
    """An application on a cluster, fed step by step."""

    def __init__(
        self,
        lab: Lab,
        cluster: Cluster,
        engine: str,
        *,
        program: str = "two_levels",
        session: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        cluster.forget_state()
        seed = random.SystemRandom().randrange(1 << 32)
        print(f"seed {seed}, engine {engine}")
        self.lab = lab
        self.program = program
        self.parts = words(PARTITIONS * 1_000 * max(5, *KILLS.values()), seed=seed, partitions=PARTITIONS)
        self.fed = [0] * PARTITIONS
        lab.topic("in", [[] for _ in range(PARTITIONS)])
        given: dict[str, Any] = {"engine": engine, "state_dir": STATE_DIR, "default_partitions": PARTITIONS}
        given |= {"until_caught_up": False, "slot_timeout_ms": 3_000, **settings}
        self.child = Child(lab, program, session={**cluster.settings(), **(session or {})}, **given)

    def append(self, count: int) -> int:
        """More input in each partition; how much it is now."""
        for number, part in enumerate(self.parts):
            first = self.fed[number]
            more = part[first : first + count]
            assert len(more) == count, "there are no more words"
            self.lab.append("in", more, partition=number)
            self.fed[number] += len(more)
        return sum(self.fed)

    def feed(self, count: int) -> None:
        """More input in each partition, and wait until it is committed."""
        self.wait_for_commit(self.append(count))

    def wait_for_commit(self, records: int) -> None:
        self.child.wait_for(lambda: self.lab.committed() == records, f"{records} records are committed")

    def wait_for_epochs(self, count: int) -> None:
        self.child.wait_for(lambda: len(self.epochs()) >= count, "epochs run")

    def epochs(self) -> list[Noted]:
        path = self.lab.folder / EPOCHS
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [Noted(**json.loads(line)) for line in lines]

    def moved(self) -> list[Moved]:
        path = self.lab.folder / REBALANCES
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [Moved(**json.loads(line)) for line in lines]

    def taken_over(
        self, tasks: Collection[str], victim: Host, told: int, noted: int
    ) -> dict[str, tuple[Moved, Noted]]:
        """Where each of some tasks has run first since it was lost, and the epoch of that.

        It may have been given to several hosts before it ran: to another slot of the victim, for those are
        not lost in the same moment; and from its standby back to the victim, if that is back soon.
        """

        def found() -> dict[str, tuple[Moved, Noted]]:
            epochs, has_left, first = self.epochs()[noted:], set[str](), dict[str, tuple[Moved, Noted]]()
            for one in self.moved()[told:]:
                if one.after != victim.address:
                    has_left.add(one.task)
                ran = next((epoch for epoch in epochs if epoch.homes.get(one.task) == one.instance), None)
                if ran is not None and one.task in has_left.intersection(tasks):
                    first.setdefault(one.task, (one, ran))
            return first

        def said() -> str:
            return "\n".join(
                [*map(str, self.moved()[told:]), *map(str, self.epochs()[noted:]), self.child.said()]
            )

        until(
            lambda: len(found()) == len(tasks) or not self.child.is_running(), "its tasks run elsewhere", said
        )
        return found()

    def assigned(self) -> list[AssignedTask]:
        """As `millstream apps assignment` shows it."""
        return AssignmentFile(ApplicationStorage(self.lab.folder / "log", "app").path).read()

    def slots_on(self, host: Host, since: int) -> int:
        """How many slots of a host have tasks, as the assignment says when it knows of a later epoch."""
        tasks = self.assigned()
        if all((one.version or 0) <= since for one in tasks):
            return 0
        return len({one.slot for one in tasks if one.host == host.address})

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

    def apply_last_commit(self, task: str, state_dir: Path) -> None:
        """As the next epoch would first: jobs leave the stores of a task one commit behind."""
        storage = ApplicationStorage(self.lab.folder / "log", "app")
        config = StreamsConfig(state_dir=state_dir)
        program = Program.of(PROGRAMS[self.program](), storage, self.lab.log.address, config)
        head = ManifestChain(storage).head()
        assert head is not None
        planned = PlannedTask(task, 0, Partition(int(task.split("_")[1])), 0)
        apply_commit(make_worker(program), planned, head.tasks[task])

    def check(self) -> None:
        """All that was fed counts once. What is committed is published a moment later."""
        head = ManifestChain(ApplicationStorage(self.lab.folder / "log", "app")).latest()
        assert head is not None
        self.child.wait_for(lambda: self.epochs()[-1].epoch >= head.epoch, "the last epoch is published")
        fed = [part[:count] for part, count in zip(self.parts, self.fed, strict=True)]
        check_exact(self.lab, self.program, fed)


@pytest.fixture(scope="module")
def cluster(shared_folder: Path, import_path: None) -> Iterator[Cluster]:
    with Cluster(shared_folder / "cluster", workers=3) as cluster:
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


@pytest.mark.parametrize("executor_cores", EXECUTOR_CORES)
@pytest.mark.parametrize("engine", ["jobs", "resident"])
def test_standbys_take_over_from_hosts_that_are_killed_in_the_middle_of_an_epoch(
    cluster: Cluster, bare_lab: Lab, engine: str, executor_cores: int
) -> None:
    """They read what they miss, and nothing else; whoever comes back finds its state directory.

    Executors of one core are two on each host, which share that directory.
    """
    session = {"spark.executor.cores": str(executor_cores)}
    settings: dict[str, Any] = {
        "num_standby_replicas": 1,
        "max_records_per_epoch": 100,
        "max_warmup_replicas": PARTITIONS,
        "acceptable_recovery_lag": 0,
    }
    running = Running(bare_lab, cluster, engine, program="one_level", session=session, **settings)

    def wait_for_standbys() -> None:
        before = running.epochs()[-1].epoch if running.epochs() else 0
        running.feed(1)
        until(
            lambda: is_at_rest(before) or not running.child.is_running(),
            "everybody has tasks, and each task a standby that is caught up",
            lambda: "\n".join([*map(str, running.assigned()), running.child.said()]),
        )
        assert running.child.is_running(), running.child.said()

    def is_at_rest(before: int) -> bool:
        """As the assignment says when it knows of epochs that are later than that. Nothing is on its way."""
        tasks, hosts = running.assigned(), [host.address for host in cluster.alive()]
        if any(one.role == "warm-up" for one in tasks):
            return False
        return all(one.lag == 0 and (one.version or 0) > before for one in tasks) and all(
            sum(counts := [sum((one.host, one.role) == (host, role) for one in tasks) for host in hosts])
            == PARTITIONS
            and max(counts) - min(counts) <= 1
            for role in ("active", "standby")
        )

    with running.child:
        for number in range(KILLS[engine]):
            wait_for_standbys()
            victim = cluster.alive()[number % len(cluster.alive())]
            before = running.assigned()
            lost = {one.task for one in before if one.host == victim.address and one.role == "active"}
            copies = {one.task: one.instance for one in before if one.role == "standby" and one.task in lost}
            assert copies
            told, noted = len(running.moved()), len(running.epochs())
            running.append(100)
            running.wait_for_epochs(noted + 1)
            goal = running.append(600)  # only now, so that it is not done before it comes to the kill
            noted = len(running.epochs())
            if number % 2:
                cluster.kill_worker(victim)
            else:
                cluster.kill_instance(victim)
            assert bare_lab.committed() < goal, "it was killed too late"
            running.wait_for_commit(goal)
            running.feed(1)  # if all had run already when it was killed
            print(f"kill {number} of {victim.address}")
            for task, (place, epoch) in running.taken_over(copies, victim, told, noted).items():
                print(place)
                behind = int(BEHIND.findall(place.why)[0])
                is_copy = place.instance == copies[task]
                assert is_copy or not behind, f"not a standby, nor one who has all: {running.moved()[told:]}"
                assert epoch.restored[task] <= behind, "it reads the lag, and no more"
            if number % 2:
                cluster.restart_worker(victim.number)
        wait_for_standbys()
        places = {(one.task, one.role): one.host for one in running.assigned()}
        running.child.signal(signal.SIGTERM)
        assert running.child.wait() == 0, running.child.said()
        running.check()
    folders = {host.address: host.state_dir for host in cluster.hosts}
    for task in {task for task, _ in places}:
        active, standby = (folders[places[task, role]] for role in ("active", "standby"))
        running.apply_last_commit(task, active)
        assert bytes_of(active / "app" / task) == bytes_of(standby / "app" / task), task
    assert_nothing_is_left(cluster)


def bytes_of(folder: Path) -> list[tuple[bytes, bytes]]:
    """All rows of a task's store, its marker included."""
    with supplier("lmdb").open(folder / "lmdb" / "counts") as backend:
        return [(b"marker", backend.marker() or b""), *backend.scan()]


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
        noted = running.epochs()[-1].epoch
        running.feed_until(lambda: running.slots_on(host, noted) >= CORES, "all slots are back")

        daemon = host.daemons()[0]
        os.kill(daemon, signal.SIGSTOP)
        running.feed(5)  # its slots do not need it
        os.kill(holders(host)[0], signal.SIGKILL)
        running.feed(5)
        os.kill(daemon, signal.SIGCONT)
        noted = running.epochs()[-1].epoch
        running.feed_until(lambda: running.slots_on(host, noted) >= CORES, "all slots are back")
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
