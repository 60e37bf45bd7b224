"""Every failpoint, in this process and by SIGKILL of a child: whoever comes next finds everything in order.

"Before" a step is the failpoint of the step in front of it, "after" is its own, and a torn write is one that
was half done when the process ended. A life is a coordinator's start and an epoch. In the ordinary run the
first, the middle and the last hit of each failpoint in a life are crash sites, on LMDB. On RocksDB, and in
killed children (half of them on each backend), the first one is; for torn writes it is the last one. All of
them get all with MILLSTREAM_SOAK=1.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from tests.commit.ended_lives import crash_in_a_life, kill_a_child
from tests.simulation import fault_child
from tests.simulation.fault_points import EPOCH_POINTS, LMDB_POINTS, OPENING_POINTS
from tests.simulation.fault_world import World

from millstream import failpoints

SOAK = bool(os.environ.get("MILLSTREAM_SOAK"))
UNREACHED = {
    **dict.fromkeys(
        (
            "log.rewritten_named",
            "log.replaced_removed",
            "maintenance.manifest_removed",
            "maintenance.file_collected",
        ),
        "maintenance runs beside the epochs: see test_maintenance.py",
    ),
    "log.start_moved": "retention is not part of the commit",
    "log.tail_cut": "only after a torn write: see below",
    "log.partitions_built": "no application adds partitions",
    "log.partitions_counted": "no application adds partitions",
    "log.topic_unnamed": "no application deletes topics",
    "state.task_renamed": "nothing is left unused for so long: see test_cleaning.py",
    **dict.fromkeys(
        ("state.rewrite_copied", "state.rewrite_removed", "state.rewrite_placed"),
        "no store is large and mostly free: see test_rewritten_stores.py",
    ),
    "log.topic_built": "only in an application's first life: see below",
    "log.topic_named": "only in an application's first life: see below",
}
UNREACHED |= {
    name: "only with snapshots: see test_snapshot_crash_sites.py"
    for name in failpoints.REGISTRY
    if name.startswith("snapshot.")
}
UNREACHED |= {
    name: "only for batches from outside: see test_batch_writes.py"
    for name in failpoints.REGISTRY
    if name.startswith("writer.")
}
POINTS = [name for name in failpoints.REGISTRY if name not in UNREACHED]
SITES = [
    (backend, point)
    for backend in ("lmdb", "rocksdb")
    for point in POINTS
    if backend == "lmdb" or point not in LMDB_POINTS
]


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, World]:
    """A world per backend, after some epochs and an orderly end, with input that is left.

    Four entries fill a segment of a topic, so the epoch that follows starts new ones.
    """
    worlds: dict[str, World] = {}
    for backend in ("lmdb", "rocksdb"):
        with World(tmp_path_factory.mktemp(backend), "ledger", backend).create_topics() as world:
            world.append(48)
            for _ in range(4):
                world.epoch()
            world.close()
        worlds[backend] = world
    return worlds


@pytest.fixture(scope="module")
def hits(histories: dict[str, World], tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """How often each failpoint is passed in a life."""
    counted: Counter[str] = Counter()
    with histories["lmdb"].copy_to(tmp_path_factory.mktemp("dry") / "run") as world, ExitStack() as arms:
        for name in failpoints.REGISTRY:
            arms.enter_context(failpoints.armed(name, partial(counted.update, [name])))
        live(world)
    return counted


def live(world: World) -> None:
    world.open()
    world.epoch()


def first_or_last(hits: int, action: failpoints.Action) -> Sequence[int]:
    return range(hits) if SOAK else [hits - 1 if action in ("torn", "torn-raise") else 0]


def some_of(hits: int) -> Sequence[int]:
    return range(hits) if SOAK else sorted({0, hits // 2, hits - 1})


def recover(world: World) -> None:
    """Start a new coordinator after a crash, run to the end of the input; the oracle looks at every stage."""
    assert world.backlog() > 0
    world.check_versions()
    world.open()
    world.check()
    world.finish()
    world.check()
    world.remove()


def test_every_failpoint_is_passed_in_a_life(hits: Counter[str]) -> None:
    assert set(hits) == set(POINTS)


@pytest.mark.parametrize("action", ["raise", "torn-raise"])
@pytest.mark.parametrize(("backend", "point"), SITES)
def test_a_crash_at_any_site_is_recovered_from(
    histories: dict[str, World],
    hits: Counter[str],
    tmp_path: Path,
    backend: str,
    point: str,
    action: failpoints.Action,
) -> None:
    every = backend == "lmdb" and action == "raise"
    for skip in some_of(hits[point]) if every else first_or_last(hits[point], action):
        with histories[backend].copy_to(tmp_path / str(skip)) as world:
            crash_in_a_life(world, live, point, action, skip)
            recover(world)


@pytest.mark.parametrize("action", ["kill", "torn"])
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_process_is_recovered_from(
    histories: dict[str, World], hits: Counter[str], tmp_path: Path, point: str, action: failpoints.Action
) -> None:
    for skip in first_or_last(hits[point], action):
        # Every other hit on the other backend: each of them meets each failpoint in the long run.
        backend = "lmdb" if point in LMDB_POINTS else ("lmdb", "rocksdb")[(POINTS.index(point) + skip) % 2]
        with histories[backend].copy_to(tmp_path / str(skip)) as world:
            kill_a_child(world, f"{point}={action}@{skip}")
            recover(world)


@pytest.mark.parametrize("action", ["kill", "torn"])
@pytest.mark.parametrize("point", ["log.topic_built", "log.topic_named"])
def test_a_process_killed_while_it_makes_topics_is_recovered_from(
    tmp_path: Path, point: str, action: failpoints.Action
) -> None:
    with World(tmp_path, "ledger", "lmdb").create_topics() as world:
        world.append(24)
        kill_a_child(world, f"{point}={action}@0")
        world.check_to_the_end()


def test_a_process_killed_while_it_cuts_a_torn_tail_is_recovered_from(
    histories: dict[str, World], tmp_path: Path
) -> None:
    with histories["lmdb"].copy_to(tmp_path / "world") as world:
        for partition in world.folder.rglob("topics/app-latest-changelog/*/end"):
            with max(partition.parent.glob("*.segment")).open("ab") as segment:
                segment.write(b"MSEN")  # a write that was torn
        kill_a_child(world, "log.tail_cut=kill@0")
        recover(world)


def test_a_program_killed_by_its_environment_is_recovered_from(
    histories: dict[str, World], tmp_path: Path
) -> None:
    with histories["rocksdb"].copy_to(tmp_path / "world") as world:
        command = [sys.executable, "-m", fault_child.__name__]
        done = subprocess.run(
            [*command, str(world.folder), world.name, world.backend, str(world.now)],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                failpoints.ENVIRONMENT_VARIABLE: "commit.store_applied=kill@8",
            },
            check=False,
            timeout=120,
        )
        assert done.returncode == -9
        assert world.backlog() > 0
        world.check()
        world.check_to_the_end()


@pytest.mark.parametrize("action", ["raise", "torn-raise"])
@pytest.mark.parametrize("point", ["log.topic_built", "log.topic_named"])
def test_a_crash_while_topics_are_made_is_recovered_from(
    tmp_path: Path, point: str, action: failpoints.Action
) -> None:
    with World(tmp_path, "ledger", "lmdb").create_topics() as world:
        world.crash(point, action)
        world.check_to_the_end()


@pytest.mark.parametrize("action", ["raise", "torn-raise"])
def test_a_crash_while_a_torn_tail_is_cut_is_recovered_from(
    histories: dict[str, World], tmp_path: Path, action: failpoints.Action
) -> None:
    with histories["lmdb"].copy_to(tmp_path / "world") as world:
        world.open()
        world.crash("log.locked", "torn-raise")
        with failpoints.armed("log.tail_cut", action) as armed, pytest.raises(failpoints.InjectedCrash):
            world.open()
        assert armed.fired
        world.check_to_the_end()


@pytest.mark.parametrize("backend", ["lmdb", "rocksdb"])
def test_stores_of_one_task_recover_from_a_crash_between_their_applies(
    histories: dict[str, World], tmp_path: Path, backend: str
) -> None:
    with histories[backend].copy_to(tmp_path / "world") as world:
        before = versions(world, "0_0")
        world.open()
        world.crash_at(("commit.ended", "commit.store_applied"))
        between = versions(world, "0_0")
        assert before == {"latest": 5, "large": 5, "visits": 5}
        assert between == {"latest": 7, "large": 5, "visits": 5}

        world.open()
        world.check()
        world.epoch()

        assert versions(world, "0_0") == {"latest": 9, "large": 9, "visits": 9}
        world.check_to_the_end()


STARTS = ["commit.leased", "durable.linked", "commit.manifest_written", "commit.fenced", "commit.published"]


@pytest.mark.parametrize("second", OPENING_POINTS if SOAK else STARTS)
@pytest.mark.parametrize("first", EPOCH_POINTS if SOAK else ["durable.linked", "commit.manifest_written"])
def test_a_crash_in_the_start_after_a_crash_is_recovered_from(
    histories: dict[str, World], tmp_path: Path, first: str, second: str
) -> None:
    """With and without a power cut at the end: what the second coordinator built on must be durable."""
    for number, cut in enumerate((False, True)):
        with histories["lmdb"].copy_to(tmp_path / str(number)) as world:
            world.open()
            if first.startswith("durable"):
                world.crash_at(("commit.checked", first))
            else:
                world.crash(first)
            world.crash(second)
            if cut:
                world.power_cut()
            recover(world)


def versions(world: World, task: str) -> dict[str, int]:
    copies = world.facts(settled=False).stores
    return {store: copy.version for (at, store), copy in copies.items() if at == task}
