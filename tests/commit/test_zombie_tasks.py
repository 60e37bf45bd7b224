"""A task's attempt that comes late: what it would need is collected, and it is told so."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.executor import InProcessExecutor
from tests.state.small_app import FastFiles

from millstream import Processor, Record, StreamsBuilder, Topology, serdes, stores
from millstream.commit.coordinator import CoordinatorSettings
from millstream.commit.epoch_job import PlannedTask
from millstream.commit.manifest import TaskEntry
from millstream.commit.store_opening import apply_commit, opened_stores
from millstream.durable import DamagedFileError
from millstream.log import FileLog, TopicPartition, record_batch
from millstream.state.backends import NAMES
from millstream.state.errors import StoreAheadError, ZombieTaskError
from millstream.types import Partition

PLACE = TopicPartition("orders", Partition(0))
TASK = PlannedTask("0_0", 0, Partition(0), 0)


class Count(Processor[str, str, str, int]):
    """Counts in a store without a changelog: only sealed files have what is written to it."""

    def init(self, context: Any) -> None:
        super().init(context)
        self._visits = context.state_store("visits")

    def process(self, record: Record[str, str]) -> None:
        count = (self._visits.get(record.key) or 0) + 1
        self._visits.put(record.key, count)
        self.context.forward(record.with_value(count))


def topology() -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("visits", key=serdes.string, value=serdes.int64, logging=False))
    counted = builder.stream("orders", key=serdes.string, value=serdes.string).process(Count, "visits")
    counted.to("counted", key=serdes.string, value=serdes.int64)
    return builder.build()


@pytest.fixture(params=NAMES)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InProcessExecutor]:
    """An application that keeps two manifests, on each backend in turn."""
    tmp_path.chmod(0o700)
    log = FileLog(tmp_path / "log", files=FastFiles())
    for topic in ("orders", "counted"):
        log.create_topic(topic)
    with InProcessExecutor(
        topology(),
        application_id="app",
        log_root=tmp_path / "log",
        state_dir=tmp_path / "state",
        backend=request.param,
        settings=CoordinatorSettings(retained_manifests=2),
        files=FastFiles(),
    ) as executor:
        yield executor


def committed(app: InProcessExecutor, epochs: int = 1) -> TaskEntry:
    """Run epochs of a record each, tidy up after each, and return what the last has of the task."""
    for _ in range(epochs):
        app.log.append(PLACE, record_batch([b"ann"], [b"bread"], [0]))
        app.run_epoch()
        app.run_maintenance()
    return app.coordinator.head.tasks["0_0"]


def lose_disk(app: InProcessExecutor) -> None:
    """Local stores are gone."""
    shutil.rmtree(app.worker.directory.task("app", "0_0").path)


def count(app: InProcessExecutor, entry: TaskEntry) -> dict[bytes, int]:
    """What the store holds at an entry."""
    with opened_stores(app.worker, app.worker.subtopology(0), TASK, entry) as backends:
        return {key: int.from_bytes(value, "big") for key, value in backends["visits"].scan()}


@pytest.mark.parametrize("epochs", [1, 3], ids=["the next version", "a version far ahead"])
def test_a_task_that_applies_a_commit_whose_files_are_collected_is_told_that_it_is_a_zombie(
    app: InProcessExecutor, epochs: int
) -> None:
    of_the_past = committed(app, epochs)
    head = committed(app, 4)
    assert not (app.log.root / of_the_past.file).exists()
    lose_disk(app)

    with pytest.raises(ZombieTaskError) as caught:
        apply_commit(app.worker, TASK, of_the_past)

    assert str(caught.value).startswith(
        f"Task 0_0 of application 'app' was to bring its stores to version {of_the_past.version}, but has "
        f"committed version {head.version} since"
    )


def test_a_zombie_changes_nothing(app: InProcessExecutor) -> None:
    of_the_past = committed(app)
    head = committed(app, 4)

    with pytest.raises(StoreAheadError):
        apply_commit(app.worker, TASK, of_the_past)

    assert count(app, head) == {b"ann": 5}


def test_a_task_that_is_at_the_head_but_far_behind_is_no_zombie(app: InProcessExecutor) -> None:
    head = committed(app, 5)
    lose_disk(app)
    assert count(app, head) == {}  # without a changelog it forgets


def test_a_sealed_file_of_the_head_that_somebody_deleted_is_named(app: InProcessExecutor) -> None:
    committed(app)
    app.apply_after_commit = False
    head = committed(app)
    (app.log.root / head.file).unlink()

    with pytest.raises(DamagedFileError, match=rf"{head.file} is missing: the file that task 0_0 sealed"):
        apply_commit(app.worker, TASK, head)
