"""Stores that stay open: applied from memory they hold the bytes that following the changelog gives them."""

from __future__ import annotations

import random
import resource
from dataclasses import replace
from pathlib import Path

import pytest
from tests.simulation.executor import InProcessExecutor
from tests.simulation.fault_programs import APPLICATIONS, PARTITIONS

from millstream import failpoints
from millstream.commit.epoch_job import PlannedTask
from millstream.commit.store_opening import StoreOpening, bring_for_read
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.state.backends import supplier
from millstream.state.backends.api import Row
from millstream.state.errors import StoreNotHereError, TaskLockedError
from millstream.state.local.open_stores import MOST_TASKS, OpenStores, most_tasks
from millstream.state.local.readable_stores import ReadableStores
from millstream.state.local.task_stores import TaskStores
from millstream.types import Partition, Version

EPOCHS = 5
RECORDS = 30

Content = dict[str, tuple[bytes | None, list[Row]]]
"""Marker and rows, by task and store."""


class Life:
    """An application on the local engine, with a clock of its own."""

    def __init__(self, folder: Path, name: str, backend: str, open_stores: OpenStores | None) -> None:
        self.application = APPLICATIONS[name]
        self._backend = backend
        self._state = folder / "state" / "app"
        self._open_stores = open_stores
        self._now = 1_000
        self._random = random.Random(5)
        folder.mkdir(mode=0o700)
        FileLog(folder / "log").create_topic(self.application.input, TopicConfig(partitions=PARTITIONS))
        self.executor = InProcessExecutor(
            self.application.build(),
            application_id="app",
            log_root=folder / "log",
            state_dir=folder / "state",
            backend=backend,
            clock=lambda: self._now,
        )
        self.executor.__dict__["worker"] = replace(self.executor.worker, open_stores=open_stores)

    def append(self) -> None:
        rows = [self.application.record(self._random) for _ in range(RECORDS)]
        for number in range(PARTITIONS):
            mine = [(key, value) for partition, key, value in rows if partition == number]
            times = [self._now + at for at in range(len(mine))]
            batch = record_batch([key for key, _ in mine], [value for _, value in mine], times)
            self.executor.log.append(TopicPartition(self.application.input, Partition(number)), batch)
        self._now += 1_000

    def run(self, epochs: int) -> None:
        for _ in range(epochs):
            self.append()
            assert self.executor.run_epoch() is not None

    def sealed(self) -> dict[str, str]:
        """The digests of what the tasks have sealed last."""
        return {task: entry.digest for task, entry in self.executor.coordinator.head.tasks.items()}

    def content(self) -> Content:
        """All stores, as they lie on disk after everything is closed."""
        if self._open_stores is not None:
            self._open_stores.close()
        found: Content = {}
        for sub in self.executor.coordinator.plan.subtopologies:
            for task in map(sub.task_id, range(PARTITIONS)):
                for name, spec in sub.stores.items():
                    path, segment_bytes = self._state / task / self._backend / name, 8 * spec.is_segmented
                    with supplier(self._backend).open(path, segment_bytes=segment_bytes) as opened:
                        found[f"{task} {name}"] = (opened.marker(), list(opened.scan()))
        assert found, "there is no store"
        return found


BOTH = [(name, "lmdb") for name in APPLICATIONS] + [("footfall", "rocksdb")]


@pytest.mark.parametrize(("name", "backend"), BOTH)
def test_what_is_applied_from_memory_are_the_bytes_of_the_changelog(
    tmp_path: Path, name: str, backend: str
) -> None:
    stays, follows = (
        Life(tmp_path / str(number), name, backend, open_stores)
        for number, open_stores in enumerate([OpenStores(), None])
    )
    stays.run(EPOCHS)
    follows.run(EPOCHS)
    assert stays.content() == follows.content()


def test_what_an_epoch_has_made_that_was_not_committed_is_never_applied(tmp_path: Path) -> None:
    """The manifest can't be written; the next attempt reads more, and so makes something else."""
    stays, follows = (
        Life(tmp_path / str(number), "ledger", "lmdb", open_stores)
        for number, open_stores in enumerate([OpenStores(), None])
    )
    for life in (stays, follows):
        life.run(2)
        life.append()
        with failpoints.armed("commit.checked"), pytest.raises(failpoints.InjectedCrash):
            life.executor.run_epoch()
        life.run(2)
    assert stays.content() == follows.content()


