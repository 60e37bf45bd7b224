"""Checks of what users give to operators where a wrong object would only fail at the first record."""

from __future__ import annotations

import re
from inspect import Parameter, signature
from typing import Any, Final

from millstream.errors import TopologyError
from millstream.suppressed import Suppressed
from millstream.timestamps import HOW_TO_EXTRACT
from millstream.topology.refusals import (
    function_refusal,
    partitioner_refusal,
    refuse,
    serde_refusal,
    supplier_refusal,
    topic_refusal,
)
from millstream.windows import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows

__all__ = [
    "check_extractor",
    "check_function",
    "check_functions",
    "check_joiner",
    "check_partitioner",
    "check_serdes",
    "check_strategy",
    "check_suppressed",
    "check_topics",
    "check_transformer",
    "check_values_function",
    "check_windows",
]

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
_PARAMETERS: Final = {
    "aggregator": ("key", "value", "so_far"),
    "initializer": (),
    "key_of": ("key", "value"),
    "merger": ("key", "one", "other"),
    "reducer": ("so_far", "value"),
}
_LIKE_STREAMS: Final = {"aggregate": "aggregator", "reduce": "reducer"}
"""What adder and subtractor of a table are called like."""
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
    """Refuse what can't be called as a method calls it, by the name of its argument.

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
        if argument in _PARAMETERS:
            check_function(f"{method}()", function, *_PARAMETERS[argument])
        elif argument in {"adder", "subtractor"}:
            check_function(f"{method}()", function, *_PARAMETERS[_LIKE_STREAMS[method]])


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


def check_function(what: str, given: Any, *parameters: str, hint: str | None = None) -> None:
    """Refuse what can't be called with some parameters; `hint` is what another function would do for.

    >>> check_function("filter()", lambda value: True, "key", "value")
    Traceback (most recent call last):
    millstream.errors.TopologyError: filter() calls its function with (key, value), but a lambda takes ...
    """
    refuse(function_refusal(what, given, *parameters, hint=hint))


def check_values_function(operator: str, given: Any) -> None:
    """Refuse what can't be called as an operator on values calls it; the key may be asked for by another.

    >>> check_values_function("map_values", lambda key, value: value)
    Traceback (most recent call last):
    millstream.errors.TopologyError: map_values() ... takes (key, value). Remedy: map_values_with_key() ...
    """
    with_key = operator.endswith("_with_key")
    names, others = (("key", "value"), ("value",)) if with_key else (("value",), ("key", "value"))
    fits = callable(given) and function_refusal("", given, *others) is None
    other = operator.removesuffix("_with_key") if with_key else f"{operator}_with_key"
    hint = f"{other}() calls it with ({', '.join(others)})" if fits else None
    check_function(f"{operator}()", given, *names, hint=hint)


def check_joiner(method: str, given: Any, *, with_key: bool) -> None:
    """Refuse what can't join two values, and say how it gets their key.

    >>> check_joiner("join", lambda key, one, other: one, with_key=False)
    Traceback (most recent call last):
    millstream.errors.TopologyError: join() calls its function with (left, right), but a lambda takes ...
    """
    check_functions(method, joiner=given)
    names = ("key", "left", "right") if with_key else ("left", "right")
    others = names[1:] if with_key else ("key", *names)
    fits = callable(given) and function_refusal("", given, *others) is None
    hint = f"with_key={not with_key} calls it with ({', '.join(others)})" if fits else None
    check_function(f"{method}()", given, *names, hint=hint)


def check_transformer(supplier: Any) -> None:
    """Refuse what does not make transformers of values.

    >>> check_transformer(dict)
    Traceback (most recent call last):
    millstream.errors.TopologyError: 'dict' supplies {}, which has no transform(). Remedy: pass a class, ...
    """
    check_function("transform_values()", supplier, hint="pass a class with init, transform and close")
    refuse(supplier_refusal(supplier, "transform"))


def check_partitioner(given: Any) -> None:
    """Refuse what can't choose partitions; None leaves that to the key.

    >>> check_partitioner(7)
    Traceback (most recent call last):
    millstream.errors.TopologyError: partitioner takes a function of (topic, key, value, partitions), but ...
    """
    refuse(partitioner_refusal(given))


def check_serdes(key: object, value: object) -> None:
    """Refuse what is no serde; None is none.

    >>> check_serdes(None, "string")
    Traceback (most recent call last):
    millstream.errors.TopologyError: value='string': ... Remedy: give serdes.string itself
    """
    refuse(serde_refusal("key", key))
    refuse(serde_refusal("value", value))


def check_topics(topics: object) -> None:
    """Refuse what is neither a topic, nor several, nor a pattern of their names.

    >>> check_topics("orders/eu")
    Traceback (most recent call last):
    millstream.errors.TopologyError: 'orders/eu' can't be the name of a topic. Remedy: use letters, ...
    """
    if isinstance(topics, re.Pattern):
        return
    several = isinstance(topics, list | tuple | set | frozenset)
    if several and not topics:
        raise TopologyError("a stream of no topic at all. Remedy: name one or more, or a pattern of names")
    for topic in topics if several else [topics]:  # type: ignore[attr-defined]
        refuse(topic_refusal(topic))


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
