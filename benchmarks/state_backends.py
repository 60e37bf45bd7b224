"""How fast is state? Epochs as a task runs them against one get and put per key, restores, expiry, memory.

All of it is in :mod:`.one_task`. "Key by key" and "record by record" use the same backend the way a program
without overlay and batches would: the store is opened, each key (or record) is one get and one put of the
backend's own library, and the same segment of the changelog is written durably. For LMDB that is within one
transaction, the best way it offers, and that is what the goals are held against. It is already a batch of a
kind, so there is a further figure, without a goal, with a transaction for each record, as RocksDB's puts are.
LMDB gets a large map for all that: single puts could not let it grow.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.applications import workplace
from benchmarks.figures import Figure, Scale, at_least, at_most, measured, ratio
from benchmarks.one_task import STORE, Drawn, Keys, OneTask, drawn, values
from benchmarks.timing import seconds
from millstream.state.backends import supplier
from millstream.state.backends.lmdb import LmdbSupplier
from millstream.state.backends.rocksdb import RocksDbSupplier
from millstream.state.stores.segments import SEGMENT_BYTES, segment_prefix

__all__ = ["state_backends"]

BACKENDS = ("lmdb", "rocksdb", "memory")
RECORDS_PER_KEY = 10
EXPIRING_ROWS = 1_000_000
LOAD_BATCH = 50_000
LMDB_MAP_BYTES = 32 << 30
_MB = 1e6

AGAINST_KEYS = {"rocksdb": 1.5, "lmdb": 1.0}
AGAINST_RECORDS = 5.0
RESTORE_PER_S = 500_000
OPEN_S = {"rocksdb": 0.010, "lmdb": 0.001}
EXPIRY_S = 0.050
BATCH_MB = 96
"""The rows of an epoch of 50,000 keys, as columns and as objects, whatever the backend."""
SMALL_CACHE = RocksDbSupplier(cache_bytes=8 << 20, write_buffer_bytes=4 << 20)
"""To tell what of the memory is the cache's."""
MEMORY_MB = {
    "rocksdb": RocksDbSupplier().cache_bytes / _MB + BATCH_MB,
    "lmdb": LmdbSupplier().step_rows[1] * 4096 / _MB + BATCH_MB,  # a page for each row of a step
}


def state_backends(scale: Scale) -> list[Figure]:
    """Each backend with 1,000,000 and 10,000,000 keys."""
    found: list[Figure] = []
    for number in (20_000,) if scale.quick else (1_000_000, 10_000_000):
        keys = Keys(number)
        with workplace() as folder:
            for backend in BACKENDS:
                found += _of(OneTask(folder, backend), keys, scale)
    for backend in BACKENDS:
        found.append(_expiry(backend, scale.of(EXPIRING_ROWS, 20_000)))
    return found


def _of(task: OneTask, keys: Keys, scale: Scale) -> list[Figure]:
    name = f"{task.backend}, {keys.count:,} keys"
    task.fill(keys)
    restore_s = seconds(lambda: task.restore(None))
    restored = Figure(f"{name}: restore from the changelog", task.position / restore_s, "records/s")
    opening = measured(f"{name}: open at version", [seconds(lambda: _open(task)) for _ in range(20)])
    found = [
        at_least(restored, RESTORE_PER_S),
        at_most(opening, OPEN_S[task.backend]) if task.backend in OPEN_S else opening,
        *_epochs(name, task, keys, batch=scale.of(50_000, 2_000), rounds=scale.of(5, 2)),
    ]
    if task.backend in MEMORY_MB:
        found += _memory(name, task, keys, batch=scale.of(50_000, 2_000))
    return found


def _open(task: OneTask) -> None:
    with task.opened():
        pass


