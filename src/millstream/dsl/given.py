"""Checks of what users give to operators where a wrong object would only fail at the first record."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any

from millstream.errors import TopologyError
from millstream.suppressed import Suppressed
from millstream.timestamps import HOW_TO_EXTRACT
from millstream.windows import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows

__all__ = ["check_extractor", "check_strategy", "check_suppressed", "check_windows"]

_WINDOWS = (TimeWindows, SlidingWindows, SessionWindows, UnlimitedWindows)


def check_windows(given: object) -> None:
    """Refuse what `windowed_by` can't cut records by.

    >>> check_windows(TimeWindows)
    Traceback (most recent call last):
    millstream.errors.TopologyError: windowed_by() takes windows, but it got TimeWindows, which was not ...
    """
    remedy = "TimeWindows(...), SlidingWindows(...), SessionWindows(...) or UnlimitedWindows(...)"
    _check("windowed_by() takes windows", given, _WINDOWS, remedy)


def check_strategy(given: object) -> None:
    """Refuse what is no `EmitStrategy`.

    >>> check_strategy(EmitStrategy.on_window_close)
    Traceback (most recent call last):
    millstream.errors.TopologyError: ... Remedy: call it: EmitStrategy.on_window_close()
    """
    remedy = "EmitStrategy.on_window_close() or EmitStrategy.on_window_update()"
    _check("emit_strategy() takes an EmitStrategy", given, (EmitStrategy,), remedy)


def check_suppressed(given: object) -> None:
    """Refuse what is no `Suppressed`.

    >>> check_suppressed(Suppressed.until_time_limit)
    Traceback (most recent call last):
    millstream.errors.TopologyError: ... Remedy: call it: Suppressed.until_time_limit(...)
    """
    remedy = "Suppressed.until_window_closes() or Suppressed.until_time_limit(...)"
    _check("suppress() takes a Suppressed", given, (Suppressed,), remedy)


def check_extractor(given: object) -> None:
    """Refuse a timestamp extractor that can't be called.

    >>> check_extractor("created_at")
    Traceback (most recent call last):
    millstream.errors.TopologyError: timestamp_extractor is 'created_at', which can't be called. Remedy: ...
    """
    if given is not None and not callable(given):
        raise TopologyError(
            f"timestamp_extractor is {given!r}, which can't be called. Remedy: {HOW_TO_EXTRACT}"
        )


def _check(what: str, given: Any, kinds: tuple[type, ...], remedy: str) -> None:
    if isinstance(given, kinds):
        return
    owner = getattr(given, "__self__", given)  # of a class method: its class
    if not any(owner is kind for kind in kinds):
        raise TopologyError(f"{what}, but it got {given!r}. Remedy: {remedy}")
    name = given.__qualname__
    needs = any(one.default is Parameter.empty for one in signature(given).parameters.values())
    raise TopologyError(
        f"{what}, but it got {name}, which was not called. Remedy: call it: {name}({'...' if needs else ''})"
    )
