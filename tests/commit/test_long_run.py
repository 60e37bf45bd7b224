"""Many small epochs, with kills: what an application holds on to does not grow.

1,000 epochs in the ordinary run, 5,000 with MILLSTREAM_SOAK=1; a fifth on RocksDB, which opens slowly.
In the first part the process is killed by SIGKILL at random failpoints and another one goes on; the last
process lives long, and its drivers are given up now and then without a word.

Live state is the bytes of the keys and values that the store holds. Disk is everything that the application
keeps to have that state, and to have it again: local stores, changelogs, manifests, leases, sealed files; not
the topics that a user reads and writes, which have a retention of their own. It is counted in blocks, after
upkeep.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.commit.long_lived import (
    APPLICATION,
    BATCH,
    CHANGELOG,
    INPUT,
    KEYS,
    KILL_POINTS,
    OUTPUT,
    CountingFiles,
    Plan,
    Seen,
    create,
    live,
    row_at,
    start,
)

from millstream.runtime.epoch import PlannedTask
from millstream.runtime.step import apply_commit
from millstream.state.backends import supplier
from millstream.testing.fault_points import UPKEEP_POINTS

SOAK = bool(os.environ.get("MILLSTREAM_SOAK"))
EPOCHS = 5_000 if SOAK else 1_000
KILLS = 60 if SOAK else 24
LARGEST = 3
"""Disk, in multiples of the live state."""
NEVER = 1 << 40


@pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="reads descriptors and memory in /proc")
@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_files_disk_memory_descriptors_and_work_stay_flat_over_many_epochs_with_kills(
    tmp_path: Path, backend: str
) -> None:
    share = 1 if backend == "lmdb" else 5
    epochs, kills = EPOCHS // share, KILLS // share
    root = tmp_path / "app"
    create(root)

    for life, point in enumerate(killing_points(kills)):
        after = random.Random(life).randrange(1, epochs // kills)
        assert ended(Plan(root, backend, life, NEVER, after, point, restart=0)) == -signal.SIGKILL, point
    records = KEYS + BATCH * max(epochs, 2 * epochs_so_far(root))
    assert ended(Plan(root, backend, kills, records, None, "", restart=0.01)) == 0

    seen = [Seen(**json.loads(line)) for line in (tmp_path / "seen.jsonl").read_text().splitlines()]
    last = [one for one in seen if one.life == kills]
    assert seen[-1].epoch >= epochs
    assert seen[-1].records == records
    stays_flat(seen, lambda one: one.files, factor=1.2, slack=20)
    stays_flat(seen, lambda one: one.disk, factor=1.3, slack=0)
    stays_flat(last, lambda one: one.descriptors, factor=1, slack=4)
    stays_flat(last, lambda one: one.resident, factor=1.2, slack=16 << 20)
    stays_flat(last, lambda one: one.operations, factor=1.2, slack=5)
    if SOAK:
        stays_flat(last, lambda one: one.epoch_s, factor=3, slack=0)
    disk_is_bounded(seen)
    nothing_is_lost(root, backend, records)


def killing_points(kills: int) -> list[str]:
    """Failpoints for the kills: those of upkeep first, for there are fewer of them."""
    rng = random.Random(kills)
    return [*UPKEEP_POINTS, *rng.choices(KILL_POINTS, k=kills)][:kills]


def epochs_so_far(root: Path) -> int:
    return max(int(path.name) for path in (root / "log/applications/app/manifests").glob("[0-9]*"))


def ended(plan: Plan) -> int | None:
    """Live one life in a process of its own; how it ended."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.commit.long_lived"])
    process = context.Process(target=live, args=(plan,))
    process.start()
    process.join(3_600)
    code = process.exitcode
    if code is None:
        process.kill()
    return code


def stays_flat(seen: Sequence[Seen], what: Callable[[Seen], float], *, factor: float, slack: float) -> None:
    """The largest of the second half is not much larger than the largest of the first."""
    half = len(seen) // 2
    assert half > 1, "too short to tell"
    early, late = (max(map(what, part)) for part in (seen[:half], seen[half:]))
    assert late <= factor * early + slack, (early, late, seen[-1])


def disk_is_bounded(seen: Sequence[Seen]) -> None:
    rows: dict[bytes, bytes | None] = {}
    done = 0
    for one in seen:
        rows.update(row_at(offset) for offset in range(done, one.records))
        done = one.records
        live_bytes = sum(len(key) + len(value) for key, value in rows.items() if value is not None)
        assert one.disk <= LARGEST * live_bytes, (one.disk / live_bytes, one)


def nothing_is_lost(root: Path, backend: str, records: int) -> None:
    """Every input has its output once, and the store is the fold of the input; also when it is restored."""
    rows = dict(row_at(offset) for offset in range(records))
    expected = {key: value for key, value in rows.items() if value is not None}
    for _ in range(2):
        executor = start(root, backend, CountingFiles())
        assert executor.log.latest(INPUT) == executor.log.latest(OUTPUT) == records
        assert executor.log.compacted(CHANGELOG).to > KEYS
        entry = executor.driver.head.tasks["0_0"]
        apply_commit(executor.worker, PlannedTask("0_0", 0, INPUT.partition, 0), entry)
        executor.close()
        with supplier(backend).open(root / "state" / APPLICATION / "0_0" / backend / "latest") as store:
            assert dict(store.scan()) == expected
        shutil.rmtree(root / "state")
