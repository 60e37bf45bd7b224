"""How fast are the backends? Batches, as Millstream uses them, against one get or put per key.

Keys are 16 random bytes, values 100 bytes of which half compress. "Key by key" is the backend's own library,
called once per key the best way it offers (for LMDB: within one transaction). An epoch is what a task does
with a store: open, read the distinct keys of a batch, write them back, close. LMDB gets a large map, because
the single puts could not let it grow.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.applications import workplace
from benchmarks.figures import Figure, Scale, measured
from benchmarks.timing import seconds
from millstream.state.backends import NAMES, Backend, BackendSupplier, Row, supplier
from millstream.state.backends.lmdb import LmdbSupplier
from millstream.state.segments import SEGMENT_BYTES, segment_prefix

__all__ = ["state_backends"]

VALUE_BYTES = 100
LOAD_BATCH = 50_000
LMDB_MAP_BYTES = 16 << 30


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of each round over one backend."""

    load_per_s: float
    open_s: list[float]
    get_s: list[float]
    write_s: list[float]
    epoch_s: list[float]
    single_epoch_s: list[float]
    scan_per_s: float
    snapshot_s: float
    expiry_s: float


def state_backends(scale: Scale) -> list[Figure]:
    """Each backend with 100,000 and 1,000,000 keys."""
    found: list[Figure] = []
    sizes = (20_000,) if scale.quick else (100_000, 1_000_000)
    for number in sizes:
        for name in NAMES:
            with workplace() as folder:
                backend = LmdbSupplier(map_bytes=LMDB_MAP_BYTES) if name == "lmdb" else supplier(name)
                took = _measured(backend, folder, number, scale.of(50_000, 10_000), scale.of(5, 3))
            found += _figures(f"{name}, {number:,} keys", took, f"{number:,} keys: a batch of an epoch")
    return found


def _figures(name: str, took: Timings, group: str) -> list[Figure]:
    return [
        measured(f"{name}: epoch of a batch", took.epoch_s, group=group),
        measured(f"{name}: the same, key by key", took.single_epoch_s, group=group),
        measured(f"{name}: open", took.open_s),
        measured(f"{name}: read a batch", took.get_s),
        measured(f"{name}: write a batch", took.write_s),
        Figure(f"{name}: load", took.load_per_s, "records/s"),
        Figure(f"{name}: scan", took.scan_per_s, "records/s"),
        Figure(f"{name}: snapshot", took.snapshot_s, "s"),
        Figure(f"{name}: let all of them expire", took.expiry_s, "s"),
    ]


def _measured(backend: BackendSupplier, folder: Path, number: int, batch: int, rounds: int) -> Timings:
    chance = random.Random(1)
    rows = sorted((chance.randbytes(16), _value(chance)) for _ in range(number))
    keys = [key for key, _ in rows]
    path = folder / "store"
    load_s = seconds(lambda: _load(backend, path, rows))
    opens = [seconds(lambda: backend.open(path).close()) for _ in range(rounds)]
    taken: dict[str, list[float]] = {}
    ways = [("", _batched), ("single_", _one_by_one)]
    for _ in range(rounds):
        ways.reverse()  # neither always comes first
        for name, work in ways:
            wanted = sorted(chance.sample(keys, min(batch, number)))
            new = [(key, _value(chance)) for key in wanted]
            started = time.perf_counter()
            with backend.open(path) as store:
                get_s, write_s = work(store, wanted, new)
            taken.setdefault(name + "epoch", []).append(time.perf_counter() - started)
            taken.setdefault(name + "get", []).append(get_s)
            taken.setdefault(name + "write", []).append(write_s)
    with backend.open(path) as store:
        scan_s = seconds(lambda: sum(1 for _ in store.scan()))
        snapshot_s = seconds(lambda: store.snapshot(folder / "snapshot"))
    return Timings(
        load_per_s=number / load_s,
        open_s=opens,
        get_s=taken["get"],
        write_s=taken["write"],
        epoch_s=taken["epoch"],
        single_epoch_s=taken["single_epoch"],
        scan_per_s=number / scan_s,
        snapshot_s=snapshot_s,
        expiry_s=_expiry(backend, folder / "segments", rows),
    )


def _expiry(backend: BackendSupplier, path: Path, rows: list[Row]) -> float:
    """How long it takes to drop a segment that holds all rows, as windows expire."""
    with backend.open(path, segment_bytes=SEGMENT_BYTES) as store:
        for at in range(0, len(rows), LOAD_BATCH):
            batch = [(segment_prefix(0) + key, value) for key, value in rows[at : at + LOAD_BATCH]]
            store.bulk_load(batch, marker=b"%d" % at)
        return seconds(lambda: store.write([], marker=b"expired", drop=(b"\0", segment_prefix(1))))


def _load(backend: BackendSupplier, path: Path, rows: list[Row]) -> None:
    with backend.open(path) as store:
        for at in range(0, len(rows), LOAD_BATCH):
            store.bulk_load(rows[at : at + LOAD_BATCH], marker=b"%d" % at)


def _batched(store: Backend, keys: list[bytes], new: list[Row]) -> tuple[float, float]:
    return seconds(lambda: store.get_many(keys)), seconds(lambda: store.write(new, marker=b"epoch"))


def _one_by_one(store: Backend, keys: list[bytes], new: list[Row]) -> tuple[float, float]:
    def get_all() -> None:
        with _library(store, write=False) as (get, _):
            _ = [get(key) for key in keys]

    def put_all() -> None:
        with _library(store, write=True) as (_, put):
            for key, value in new:
                put(key, value)

    return seconds(get_all), seconds(put_all)


@contextmanager
def _library(store: Any, *, write: bool) -> Iterator[tuple[Callable[..., Any], Callable[..., Any]]]:
    """Give get and put of the library below a backend."""
    if hasattr(store, "_db"):
        yield store._db.get, store._db.put
    elif hasattr(store, "_env"):
        with store._env.begin(db=store._parts[b""].data, write=write) as transaction:
            yield transaction.get, transaction.put
    else:
        yield store._content.rows.get, store._content.rows.__setitem__


def _value(chance: random.Random) -> bytes:
    return chance.randbytes(VALUE_BYTES // 2) + b"m" * (VALUE_BYTES - VALUE_BYTES // 2)
