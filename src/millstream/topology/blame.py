"""Which line of the user's program made a call: errors found later can still point at it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

_PACKAGE = __name__.split(".", maxsplit=1)[0]
_FIXED: ContextVar[str | None] = ContextVar("call_site", default=None)


def call_site() -> str:
    """File and line of the nearest caller outside this package."""
    fixed = _FIXED.get()
    if fixed is not None:
        return fixed
    frame = sys._getframe(1)  # noqa: SLF001 - inspect.stack() reads source files and is far slower
    while frame.f_back is not None and _is_ours(frame):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_ours(frame: FrameType) -> bool:
    """By module, not by file: the __init__ of a dataclass has no file."""
    name = str(frame.f_globals.get("__name__", ""))
    return name == _PACKAGE or name.startswith(f"{_PACKAGE}.")


@contextmanager
def on_behalf_of(site: str) -> Iterator[None]:
    """Calls made inside are blamed on `site`: `build()` writes nodes that other lines asked for."""
    token = _FIXED.set(site)
    try:
        yield
    finally:
        _FIXED.reset(token)
