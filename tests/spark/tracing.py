"""Which functions of Millstream run, and when: in this process, and in Spark's Python workers.

A profile function notes every call. A Spark job of our own puts it into the workers, which live on from task
to task. Times of all processes are of one clock, the machine's.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from pyspark import SparkContext

import millstream

SOURCE = str(Path(millstream.__file__).parent) + os.sep
LONGEST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a function."""

    time_ns: int
    file: str
    """Below `src/millstream`."""
    name: str
    """As the source has it: `Class.method`."""

    @property
    def station(self) -> str:
        return f"{self.file}:{self.name}"


class Tracer:
    """Notes calls until it is told to write them to a file of its process."""

    def __init__(self) -> None:
        self._calls: list[tuple[int, str, str]] = []

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        # Modules and classes that are being imported are "called", too. They have no fast locals.
        if event == "call" and code.co_filename.startswith(SOURCE) and code.co_flags & inspect.CO_OPTIMIZED:
            self._calls.append((time.monotonic_ns(), code.co_filename, code.co_qualname))

    def write(self, folder: Path) -> None:
        lines = [f"{at} {path.removeprefix(SOURCE)} {name}\n" for at, path, name in self._calls]
        (folder / f"{os.getpid()}.calls").write_text("".join(lines), encoding="utf-8")


@contextmanager
def traced(folder: Path) -> Iterator[None]:
    """Trace this process, and the threads that it starts, for the length of a `with` block."""
    tracer = Tracer()
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        tracer.write(folder)


@contextmanager
def traced_workers(context: SparkContext, folder: Path) -> Iterator[None]:
    """Trace all Python workers of Spark for the length of a `with` block."""

    def end() -> None:
        tracer = sys.getprofile()
        sys.setprofile(None)
        if isinstance(tracer, Tracer):  # unless this worker is a new one
            tracer.write(folder)

    _in_all_workers(context, folder / "begun", lambda: sys.setprofile(Tracer()))
    try:
        yield
    finally:
        _in_all_workers(context, folder / "ended", end)


def calls_in(folder: Path) -> list[Call]:
    """What was traced, by time."""
    lines = [line.split(" ") for path in folder.glob("*.calls") for line in path.read_text().splitlines()]
    return sorted((Call(int(at), file, name) for at, file, name in lines), key=lambda call: call.time_ns)


def _in_all_workers(context: SparkContext, meeting_place: Path, action: Callable[[], None]) -> None:
    """Call a function once in each worker: no task ends before all have begun, so each has its own."""
    count = context.defaultParallelism
    meeting_place.mkdir()

    def act(rows: Any) -> None:
        (number,) = rows
        action()
        (meeting_place / str(number)).touch()
        deadline = time.monotonic() + LONGEST_WAIT_S
        while len(list(meeting_place.iterdir())) < count and time.monotonic() < deadline:
            time.sleep(0.01)

    context.parallelize(range(count), count).foreachPartition(act)
