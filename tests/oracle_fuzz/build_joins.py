"""Joins of a case. Named nodes are called "j" and the number of the step, named stores of streams "w"."""

from __future__ import annotations

from typing import Any

from tests.oracle_fuzz.functions import joined
from tests.oracle_fuzz.spec import Step
from tests.oracle_fuzz.types import serde

from millstream import JoinWindows


def joiner(step: Step) -> Any:
    """The joiner as a function."""
    f = step["joiner"]
    if step["with_key"]:
        return lambda key, left, right: joined(f, key, left, right)
    return lambda left, right: joined(f, None, left, right)


def stream_join(left: Any, right: Any, step: Step) -> Any:
    """Two streams."""
    windows = step["join_windows"]
    return getattr(left, step["kind"])(
        right,
        joiner(step),
        JoinWindows(windows["before"], after=windows["after"], grace=windows["grace"]),
        other_value=serde(step["types"][2]),
        store=f"w{step['id']}" if step["named_stores"] else None,
        **_left(step),
        **_given(step),
    )


def stream_table_join(stream: Any, table: Any, step: Step, how: Any) -> Any:
    """A stream with a table; `how` is a function or an expression."""
    return getattr(stream, step["kind"])(table, how, grace=step["grace"], **_left(step), **_given(step))


def global_table_join(stream: Any, table: Any, step: Step, how: Any, key_of: Any) -> Any:
    """A stream with a global table; `how` is a function or an expression."""
    return getattr(stream, step["kind"])(table, how, key_of=key_of, **_given(step))


def table_join(left: Any, right: Any, step: Step, store: dict[str, Any]) -> Any:
    """Two tables."""
    return getattr(left, step["kind"])(right, joiner(step), **_given(step), **store)


def foreign_key_join(left: Any, right: Any, step: Step, foreign_key: Any, store: dict[str, Any]) -> Any:
    """Two tables, by what the values of one say."""
    method = {"join": "foreign_key_join", "left_join": "left_foreign_key_join"}[step["kind"]]
    return getattr(left, method)(right, foreign_key, joiner(step), **_given(step), **store)


def _left(step: Step) -> dict[str, Any]:
    return {"key": serde(step["types"][0]), "value": serde(step["types"][1])}


def _given(step: Step) -> dict[str, Any]:
    return {"with_key": step["with_key"], "name": f"j{step['id']}" if step["named"] else None}
