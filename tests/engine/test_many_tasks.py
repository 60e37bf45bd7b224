"""A real coordinator with many tasks, whose slots only report: an epoch costs what it reads.

Counted are file operations and bytes, not seconds: see benchmarks/scale.py for those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from benchmarks.fake_slots import FakeSlots, NotSynced, counts_by_key

from millstream.commit import manifest as manifests
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.coordinator import CommitCoordinator, CoordinatorSettings
from millstream.commit.epoch import CommittedEpoch, run_epoch
from millstream.commit.epoch_job import EpochJob, TaskReport
from millstream.commit.epoch_shares import shares_of
from millstream.commit.manifest import Manifest, ManifestChain, ManifestDelta, Record
from millstream.commit.publisher import EmbeddedPublisher
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.maintenance.maintenance import Maintenance
from millstream.types import Epoch, Partition

PARTITIONS = 40
HOSTS = 10


class Opened(NotSynced):
    """Counts what is opened, by the folder two levels up: a topic, or what belongs to an application."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def open(self, path: Path, flags: int) -> int:
        self.count[path.parent.parent.name] += 1
        return super().open(path, flags)


@dataclass
class Many:
    """An application of two counts, of so many tasks each."""

    root: Path
    files: Opened = field(default_factory=Opened)

    def __post_init__(self) -> None:
        self.topology = counts_by_key(2)
        self.producer = FileLog(self.root, files=NotSynced())
        for number in range(2):
            for topic in (f"in-{number}", f"out-{number}"):
                self.producer.create_topic(topic, TopicConfig(PARTITIONS))
        self.now = 0
        self.open()

    def open(self) -> None:
        self.now += 1_000_000
        self.log = FileLog(self.root, files=self.files)
        self.storage = ApplicationStorage(self.root, "many", self.files)
        self.coordinator = CommitCoordinator(
            self.storage,
            self.log,
            EmbeddedPublisher(self.storage, self.log),
            self.topology.plan(),
            clock=lambda: self.now,
            settings=CoordinatorSettings(retained_manifests=5),
        )
        self.slots = FakeSlots(self.storage, HOSTS)
        self.maintenance = Maintenance(self.coordinator, self.log)
        self.coordinator.open()

    def epoch(self, active: Iterable[int]) -> CommittedEpoch[EpochJob, TaskReport, Manifest]:
        for number in active:
            place = TopicPartition(f"in-{number % 2}", Partition(number // 2))
            self.producer.append(place, record_batch([b"key"], [b""], [0]))
        self.files.count.clear()
        done = run_epoch(self.coordinator, self.slots)
        assert done is not None
        return done

    def bytes_of(self, manifest: Manifest) -> int:
        return (self.storage.manifests / f"{manifest.epoch:020d}").stat().st_size


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Many]:
    monkeypatch.setattr(manifests, "MIN_BYTES_FOR_DELTAS", 0)
    many = Many(tmp_path / "log")
    yield many
    many.coordinator.close()


def task_ids(numbers: Iterable[int]) -> set[str]:
    return {f"{number % 2}_{number // 2}" for number in numbers}


def test_only_tasks_with_records_are_planned_and_told_of(many: Many) -> None:
    many.epoch(range(2 * PARTITIONS))
    job = many.epoch([3, 8]).job
    assert {task.task_id for task in job.tasks} == set(job.entries) == task_ids([3, 8])
    assert {task.expected_instance for task in job.tasks} == {
        many.slots.instances["1_1"],
        many.slots.instances["0_4"],
    }
    assert job.has_task("0_39")
    assert not job.has_task("0_40")


def test_a_slot_is_sent_what_its_own_tasks_need(many: Many) -> None:
    many.epoch(range(2 * PARTITIONS))
    job = many.epoch([3, 8]).job
    shares = shares_of(job, {"0_4": 0, "1_1": 7})
    assert {slot: [task.task_id for task in share.tasks] for slot, share in shares.items()} == {
        0: ["0_4"],
        7: ["1_1"],
    }
    assert {slot: set(share.entries) for slot, share in shares.items()} == {0: {"0_4"}, 7: {"1_1"}}
    assert [shares[slot].cut for slot in (0, 7)] == [{"in-0": {4: (1, 2)}}, {"in-1": {1: (1, 2)}}]


def test_a_task_keeps_its_number_whichever_others_are_planned(many: Many) -> None:
    every = {task.task_id: task.number for task in many.epoch(range(2 * PARTITIONS)).job.tasks}
    assert sorted(every.values()) == list(range(2 * PARTITIONS))
    few = {task.task_id: task.number for task in many.epoch([5, 27, 60]).job.tasks}
    assert few == {task_id: every[task_id] for task_id in few}


def test_a_manifest_is_as_large_as_what_was_active(many: Many, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "MOST_DELTAS", 1_000)
    many.epoch(range(2 * PARTITIONS))
    many.epoch(range(2 * PARTITIONS))
    one, ten, most = (many.bytes_of(many.epoch(range(active)).manifest) for active in (1, 10, 60))
    assert 5 * one < ten < 12 * one
    assert 25 * one < most


def test_no_topic_is_opened_for_the_sake_of_idle_tasks(many: Many) -> None:
    """Where nobody tells of records, each source partition is looked at, once or twice; nothing else is."""
    many.epoch(range(2 * PARTITIONS))
    many.epoch([1, 2])
    opened = many.files.count
    assert opened["in-0"] + opened["in-1"] <= 2 * (2 * PARTITIONS) + 20
    assert max(opened[topic] for topic in ("out-0", "out-1", "many-counts-0-changelog")) <= 20


def test_whoever_takes_over_knows_all_tasks(many: Many) -> None:
    for active in (range(2 * PARTITIONS), [1], [2, 3], [4]):
        head = many.epoch(active).manifest
    assert type(ManifestChain(many.storage).record(head.epoch)) is ManifestDelta
    many.open()
    assert many.coordinator.head.tasks == head.tasks
    assert many.coordinator.head.positions == head.positions
    assert many.epoch([9]).manifest.tasks.keys() == head.tasks.keys()


def test_maintenance_reads_each_manifest_once(many: Many, monkeypatch: pytest.MonkeyPatch) -> None:
    many.epoch(range(2 * PARTITIONS))
    for number in range(12):
        many.epoch([number])
    many.maintenance.run()
    read: list[int] = []
    real = ManifestChain._file

    def noted(chain: ManifestChain, epoch: Epoch) -> tuple[Record, bytes]:
        read.append(epoch)
        return real(chain, epoch)

    monkeypatch.setattr(ManifestChain, "_file", noted)
    many.epoch([50])
    read.clear()
    many.maintenance.run()
    head = many.coordinator.head
    assert read.count(head.epoch) == 1
    assert len(read) <= 5, "the head, and what has changed since the oldest that was kept"
    collected = {path.name for path in (many.root / "sealed" / "many").iterdir()}
    assert f"{head.epoch:020d}" in collected
