"""The word count on Spark, killed twice in the middle, and checked to the last word.

The parent makes a text topic, starts the word count in a child process, kills the child and everything
it started with SIGKILL, starts it again, and at the end compares the counts with a count of its own.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.panel import Panel

from millstream import Streams, StreamsBuilder, StreamsConfig, Topology, serdes
from millstream.console import Watcher
from millstream.log import FileLog, TopicConfig, TopicPartition, record_batch
from millstream.types import Offset, Partition

FOLDER = Path("millstream-demo")
PARTITIONS = 4
LINES_PER_PARTITION = 30_000
WORDS_PER_LINE = 8
KILLS = 2
VOCABULARY = Path(__file__).with_name("river.txt")


def build() -> Topology:
    """The classic word count."""
    builder = StreamsBuilder()
    (
        builder.stream("lines", value=serdes.string)
        .flat_map_values(lambda line: re.split(r"\W+", line.lower()))
        .filter(lambda _, word: word)
        .group_by(lambda _, word: word)
        .count(store="counts")
        .to_stream()
        .to("word-counts", key=serdes.string, value=serdes.int64)
    )
    return builder.build()


def application() -> Streams:
    """The word count as an application."""
    config = StreamsConfig(
        state_dir=FOLDER / "state",
        max_records_per_epoch=2_000,
        default_partitions=PARTITIONS,
        spark_settings={"spark.ui.enabled": "false"},
    )
    return Streams(build(), app_id="wordcount", log=FOLDER / "log", config=config, quiet=True)


def run_child() -> None:
    """Count until all input is committed, showing how it goes."""
    with Watcher() as watcher, application() as app:
        app.on_epoch(lambda _result: watcher.show(app.figures(words=len(app.store("counts")))))
        app.run(until="caught-up")


def write_lines(log: FileLog) -> Counter[str]:
    """A text topic; returns how often each word is in it, counted here and now."""
    words = re.findall(r"\w+", VOCABULARY.read_text(encoding="utf-8"))
    random_words = random.Random(42)  # noqa: S311 - a text, not a secret
    log.create_topic("lines", TopicConfig(partitions=PARTITIONS))
    expected: Counter[str] = Counter()
    for number in range(PARTITIONS):
        lines = [" ".join(random_words.choices(words, k=WORDS_PER_LINE)) for _ in range(LINES_PER_PARTITION)]
        for line in lines:
            expected.update(line.lower().split())
        times = list(range(len(lines)))
        rows = record_batch([None] * len(lines), [line.encode() for line in lines], times)
        log.append(TopicPartition("lines", Partition(number)), rows)
    return expected


def committed_lines() -> int:
    """How many lines are committed, by the head manifest."""
    from millstream.commit.application_storage import ApplicationStorage  # noqa: PLC0415 - only here
    from millstream.commit.manifest import ManifestChain  # noqa: PLC0415

    head = ManifestChain(ApplicationStorage(FOLDER / "log", "wordcount")).latest()
    return 0 if head is None else sum(offset for _, _, offset in head.positions)


def kill_tree(pid: int) -> None:
    """SIGKILL a process and all its descendants: Python workers have process groups of their own."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="ascii", errors="replace").rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            kill_tree(int(stat.parent.name))
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def run_and_kill(target_lines: int) -> bool:
    """Run the child; kill it when so many lines are committed. True if it was killed."""
    child = subprocess.Popen([sys.executable, __file__, "--child"])  # noqa: S603 - this very program
    try:
        while child.poll() is None:
            if committed_lines() >= target_lines:
                kill_tree(child.pid)
                child.wait()
                return True
            time.sleep(0.05)
    except KeyboardInterrupt:  # the child has got it, too, and ends in order
        child.wait()
        sys.exit("stopped")
    if child.returncode:
        sys.exit(f"the word count ended with {child.returncode}")
    return False


def read_counts(log: FileLog) -> tuple[dict[str, int], int]:
    """The last count of each word in the output topic, and how many updates went back or repeated."""
    counts: dict[str, int] = {}
    repeated = 0
    for number in range(PARTITIONS):
        for batch in log.read(TopicPartition("word-counts", Partition(number)), Offset(0)):
            for key, value in zip(batch.keys(), batch.values(), strict=True):
                word, count = (key or b"").decode(), int.from_bytes(value or b"")
                repeated += count <= counts.get(word, 0)
                counts[word] = count
    return counts, repeated


def main() -> int:
    """Run the demo; 0 if every word was counted exactly once."""
    console = Console()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(mode=0o700)
    log = FileLog(FOLDER / "log")
    expected = write_lines(log)
    lines, words = PARTITIONS * LINES_PER_PARTITION, sum(expected.values())
    console.print(f"Wrote {lines:,} lines, {words:,} words, into topic 'lines' of {FOLDER / 'log'}.")
    began = time.monotonic()
    kills = 0
    for number in range(KILLS):
        target = lines * (number + 1) // (KILLS + 1)
        console.print("Starting the word count on Spark, which takes a few seconds ...")
        if run_and_kill(target):
            kills += 1
            if console.is_terminal:
                console.print()  # a table that was killed has left the cursor beside it
            console.print(f"Killed it (SIGKILL) with {committed_lines():,} of {lines:,} lines committed.")
    console.print("Starting it for the last time ...")
    run_and_kill(lines + 1)
    seconds = time.monotonic() - began
    counts, repeated = read_counts(log)
    lost = sum((expected - Counter(counts)).values())
    duplicated = sum((Counter(counts) - expected).values()) + repeated
    is_exact = (lost, duplicated, kills) == (0, 0, KILLS)
    console.print(
        Panel(
            f"[bold]lost {lost}, duplicated {duplicated}[/]\n"
            f"{words:,} words of {lines:,} lines in {seconds:.0f} s ({words / seconds:,.0f} words/s)\n"
            f"with {kills} kills and {kills + 1} starts of Spark",
            title="every word was counted exactly once" if is_exact else "NOT exactly once",
            style="green" if is_exact else "red",
            expand=False,
        )
    )
    return 0 if is_exact else 1


if __name__ == "__main__":
    if "--child" in sys.argv:
        run_child()
    else:
        sys.exit(main())
