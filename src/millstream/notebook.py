"""How things are shown in a notebook: tables of a few rows, as text and as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice
from typing import Any, Final

__all__ = ["MOST_ROWS", "Shown", "ShownAsTable", "table_bundle"]

MOST_ROWS: Final = 20
_LONGEST: Final = 80
_STYLE: Final = "text-align:left;vertical-align:top"

Shown = tuple[Sequence[str], Iterable[Sequence[Any]]]
"""The names of columns, and rows, of which only the first few are looked at."""


def table_bundle(title: str, shown: Shown) -> dict[str, str]:
    """A table, by MIME type, as notebooks ask for it.

    >>> print(table_bundle("counts", (("key", "value"), [("river", 2)]))["text/plain"])
    counts
    key    value
    river  2
    """
    columns, rows = shown
    first = [[_short(cell) for cell in row] for row in islice(rows, MOST_ROWS + 1)]
    more = len(first) > MOST_ROWS
    first = first[:MOST_ROWS]
    return {"text/plain": _text(title, columns, first, more), "text/html": _html(title, columns, first, more)}


class ShownAsTable:
    """Mixed in: a notebook shows it as a table, everybody else in a few words."""

    __slots__ = ()

    def _shown(self) -> Shown:
        """The table."""
        raise NotImplementedError

    def __repr__(self) -> str:
        name = getattr(self, "name", None)
        return f"<{type(self).__name__}{'' if name is None else f' {name!r}'}>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        del include, exclude
        table = self._shown()  # before the title: a store that is read learns of its last commit
        return table_bundle(repr(self).strip("<>"), table)


def _short(cell: Any) -> str:
    text = cell if isinstance(cell, str) else repr(cell)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _text(title: str, columns: Sequence[str], rows: list[list[str]], more: bool) -> str:  # noqa: FBT001
    table = [list(columns), *rows]
    widths = [max(len(row[at]) for row in table) for at in range(len(columns))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    return "\n".join([title, *(line.rstrip() for line in lines), *(["..."] if more else [])])


def _html(title: str, columns: Sequence[str], rows: list[list[str]], more: bool) -> str:  # noqa: FBT001
    head = "".join(f'<th style="{_STYLE}">{escape(name)}</th>' for name in columns)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_STYLE}">{escape(cell)}</td>' for cell in row) + "</tr>"
        for row in rows
    )
    rest = f'<tr><td colspan="{len(columns)}">...</td></tr>' if more else ""
    caption = f'<caption style="{_STYLE}">{escape(title)}</caption>'
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}{rest}</tbody></table>"
