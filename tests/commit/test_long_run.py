"""Many small epochs, with kills: what an application holds on to does not grow.

5,000 epochs on each backend with MILLSTREAM_SOAK=1; in the ordinary run 500 on one, fewer on the others.
In the first part the process is killed by SIGKILL at random failpoints of epochs, maintenance, snapshots and
restores, and another one goes on; the last process lives long, and its coordinators are given up now and then
without a word. Windows expire and snapshots are taken all through the run.

Live state is the bytes of the keys and values that the stores hold. Disk is everything that the application
keeps to have that state, and to have it again: local stores, changelogs, manifests, leases, sealed files; not
the topics that a user reads and writes, which have a retention of their own. Snapshots, of which the user
says how many, are counted by themselves. All is counted in blocks, after maintenance.
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
from tests.commit.long_life_model import KEYS, Model
from tests.commit.long_lived import (
    APPLICATION,
    BATCH,
    CHANGELOGS,
    INPUT,
    KILL_POINTS,
    OUTPUT,
    RARE_POINTS,
    RETAINED_SNAPSHOTS,
    STORES,
    TASK,
    CountingFiles,
    Plan,
    Seen,
    create,
    live,
    start,
)

from millstream.commit.store_opening import apply_commit
from millstream.state.backends import supplier
from millstream.state.changelog.follow import Progress

SOAK = bool(os.environ.get("MILLSTREAM_SOAK"))
LENGTHS = {"lmdb": (500, 15), "rocksdb": (150, 6), "memory": (150, 6)}
"""How many epochs the ordinary run has, and how many kills."""
LARGEST = 3
"""Disk, in multiples of the live state."""
LARGEST_COPY = 1.5
"""A snapshot, in the same."""
NEVER = 1 << 40


@pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="reads descriptors and memory in /proc")
@pytest.mark.parametrize("backend", LENGTHS)
def test_files_disk_memory_descriptors_and_work_stay_flat_over_many_epochs_with_kills(
    tmp_path: Path, backend: str
) -> None:
    epochs, kills = (5_000, 60) if SOAK else LENGTHS[backend]
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
    stays_flat(last, lambda one: one.snapshots, factor=1.2, slack=0)
    stays_flat(last, lambda one: one.descriptors, factor=1, slack=4)
    stays_flat(last, lambda one: one.resident, factor=1.2, slack=16 << 20)
    stays_flat(last, lambda one: one.operations, factor=1.2, slack=5)
    if SOAK:
        stays_flat(last, lambda one: one.epoch_s, factor=3, slack=0)
    model = Model()
    disk_is_bounded(seen, model)
    nothing_is_lost(root, backend, model)


def killing_points(kills: int) -> list[str]:
    """Failpoints for the kills: those of maintenance and snapshots first, for there are fewer of them."""
    rng = random.Random(kills)
    rare = rng.sample(RARE_POINTS, len(RARE_POINTS))
    return [*rare, *rng.choices(KILL_POINTS, k=kills)][:kills]


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


def disk_is_bounded(seen: Sequence[Seen], model: Model) -> None:
    first_live: list[int] = []
    for one in seen:
        model.take_to(one.records)
        live_bytes = model.live_bytes()
        assert one.disk <= LARGEST * live_bytes, (one.disk / live_bytes, one)
        copies = RETAINED_SNAPSHOTS + 1  # the last one may be half of one that was killed
        assert one.snapshots <= copies * LARGEST_COPY * live_bytes, (one.snapshots / live_bytes, one)
        first_live.append(model.first_live)
    assert first_live[-1] > first_live[0] + 3, "windows are to expire all through the run"


def nothing_is_lost(root: Path, backend: str, model: Model) -> None:
    """Every input has its output once, and each store is what the model says.

    Also when the disk is lost and comes from the newest snapshot and what was written since, and when it
    comes from the changelogs alone.
    """
    restores = Restores()
    for source in ("what is there", "snapshot", "changelog"):
        executor = start(root, backend, CountingFiles(), restores)
        assert executor.log.latest(INPUT) == executor.log.latest(OUTPUT) == model.records
        assert all(executor.log.compacted(place).to > 0 for place in CHANGELOGS)
        head = executor.coordinator.head.tasks[TASK.task_id]
        apply_commit(executor.worker, TASK, head)
        executor.close()
        assert stored(root, backend) == model.stores(), source
        if source == "snapshot":
            assert restores.snapshots.keys() == set(STORES)
            assert all(0 < version < head.version for version in restores.snapshots.values())
            assert all(0 < restores.records[store] < head.changelogs[store] // 2 for store in STORES)
            shutil.rmtree(root / "snapshots")
        elif source == "changelog":
            assert not restores.snapshots
            assert restores.records == head.changelogs
        shutil.rmtree(root / "state")
        restores.forget()


def stored(root: Path, backend: str) -> dict[str, dict[bytes, bytes]]:
    rows: dict[str, dict[bytes, bytes]] = {}
    for store in STORES:
        with supplier(backend).open(root / "state" / APPLICATION / TASK.task_id / backend / store) as opened:
            rows[store] = dict(opened.scan())
    return rows


class Restores:
    """Where stores came from."""

    def __init__(self) -> None:
        self.snapshots: dict[str, int] = {}
        """The version of the snapshot, by store."""
        self.records: dict[str, int] = {}
        """How many offsets of the changelog came afterwards."""

    def forget(self) -> None:
        self.snapshots.clear()
        self.records.clear()

    def on_start(self, progress: Progress) -> None: ...
    def on_batch(self, progress: Progress) -> None: ...
    def on_suspended(self, progress: Progress) -> None: ...

    def on_end(self, progress: Progress) -> None:
        if progress.snapshot is not None:
            self.snapshots[progress.store] = progress.snapshot
        else:
            self.records[progress.store] = progress.records
