"""Joins by foreign key when every life ends at a step of the commit, and when disks are lost."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from tests.commit.rows_of_log import rows_of
from tests.processors.foreign_key_oracle import LEFT, RIGHT, WORDS, Event, Tables, joined, reference
from tests.simulation.executor import InProcessExecutor

from millstream import Store, StreamsBuilder, StreamsConfig, Topology, failpoints
from millstream.commit.application_storage import ApplicationStorage
from millstream.commit.coordinator import CoordinatorSettings
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.log.partitioner import partition_for_key
from millstream.query.replica import StoreReplica
from millstream.types import Partition

STEPS = [name for name in failpoints.REGISTRY if name.startswith("commit.")]
LIVES: Final = 4
RECORDS_OF_AN_EPOCH: Final = 6
COUNTS: Final = {LEFT: 2, RIGHT: 3}


def program() -> Topology:
    """A join, and its result joined back: three steps, with two copies of the left table."""
    builder = StreamsBuilder()
    left: Any = builder.table(LEFT, store=Store(LEFT, **WORDS), **WORDS)
    right: Any = builder.table(RIGHT, store=Store(RIGHT, caching=False, **WORDS), **WORDS)
    result = left.foreign_key_join(right, reference, joined, name="refer", store=Store("result", **WORDS))
    result.left_join(left, joined).to_stream().to("out", **WORDS)
    return builder.build()


def events() -> Iterator[Event]:
    rng = random.Random(5)
    for time in range(70):
        if rng.random() < 0.6:
            value = None if rng.random() < 0.15 else f"{rng.choice(('f0', 'f1', 'f2', ''))}:{time}"
            yield LEFT, f"k{rng.randrange(6)}", value, time
        else:
            yield RIGHT, f"f{rng.randrange(3)}", rng.choice((f"w{time}", f"w{time}", None)), time


@dataclass
class Application:
    """Both tables' records in the log, and the program."""

    folder: Path
    snapshots: bool = False

    def __post_init__(self) -> None:
        self.log = FileLog(self.folder / "log")
        for topic, count in COUNTS.items():
            self.log.create_topic(topic, TopicConfig(partitions=count))
        places: dict[TopicPartition, list[Event]] = {}
        for event in events():
            topic, key = event[:2]
            partition = Partition(partition_for_key(key.encode(), COUNTS[topic]))
            places.setdefault(TopicPartition(topic, partition), []).append(event)
        for place, some in places.items():
            keys, values = [key.encode() for _, key, _, _ in some], [value for _, _, value, _ in some]
            data = [None if value is None else value.encode() for value in values]
            self.log.append(place, record_batch(keys, data, [time for *_, time in some]))

    def open(self) -> InProcessExecutor:
        uri = (self.folder / "snapshots").as_uri() if self.snapshots else None
        return InProcessExecutor(
            program(),
            application_id="app",
            log_root=self.folder / "log",
            state_dir=self.folder / "state",
            settings=CoordinatorSettings(max_records=RECORDS_OF_AN_EPOCH),
            config=StreamsConfig(snapshot_uri=uri, snapshot_interval_epochs=2) if uri else None,
            clock=lambda: 1_000,
        )

    def finish(self) -> dict[str, list[tuple[Any, ...]]]:
        """Run to the end of the input; all that is in the log then, changelogs included."""
        with self.open() as app:
            app.run_until_caught_up()
        return rows_of(self.log)

    def store(self, name: str) -> dict[str, Any]:
        storage = ApplicationStorage(self.folder / "log", "app")
        return dict(StoreReplica(storage, self.log, program().plan(), name).all())


@cache
def unharmed() -> dict[str, list[tuple[Any, ...]]]:
    with TemporaryDirectory() as folder:
        return Application(Path(folder)).finish()


@cache
def expected() -> dict[str, str]:
    tables = Tables()
    tables.take(events())
    return tables.inner()


def test_the_result_and_its_changelogs_are_what_both_tables_say() -> None:
    rows = unharmed()
    last = {key.decode(): value and value.decode() for key, value, _ in rows["out"]}
    assert {key: value for key, value in last.items() if value} == {
        key: f"{value}+{value.partition('+')[0]}" for key, value in expected().items()
    }
    assert [topic for topic in rows if topic.endswith("-changelog")] == [
        "app-l-changelog",
        "app-l-copy-10000-changelog",
        "app-r-changelog",
        "app-refer-subscription-store-changelog",
        "app-result-changelog",
    ]
    assert sorted(map(str, rows["app-l-copy-10000-changelog"])) == sorted(map(str, rows["app-l-changelog"]))


@pytest.mark.parametrize("step", STEPS)
def test_all_is_as_if_nothing_had_happened_if_every_life_ends_at_a_step(tmp_path: Path, step: str) -> None:
    application = Application(tmp_path)
    for _ in range(LIVES):
        with application.open() as app, failpoints.armed(step), suppress(failpoints.InjectedCrash):
            app.run_epoch()
    assert application.finish() == unharmed()


@pytest.mark.parametrize("snapshots", [False, True], ids=["from changelogs", "from snapshots"])
def test_all_is_as_if_nothing_had_happened_if_the_disk_is_lost(tmp_path: Path, snapshots: bool) -> None:
    application = Application(tmp_path, snapshots)
    for _ in range(3):
        with application.open() as app:
            for _ in range(3):
                app.run_epoch()
        shutil.rmtree(tmp_path / "state")
    assert application.finish() == unharmed()
    assert application.store("result") == expected()
