"""The search for a smaller case that is still wrong: fewer records, fewer steps, simpler parameters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.oracle_fuzz.spec import STORE_IS_OPTIONAL, Case, Step

IsWrong = Callable[[Case], bool]

_SIMPLER: dict[str, tuple[Any, ...]] = {
    "null": (-1,),
    "key": (False, None),
    "a": (1,),
    "b": (0,),
    "grace": (0,),
    "named": (False,),
    "cached": (True, False),
    "retention": (None,),
    "versioned": (None,),
    "store": (None,),
    "max_records": (None,),
    "emit": ("update",),
    "negated": (False,),
    "with_key": (False,),
    "default": (False,),
    "headers": ([],),
    "at": (0,),
    "init": (0, ""),
    "kind": ("sum", "concat"),
    "how": ("count",),
    "named_stores": (False,),
}
"""What is tried instead of a parameter; only a value that is not there already, and behind it, counts."""


_KEEPS_TYPES = {"filter", "filter_not", "peek", "repartition", "table_filter", "merge", "suppress"}
"""Steps that may be left out of the middle."""
_STORE_IS_OPTIONAL = {"table", "foreign_key_join", *STORE_IS_OPTIONAL}


def shrink(case: Case, is_wrong: IsWrong, seconds: float = 60) -> Case:
    """A smaller case for which `is_wrong` still holds."""
    deadline = time.monotonic() + seconds
    shrinking = True
    while shrinking:
        shrinking = False
        for smaller in candidates(case):
            if time.monotonic() > deadline:
                return case
            if is_wrong(smaller):
                case, shrinking = smaller, True
                break
    return case


def candidates(case: Case) -> Iterator[Case]:
    """Cases that are a little smaller, the most promising first."""
    yield from _fewer_actions(case)
    yield from _fewer_steps(case)
    if case.optimization != "none":
        yield replace(case, optimization="none")
    for number, step in enumerate(case.steps):
        for simpler in _simpler(step):
            yield replace(case, steps=(*case.steps[:number], simpler, *case.steps[number + 1 :]))
    for number, action in enumerate(case.actions):
        for simpler in _simpler(action):
            yield replace(case, actions=(*case.actions[:number], simpler, *case.actions[number + 1 :]))


def _fewer_actions(case: Case) -> Iterator[Case]:
    size = (len(case.actions) + 1) // 2
    while size:
        # From the end: what comes behind the difference is not needed.
        for start in reversed(range(0, len(case.actions), size)):
            yield replace(case, actions=case.actions[:start] + case.actions[start + size :])
        size //= 2


def _fewer_steps(case: Case) -> Iterator[Case]:
    for step in case.steps:
        fewer = case.without(step["id"])
        if fewer.steps:
            yield fewer
    for step in case.steps:
        if step["op"] in _KEEPS_TYPES:
            yield _bypassed(case, step)


def _bypassed(case: Case, gone: Step) -> Case:
    front = gone["of"][0]
    steps = [
        {**step, "of": [front if parent == gone["id"] else parent for parent in step["of"]]}
        for step in case.steps
        if step is not gone
    ]
    return replace(case, steps=tuple(steps)).tidied()


def _simpler(parameters: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, value in parameters.items():
        for simple in _SIMPLER.get(name, ()):
            if name == "how" and parameters["types"][1] != "int64":
                continue
            if name == "store" and parameters["op"] not in _STORE_IS_OPTIONAL:
                continue
            if _is_simpler(name, simple, value):
                yield {**parameters, name: simple}
        if isinstance(value, dict):
            for inner in _simpler(value):
                yield {**parameters, name: inner}


def _is_simpler(name: str, simple: Any, value: Any) -> bool:
    """Whether a value may stand instead of another, so that no two may stand for each other."""
    ranks = _SIMPLER[name]
    if simple == value and type(simple) is type(value):
        return False
    if name == "key" and (isinstance(value, dict | str) or value is None):
        return False  # not the flag of a function
    if name == "kind" and value not in {"sum", "minus", "max", "min", "last", "mix"}:
        return False
    if name == "kind" and simple != "sum":
        return False
    if name == "init" and (value is None or isinstance(value, str)) is not isinstance(simple, str):
        return False
    if name == "how" and value == "count":
        return False
    before = [rank for rank, one in enumerate(ranks) if one == value and type(one) is type(value)]
    return not before or ranks.index(simple) < before[0]
