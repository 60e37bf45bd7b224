"""Instances: how soon others go on when one is killed, and what a standby costs while nobody is.

On a cluster of Spark on this machine: each of two instances is a worker on a loopback address of its own,
with an executor, slots and a state directory. All of them share the cores of this machine, so a standby takes
them from the tasks; on hosts of their own it would not.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Self

import pyarrow as pa
from pyspark import SparkConf, SparkContext
from tests.spark.cluster import STATE_DIR, Cluster, Host
from tests.spark.processes import descendants, kill_family, until

from benchmarks.applications import PARTITIONS, append, keyed_rows, workplace
from benchmarks.figures import Figure, Scale, at_least, at_most, measured, ratio
from millstream import Streams, StreamsBuilder, StreamsConfig, Topology, serdes
from millstream.engine.assignment.model import Role
from millstream.engine.assignment.view import AssignedTask, Rebalance
from millstream.engine.epoch_result import EpochResult
from millstream.log import FileLog, TopicPartition, record_batch
from millstream.log.errors import LogError
from millstream.threads import repeated
from millstream.types import Partition

__all__ = ["instances", "run_child"]

_VALUE = b"m" * 1_000
_BATCH = 50_000
_FEW = 10
_BEAT_S = 0.05
_INSTANCES = 2
_EPOCHS = 20
_LITTLE = 1_000
"""Records. Who misses more makes a copy, who misses less keeps one."""
_PATIENCE_S = 1_800
_COUNTED_KEYS = 100_000
_FIRST = 1_000_000
"""Numbers of batches that nobody has used yet."""
_READY = "ready-"
_NAMES = {0: "no standby", 1: "one standby"}


def instances(scale: Scale) -> list[Figure]:
    """Takeovers with one standby and without; of the coordinator; the price of a standby."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with workplace() as folder:
        found = _drivers(folder / "driver", scale)
        with Cluster(folder / "cluster", workers=_INSTANCES) as cluster:
            context = SparkContext(conf=SparkConf().setAll([*cluster.settings().items()]))
            context.setLogLevel("OFF")  # executors that are lost are what it is about
            try:
                until(lambda: context.defaultParallelism >= _cores(cluster), "all executors are there")
                found += _costs(folder / "costs", context, scale)
                found += _takeovers(folder / "takeover", cluster, context, scale)
            finally:
                context.stop()
    return found


def _cores(cluster: Cluster) -> int:
    return int(cluster.settings()["spark.executor.cores"]) * len(cluster.alive())


def _application(
    folder: Path, topology: Topology, context: SparkContext, standbys: int, name: str
) -> Streams:
    config = StreamsConfig(
        engine="resident",
        num_standby_replicas=standbys,
        state_dir=Path(STATE_DIR),
        default_partitions=PARTITIONS,
        max_records_per_epoch=_BATCH,
        commit_interval_ms=10,
    )
    app_id = f"{name}-{standbys}"
    return Streams(topology, app_id=app_id, log=folder / "log", spark=context, config=config, quiet=True)


# An instance is killed.


@dataclass(frozen=True, slots=True)
class _Seen:
    """An epoch: when it was committed, how long it took, where its tasks ran, what they had to read first."""

    at: float
    seconds: float
    hosts: dict[str, str]
    slots: dict[str, int]
    """Of all tasks, also of those without records."""
    restored: dict[str, int]
    is_beside_restore: bool
    """Somebody made a copy meanwhile."""


@dataclass(frozen=True, slots=True)
class _Kill:
    """What came of a kill."""

    seconds: float
    records: int
    """So many were read."""
    lag: int
    """So many its copies were known to miss just before."""
    moved: int
    """Tasks of others that have moved."""
    alone: list[float]
    """How long epochs took on the instance that was left."""
    beside_restore: list[float]
    """And while a new instance, which has nothing, made its copies."""


