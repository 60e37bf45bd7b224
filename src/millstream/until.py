"""When `Streams.run` ends: never, when all input is committed, after a time, or on a condition."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from difflib import get_close_matches
from math import isfinite
from typing import Any, Literal, TypeAlias

from millstream.errors import ConfigError

Until: TypeAlias = "Literal['caught-up'] | float | timedelta | Callable[[Any], bool] | None"
"""A number is in seconds; a function is called with the application after each epoch."""


def seconds_to_run(until: object) -> float | None:
    """How long to run; None if time does not end it. What can't be an end at all is refused.

    >>> seconds_to_run(3), seconds_to_run(timedelta(minutes=1)), seconds_to_run("caught-up")
    (3.0, 60.0, None)
    """
    if until is None or until == "caught-up" or callable(until):
        return None
    if isinstance(until, timedelta):
        seconds = until.total_seconds()
    elif isinstance(until, int | float) and not isinstance(until, bool):
        seconds = float(until)
    else:
        raise _no_end(until)
    if not isfinite(seconds) or seconds < 0:
        raise _no_end(until)
    return seconds


def _no_end(until: object) -> ConfigError:
    near = isinstance(until, str) and get_close_matches(until.lower(), ["caught-up"], 1)
    return ConfigError(
        f"run(until={until!r}): this does not say when to end. "
        + ("Did you mean 'caught-up'? " if near else "")
        + "Remedy: use 'caught-up', seconds (a number or a timedelta, not negative), a function of the "
        "application that says when, or None for ever."
    )
