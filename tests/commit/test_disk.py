"""How much disk state takes: stores, changelogs, manifests and sealed files against the live keys and values.

As shipped: the settings are the default ones, and maintenance comes and rests as it does beside a running
engine (:mod:`millstream.maintenance.background`). Only that no epoch begins while it is at work, so that what
is found does not depend on how fast this machine is; how much comes meanwhile is measured by ``make bench``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.simulation.executor import InProcessExecutor
from tests.state.small_app import FastFiles

from millstream import Store, StreamsBuilder, Topology, serdes
from millstream.commit.coordinator import CoordinatorSettings
from millstream.commit.manifest_retention import Urgency
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.maintenance.background import BackgroundScheduler
from millstream.types import Partition

INPUT = TopicPartition("users", Partition(0))
KEYS = 100_000
VALUE_BYTES = 200
LIVE_BYTES = KEYS * (len(b"key-000000") + 8 + VALUE_BYTES)
"""A timestamp belongs to each value. None of it can be compressed, and keys come in no order."""


def topology(*, logging: bool = True) -> Topology:
    builder = StreamsBuilder()
    table = builder.table("users", key=serdes.bytes, value=serdes.bytes, store="users")
    if not logging:
        table.to_stream().group_by_key().count(store=Store("seen", logging=False))
    return builder.build()


def write(log: FileLog, numbers: list[int], chance: random.Random) -> None:
    keys = [b"key-%06d" % number for number in numbers]
    log.append(INPUT, record_batch(keys, [chance.randbytes(VALUE_BYTES) for _ in keys], [1] * len(keys)))


@contextmanager
def application(
    root: Path, backend: str, program: Topology, spare_bytes: int = CoordinatorSettings().spare_bytes
) -> Iterator[InProcessExecutor]:
    settings = CoordinatorSettings(max_records=KEYS, spare_bytes=spare_bytes)
    root.mkdir(0o700, exist_ok=True)
    with InProcessExecutor(
        program,
        application_id="app",
        log_root=root / "log",
        state_dir=root / "state",
        backend=backend,
        files=FastFiles(),
        clock=lambda: 1,
        settings=settings,
    ) as executor:
        yield executor


def create(root: Path) -> FileLog:
    root.mkdir(0o700)
    log = FileLog(root / "log", files=FastFiles())
    log.create_topic(INPUT.topic, TopicConfig(retention_bytes=1 << 20))
    return log


def disk(root: Path) -> int:
    """All but the input, which has a retention."""
    topic = root / "log" / "topics" / INPUT.topic
    files = (path for path in root.rglob("*") if path.is_file() and not path.is_relative_to(topic))
    return sum(path.stat().st_blocks * 512 for path in files)


@pytest.mark.parametrize("changed", [0.005, 0.05], ids=["few keys an epoch", "many keys an epoch"])
@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_state_takes_three_times_its_live_bytes_at_most(tmp_path: Path, backend: str, changed: float) -> None:
    chance = random.Random(1)
    log = create(tmp_path / "app")
    everybody = list(range(KEYS))
    chance.shuffle(everybody)
    after: list[float] = []
    with application(tmp_path / "app", backend, topology()) as executor:

        def run_maintenance() -> None:
            executor.maintenance.run()
            after.append(disk(tmp_path / "app") / LIVE_BYTES)

        maintenance = BackgroundScheduler(
            "maintenance", run_maintenance, interval=100, urgency=executor.maintenance.urgency
        )
        for at in range(0, KEYS, 5_000):
            write(log, everybody[at : at + 5_000], chance)
            executor.run_epoch()
            maintenance.epoch_ended()
            maintenance.wait()
        after.clear()
        while len(after) < 4:
            write(log, chance.sample(everybody, int(changed * KEYS)), chance)
            executor.run_epoch()
            maintenance.epoch_ended()
            maintenance.wait()
    assert max(after) <= 3, after


def test_few_epochs_are_kept_if_they_are_large_and_many_if_they_are_small(tmp_path: Path) -> None:
    chance = random.Random(2)
    log = create(tmp_path / "app")
    with application(tmp_path / "app", "memory", topology(), spare_bytes=0) as executor:
        for size in (KEYS, 1, 1):
            write(log, list(range(size)), chance)
            executor.run_epoch()
        executor.maintenance.run()
        found: list[int] = []
        for size, number in ((KEYS // 50, 10), (KEYS // 5, 10), (3, 110)):
            for _ in range(number):
                write(log, chance.sample(range(KEYS), size), chance)
                executor.run_epoch()
            found.append(executor.coordinator.head.epoch - executor.coordinator.head.oldest + 1)
    assert found[1:] == [2, 100]
    assert 3 <= found[0] <= 5


def test_a_coordinator_knows_what_the_one_before_it_has_left(tmp_path: Path) -> None:
    chance = random.Random(3)
    log = create(tmp_path / "app")
    with application(tmp_path / "app", "memory", topology(), spare_bytes=1 << 20) as executor:
        for _ in range(5):
            write(log, chance.sample(range(KEYS), 3_000), chance)
            executor.run_epoch()
        assert executor.maintenance.urgency() is Urgency.WORTH_IT
    with application(tmp_path / "app", "memory", topology(), spare_bytes=1 << 20) as executor:
        assert executor.maintenance.urgency() is Urgency.WORTH_IT
        executor.maintenance.run()
        assert executor.maintenance.urgency() is Urgency.NONE


def test_an_application_that_never_runs_for_long_is_tidied_up_too(tmp_path: Path) -> None:
    chance = random.Random(5)
    log = create(tmp_path / "app")
    found: list[int] = []
    for _ in range(130):
        with application(tmp_path / "app", "memory", topology(), spare_bytes=1 << 20) as executor:
            write(log, chance.sample(range(KEYS), 3), chance)
            executor.run_epoch()
            if executor.maintenance.urgency() >= Urgency.WORTH_IT:
                executor.maintenance.run()
        found.append(sum(1 for path in (tmp_path / "app").rglob("*") if path.is_file()))
    assert max(found[100:]) <= 1.1 * max(found[:100]), "files stay as many"


def test_what_is_in_sealed_files_only_is_kept_however_large(tmp_path: Path) -> None:
    chance = random.Random(4)
    log = create(tmp_path / "app")
    with application(tmp_path / "app", "memory", topology(logging=False), spare_bytes=0) as executor:
        for _ in range(10):
            write(log, chance.sample(range(KEYS), 2_000), chance)
            executor.run_epoch()
        assert executor.coordinator.head.oldest == 1
