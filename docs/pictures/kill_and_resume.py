"""Records the picture of the README: a word count on Spark is killed with SIGKILL in the middle, and goes on.

Run it with `python docs/pictures/kill_and_resume.py`: the commands are really run, in a folder of their own,
and kill_and_resume.svg beside this file is written anew. What they print is shown as they print it; only
pauses are cut short. At the end the counts are compared with a count of the text.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import IO

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LINES = 60_000
WORDS_PER_LINE = 8
LONGEST_PAUSE_S = 1.2
COLUMNS, CHARACTER, LINE, MARGIN = 132, 6.7, 16, 14
LINES_OF_A_RUN = 4
PROGRAM = """
import re

from millstream import StreamsBuilder, serdes

builder = StreamsBuilder()
lines = builder.stream("lines", value=serdes.string)
words = lines.flat_map_values(lambda line: re.findall(r"\\w+", line.lower()))
counts = words.group_by(lambda _, word: word, key=serdes.string).count(store="counts")
counts.to_stream().to("word-counts", key=serdes.string, value=serdes.int64)
topology = builder.build()
"""
STYLE = """
.ground { fill: #0d1117 }
text { font: 11px ui-monospace, SFMono-Regular, Menlo, monospace; fill: #c9d1d9 }
.typed { fill: #7ee787 }
.killed { fill: #ff7b72 }
.good { fill: #7ee787; font-weight: bold }
@keyframes shown { from { opacity: 0 } }
@media (prefers-reduced-motion: reduce) { text { animation-delay: 0s !important } }
"""


@dataclass(slots=True)
class Recording:
    """Lines, each with its kind and the moment at which it appears."""

    lines: list[tuple[float, str, str]] = field(default_factory=list)
    now: float = 0.0
    last: float = field(default_factory=time.monotonic)

    def add(self, kind: str, text: str) -> None:
        """A line appears: so long after the one before as it took, but not longer than the longest pause."""
        moment = time.monotonic()
        self.now += min(moment - self.last, LONGEST_PAUSE_S)
        self.last = moment
        self.lines.append((round(self.now, 2), kind, text[:COLUMNS]))
        print(text, flush=True)  # noqa: T201 - the recording is watched


def drawn(lines: list[tuple[float, str, str]]) -> str:
    """The recording as an SVG that plays once."""
    width, height = round(COLUMNS * CHARACTER + 2 * MARGIN), len(lines) * LINE + 2 * MARGIN
    rows = [
        f'<text xml:space="preserve" class="{kind}" x="{MARGIN}" y="{MARGIN + LINE * number + 13}" '
        f'style="animation: shown 0.05s {moment}s backwards">{escape(text)}</text>'
        for number, (moment, kind, text) in enumerate(lines)
    ]
    label = "A word count on Spark is killed and goes on: no word is lost or counted twice"
    size = f'viewBox="0 0 {width} {height}" width="{width}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">',
            f"<style>{STYLE}</style>",
            f'<rect class="ground" width="{width}" height="{height}" rx="8"/>',
            *rows,
            "</svg>\n",
        ]
    )


def command(folder: Path, *words: str) -> subprocess.Popen[str]:
    """The command line in a process group of its own, so that Spark is killed with it."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "MILLSTREAM_MAX_RECORDS_PER_EPOCH": "2000",
        "MILLSTREAM_SPARK_SETTINGS": '{"spark.ui.enabled" = "false"}',
    }
    return subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-m", "millstream", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def typed(recording: Recording, folder: Path, *words: str) -> None:
    """Type a command, and show what it prints."""
    recording.add("typed", "$ millstream " + " ".join(words))
    with command(folder, *words) as process:
        assert process.stdout is not None
        show(recording, process.stdout)
    if process.returncode:
        sys.exit(f"{words} ended with {process.returncode}")


def show(recording: Recording, stream: IO[str]) -> None:
    """Add what a command prints."""
    for line in stream:
        if line.strip():
            recording.add("figures" if line.startswith("wordcount: ") else "told", line.rstrip())


def shortened(lines: list[tuple[float, str, str]]) -> list[tuple[float, str, str]]:
    """Of the lines that a run writes a second, a few, and what comes after them then comes sooner."""
    kept: list[tuple[float, str, str]] = []
    cut_s = 0.0
    for kind, group in groupby(lines, key=itemgetter(1)):
        rows = list(group)
        if kind == "figures" and len(rows) > LINES_OF_A_RUN:
            last = len(rows) - 1
            chosen = [rows[number * last // (LINES_OF_A_RUN - 1)] for number in range(LINES_OF_A_RUN)]
            begin = rows[0][0]
            kept += [(begin - cut_s + LONGEST_PAUSE_S * at, kind, row[2]) for at, row in enumerate(chosen)]
            cut_s += rows[-1][0] - begin - LONGEST_PAUSE_S * (LINES_OF_A_RUN - 1)
        else:
            kept += [(moment - cut_s, kind, text) for moment, kind, text in rows]
    return [(round(moment, 2), kind, text) for moment, kind, text in kept]


def committed(folder: Path) -> int:
    """How many lines the application has committed."""
    with command(folder, "apps", "lag", "wordcount", "--json") as process:
        assert process.stdout is not None
        lines = process.stdout.read().splitlines()
    return sum(json.loads(line)["committed"] for line in lines) if not process.returncode else 0


def killed(recording: Recording, folder: Path) -> None:
    """Run the word count until a third is committed, and kill it with all that it has started."""
    recording.add("typed", "$ millstream run wordcount:topology &")
    with command(folder, "run", "wordcount:topology") as process:
        assert process.stdout is not None
        reader = threading.Thread(target=show, args=(recording, process.stdout))
        reader.start()
        while committed(folder) < LINES // 3:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        reader.join()
    recording.add("killed", "$ kill -9 %1      # in the middle of an epoch, with Spark and all its workers")


def main() -> None:
    """Record, check and write."""
    folder = Path(tempfile.mkdtemp(prefix="kill-and-resume-"))
    vocabulary = re.findall(r"\w+", (ROOT / "examples" / "river.txt").read_text(encoding="utf-8"))
    chosen = random.Random(7)  # noqa: S311 - a text, not a secret
    text = [" ".join(chosen.choices(vocabulary, k=WORDS_PER_LINE)) for _ in range(LINES)]
    (folder / "text.txt").write_text("\n".join(text) + "\n", encoding="utf-8")
    (folder / "wordcount.py").write_text(PROGRAM, encoding="utf-8")
    recording = Recording()
    typed(recording, folder, "topics", "create", "lines", "--partitions", "2")
    typed(recording, folder, "topics", "produce", "lines", "text.txt")
    killed(recording, folder)
    typed(recording, folder, "apps", "list")
    typed(recording, folder, "run", "wordcount:topology", "--until", "caught-up")
    typed(recording, folder, "state", "top", "wordcount", "counts", "-n", "3")
    with command(folder, "state", "export", "wordcount", "counts", "-") as process:
        assert process.stdout is not None
        rows = [json.loads(line) for line in process.stdout]
    counts = Counter({row["key"]: row["value"] for row in rows})
    expected = Counter(word.lower() for line in text for word in line.split())
    lost, twice = (expected - counts).total(), (counts - expected).total()
    recording.add("good", f"{expected.total():,} words in the text: lost {lost}, counted twice {twice}")
    (HERE / "kill_and_resume.svg").write_text(drawn(shortened(recording.lines)), encoding="utf-8")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
