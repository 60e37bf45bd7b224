"""How long `import millstream` takes, and a program from its start to its first result."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.applications import append, application, count_by_key, keyed_rows, run_to_the_end, workplace
from benchmarks.figures import Figure, Scale, at_most
from benchmarks.timing import alternately, seconds
from millstream.log import FileLog

__all__ = ["run_child", "start_up"]


def start_up(scale: Scale) -> list[Figure]:
    """In fresh processes, after one that warms the disk's cache."""
    taken = alternately(
        {"bare": lambda: _python("-c", "pass"), "import": lambda: _python("-c", "import millstream")},
        scale.of(10, 3),
    )
    own = [whole - bare for whole, bare in zip(taken["import"], taken["bare"], strict=True)]
    with workplace() as folder:
        append(FileLog(folder / "log"), "in", keyed_rows(1_000, 1_000))
        first = seconds(lambda: _python("-m", "benchmarks", "--start-up-child", str(folder)))
    return [
        # The best one: whatever else runs on the machine only makes it longer.
        at_most(Figure("import millstream", min(own), "s", own), 0.3),
        Figure("python app.py, from its start to its end: 1,000 records", first, "s", [first]),
    ]


def run_child(folder: Path) -> None:
    """The smallest application there is, in a process of its own."""
    with application(count_by_key(), folder) as app:
        run_to_the_end(app)


def _python(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True)  # noqa: S603 - this very program
