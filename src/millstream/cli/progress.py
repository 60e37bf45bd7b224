"""A progress bar on a terminal, nothing elsewhere.

It shows what is done, how fast, and how long it will take. A pipe or a log file gets no bar and no control
characters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

_RECORDS: Final = "[progress.data.speed]{task.fields[records]:,} records, {task.fields[rate]:,.0f}/s"


@contextmanager
def progress_bar(
    title: str, total_bytes: int | None, console: Console | None = None
) -> Iterator[Callable[..., None]]:
    """Show a bar on standard error, if that is a terminal and the total is known.

    Gives a function that is told how many more bytes (``size``) and ``records`` are done.
    """
    console = console or Console(stderr=True)
    is_hidden = not console.is_terminal or not total_bytes
    columns = ("{task.description}", BarColumn(), TaskProgressColumn(), _RECORDS, TimeRemainingColumn())
    with Progress(*columns, console=console, disable=is_hidden) as bar:
        task = bar.add_task(title, total=total_bytes, records=0, rate=0)
        done = 0

        def advance(*, size: int, records: int) -> None:
            nonlocal done
            done += records
            elapsed = bar.tasks[0].elapsed
            bar.update(task, advance=size, records=done, rate=done / elapsed if elapsed else 0)

        yield advance