def _epochs(name: str, task: OneTask, keys: Keys, *, batch: int, rounds: int) -> list[Figure]:
    group = f"{keys.count:,} keys: an epoch"
    taken = _turns(task, lambda chance: drawn(keys, batch, chance), rounds)
    of_records = _turns(task, lambda chance: drawn(keys, batch, chance, RECORDS_PER_KEY), max(1, rounds // 2))
    ours = measured(f"{name}: epoch", taken["epoch"], group=group)
    by_key = measured(f"{name}: the same, key by key", taken["one by one"], group=group)
    records = measured(f"{name}: epoch, 10 records per key", of_records["epoch"])
    by_record = measured(f"{name}: the same, record by record", of_records["one by one"])
    against_keys = ratio(f"{name}: key by key to epoch", by_key, ours)
    against_records = ratio(f"{name}: record by record to epoch", by_record, records)
    found = [ours, by_key, against_keys, records, by_record, against_records]
    if task.backend in AGAINST_KEYS:
        found[2] = at_least(against_keys, AGAINST_KEYS[task.backend])
        found[5] = at_least(against_records, AGAINST_RECORDS)
    if task.backend == "lmdb":
        some = drawn(keys, batch, random.Random(6), RECORDS_PER_KEY)
        each = Figure(
            f"{name}: the same, a transaction each",
            seconds(partial(_transactions, task, *some)),
            "s",
        )
        found += [each, ratio(f"{name}: a transaction each to epoch", each, records)]
    return found


def _turns(task: OneTask, draw: Callable[[random.Random], Drawn], rounds: int) -> dict[str, list[float]]:
    """Time both ways on what is drawn anew for each, taking turns, after one round of warming up.

    Before each round comes an epoch that is not timed. What was written one by one is in the changelog, too,
    and the next epoch applies it beside the segment of the last one; after that an epoch has one segment to
    apply, as every epoch of an application has.
    """
    chance = random.Random(3)
    works: dict[str, Callable[[pa.Array, pa.Array], None]] = {
        "epoch": task.epoch,
        "one by one": partial(_one_by_one, task),
    }
    taken: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        task.epoch(*draw(chance))
        for name, work in works.items():
            keys, new = draw(chance)
            gc.collect()
            took = seconds(partial(work, keys, new))
            if number:
                taken[name].append(took)
    return taken


def _one_by_one(task: OneTask, keys: pa.Array, new: pa.Array) -> None:
    written: dict[bytes, bytes | None] = {}
    with _library(task) as (get, put):
        for key, value in zip(keys.to_pylist(), new.to_pylist(), strict=True):
            get(key)
            put(key, value)
            written[key] = value
    task.seal(sorted(written.items()))


def _transactions(task: OneTask, keys: pa.Array, new: pa.Array) -> None:
    records = list(zip(keys.to_pylist(), new.to_pylist(), strict=True))
    with LmdbSupplier(map_bytes=LMDB_MAP_BYTES).open(task.store_path) as opened:
        store: Any = opened
        table = store._parts[b""].data
        for key, value in records:
            with store._env.begin(db=table, write=True) as transaction:
                transaction.get(key)
                transaction.put(key, value)
    task.seal(sorted(dict(records).items()))


@contextmanager
def _library(task: OneTask) -> Iterator[tuple[Callable[..., Any], Callable[..., Any]]]:
    """Give get and put of the library below a backend."""
    large = LmdbSupplier(map_bytes=LMDB_MAP_BYTES)
    with (large if task.backend == "lmdb" else supplier(task.backend)).open(task.store_path) as opened:
        store: Any = opened
        if task.backend == "rocksdb":
            yield store._db.get, store._db.put
        elif task.backend == "lmdb":
            with store._env.begin(db=store._parts[b""].data, write=True) as transaction:
                yield transaction.get, transaction.put
        else:
            rows = store._content.parts[b""].rows
            yield rows.get, rows.__setitem__


def _expiry(backend: str, number: int) -> Figure:
    """How long it takes to drop a segment of so many rows, as windows expire."""
    keys = Keys(number)
    with (
        workplace() as folder,
        supplier(backend).open(folder / "store", segment_bytes=SEGMENT_BYTES) as store,
    ):
        ordered = sorted(keys[at] for at in range(number))
        for at in range(0, number, LOAD_BATCH):
            batch = ordered[at : at + LOAD_BATCH]
            new = values(len(batch), random.Random(at))
            rows = [(segment_prefix(0) + key, value) for key, value in zip(batch, new, strict=True)]
            store.bulk_load(rows, marker=b"%d" % at)
        del ordered, batch, new, rows
        took = seconds(lambda: store.write([], marker=b"expired", drop=(b"\0", segment_prefix(1))))
    return at_most(Figure(f"{backend}: let {number:,} rows expire", took, "s"), EXPIRY_S)


def _memory(name: str, task: OneTask, keys: Keys, *, batch: int) -> list[Figure]:
    grown = _grown_elsewhere(task, keys, batch)
    found = [
        at_most(Figure(f"{name}: memory after 10 epochs", grown["Anonymous"], "MB"), MEMORY_MB[task.backend]),
        Figure(f"{name}: pages of files, which the system may take back", grown["Files"], "MB"),
    ]
    if task.backend == "rocksdb":
        small = _grown_elsewhere(replace(task, maker=SMALL_CACHE), keys, batch)["Anonymous"]
        task.caught_up()
        larger_mb = (RocksDbSupplier().cache_bytes - SMALL_CACHE.cache_bytes) / _MB
        found += [
            Figure(f"{name}: the same with a cache of 8 MiB", small, "MB"),
            Figure(f"{name}: memory for a byte of cache", (grown["Anonymous"] - small) / larger_mb, "x"),
        ]
    return found


def _grown_elsewhere(task: OneTask, keys: Keys, batch: int) -> dict[str, float]:
    _open(task)  # else the first epoch would apply more than one segment
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as child:
        grown = child.submit(_grown_mb, task, keys.count, batch).result()
    task.caught_up()
    return grown


def _grown_mb(task: OneTask, number: int, batch: int) -> dict[str, float]:
    """By how much this process grows in ten epochs."""
    keys, chance = Keys(number), random.Random(4)
    before = _held_mb()
    for _ in range(10):
        task.epoch(*drawn(keys, batch, chance))
    with task.opened() as stores:
        stores[STORE].get_many(sorted(keys.sample(batch, chance)))
        after = _held_mb()
    return {kind: after[kind] - before[kind] for kind in after}


def _held_mb() -> dict[str, float]:
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    anonymous = kilobytes["Anonymous"]
    return {"Anonymous": anonymous / 1e3, "Files": (kilobytes["Rss"] - anonymous) / 1e3}
