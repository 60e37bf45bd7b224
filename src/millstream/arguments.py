"""Arguments of a constructor that it does not have: refused with the nearest one, before anything is made.

A type checker finds them too. Who has none gets a message like that for a bad value, not a bare TypeError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, signature
from typing import Any, TypeVar

from millstream.errors import ConfigError

C = TypeVar("C", bound=type)


def checks_arguments(hint: Callable[[str], str | None] = lambda _name: None) -> Callable[[C], C]:
    """A decorator of classes. `hint` may know where an argument belongs that the class does not have.

    >>> @checks_arguments()
    ... class Mill:
    ...     def __init__(self, *, wheels: int) -> None: ...
    >>> Mill(wheel=2)
    Traceback (most recent call last):
    millstream.errors.ConfigError: Mill(wheel=...): there is no such argument. Remedy: wheels=, perhaps; ...
    """

    def decorate(made: C) -> C:
        init: Any = made.__init__  # type: ignore[misc]
        known = signature(init)

        @wraps(init)
        def checked(self: Any, *args: Any, **named: Any) -> None:
            try:
                known.bind(self, *args, **named)
            except TypeError:
                parameters = [*known.parameters.values()][1:]
                raise ConfigError(_complaint(made.__name__, parameters, args, named, hint)) from None
            init(self, *args, **named)

        made.__init__ = checked  # type: ignore[misc]
        return made

    return decorate


def _complaint(
    owner: str,
    parameters: Sequence[Parameter],
    args: Sequence[Any],
    named: dict[str, Any],
    hint: Callable[[str], str | None],
) -> str:
    by_place = [one.name for one in parameters if one.kind is not Parameter.KEYWORD_ONLY]
    names = [one.name for one in parameters]
    missing = [one.name for one in parameters if one.default is Parameter.empty]
    for name in named:
        if name not in names:
            return (
                f"{owner}({name}=...): there is no such argument. Remedy: {_remedy(owner, names, name, hint)}"
            )
    usual = ", ".join([*by_place, *(f"{name}=..." for name in missing if name not in by_place)])
    if len(args) > len(by_place):
        return (
            f"{owner}() got {len(args)} arguments without a name. Remedy: name them, as in "
            f"{owner}({usual or names[0] + '=...'}); help({owner}) lists them."
        )
    left_out = [name for name in missing[len(args) :] if name not in named]
    return f"{owner}() needs {' and '.join(left_out)}. Remedy: {owner}({usual})"


def _remedy(owner: str, names: Sequence[str], name: str, hint: Callable[[str], str | None]) -> str:
    snake = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()
    told = hint(snake)
    if told is not None:
        return told
    near = get_close_matches(snake, names, 1)
    everything = f"help({owner}) lists them all"
    return f"{near[0]}=, perhaps; {everything}" if near else everything
