"""Snapshots: what taking one costs the epochs, and restoring from one against copying and the changelog.

"Copying the files" reads every file of the snapshot and writes it durably, as a restore does, but checks
nothing and makes no store of it. The second snapshot follows a change of one key in a hundred. While epochs
run, the snapshot is taken by another process, as Spark does it.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from benchmarks.applications import workplace
from benchmarks.figures import Figure, Scale, at_most, measured, ratio
from benchmarks.one_task import Keys, OneTask, drawn
from benchmarks.timing import alternately, seconds
from millstream.state.snapshots.taking import Outcome

__all__ = ["snapshots"]

BACKENDS = ("lmdb", "rocksdb")
"""Those on disk: what is in memory is copied by the process that has it, between its epochs."""
COPYING = 1.25
SLOWER = 1.2
KEYS_PER_EPOCH = 1_000


def snapshots(scale: Scale) -> list[Figure]:
    """Restores of a million keys; epochs beside snapshots of ten millions."""
    restored = Keys(scale.of(1_000_000, 50_000))
    beside = Keys(scale.of(10_000_000, 50_000))
    return [
        figure
        for backend in BACKENDS
        for figure in (
            *_restores(backend, restored, scale.of(5, 2)),
            *_beside(backend, beside, scale.of(300, 20)),
        )
    ]


def _restores(backend: str, keys: Keys, rounds: int) -> list[Figure]:
    with workplace() as folder:
        task = OneTask(folder, backend)
        task.fill(keys)
        task.restore(None)
        first_s = seconds(task.take)
        task.write([keys[number] for number in range(0, keys.count, 100)])
        changed = task.take()
        taken = alternately(
            {
                "snapshot": lambda: task.restore(task.storage),
                "changelog": lambda: task.restore(None),
                "copy": task.copy_files,
            },
            rounds,
        )
    name = f"{backend}, {keys.count:,} keys"
    group = "restore"
    restored = measured(f"{name}: restore from a snapshot", taken["snapshot"], group=group)
    followed = measured(f"{name}: restore from the changelog", taken["changelog"], group=group)
    copied = measured(f"{name}: copy the files", taken["copy"], group=group)
    return [
        restored,
        followed,
        copied,
        at_most(ratio(f"{name}: snapshot against copying", restored, copied), COPYING),
        ratio(f"{name}: changelog against snapshot", followed, restored),
        Figure(f"{name}: first snapshot", first_s, "s"),
        Figure(f"{name}: stored after a change of 1 %", changed.stored_bytes / changed.total_bytes, "x"),
    ]


def _beside(backend: str, keys: Keys, epochs: int) -> list[Figure]:
    """Epochs alone, and while another process takes one snapshot after the other."""
    with workplace() as folder, ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
        task = OneTask(folder, backend)
        task.fill(keys)
        task.restore(None)
        other.submit(int).result()  # it has started
        chance = random.Random(5)
        _epochs(task, keys, chance, lambda done: done == epochs // 10)
        alone = _epochs(task, keys, chance, lambda done: done == epochs)
        taken = 0
        during: list[float] = []
        while len(during) < epochs:
            snapshot = other.submit(task.take)
            during += _epochs(task, keys, chance, partial(_is_done, snapshot))
            snapshot.result()
            taken += 1
    name = f"{backend}, {keys.count:,} keys"
    before = Figure(f"{name}: epoch of 1,000 keys, 99th percentile", _p99(alone), "s", alone)
    beside = Figure(f"{name}: the same beside snapshots", _p99(during), "s", during)
    return [
        before,
        beside,
        at_most(ratio(f"{name}: beside snapshots to without", beside, before), SLOWER),
        Figure(f"{name}: epochs per snapshot", len(during) / taken, "epochs"),
    ]


def _epochs(task: OneTask, keys: Keys, chance: random.Random, is_over: Callable[[int], bool]) -> list[float]:
    taken: list[float] = []
    while not is_over(len(taken)):
        taken.append(seconds(partial(task.epoch, *drawn(keys, KEYS_PER_EPOCH, chance))))
    return taken


def _is_done(snapshot: Future[Outcome], epochs: int) -> bool:
    del epochs
    return snapshot.done()


def _p99(runs: list[float]) -> float:
    return statistics.quantiles(runs, n=100)[98]
