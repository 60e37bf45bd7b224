"""How long `import millstream` takes, and a program of ten lines: against the emptiest program on Spark."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks.applications import append, application, count_by_key, keyed_rows, run_to_the_end, workplace
from benchmarks.figures import Figure, Scale, at_most, measured, ratio
from benchmarks.timing import alternately, seconds
from millstream.log import FileLog, TopicPartition, record_batch
from millstream.types import Partition

__all__ = ["run_child", "start_up"]

_ARCHIVE_IS_WRITTEN_S: Final = 15
_EMPTIEST: Final = """
from pyspark import SparkConf, SparkContext

context = SparkContext(conf=SparkConf().setMaster("local[*]").set("spark.ui.enabled", "false"))
context.parallelize([1, 2, 3], 2).map(lambda number: number + 1).sum()
context.stop()
"""
_COUNTING: Final = """
import re

from millstream import Streams, StreamsBuilder, serdes

builder = StreamsBuilder()
(
    builder.stream("lines", value=serdes.string)
    .flat_map_values(lambda line: re.split(r"\\W+", line.lower()))
    .filter(lambda _, word: word)
    .group_by(lambda _, word: word)
    .count(store="counts")
    .to_stream()
    .to("word-counts", key=serdes.string, value=serdes.int64)
)
with Streams(builder.build(), app_id="wordcount") as app:
    app.run(until="caught-up")
    print(app.store("counts").get("river"))
"""


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
        *_ten_lines(scale),
    ]


def _ten_lines(scale: Scale) -> list[Figure]:
    """The word count of the README over ten lines of text, and a context with one Python job, in turns.

    Each word count begins anew, so that it has its ten records to read.
    """
    with workplace() as folder:
        program = folder / "counting.py"
        program.write_text(_COUNTING)

        def count() -> None:
            place = folder / str(len(list(folder.iterdir())))
            place.mkdir(mode=0o700)
            log = FileLog(place / "millstream-data")
            log.create_topic("lines")
            rows = record_batch([None] * 10, [b"to the river, to the sea"] * 10, list(range(10)))
            log.append(TopicPartition("lines", Partition(0)), rows)
            _python(str(program), cwd=place)

        count()  # its JVM leaves an archive of Spark's classes behind, for all later ones
        time.sleep(_ARCHIVE_IS_WRITTEN_S)
        taken = alternately({"emptiest": lambda: _python("-c", _EMPTIEST), "ours": count}, scale.of(5, 1))
    emptiest = measured("context, one Python job, stop: the emptiest program on Spark", taken["emptiest"])
    ours = measured("python counting.py: the README's word count of ten lines", taken["ours"])
    return [emptiest, ours, at_most(ratio("counting.py against the emptiest program", ours, emptiest), 1.3)]


def run_child(folder: Path) -> None:
    """The smallest application there is, in a process of its own."""
    with application(count_by_key(), folder) as app:
        run_to_the_end(app)


def _python(*arguments: str, cwd: Path | None = None) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run(  # noqa: S603 - this very program
        [sys.executable, *arguments], check=True, cwd=cwd, env=environment, stdout=subprocess.DEVNULL
    )
