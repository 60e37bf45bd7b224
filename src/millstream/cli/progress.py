"""A progress bar on a terminal, nothing elsewhere.

It shows what is done, how fast, and how long it will take. A pipe or a log file gets no bar and no control
characters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TimeRemainingColumn
from rich.text import Text


class _Records(ProgressColumn):
    """How many records are done, and how many per second."""

    def render(self, task: Task) -> Text:
        records = int(task.fields.get("records", 0))
        rate = records / task.elapsed if task.elapsed else 0
        return Text(f"{records:,} records, {rate:,.0f}/s", style="progress.data.speed")


@contextmanager
def progress_bar(
    title: str, total_bytes: int | None, console: Console | None = None
) -> Iterator[Callable[..., None]]:
    """Show a bar on standard error, if that is a terminal and the total is known.

    Gives a function that is told how many more bytes (``size``) and ``records`` are done.
    """
    console = console or Console(stderr=True)
    is_hidden = not console.is_terminal or not total_bytes
    columns = ("{task.description}", BarColumn(), TaskProgressColumn(), _Records(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=is_hidden) as bar:
        task = bar.add_task(title, total=total_bytes, records=0)
        done = 0

        def advance(*, size: int, records: int) -> None:
            nonlocal done
            done += records
            bar.update(task, advance=size, records=done)

        yield advance