def _takeovers(folder: Path, cluster: Cluster, context: SparkContext, scale: Scale) -> list[Figure]:
    keys = scale.of(1_000_000, 40_000)
    log = FileLog(folder / "log")
    for start in range(0, keys, _BATCH):
        append(log, "in", _rows(range(start, min(keys, start + _BATCH))))
    found: list[Figure] = []
    group = f"kill -9 of an instance, {PARTITIONS} tasks, {keys // 1_000:,} MB of state"
    for standbys, name in _NAMES.items():
        kills = _kills(folder, cluster, context, standbys, scale.of(3, 1))
        seconds = [kill.seconds for kill in kills]
        figure = measured(f"{group}, {name}: to the first epoch with its tasks", seconds, group=group)
        found.append(at_most(figure, 2) if standbys else figure)
        if standbys:
            lag = statistics.median(kill.lag for kill in kills)
            found.append(Figure(f"{group}, {name}: records that it missed", lag, "records"))
        read = statistics.median(kill.records for kill in kills)
        found.append(Figure(f"{group}, {name}: records read", read, "records"))
        moved = sum(kill.moved for kill in kills)
        found.append(at_most(Figure(f"{group}, {name}: tasks of others that moved", moved, "tasks"), 0))
    quiet = [taken for kill in kills for taken in kill.alone]
    busy = [taken for kill in kills for taken in kill.beside_restore]
    if busy:
        before = Figure("epochs on the instance that is left: p50", statistics.median(quiet), "s")
        beside = Figure("epochs beside copies that are made: p50", statistics.median(busy), "s")
        found += [
            before,
            beside,
            at_most(ratio("epochs beside copies that are made, to others", beside, before), 1.2),
        ]
    return found


def _kills(folder: Path, cluster: Cluster, context: SparkContext, standbys: int, rounds: int) -> list[_Kill]:
    """Kill an instance in the middle of an epoch, and put a new one in its place, again and again."""
    kills: list[_Kill] = []
    seen: list[_Seen] = []
    with _application(folder, _table(), context, standbys, "takeover") as app:
        app.on_epoch(lambda result: seen.append(_noted(app, result)))
        app.start()
        _wait(app, lambda: _is_at_rest(app, standbys), "all is at rest")
        for number in range(rounds):
            host = cluster.hosts[number % _INSTANCES]
            with _fed(FileLog(folder / "log")):
                kills.append(_killed(app, cluster, host, seen))
            _wait(app, lambda: _is_at_rest(app, standbys), "all is at rest again")
            seen.clear()
    return kills


def _killed(app: Streams, cluster: Cluster, host: Host, seen: list[_Seen]) -> _Kill:
    """Kill an instance, and put one in its place that has nothing."""
    _wait(app, lambda: _has_run(seen, _EPOCHS), "epochs run")
    before = seen[-1]
    copies = [one for one in app.assignment() if one.role != "active" and one.host != host.address]
    seconds, first, records = _takeover(app, cluster, host, seen)
    others = [task for task, place in before.hosts.items() if place != host.address]
    moved = sum(before.slots[task] != first.slots[task] for task in others)
    seen.clear()
    _wait(app, lambda: _has_run(seen, _EPOCHS), "epochs run on the instance that is left")
    alone = [one.seconds for one in seen]
    seen.clear()
    shutil.rmtree(host.state_dir)
    cluster.restart_worker(host.number)
    _wait(app, lambda: _is_followed(app, host), "it has copies")
    beside = [one.seconds for one in seen if one.is_beside_restore]
    return _Kill(seconds, records, sum(one.lag or 0 for one in copies), moved, alone, beside)


def _has_run(seen: list[_Seen], epochs: int) -> bool:
    return len(seen) >= epochs and not any(one.is_beside_restore for one in seen[-epochs:])


def _is_followed(app: Streams, host: Host) -> bool:
    """Whether a host has copies, or tasks, and misses little of them."""
    mine = [one for one in app.assignment() if one.host == host.address]
    return bool(mine) and all((one.lag or 0) < _LITTLE for one in mine)


def _takeover(app: Streams, cluster: Cluster, host: Host, seen: list[_Seen]) -> tuple[float, _Seen, int]:
    """Seconds from the death of a host to an epoch with each of its tasks; the first epoch; records read."""
    lost = {one.task for one in app.assignment() if one.role == "active" and one.host == host.address}
    began = time.perf_counter()
    cluster.kill_worker(host)
    firsts: dict[str, _Seen] = {}

    def are_back() -> bool:
        for epoch in [*seen]:
            for task in lost & epoch.hosts.keys():
                if epoch.at > began and epoch.hosts[task] != host.address:
                    firsts.setdefault(task, epoch)
        return firsts.keys() == lost

    _wait(app, are_back, "its tasks run elsewhere")
    read = sum(epoch.restored.get(task, 0) for task, epoch in firsts.items())
    return (
        max(epoch.at for epoch in firsts.values()) - began,
        min(firsts.values(), key=lambda epoch: epoch.at),
        read,
    )


def _noted(app: Streams, result: EpochResult) -> _Seen:
    at = time.perf_counter()
    tasks = app.assignment()
    hosts = {one.task: one.host for one in tasks if one.role == "active"}
    sealed = {task: hosts[task] for task in result.manifest.sealed}
    is_beside_restore = any((one.lag or 0) >= _LITTLE for one in tasks if one.role != "active")
    slots = {one.task: one.slot for one in tasks if one.role == "active"}
    return _Seen(at, result.seconds, sealed, slots, dict(result.restored), is_beside_restore)


