"""What a running application shows in a terminal: a live table there, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self, TextIO

from rich import filesize
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from millstream.threads import repeated

_PLAIN_EVERY_S = 1.0
_FOLLOW_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class Figures:
    """An application at a moment."""

    application_id: str
    state: str
    epoch: int
    records: int
    records_per_second: float
    epoch_seconds: float
    lag: Mapping[str, int]
    """Records of each source topic that are not committed yet."""
    rows: Mapping[str, object]
    """Whatever else the application wants to show, by name."""
    restores: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Stores on their way back from their changelogs: records so far, and all of them."""
    latency_ms: int | None = None
    """From the moment when the newest committed record came into the log until its results were visible."""
    state_entries: int = 0
    state_bytes: int = 0


class Watcher:
    """Shows figures as they come. A context manager, because a live table has to be put away."""

    def __init__(self, stream: TextIO | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = Console(file=stream if stream is not None else sys.stderr)
        self._clock = clock
        self._live: Live | None = None
        self._last_line = float("-inf")
        self._last_text = ""

    @property
    def is_terminal(self) -> bool:
        """Whether it draws a table, or writes lines."""
        return self._console.is_terminal

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=8, transient=False)
            self._live.start()
        return self

    @contextmanager
    def following(self, figures: Callable[[], Figures]) -> Iterator[None]:
        """Ask for figures a few times a second and show them, for the length of a `with` block."""
        try:
            with repeated(lambda: self.show(figures()), _FOLLOW_EVERY_S, "watcher"):
                yield
        finally:
            self._last_line = float("-inf")  # how it ended is shown, however soon that was
            self.show(figures())

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, figures: Figures) -> None:
        """Show the figures: the table is drawn anew, a line is written once a second if it is a new one."""
        if self._live is not None:
            self._live.update(table_of(figures))
        elif self._clock() - self._last_line >= _PLAIN_EVERY_S:
            self._last_line = self._clock()
            line = line_of(figures)
            if line != self._last_text:  # nothing has happened since
                self._last_text = line
                self._console.print(line, highlight=False, soft_wrap=True)


def table_of(figures: Figures) -> Table:
    """The figures as a table."""
    table = Table(title=f"{figures.application_id}: {figures.state}, epoch {figures.epoch}", min_width=48)
    table.add_column("what")
    table.add_column("figure", justify="right")
    table.add_row("records committed", f"{figures.records:,}")
    table.add_row("records per second", f"{figures.records_per_second:,.0f}")
    table.add_row("latency", _latency(figures))
    table.add_row("last epoch", f"{figures.epoch_seconds * 1000:,.0f} ms")
    table.add_row("state", _state(figures))
    for topic, lag in sorted(figures.lag.items()):
        table.add_row(f"lag of {topic}", f"{lag:,}")
    for name, value in figures.rows.items():
        table.add_row(name, str(value))
    for store, (done, total) in sorted(figures.restores.items()):
        table.add_row(f"restoring {store}", ProgressBar(total=max(total, 1), completed=done, width=20))
    return table


def line_of(figures: Figures) -> str:
    """The figures as one line.

    >>> line_of(Figures("copy", "running", 7, 1000, 250.0, 0.125, {"lines": 3}, {}))
    'copy: running, epoch 7, 1,000 records, 250/s, latency -, last epoch 125 ms, state 0 B, lag lines=3'
    """
    restores = "".join(
        f", restoring {store} {100 * done // max(total, 1)}%"
        for store, (done, total) in sorted(figures.restores.items())
    )
    lag = " ".join(f"{topic}={count:,}" for topic, count in sorted(figures.lag.items()))
    extra = "".join(f", {name} {value}" for name, value in figures.rows.items())
    return (
        f"{figures.application_id}: {figures.state}, epoch {figures.epoch}, {figures.records:,} records, "
        f"{figures.records_per_second:,.0f}/s, latency {_latency(figures)}, "
        f"last epoch {figures.epoch_seconds * 1000:,.0f} ms, state {_state(figures)}, "
        f"lag {lag or 'none'}{extra}{restores}"
    )


def _latency(figures: Figures) -> str:
    return "-" if figures.latency_ms is None else f"{figures.latency_ms:,} ms"


def _state(figures: Figures) -> str:
    size = filesize.decimal(figures.state_bytes).replace(" bytes", " B").replace("1 byte", "1 B")
    return size if not figures.state_entries else f"{size} in {figures.state_entries:,} keys"
