"""A file that tasks share stays for those who still need a part of it, and not for ever because of one."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.simulation.executor import InProcessExecutor
from tests.state.small_app import FastFiles

from millstream import StreamsBuilder, Topology, serdes
from millstream.commit.coordinator import CoordinatorSettings
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.log.embedded.log_cleaner import TINY_BYTES
from millstream.maintenance import collection
from millstream.maintenance.application_reset import delete
from millstream.maintenance.maintenance import maintain
from millstream.types import Offset, Partition

PARTITIONS = 8
KEPT = 3
IDLE = Partition(0)


def counts() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.bytes, value=serdes.bytes)
    stream.group_by_key().count(store="counts")
    return builder.build()


class App:
    """Counts of eight partitions, all of which have a record in the first epoch."""

    def __init__(self, executor: InProcessExecutor, log: FileLog) -> None:
        self.executor = executor
        self.log = log
        self.epochs = 0

    def run_epoch(self, *partitions: Partition) -> None:
        for partition in partitions:
            rows = record_batch([b"k"], [b"v"], [self.epochs])
            self.log.append(TopicPartition("in", partition), rows)
        self.executor.run_epoch()
        self.epochs += 1

    def maintain(self, min_entries: int) -> None:
        """As it is done now and then, without a hurry."""
        executor = self.executor
        head = executor.coordinator.head
        maintain(executor.worker.storage, self.log, executor.worker.plan, head, min_entries=min_entries)

    def shared_files(self) -> list[str]:
        return sorted(path.parent.name.lstrip("0") for path in self.log.root.glob("sealed/*/*/*.shared"))

    def counted(self, partition: Partition) -> list[int]:
        """What the changelog of a task has, without the times in front of the values."""
        place = TopicPartition("app-counts-changelog", partition)
        values = [value for batch in self.log.read(place, Offset(0)) for value in batch.values()]
        return [int.from_bytes(value[8:], "big") for value in values if value is not None]

    def holders(self) -> set[Partition]:
        """The partitions whose topics point into the file of the first epoch with records."""
        return {
            place.partition
            for file, places in self.log.references().items()
            if file.split("/")[2].endswith("002")
            for place in places
        }


@contextmanager
def app_in(folder: Path) -> Iterator[App]:
    folder.chmod(0o700)
    log = FileLog(folder / "log", files=FastFiles())
    log.create_topic("in", TopicConfig(PARTITIONS))
    with InProcessExecutor(
        counts(),
        application_id="app",
        log_root=log.root,
        state_dir=folder / "state",
        files=FastFiles(),
        settings=CoordinatorSettings(retained_manifests=KEPT),
    ) as executor:
        app = App(executor, log)
        app.run_epoch(*map(Partition, range(PARTITIONS)))
        for _ in range(12):
            app.run_epoch(*map(Partition, range(1, PARTITIONS)))
        yield app


def test_all_tasks_of_a_process_seal_in_one_file_an_epoch(tmp_path: Path) -> None:
    with app_in(tmp_path) as app:
        files = [path for path in app.log.root.glob("sealed/*/*/*") if path.is_file()]
    assert len(files) == app.epochs
    assert all(path.name.endswith(".shared") for path in files)


def test_an_idle_task_does_not_keep_what_others_have_sealed_beside_it(tmp_path: Path) -> None:
    with app_in(tmp_path) as app:
        app.maintain(min_entries=8)
        assert app.holders() == set()
        kept = app.executor.coordinator.head.oldest
        assert all(int(epoch) >= kept for epoch in app.shared_files())
        assert app.counted(IDLE) == [1]
        app.run_epoch(IDLE)
        assert app.counted(IDLE) == [1, 2]


def test_without_the_rewriting_of_idle_partitions_it_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "_partitions_in_the_way", lambda *_: set())
    with app_in(tmp_path) as app:
        app.maintain(min_entries=8)
        assert app.holders() == {IDLE}
        assert "2" in app.shared_files()


def test_a_file_that_most_still_need_is_left_to_them(tmp_path: Path) -> None:
    with app_in(tmp_path) as app:
        app.maintain(min_entries=100)
        assert app.holders() == set(range(PARTITIONS))
        assert "2" in app.shared_files()


def test_what_is_committed_and_not_published_yet_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No topic points into the file: only the manifest names it."""
    with app_in(tmp_path) as app:
        coordinator = app.executor.coordinator
        with monkeypatch.context() as patch:
            patch.setattr(coordinator, "publish", lambda _: None)
            patch.setattr(app.executor, "apply", lambda _: None)
            app.run_epoch(IDLE)
        app.maintain(min_entries=8)
        assert app.counted(IDLE) == [1]
        coordinator.publish(coordinator.head)
        assert app.counted(IDLE) == [1, 2]


def test_a_store_of_an_idle_task_is_restored_after_its_file_is_gone(tmp_path: Path) -> None:
    with app_in(tmp_path) as app:
        app.maintain(min_entries=8)
    with InProcessExecutor(
        counts(),
        application_id="app",
        log_root=tmp_path / "log",
        state_dir=tmp_path / "elsewhere",
        files=FastFiles(),
        settings=CoordinatorSettings(retained_manifests=KEPT),
    ) as executor:
        again = App(executor, FileLog(tmp_path / "log", files=FastFiles()))
        again.run_epoch(IDLE)
        assert again.counted(IDLE) == [1, 2]


def test_a_partition_that_gets_a_row_now_and_then_is_not_copied_each_time(tmp_path: Path) -> None:
    """It is in the way of a file each time, and all that it has but the new row stands in a segment."""
    folder = tmp_path / "log/topics/app-counts-changelog/0"
    with app_in(tmp_path) as app:
        chance = random.Random(3)
        keys = [chance.randbytes(40) for _ in range(5_000)]  # changelogs are compressed
        app.log.append(TopicPartition("in", IDLE), record_batch(keys, [b"v"] * len(keys), [0] * len(keys)))
        app.run_epoch()
        large: list[Path] = []
        for _ in range(4):
            app.run_epoch(*map(Partition, range(PARTITIONS)))
            for _ in range(12):
                app.run_epoch(*map(Partition, range(1, PARTITIONS)))
            app.maintain(min_entries=8)
            assert len(app.shared_files()) == KEPT
            large.append(max(folder.glob("*.segment"), key=lambda path: path.stat().st_size))
        assert large[0].stat().st_size > TINY_BYTES
        assert set(large) == {large[0]}
        assert app.counted(IDLE)[-1] == 5


def test_the_threads_of_an_application_end_when_it_is_deleted(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with app_in(tmp_path) as app:
        storage, log = app.executor.worker.storage, app.log
    delete(storage, log, None)
    assert not storage.path.exists()
    left = set(threading.enumerate()) - before
    assert "millstream-heartbeat" not in {thread.name for thread in left}
