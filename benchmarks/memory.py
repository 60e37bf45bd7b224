"""Memory over many epochs: driver, JVM and Python workers.

What a JVM takes from the system says when its collector last ran, within the bounds it was given, and not
what is held. So beside the JVM's memory there is its heap after a collection.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from benchmarks.applications import append, application, count_grouped, keyed_rows, spark_context, workplace
from benchmarks.figures import Figure, Scale, at_most
from benchmarks.recovery import children_of
from millstream.log import FileLog

__all__ = ["megabytes_held", "memory"]

_ROWS = 1_000
_KEYS = 20_000
_JVM, _HEAP = "JVM", "JVM's heap after a collection"


def memory(scale: Scale) -> list[Figure]:
    """200 epochs of 1,000 records: what the processes hold after a fourth of them, and at the end."""
    epochs = scale.of(200, 20)
    held: dict[str, list[float]] = {}
    with workplace() as folder, spark_context(folder) as spark:
        log = FileLog(folder / "log")
        append(log, "in", keyed_rows(_KEYS, _KEYS))
        with application(count_grouped(), folder, spark=spark) as app:
            app.run(until="caught-up")
            for number in range(1, epochs + 1):
                append(log, "in", keyed_rows(_ROWS, _KEYS, number=number * _KEYS))
                app.run(until="caught-up")
                for name, megabytes in megabytes_held().items():
                    held.setdefault(name, []).append(megabytes)
                if number in (epochs // 4, epochs):
                    held.setdefault(_HEAP, []).append(_heap_megabytes(spark))
    found: list[Figure] = []
    for name, samples in held.items():
        early, late = samples[0 if name == _HEAP else len(samples) // 4], samples[-1]
        growth = Figure(f"{name}: last epoch to a fourth of the way", late / early, "x")
        found.append(Figure(f"{name} after {epochs} epochs", late, "MB", samples[:: max(1, epochs // 20)]))
        found.append(at_most(growth, 1.1))
    return found


def _heap_megabytes(spark: SparkContext) -> float:
    """What the JVM holds."""
    java: Any = spark._jvm
    java.java.lang.System.gc()
    runtime = java.java.lang.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 1e6


def megabytes_held() -> dict[str, float]:
    """What this process, its JVM and its Python workers hold now."""
    me = os.getpid()
    below = _descendants(me)
    jvm = [pid for pid in below if _name(pid) == "java"]
    workers = [pid for pid in below if _name(pid).startswith("python")]
    return {
        "driver": _rss(me),
        _JVM: sum(map(_rss, jvm)),
        "Python workers": sum(map(_rss, workers)),
    }


def _descendants(pid: int) -> list[int]:
    direct = children_of(pid)
    return [*direct, *(further for child in direct for further in _descendants(child))]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _rss(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
