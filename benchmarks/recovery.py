"""From `kill -9` to the first new result, on both engines.

Of the whole application, Spark's start included: with the local state, and without it. And of one worker of
Spark while the application goes on.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from benchmarks.applications import ENGINES, PARTITIONS, EngineName, append, application, workplace
from benchmarks.figures import Figure, Scale, at_most, measured
from millstream import StreamsBuilder, Topology
from millstream.log import FileLog, TopicPartition, record_batch
from millstream.log.errors import LogError
from millstream.types import Offset, Partition

__all__ = ["recovery", "run_child"]

_VALUE = b"m" * 100
_BATCH = 100_000
_FEW = 100
_ENGINE = "BENCHMARK_ENGINE"
_PLACES = [TopicPartition("out", Partition(number)) for number in range(PARTITIONS)]


def recovery(scale: Scale) -> list[Figure]:
    """A table of a million keys with values of 100 bytes; its application is killed and started again."""
    keys = scale.of(1_000_000, 100_000)
    rounds = scale.of(3, 1)
    found: list[Figure] = []
    for engine in ENGINES:
        with workplace() as folder:
            log = FileLog(folder / "log")
            for start in range(0, keys, _BATCH):
                append(log, "in", _rows(range(start, min(keys, start + _BATCH))))
            child = _start(folder, engine)
            _wait_for_results(log, keys, child)
            warm: list[float] = []
            cold: list[float] = []
            worker: list[float] = []
            for number in range(rounds):
                for taken, loses_state in ((warm, False), (cold, True)):
                    _kill(child.pid)
                    child.wait()
                    if loses_state:
                        shutil.rmtree(folder / "state")
                    before = _results(log)
                    append(log, "in", _rows(range(number, number + 1)))
                    began = time.perf_counter()
                    child = _start(folder, engine)
                    _wait_for_results(log, before + 1, child)
                    taken.append(time.perf_counter() - began)
                worker.append(_worker_lost_s(log, child))
            _kill(child.pid)
            child.wait()
        group = f"kill -9 to first new result, {keys:,} keys"
        found += [
            at_most(measured(f"{group}, {engine} engine: local state kept", warm, group=group), 6),
            at_most(measured(f"{group}, {engine} engine: local state lost", cold, group=group), 15),
            at_most(measured(f"{group}, {engine} engine: one worker", worker, group=group), 2),
        ]
    return found


def _worker_lost_s(log: FileLog, child: subprocess.Popen[bytes]) -> float:
    """Seconds from the death of a worker to new results of all tasks."""
    _wait_for_results(log, _after_more(log), child)  # it has workers, and they are warm
    wanted = _after_more(log)
    workers = sorted(pid for pid in _descendants(child.pid) if _is_worker(pid))
    began = time.perf_counter()
    if workers:
        os.kill(workers[0], signal.SIGKILL)
    _wait_for_results(log, wanted, child)
    return time.perf_counter() - began


def _after_more(log: FileLog) -> int:
    """Append some records for each task; how many results there will be."""
    before = _results(log)
    append(log, "in", _rows(range(_FEW)))
    return before + _FEW


def _descendants(pid: int) -> list[int]:
    return [found for child in children_of(pid) for found in (child, *_descendants(child))]


def _is_worker(pid: int) -> bool:
    """Whether a process is one of Spark's Python workers: its parent is the daemon that forks them."""
    with suppress(OSError):
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        parent = status.rsplit(")", 1)[1].split()[1]
        own, daemon = (Path(f"/proc/{one}/cmdline").read_bytes() for one in (pid, parent))
        return b"daemon" in own and own == daemon
    return False


def _topology() -> Topology:
    builder = StreamsBuilder()
    builder.table("in", store="latest").to_stream().to("out")
    return builder.build()


def run_child(folder: Path) -> None:
    """The application, in a process of its own, on the engine that the environment names."""
    engine: EngineName = "resident" if os.environ.get(_ENGINE) == "resident" else "jobs"
    with application(_topology(), folder, engine=engine) as app:
        app.run()


def _start(folder: Path, engine: EngineName) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks", "--recovery-child", str(folder)]
    return subprocess.Popen(command, env={**os.environ, _ENGINE: engine})  # noqa: S603 - this very program


def _rows(keys: range) -> pa.RecordBatch:
    return record_batch([b"key-%010d" % key for key in keys], [_VALUE] * len(keys), [0] * len(keys))


def _results(log: FileLog) -> int:
    try:
        return sum(log.latest(place) for place in _PLACES)
    except LogError:
        return 0  # the topic is made by the first epoch


def _wait_for_results(log: FileLog, count: int, child: subprocess.Popen[bytes]) -> None:
    while _results(log) < count:
        if child.poll() is not None:
            raise RuntimeError(f"the application ended with {child.returncode}")
        with suppress(LogError):
            log.wait({place: Offset(log.latest(place)) for place in _PLACES}, 50)
            continue
        time.sleep(0.05)


def _kill(pid: int) -> None:
    """SIGKILL a process and all its descendants: Python workers have process groups of their own."""
    for child in children_of(pid):
        _kill(child)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def children_of(pid: int) -> list[int]:
    """The processes that a process started."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text(encoding="ascii", errors="replace").rsplit(")", 1)[1].split()
            if int(fields[1]) == pid:
                found.append(int(stat.parent.name))
    return found