def _is_at_rest(app: Streams, standbys: int) -> bool:
    """Both hosts have as many tasks, and as many copies, and these are caught up.

    A task that was moved to where most of its state was reads the rest when it runs next.
    """
    metrics, tasks = app.metrics(), app.assignment()
    is_behind = any(one.lag for one in tasks if one.role != "active")
    if not metrics["records"] or sum(metrics["lag"].values()) or is_behind:
        return False
    by_host: dict[str, list[AssignedTask]] = {}
    for one in tasks:
        by_host.setdefault(one.host, []).append(one)
    share = PARTITIONS // _INSTANCES
    wanted = ["active"] * share + ["standby"] * (standbys * share)
    return len(by_host) == _INSTANCES and all(
        sorted(one.role for one in mine) == wanted for mine in by_host.values()
    )


@contextmanager
def _fed(log: FileLog) -> Iterator[None]:
    """A few records for each task all the time, so that an epoch is at work whenever somebody dies."""
    with repeated(lambda: append(log, "in", _rows(range(_FEW * PARTITIONS))), _BEAT_S, "feed"):
        yield


def _wait(app: Streams, condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if app.error is not None:
            raise app.error
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.005)


# The coordinator is killed.


def _drivers(folder: Path, scale: Scale) -> list[Figure]:
    """Of two processes of an application, the one that runs it is killed."""
    log = FileLog(folder / "log")
    first = scale.of(100_000, 10_000)
    append(log, "in", _rows(range(first)))
    fresh = count(first, _FEW)
    taken: list[float] = []

    def append_some() -> None:
        """Keys that are new: of two changes of a key in one epoch a table shows the last."""
        start = next(fresh)
        append(log, "in", _rows(range(start, start + _FEW)))

    with _Processes(folder) as processes:
        running = processes.start()
        _wait_for_result(log, running)
        for _ in range(scale.of(5, 1)):
            waiting = processes.start()
            until((folder / f"{_READY}{waiting.pid}").exists, "the standby is ready")
            append_some()
            began = time.perf_counter()
            processes.kill(running)
            append_some()
            _wait_for_result(log, waiting)
            taken.append(time.perf_counter() - began)
            running = waiting
    return [at_most(measured("kill -9 of the coordinator, a standby waits: to the next result", taken), 5)]


class _Processes:
    """Processes of one application. Leaves none behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []
        self._below: dict[int, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            self.kill(process)
        kill_family(self._below)

    def start(self) -> subprocess.Popen[bytes]:
        """Run the application, or wait for its turn."""
        command = [sys.executable, "-m", "benchmarks", "--instances-child", str(self._folder)]
        with (self._folder / "said.txt").open("ab") as said:  # Spark has much to say about a killed driver
            self._running.append(subprocess.Popen(command, stderr=said))  # noqa: S603 - this very program
        return self._running[-1]

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL a process; its Spark and its slots find out by themselves."""
        self._below |= descendants(process.pid)
        process.kill()
        process.wait()


def run_child(folder: Path) -> None:
    """A process of the application, with a Spark of its own."""
    config = StreamsConfig(
        engine="resident",
        state_dir=folder / "state",
        default_partitions=PARTITIONS,
        max_records_per_epoch=_BATCH,
        commit_interval_ms=10,
        spark_settings={"spark.master": "local[2,4]", "spark.ui.enabled": "false"},
    )
    app = Streams(
        _table(out="out"), app_id="driver", log=folder / "log", config=config, quiet=True, standby=True
    )
    loop, prepare = app._loop, app._loop.prepare

    def prepared() -> None:
        prepare()
        (folder / f"{_READY}{os.getpid()}").touch()

    loop.prepare = prepared  # type: ignore[method-assign]
    with app:
        app.run()


def _wait_for_result(log: FileLog, child: subprocess.Popen[bytes]) -> None:
    """Until all that is in the topic has come out: each record of a table is a result."""
    goal = _records(log, "in")

    def is_there() -> bool:
        if child.poll() is not None:
            raise RuntimeError(f"the application ended with {child.returncode}")
        return _records(log, "out") >= goal

    until(is_there, "results")


def _records(log: FileLog, topic: str) -> int:
    try:
        return sum(log.latest(TopicPartition(topic, Partition(number))) for number in range(PARTITIONS))
    except LogError:
        return 0  # the topic is made by the first epoch


# Nobody is killed.


