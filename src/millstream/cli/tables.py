"""Rows on standard output: a table of text, or JSON with an object a line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click
import msgspec

_UNKNOWN: Final = "-"


def show_rows(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, is_json: bool) -> None:
    r"""Print rows: numbers to the right with commas, nothing known as a dash.

    >>> show_rows(
    ...     [{"topic": "lines", "lag": 1200}, {"topic": "a", "lag": None}], ["topic", "lag"], is_json=False
    ... )
    topic    lag
    lines  1,200
    a          -
    >>> show_rows([{"topic": "lines", "lag": 1200}], ["topic", "lag"], is_json=True)
    {"topic":"lines","lag":1200}
    """
    found = list(rows)
    if is_json:
        for row in found:
            show_json(row)
        return
    cells = [[_text(row.get(column)) for column in columns] for row in found]
    widths = [max(map(len, (name, *column))) for name, *column in zip(columns, *cells, strict=True)]
    to_the_right = [any(isinstance(row.get(column), int | float) for row in found) for column in columns]
    for line in ([*columns], *cells):
        parts = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, to_the_right, strict=True)
        ]
        click.echo("  ".join(parts).rstrip())


def show_json(row: Mapping[str, Any]) -> None:
    """Print one object on a line."""
    click.echo(msgspec.json.encode(row).decode())


def told(message: str, row: Mapping[str, Any], *, is_json: bool) -> None:
    """Say what was done: a sentence on standard error, or an object on standard output."""
    if is_json:
        show_json(row)
    else:
        click.echo(message, err=True)


def _text(value: Any) -> str:
    if value is None:
        return _UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int | float) else str(value)
