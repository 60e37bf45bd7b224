"""A hundred hosts and thousands of tasks: hosts are lost in the middle of epochs, one after the other.

Coordinator, commit, assignment and the attempts of epochs are real. The slots only say what tasks would have
done, and their copies catch up between two epochs.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.fake_slots import FakeSlots, NotSynced, counts_by_key

from millstream.commit import manifest as manifests
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.coordinator import CommitCoordinator, CoordinatorSettings
from millstream.commit.epoch import run_epoch
from millstream.commit.epoch_job import EpochJob, TaskReport, WrongInstance
from millstream.commit.publisher import EmbeddedPublisher
from millstream.commit.standby import StandbyPosition
from millstream.engine.api import DurableEpoch
from millstream.engine.assignment.assigner import SlotAssigner
from millstream.engine.assignment.model import AssignmentRules
from millstream.engine.spark.resident.messages import EpochAttempt, Follow, Hello, RunEpoch
from millstream.engine.spark.resident.slot_pool import Member, SlotLostError
from millstream.engine.spark.resident.slot_tasks import SlotTasks
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.state.local.directory import Checkpoint
from millstream.types import Partition, Version

TOPICS = 4
PARTITIONS = 2_500 if os.environ.get("MILLSTREAM_SOAK") == "1" else 150
"""Of each topic: as many tasks read it."""
HOSTS = 100
SLOTS = 4
LOSSES = 10 if PARTITIONS > 1_000 else 4


@dataclass
class FakePool:
    """Slots that are there or not. Copies follow when they are told to, between two epochs."""

    slots: FakeSlots
    members: dict[int, Member] = field(default_factory=dict)
    state: dict[str, dict[str, StandbyPosition]] = field(default_factory=dict)
    """What lies on the disk of each host, whether it is there or not."""
    to_lose: str = ""
    """A host that is lost in the middle of the next epoch."""
    told: list[tuple[int, Follow]] = field(default_factory=list)

    def live(self) -> dict[int, Member]:
        return dict(sorted(self.members.items()))

    def take_hanging(self) -> list[Member]:
        return []

    def take_deleted(self) -> list[tuple[str, frozenset[str]]]:
        return []

    def tell(self, message: object, to: Member | None = None) -> None:
        if isinstance(message, Follow) and to is not None:
            self.told.append((to.number, message))

    def begin(
        self, of: EpochAttempt, commands: Mapping[int, RunEpoch], members: Mapping[int, Member]
    ) -> Callable[[], list[TaskReport | WrongInstance]]:
        assert commands.keys() <= members.keys() == self.members.keys()
        if self.to_lose:
            self.lose(self.to_lose)
            self.to_lose = ""
            raise SlotLostError("a host was lost")
        reports: list[TaskReport | WrongInstance] = []
        for number, command in commands.items():
            here = self.members[number].hello.instance
            for task in command.job.tasks:
                assert task.expected_instance in (None, here)
            reports += self.slots.reports(command.job, command.job.tasks, here, of.attempt)
        return lambda: reports

    def join(self, host: str) -> None:
        """A host comes, perhaps again, with what lies on its disk."""
        held = {
            task: Checkpoint(one.version, one.offsets)
            for task, one in self.state.setdefault(host, {}).items()
        }
        free = (number for number in count() if number not in self.members)
        for number in [next(free) for _ in range(SLOTS)]:
            incarnation = f"{host}-{random.getrandbits(64)}"
            hello = Hello(host, host, "", 0, "", "", held, node=host)
            self.members[number] = Member(number, incarnation, None, hello)  # type: ignore[arg-type]

    def lose(self, host: str) -> None:
        self.members = {number: one for number, one in self.members.items() if one.hello.instance != host}

    def follow(self) -> None:
        """All copies catch up to what they were told."""
        for number, message in self.told:
            if number in self.members:
                member = self.members[number]
                for planned, entry in message.tasks:
                    position = StandbyPosition(Version(entry.version), dict(entry.changelogs))
                    self.state[member.hello.instance][planned.task_id] = position
                    member.followed = {**member.followed, planned.task_id: position}
        self.told.clear()


class Application:
    """Counts of so many partitions on the hosts of a fake pool."""

    def __init__(self, root: Path) -> None:
        self.topology = counts_by_key(TOPICS)
        self.log = FileLog(root, files=NotSynced())
        for number in range(TOPICS):
            for topic in (f"in-{number}", f"out-{number}"):
                self.log.create_topic(topic, TopicConfig(PARTITIONS))
        storage = ApplicationStorage(root, "many", NotSynced())
        self.coordinator = CommitCoordinator(
            storage,
            self.log,
            EmbeddedPublisher(storage, self.log),
            self.topology.plan(),
            clock=lambda: 1_000,
            settings=CoordinatorSettings(retained_manifests=5),
        )
        self.pool = FakePool(FakeSlots(storage, HOSTS))
        rules = AssignmentRules(standbys=1, acceptable_lag=0, max_warmups=50)
        pool: Any = self.pool
        self.tasks = SlotTasks("many", pool, count(1), SlotAssigner({*range(TOPICS)}, rules))
        self.failures: list[Exception] = []
        self.coordinator.open()

    @property
    def instances(self) -> Mapping[str, str]:
        return self.tasks.instances

    def run_tasks(self, job: EpochJob) -> Sequence[TaskReport | WrongInstance]:
        return self.tasks.run_tasks(job)

    def failed(self, job: EpochJob, error: Exception, tries: int) -> None:
        del job, tries
        self.failures.append(error)
        if not isinstance(error, SlotLostError):
            raise error

    def apply(self, epoch: DurableEpoch) -> None:
        self.tasks.apply(epoch)
        for task, instance in self.homes(epoch).items():
            entry = epoch.manifest.tasks[task]
            position = StandbyPosition(Version(entry.version), dict(entry.changelogs))
            self.pool.state[instance][task] = position

    def homes(self, epoch: DurableEpoch) -> dict[str, str]:
        return {report.task_id: report.instance for report in epoch.reports if report.sealed is not None}

    def epoch(self, tasks: Iterable[str]) -> DurableEpoch:
        """A record for each of some tasks, and an epoch; the copies follow."""
        batch = record_batch([b"key"], [b""], [0])
        for task in tasks:
            topic, partition = task.split("_")
            self.log.append(TopicPartition(f"in-{topic}", Partition(int(partition))), batch)
        done = run_epoch(self.coordinator, self)
        assert done is not None
        self.pool.follow()
        return done

    def complete(self, task: str) -> set[str]:
        """The hosts that have all of a task's state."""
        entry = self.coordinator.head.tasks[task]
        position = StandbyPosition(Version(entry.version), dict(entry.changelogs))
        return {host for host, held in self.pool.state.items() if held.get(task) == position}

    def active(self) -> dict[str, str]:
        return {task: one.active.instance for task, one in self.tasks.assignment.tasks.items()}

    def rest(self) -> None:
        """Epochs of a few tasks, until nothing moves any more."""
        for _ in range(200):
            self.tasks.assigner._not_before = 0.0
            self.epoch(["0_0"])
            self.tasks.assigner._not_before = 0.0
            made = self.tasks.assign(self.pool.live())
            self.pool.follow()
            if not made.changes and not made.warmups:
                return
        raise AssertionError("it does not come to rest")


