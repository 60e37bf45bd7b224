"""The classic word count, run in this process by the test driver.

Reads `river.txt`, a line at a time, and prints the words that came up most often.
"""

from __future__ import annotations

import re
from pathlib import Path

from rich.console import Console
from rich.table import Table

from millstream import StreamsBuilder, serdes
from millstream.testing import TopologyTestDriver

TEXT = Path(__file__).with_name("river.txt")
SHOWN = 10

# The README shows these lines; a test compares the two.
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
topology = builder.build()


def count_words(lines: list[str]) -> dict[str, int]:
    """The last count of each word, as a reader of the output topic sees it."""
    with TopologyTestDriver(topology) as driver:
        source = driver.input_topic("lines", key=serdes.bytes, value=serdes.string)
        counts = driver.output_topic("word-counts", key=serdes.string, value=serdes.int64)
        source.pipe_all((None, line) for line in lines)
        return counts.read_latest()


def main() -> None:
    """Count the words of the text and print the most frequent ones."""
    lines = TEXT.read_text(encoding="utf-8").splitlines()
    counts = count_words(lines)
    table = Table(
        title=f"The {SHOWN} most frequent words",
        caption=f"{len(lines)} lines, {sum(counts.values())} words, {len(counts)} of them different",
        min_width=48,
    )
    table.add_column("word", ratio=1)
    table.add_column("count", justify="right")
    for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]:
        table.add_row(word, str(count))
    Console().print(table)


if __name__ == "__main__":
    main()
