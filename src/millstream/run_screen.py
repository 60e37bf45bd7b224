"""What `Streams.run` shows in a terminal: that Spark starts, what is restored, a live table, and the end.

It asks for figures a few times a second and disturbs nothing: what can't be asked for at a moment is shown
as it was before. What the program prints meanwhile appears above the table.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner

from millstream.console import Figures, table_of

_REFRESHES_PER_SECOND = 5
_STARTING = ("created", "rebalancing")


class RunScreen:
    """Shows one run of an application. A context manager, because a live table has to be put away."""

    def __init__(
        self,
        figures: Callable[[], Figures],
        *,
        what_starts: str,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._figures = figures
        self._clock = clock
        self._console = Console(file=stream if stream is not None else sys.stderr)
        self._last = figures()
        self._records_before = self._last.records
        self._began = clock()
        self._ready: float | None = None
        self._starting = f"{self._last.application_id}: starting {what_starts}"
        self._spinner = Spinner("dots", text=self._starting)
        self._live: Live | None = None
        self._said = ""

    @staticmethod
    def is_seen() -> bool:
        """Whether there is a terminal to show something in."""
        return sys.stderr.isatty()

    def say(self, line: str) -> None:
        """Show a line below the rest, and leave it there at the end. A signal handler may call this."""
        self._said = line

    def __enter__(self) -> Self:
        is_mixed = sys.stdout.isatty()  # else what the program prints goes elsewhere, and is left alone
        self._live = Live(
            console=self._console,
            get_renderable=self._drawn,
            refresh_per_second=_REFRESHES_PER_SECOND,
            transient=True,
            redirect_stdout=is_mixed,
            redirect_stderr=True,
        )
        self._live.start(refresh=True)  # a start may be over before the first refresh
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del error, trace
        assert self._live is not None  # entered before
        self._refresh()
        self._live.stop()
        if self._said:
            self._console.print(self._said, highlight=False, soft_wrap=True)
        if kind is None:
            self._console.print(self._ending(), highlight=False, soft_wrap=True)

    def _drawn(self) -> RenderableType:
        self._refresh()
        return Group(self._running_or_starting(), self._said) if self._said else self._running_or_starting()

    def _running_or_starting(self) -> RenderableType:
        if self._last.state not in _STARTING:
            return table_of(self._last)
        self._spinner.update(text=f"{self._starting}, {self._clock() - self._began:.0f} s")
        return self._spinner

    def _refresh(self) -> None:
        try:
            self._last = self._figures()
        except Exception:  # noqa: BLE001 - the run itself tells what is wrong with it
            return
        if self._ready is None and self._last.state not in _STARTING:
            self._ready = self._clock()

    def _ending(self) -> str:
        last = self._last
        records = last.records - self._records_before
        seconds = self._clock() - (self._began if self._ready is None else self._ready)
        is_caught_up = self._ready is not None and not any(last.lag.values())  # before, no lag is known
        end = "caught up" if is_caught_up else "stopped"
        return f"{last.application_id}: {end}, {records:,} records in {_short(seconds)}, epoch {last.epoch}"


def _short(seconds: float) -> str:
    """A time that people read.

    >>> _short(0.04), _short(2.31), _short(75)
    ('0.0 s', '2.3 s', '1 min 15 s')
    """
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f} s"
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
