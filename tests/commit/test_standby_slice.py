"""Copies that are followed for a moment at a time: each slice goes on where the last one ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.spark.lab import Lab
from tests.spark.programs import one_level, words

from millstream import Store, StreamsBuilder, StreamsConfig, Topology, serdes
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.epoch_job import PlannedTask
from millstream.commit.manifest import Manifest, ManifestChain, TaskEntry
from millstream.commit.standby_slice import follow_for
from millstream.commit.store_opening import apply_commit
from millstream.commit.worker import Worker
from millstream.engine.program import Program, make_worker
from millstream.log.embedded import reader
from millstream.state.backends import supplier
from millstream.state.changelog.follow import NO_LISTENER, CountedRestores
from millstream.state.local.directory import Checkpoint
from millstream.types import Partition, Version

LONG_S = 3600.0


class Hosts:
    """An application that has run on one host, and the changelogs of its tasks."""

    def __init__(self, folder: Path, topology: Topology) -> None:
        self.folder = folder
        self.topology = topology
        self.lab = Lab(folder / "lab", None)
        self.lab.engine = "local"
        self.lab.topic("in", words(600, seed=5, partitions=2))
        self.lab.run(topology, max_records_per_epoch=20)
        self.storage = ApplicationStorage(self.lab.folder / "log", "app")

    def head(self) -> Manifest:
        found = ManifestChain(self.storage).latest()
        assert found is not None
        return found

    def tasks(self) -> list[tuple[PlannedTask, TaskEntry]]:
        return [
            (PlannedTask(f"0_{number}", 0, Partition(number), 0), self.head().tasks[f"0_{number}"])
            for number in range(2)
        ]

    def worker(self, host: str) -> Worker:
        config = StreamsConfig(state_dir=self.folder / host)
        return make_worker(Program.of(self.topology, self.storage, self.lab.log.address, config))

    def rows(self, host: str, task: str) -> list[tuple[bytes, bytes]]:
        with supplier("lmdb").open(self.folder / host / "app" / task / "lmdb" / "counts") as backend:
            return [(b"marker", backend.marker() or b""), *backend.scan()]


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path, one_level())


def test_slices_add_up_to_the_bytes_of_the_task_and_nothing_is_read_twice(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_SMALL_ROWS", 0)  # each epoch is a step
    counted = CountedRestores(NO_LISTENER)
    worker, tasks = replace(hosts.worker("copy"), listener=counted), hosts.tasks()
    slices, versions = 0, dict.fromkeys(["0_0", "0_1"], Version(0))
    while any(version == 0 for version in versions.values()):
        found = follow_for(worker, [one for one in tasks if not versions[one[0].task_id]], 0.0, step_bytes=1)
        assert len(found) == 1, "the time is up after a step of the first one"
        for task, position in found.items():
            versions[task] = position.version
            assert position.offsets["counts"] <= hosts.head().tasks[task].changelogs["counts"]
        slices += 1
    assert slices > 4
    assert counted.records == sum(entry.changelogs["counts"] for _, entry in tasks)
    home = hosts.worker("home")
    for planned, entry in tasks:
        apply_commit(home, planned, entry)
        assert hosts.rows("copy", planned.task_id) == hosts.rows("home", planned.task_id)
        checkpoint = worker.directory.task("app", planned.task_id).read_checkpoint()
        assert checkpoint is not None
        assert checkpoint == Checkpoint(Version(entry.version), entry.changelogs)


def test_a_slice_that_was_interrupted_says_where_each_store_of_the_task_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of those that it did not come to, or that needed nothing."""
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=serdes.string, value=serdes.string).group_by_key()
    for name in ("first", "second"):
        grouped.count(store=Store(name, caching=False))
    hosts = Hosts(tmp_path, builder.build())
    monkeypatch.setattr(reader, "_SMALL_ROWS", 0)  # each epoch is a step
    worker, tasks = hosts.worker("copy"), hosts.tasks()[:1]
    planned, entry = tasks[0]
    ends = entry.changelogs
    found = [follow_for(worker, tasks, 0.0, step_bytes=1)["0_0"]]
    while found[-1].version == 0:
        found.append(follow_for(worker, tasks, 0.0, step_bytes=1)["0_0"])
    whole = [one.offsets for one in found]
    assert all(offsets.keys() == {"first", "second"} for offsets in whole)
    assert 0 < whole[0]["first"] < ends["first"]
    assert whole[0]["second"] == 0
    assert any(
        offsets["first"] == ends["first"] and 0 < offsets["second"] < ends["second"] for offsets in whole
    )
    assert [sum(offsets.values()) for offsets in whole] == sorted(
        {sum(offsets.values()) for offsets in whole}
    )
    assert whole[-1] == ends
    assert planned.task_id == "0_0"


def test_a_task_that_somebody_has_is_left_out_and_the_others_go_on(hosts: Hosts) -> None:
    worker, tasks = hosts.worker("copy"), hosts.tasks()
    with worker.directory.task("app", "0_0").lock(timeout_ms=0):
        assert follow_for(worker, tasks, LONG_S).keys() == {"0_1"}
    assert {task: at.version for task, at in follow_for(worker, tasks, LONG_S).items()} == {
        planned.task_id: Version(entry.version) for planned, entry in tasks
    }