def test_stores_are_opened_once_and_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_stores = OpenStores()
    life = Life(tmp_path / "life", "ledger", "lmdb", open_stores)
    advanced: list[Version] = []
    advance = TaskStores.advance

    def noted(stores: TaskStores, *args: object) -> None:
        advance(stores, *args)  # type: ignore[arg-type]
        advanced.append(stores.version.version)

    monkeypatch.setattr(TaskStores, "advance", noted)
    life.run(1)
    held = dict(open_stores._held)
    life.run(3)
    assert held == open_stores._held
    assert sorted(set(advanced)) == [2, 3, 4, 5]
    life.content()
    assert open_stores.versions() == {}


def test_no_more_tasks_than_allowed_have_their_stores_open(tmp_path: Path) -> None:
    few = OpenStores(most=1)
    life, other = (
        Life(tmp_path / str(number), "ledger", "lmdb", open_stores)
        for number, open_stores in enumerate([few, None])
    )
    life.run(2)
    assert len(few.versions()) == 1
    life.run(1)
    other.run(3)
    assert life.sealed() == other.sealed()


def test_so_many_tasks_are_open_as_there_are_descriptors_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    limits = [(1_024, 4_096)]

    def grant(_: int, wanted: tuple[int, int]) -> None:
        asked.append(wanted)
        limits.append(wanted)

    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", grant)
    assert most_tasks() == (4_096 - 256) // 8
    assert asked == [(4_096, 4_096)]
    limits.append((1 << 20, 1 << 20))
    assert most_tasks() == MOST_TASKS
    assert len(asked) == 1
    limits.append((64, 64))
    assert most_tasks() == 1


def first_task(life: Life) -> PlannedTask:
    sub = next(sub for sub in life.executor.coordinator.plan.subtopologies if sub.stores)
    return PlannedTask(sub.task_id(0), sub.number, Partition(0), sub.level)


def test_stores_are_opened_for_a_read_where_their_task_runs_and_nowhere_else(tmp_path: Path) -> None:
    open_stores = OpenStores()
    life = Life(tmp_path / "life", "ledger", "lmdb", open_stores)
    life.run(2)
    before = life.content()  # closes all of them
    worker, task = replace(life.executor.worker, readable=ReadableStores()), first_task(life)
    entry = life.executor.coordinator.head.tasks[task.task_id]
    assert worker.readable is not None
    with pytest.raises(StoreNotHereError, match="does not run here"):
        bring_for_read(worker, task, entry, wait_s=1.0)
    assert open_stores.versions() == {}

    open_stores.assign([task.task_id])
    bring_for_read(worker, task, entry, wait_s=1.0)
    assert open_stores.versions() == {task.task_id: Version(entry.version)}
    assert worker.readable.find(task.task_id) is not None
    life.run(1)
    bring_for_read(worker, task, entry, wait_s=1.0)
    assert open_stores.versions()[task.task_id] > entry.version, "they do not go back for a read"
    open_stores.close()
    assert worker.readable.find(task.task_id) is None
    assert life.content() != before


def test_a_task_that_leaves_while_its_stores_are_opened_for_a_read_is_not_held(tmp_path: Path) -> None:
    open_stores = OpenStores()
    life = Life(tmp_path / "life", "ledger", "lmdb", open_stores)
    life.run(2)
    before = life.content()
    task = first_task(life)
    opening = StoreOpening(
        life.executor.worker,
        life.executor.worker.subtopology(task.subtopology),
        task,
        life.executor.coordinator.head.tasks[task.task_id],
    )
    open_stores.assign([task.task_id])

    def open_and_leave() -> TaskStores:
        opened = opening.hold()
        open_stores._assigned = frozenset()  # by the thread of commands
        return opened

    with pytest.raises(StoreNotHereError):
        open_stores.brought_for_read(task.task_id, opening.wanted, open_and_leave, wait_s=1.0)
    assert life.content() == before, "its lock is free, and it is as it was"


def test_a_read_does_not_wait_for_ever_for_stores_that_others_use(tmp_path: Path) -> None:
    open_stores = OpenStores()
    life = Life(tmp_path / "life", "ledger", "lmdb", open_stores)
    life.run(1)
    task = first_task(life)
    worker, entry = life.executor.worker, life.executor.coordinator.head.tasks[task.task_id]
    with open_stores._used(task.task_id), pytest.raises(TaskLockedError):
        bring_for_read(worker, task, entry, wait_s=0.01)
