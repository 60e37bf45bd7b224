"""Every failpoint of a snapshot and of a restore from one, in this process and by SIGKILL of a child.

A life is a coordinator's start and an epoch after which every task gets a snapshot that replaces the one
before; for a restore the local disk was lost before. Whoever comes next finds only whole snapshots, takes new
ones, and restores from them. On LMDB the first, the middle and the last hit of a life are crash sites, on the
other backends and in killed children the first one is; every hit is with MILLSTREAM_SOAK=1.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from tests.commit.ended_lives import crash_in_a_life, kill_a_child
from tests.simulation.fault_points import RESTORE_POINTS, SNAPSHOT_POINTS
from tests.simulation.fault_world import World

from millstream import failpoints

SOAK = bool(os.environ.get("MILLSTREAM_SOAK"))
POINTS = (*SNAPSHOT_POINTS, *RESTORE_POINTS)
BACKENDS = ("lmdb", "rocksdb", "memory")


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, World]:
    """A world per backend, after some epochs with snapshots and an orderly end, with input that is left."""
    folder, worlds = tmp_path_factory.mktemp("worlds"), dict[str, World]()
    for backend in BACKENDS:
        with World(folder / backend, "ledger", backend, snapshot_interval=1).create_topics() as world:
            world.append(48)
            for _ in range(3):
                world.epoch()
            world.close()
            assert world.check_snapshots() == 8  # four tasks, of three stores and of one
        worlds[backend] = world
    return worlds


@pytest.fixture(scope="module")
def hits(histories: dict[str, World], tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """How often each failpoint is passed in a life after the disk was lost."""
    counted: Counter[str] = Counter()
    with histories["lmdb"].copy_to(tmp_path_factory.mktemp("dry") / "run") as world, ExitStack() as arms:
        for name in POINTS:
            arms.enter_context(failpoints.armed(name, partial(counted.update, [name])))
        live(world)
    return counted


def live(world: World) -> None:
    world.lose_local_state()
    world.open()
    world.epoch()


def sites(hits: int, *, few: bool = True) -> Sequence[int]:
    if SOAK:
        return range(hits)
    return [0] if few else sorted({0, hits // 2, hits - 1})


def recover(world: World) -> None:
    """Go on after a crash; then lose everything local, and go on from the snapshots."""
    assert world.backlog() > 0
    world.check_snapshots()
    world.check_versions()
    world.open()
    world.check()
    world.epoch()
    assert world.check_snapshots() == 8
    world.happened.clear()
    world.lose_local_state()
    world.epoch()
    assert world.happened["restored from a snapshot"] > 0  # of every task that got records
    world.finish()
    world.check()
    assert world.check_snapshots() == 8
    world.remove()


def test_every_failpoint_is_passed_in_a_life(hits: Counter[str]) -> None:
    assert set(hits) == set(POINTS) == {name for name in failpoints.REGISTRY if name.startswith("snapshot.")}


@pytest.mark.parametrize("action", ["raise", "torn-raise"])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_crash_at_any_step_of_a_snapshot_is_recovered_from(
    histories: dict[str, World],
    hits: Counter[str],
    tmp_path: Path,
    backend: str,
    point: str,
    action: failpoints.Action,
) -> None:
    for skip in sites(hits[point], few=backend != "lmdb"):
        with histories[backend].copy_to(tmp_path / str(skip)) as world:
            crash_in_a_life(world, live, point, action, skip)
            recover(world)


@pytest.mark.parametrize("action", ["kill", "torn"])
@pytest.mark.parametrize("point", POINTS)
def test_a_process_killed_at_any_step_of_a_snapshot_is_recovered_from(
    histories: dict[str, World], hits: Counter[str], tmp_path: Path, point: str, action: str
) -> None:
    for skip in sites(hits[point]):
        backend = BACKENDS[(POINTS.index(point) + skip + (action == "torn")) % len(BACKENDS)]
        with histories[backend].copy_to(tmp_path / str(skip)) as world:
            world.lose_local_state()
            kill_a_child(world, f"{point}={action}@{skip}")
            recover(world)


@pytest.mark.parametrize("point", SNAPSHOT_POINTS)
def test_a_power_cut_in_a_snapshot_leaves_whole_ones_only(
    histories: dict[str, World], hits: Counter[str], tmp_path: Path, point: str
) -> None:
    for skip in sites(hits[point], few=False):
        with histories["lmdb"].copy_to(tmp_path / str(skip)) as world:
            with failpoints.armed(point, skip=skip), pytest.raises(failpoints.InjectedCrash):
                live(world)
            world.power_cut()
            recover(world)
