"""Checks of what users give to operators where a wrong object would only fail at the first record."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any, Final

from millstream.errors import TopologyError
from millstream.suppressed import Suppressed
from millstream.timestamps import HOW_TO_EXTRACT
from millstream.windows import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows

__all__ = ["check_extractor", "check_functions", "check_strategy", "check_suppressed", "check_windows"]

_FUNCTIONS: Final = {
    "adder": "a function that adds a row to the result",
    "aggregator": "a function of key, value and the result so far, as in lambda key, value, n: n + value",
    "initializer": "a function without arguments that makes the first value, as in lambda: 0",
    "joiner": "a function of both values, as in lambda left, right: (left, right); of key and both values "
    "with with_key=True",
    "key_of": "a function of a record's key and value that gives the key of its row, as in "
    "lambda key, value: value.country",
    "merger": "a function of key and two results that makes one, as in lambda key, one, other: one + other",
    "reducer": "a function of the result so far and a value, as in max",
    "subtractor": "a function that takes a row out of the result again",
}
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


def check_functions(method: str, **given: object) -> None:
    """Refuse what can't be called, by the name of its argument.

    >>> check_functions("aggregate", initializer=0)
    Traceback (most recent call last):
    millstream.errors.TopologyError: initializer of aggregate() is 0, which can't be called. Remedy: ...
    """
    for argument, function in given.items():
        if not callable(function):
            raise TopologyError(
                f"{argument} of {method}() is {function!r}, which can't be called. "
                f"Remedy: {_FUNCTIONS[argument]}"
            )


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
