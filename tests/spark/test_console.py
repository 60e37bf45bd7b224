"""What a running application shows: a table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from millstream.console import Figures, Watcher, line_of, table_of

FIGURES = Figures(
    "shop",
    "running",
    7,
    records=12_000,
    records_per_second=2_500.4,
    epoch_seconds=0.125,
    lag={"orders": 3, "refunds": 40_000},
    rows={"words": 9},
    restores={"counts-3": (50, 200)},
    latency_ms=1_234,
    state_entries=45_000,
    state_bytes=2_500_000,
)


def drawn(figures: Figures) -> dict[str, str]:
    """The rows of the table, as a terminal shows them."""
    stream = io.StringIO()
    Console(file=stream, width=80).print(table_of(figures))
    cells = [line.strip("│┃ \n") for line in stream.getvalue().splitlines()]
    rows = [cell.replace("┃", "│").split("│") for cell in cells]
    return {row[0].strip(): row[1].strip() for row in rows if len(row) == 2}


def test_the_table_has_every_figure() -> None:
    rows = drawn(FIGURES)
    bar = rows.pop("restoring counts-3")
    assert rows == {
        "what": "figure",
        "records committed": "12,000",
        "records per second": "2,500",
        "latency": "1,234 ms",
        "last epoch": "125 ms",
        "state": "2.5 MB in 45,000 keys",
        "lag of orders": "3",
        "lag of refunds": "40,000",
        "words": "9",
    }
    assert bar


def test_a_line_has_every_figure() -> None:
    assert line_of(FIGURES) == (
        "shop: running, epoch 7, 12,000 records, 2,500/s, latency 1,234 ms, last epoch 125 ms, "
        "state 2.5 MB in 45,000 keys, lag orders=3 refunds=40,000, words 9, restoring counts-3 25%"
    )


@pytest.mark.parametrize(
    ("size", "shown"), [(0, "0 B"), (1, "1 B"), (999, "999 B"), (1_000, "1.0 kB"), (3 * 10**9, "3.0 GB")]
)
def test_the_size_of_the_state_is_readable(size: int, shown: str) -> None:
    stateless = replace(FIGURES, state_bytes=size, state_entries=0)
    assert f"state {shown}, lag" in line_of(stateless)


def test_what_is_not_known_yet_is_a_dash() -> None:
    assert drawn(replace(FIGURES, latency_ms=None))["latency"] == "-"


def test_without_a_terminal_there_are_plain_lines_at_most_once_a_second() -> None:
    stream = io.StringIO()
    times = iter([0.0, 0.0, 0.5, 1.0, 1.0])
    with Watcher(stream, clock=lambda: next(times)) as watcher:
        for epoch in (1, 2, 3):
            watcher.show(replace(FIGURES, epoch=epoch))
    assert [line.split(",")[1] for line in stream.getvalue().splitlines()] == [" epoch 1", " epoch 3"]
    assert "\x1b" not in stream.getvalue()
