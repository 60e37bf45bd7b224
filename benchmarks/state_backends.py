"""How fast are the backends? Batches, as Millstream uses them, against one get or put per key.

    python benchmarks/state_backends.py                          # 100,000 and 1,000,000 keys, all backends
    python benchmarks/state_backends.py --keys 10000000 --backends lmdb

Keys are 16 random bytes, values 100 bytes of which half compress. "Single" is the backend's own library,
called once per key the best way it offers (for LMDB: within one transaction). An epoch is what a task does
with a store: open, read the distinct keys of a batch, write them back, close. LMDB gets a large map, because
the single puts could not let it grow.
"""
# ruff: noqa: INP001, S311, SLF001, T201  # a script that prints; random keys are no secrets; the libraries' own calls

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.state.backends import NAMES, Backend, BackendSupplier, Row, supplier
from millstream.state.backends.lmdb import LmdbSupplier

VALUE_BYTES = 100
LOAD_BATCH = 50_000
LMDB_MAP_BYTES = 16 << 30
CLOCKS = {"wall": time.perf_counter, "cpu": time.thread_time}


@dataclass(frozen=True, slots=True)
class Timings:
    """Median seconds of one run over one backend."""

    load_per_s: float
    open_s: float
    get_s: float
    single_get_s: float
    write_s: float
    single_put_s: float
    epoch_s: float
    single_epoch_s: float
    scan_per_s: float
    snapshot_s: float


@dataclass(frozen=True, slots=True)
class _Stopwatch:
    """Calls something and tells how long it took."""

    clock: Callable[[], float]

    def __call__(self, work: Callable[[], object]) -> float:
        started = self.clock()
        work()
        return self.clock() - started


def main() -> None:
    """Run everything that was asked for and print one table per number of keys."""
    arguments = argparse.ArgumentParser(description="Benchmark of the state backends.")
    arguments.add_argument("--keys", type=int, nargs="+", default=[100_000, 1_000_000])
    arguments.add_argument("--batch", type=int, default=50_000)
    arguments.add_argument("--backends", nargs="+", default=list(NAMES), choices=NAMES)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="cpu: of this thread alone, for a machine that others use",
    )
    arguments.add_argument("--folder", type=Path, default=None, help="where to work; default: the system's")
    given = arguments.parse_args()
    seconds = _Stopwatch(CLOCKS[given.clock])
    for number in given.keys:
        print(f"\n{number:,} keys, batches of {given.batch:,}; {given.clock} ms, median of {given.rounds}")
        print(HEADER)
        for name in given.backends:
            with tempfile.TemporaryDirectory(dir=given.folder) as folder:
                backend = LmdbSupplier(map_bytes=LMDB_MAP_BYTES) if name == "lmdb" else supplier(name)
                print(
                    _row(name, _measured(seconds, backend, Path(folder), number, given.batch, given.rounds))
                )


HEADER = (
    f"{'backend':8} {'load/s':>9} {'open':>8} | {'get':>7} {'single':>7} {'ratio':>6} | "
    f"{'write':>7} {'single':>7} {'ratio':>6} | {'epoch':>7} {'single':>7} {'ratio':>6} | "
    f"{'scan/s':>9} {'snapshot':>8}"
)


def _row(name: str, took: Timings) -> str:
    def pair(batch: float, single: float) -> str:
        return f"{batch * 1e3:7.1f} {single * 1e3:7.1f} {single / batch:5.1f}x"

    return (
        f"{name:8} {took.load_per_s:9,.0f} {took.open_s * 1e3:8.2f} | "
        f"{pair(took.get_s, took.single_get_s)} | "
        f"{pair(took.write_s, took.single_put_s)} | {pair(took.epoch_s, took.single_epoch_s)} | "
        f"{took.scan_per_s:9,.0f} {took.snapshot_s * 1e3:8.1f}"
    )


def _measured(
    seconds: _Stopwatch, backend: BackendSupplier, folder: Path, number: int, batch: int, rounds: int
) -> Timings:
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
            started = seconds.clock()
            with backend.open(path) as store:
                get_s, write_s = work(seconds, store, wanted, new)
            taken.setdefault(name + "epoch", []).append(seconds.clock() - started)
            taken.setdefault(name + "get", []).append(get_s)
            taken.setdefault(name + "write", []).append(write_s)
    with backend.open(path) as store:
        scan_s = seconds(lambda: sum(1 for _ in store.scan()))
        snapshot_s = seconds(lambda: store.snapshot(folder / "snapshot"))
    median = {name: statistics.median(values) for name, values in taken.items()}
    return Timings(
        load_per_s=number / load_s,
        open_s=statistics.median(opens),
        get_s=median["get"],
        single_get_s=median["single_get"],
        write_s=median["write"],
        single_put_s=median["single_write"],
        epoch_s=median["epoch"],
        single_epoch_s=median["single_epoch"],
        scan_per_s=number / scan_s,
        snapshot_s=snapshot_s,
    )


def _load(backend: BackendSupplier, path: Path, rows: list[Row]) -> None:
    with backend.open(path) as store:
        for at in range(0, len(rows), LOAD_BATCH):
            store.bulk_load(rows[at : at + LOAD_BATCH], marker=b"%d" % at)


def _batched(seconds: _Stopwatch, store: Backend, keys: list[bytes], new: list[Row]) -> tuple[float, float]:
    return seconds(lambda: store.get_many(keys)), seconds(lambda: store.write(new, marker=b"epoch"))


def _one_by_one(
    seconds: _Stopwatch, store: Backend, keys: list[bytes], new: list[Row]
) -> tuple[float, float]:
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
        with store._env.begin(db=store._data, write=write) as transaction:
            yield transaction.get, transaction.put
    else:
        yield store._content.rows.get, store._content.rows.__setitem__


def _value(chance: random.Random) -> bytes:
    return chance.randbytes(VALUE_BYTES // 2) + b"m" * (VALUE_BYTES - VALUE_BYTES // 2)


if __name__ == "__main__":
    main()