def _costs(folder: Path, context: SparkContext, scale: Scale) -> list[Figure]:
    """Throughput and latency with a standby of each task, and without, in turns; and tasks that moved.

    The best turn counts, on both sides: whatever else runs on the machine only slows them. It does not change
    much how long the processors are at work.
    """
    records, rounds, epochs = scale.of(4_000_000, 400_000), scale.of(3, 1), scale.of(200, 40)
    log = FileLog(folder / "log")
    for number in range(0, records, _BATCH):
        append(log, "in", keyed_rows(_BATCH, _COUNTED_KEYS, number=number // _BATCH))
    rates: dict[int, list[float]] = {0: [], 1: []}
    spent: dict[int, list[float]] = {0: [], 1: []}
    waits: dict[int, list[float]] = {0: [], 1: []}
    moves: list[Rebalance] = []
    for number in range(rounds):
        for standbys in _NAMES:
            with _application(folder, _count(), context, standbys, f"costs-{number}") as app:
                results: list[EpochResult] = []
                rate, seconds = _records_per_second(app, standbys, results)
                rates[standbys].append(rate)
                spent[standbys].append(seconds)
                app.on_rebalance(moves.append)
                waits[standbys] += _waits(app, log, results, epochs)
    moved = sum(
        change.role is Role.ACTIVE and change.before is not None for one in moves for change in one.changes
    )
    group = "cost of one standby"
    throughput = {
        key: Figure(f"{group}: throughput, {_NAMES[key]}", max(found), "records/s", found)
        for key, found in rates.items()
    }
    processor = {
        key: Figure(f"{group}: processor time of a million records, {_NAMES[key]}", min(found), "s", found)
        for key, found in spent.items()
    }
    latency = {
        key: Figure(f"{group}: append to committed, p50, {_NAMES[key]}", statistics.median(found), "s")
        for key, found in waits.items()
    }
    return [
        *throughput.values(),
        at_least(ratio(f"{group}: throughput, with to without", throughput[1], throughput[0]), 0.85),
        *processor.values(),
        ratio(f"{group}: processor time, with to without", processor[1], processor[0]),
        *latency.values(),
        at_most(ratio(f"{group}: p50 latency, with to without", latency[1], latency[0]), 1.2),
        at_most(Figure(f"tasks that moved in {rounds * 2 * epochs} undisturbed epochs", moved, "tasks"), 0),
    ]


def _records_per_second(app: Streams, standbys: int, results: list[EpochResult]) -> tuple[float, float]:
    """Of all that is there, but for the first epochs; and seconds of processors per million records.

    Those of the slots are counted until all copies are there. What each epoch did comes into `results`.
    """
    ends: list[float] = []
    own: list[float] = []
    below: list[float] = []
    processes = [*descendants(os.getpid())]

    def note(result: EpochResult) -> None:
        ends.append(time.perf_counter())
        own.append(time.process_time())
        below.append(_processor_seconds(processes))
        results.append(result)

    app.on_epoch(note)
    app.start()
    _wait(app, lambda: len(ends) > 0, "an epoch is committed")
    processes[:] = descendants(os.getpid())
    _wait(app, lambda: _is_at_rest(app, standbys), "all is at rest")
    first, last = len(ends) // 4, len(ends) - 1
    records = sum(one.records for one in results[first + 1 : last + 1])
    spent = own[last] - own[first] + _processor_seconds(processes) - below[first]
    return records / (ends[last] - ends[first]), spent / records * 1_000_000


def _processor_seconds(processes: list[int]) -> float:
    """What processes have used so far, all together."""
    ticks = 0
    for process in processes:
        with suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _waits(app: Streams, log: FileLog, results: list[EpochResult], epochs: int) -> list[float]:
    """Seconds from an append to the end of the epoch that has it, again and again."""
    found: list[float] = []
    for number in range(epochs):
        before = len(results)
        rows = keyed_rows(_FEW * PARTITIONS, _COUNTED_KEYS, number=_FIRST + number)
        began = time.perf_counter()
        append(log, "in", rows)
        while len(results) == before:
            if app.error is not None:
                raise app.error
            time.sleep(0.0005)
        found.append(time.perf_counter() - began)
        time.sleep(_BEAT_S)
    return found


# What runs.


def _table(out: str | None = None) -> Topology:
    builder = StreamsBuilder()
    table = builder.table("in", key=serdes.bytes, value=serdes.bytes, store="latest")
    if out is not None:
        table.to_stream().to(out, key=serdes.bytes, value=serdes.bytes)
    return builder.build()


def _count() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.bytes, value=serdes.bytes).group_by_key().count(store="counts")
    return builder.build()


def _rows(keys: range) -> pa.RecordBatch:
    return record_batch([b"key-%010d" % key for key in keys], [_VALUE] * len(keys), [0] * len(keys))