def test_hosts_lost_one_after_the_other_are_taken_over_in_the_epoch_in_which_it_is_noticed(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(manifests, "MIN_BYTES_FOR_DELTAS", 0)
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    app = Application(tmp_path / "log")
    every = [f"{topic}_{partition}" for topic in range(TOPICS) for partition in range(PARTITIONS)]
    for number in range(HOSTS):
        app.pool.join(f"h{number:02}")
    for _ in range(2):
        app.epoch(every)
    app.rest()
    moves: Counter[str] = Counter()
    for host in chance.sample(sorted(app.pool.state), LOSSES):
        before = app.active()
        lost = {task for task, home in before.items() if home == host}
        assert len(lost) in (len(every) // HOSTS, len(every) // HOSTS + 1)
        complete = {task: app.complete(task) - {host} for task in lost}
        assert all(complete.values()), "each has a standby"
        app.pool.to_lose = host
        failures = len(app.failures)
        epoch = app.epoch([*lost, *chance.sample(every, 50)])
        assert len(app.failures) == failures + 1, "noticed in the middle of the epoch, and run again once"
        after = app.active()
        assert {task for task in every if after[task] != before[task]} == lost, "only the lost ones move"
        assert [task for task in lost if after[task] not in complete[task]] == [], (
            "nobody has to read anything"
        )
        ran = app.homes(epoch)
        assert {task: ran[task] for task in lost} == {task: after[task] for task in lost}, "in the same epoch"
        moves["lost"] += len(lost)
        app.pool.join(host)
        app.rest()
        settled = app.active()
        moves["balance"] += sum(settled[task] != after[task] for task in every)
        loads = Counter(settled.values())
        assert max(loads.values()) - min(loads.values()) <= 2, "one of each level"
    assert moves["balance"] <= 2 * moves["lost"], "each goes back, and few others to where it was even before"
    app.coordinator.close()
