"""How much disk state takes: stores, changelogs, manifests and sealed files against the live keys and values.

Upkeep comes whenever there is much to do, with what the engine gives it; but here it never rests, as it does
beside a running engine (:mod:`millstream.runtime.beside`): it is what upkeep can do, not what it always does.
What small state may take besides is set to nothing: the state here is small, and must do as if it were large.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.state.small_app import FastFiles

from millstream import Store, StreamsBuilder, Topology, serdes
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.runtime.commit import DriverSettings
from millstream.testing.executor import InProcessExecutor
from millstream.types import Partition

INPUT = TopicPartition("users", Partition(0))
KEYS = 40_000
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
def application(root: Path, backend: str, program: Topology, spare_bytes: int) -> Iterator[InProcessExecutor]:
    settings = DriverSettings(max_records=KEYS, spare_bytes=spare_bytes)
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


@pytest.mark.parametrize("changed", [0.003, 0.05], ids=["few keys an epoch", "many keys an epoch"])
@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_state_takes_three_times_its_live_bytes_at_most(tmp_path: Path, backend: str, changed: float) -> None:
    chance = random.Random(1)
    log = create(tmp_path / "app")
    after: list[float] = []
    """Of every second time: the first one closes segments, the second compacts them."""
    times = 0
    everybody = list(range(KEYS))
    chance.shuffle(everybody)
    with application(tmp_path / "app", backend, topology(), spare_bytes=0) as executor:
        for at in range(0, KEYS, 4_000):
            write(log, everybody[at : at + 4_000], chance)
            executor.run_epoch()
        while len(after) < 6:
            write(log, chance.sample(everybody, int(changed * KEYS)), chance)
            executor.run_epoch()
            if executor.driver.has_much_to_tend:
                executor.driver.tend()
                times += 1
                if times % 2 == 0:
                    after.append(disk(tmp_path / "app") / LIVE_BYTES)
    assert max(after) <= 3, after


def test_few_epochs_are_kept_if_they_are_large_and_many_if_they_are_small(tmp_path: Path) -> None:
    chance = random.Random(2)
    log = create(tmp_path / "app")
    with application(tmp_path / "app", "memory", topology(), spare_bytes=0) as executor:
        write(log, list(range(KEYS)), chance)
        executor.run_epoch()
        found: list[int] = []
        for size, number in ((KEYS // 50, 10), (KEYS // 5, 10), (3, 110)):
            for _ in range(number):
                write(log, chance.sample(range(KEYS), size), chance)
                executor.run_epoch()
            found.append(executor.driver.head.epoch - executor.driver.head.oldest + 1)
    assert found[1:] == [2, 100]
    assert 3 <= found[0] <= 5


def test_a_driver_knows_what_the_one_before_it_has_left(tmp_path: Path) -> None:
    chance = random.Random(3)
    log = create(tmp_path / "app")
    with application(tmp_path / "app", "memory", topology(), spare_bytes=1 << 20) as executor:
        for _ in range(2):
            write(log, chance.sample(range(KEYS), 3_000), chance)
            executor.run_epoch()
        assert executor.driver.has_much_to_tend
    with application(tmp_path / "app", "memory", topology(), spare_bytes=1 << 20) as executor:
        assert executor.driver.has_much_to_tend
        executor.driver.tend()
        assert not executor.driver.has_much_to_tend


def test_an_application_that_never_runs_for_long_is_tidied_up_too(tmp_path: Path) -> None:
    chance = random.Random(5)
    log = create(tmp_path / "app")
    found: list[int] = []
    for _ in range(130):
        with application(tmp_path / "app", "memory", topology(), spare_bytes=1 << 20) as executor:
            write(log, chance.sample(range(KEYS), 3), chance)
            executor.run_epoch()
            if executor.driver.has_much_to_tend:
                executor.driver.tend()
        found.append(sum(1 for path in (tmp_path / "app").rglob("*") if path.is_file()))
    assert max(found[100:]) <= 1.1 * max(found[:100]), "files stay as many"


def test_what_is_in_sealed_files_only_is_kept_however_large(tmp_path: Path) -> None:
    chance = random.Random(4)
    log = create(tmp_path / "app")
    with application(tmp_path / "app", "memory", topology(logging=False), spare_bytes=0) as executor:
        for _ in range(10):
            write(log, chance.sample(range(KEYS), 2_000), chance)
            executor.run_epoch()
        assert executor.driver.head.oldest == 1
