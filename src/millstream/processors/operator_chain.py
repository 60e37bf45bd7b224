"""A chain of stateless operators as one pass over the batch.

Operator by operator, every `map` makes a list that the next one reads, and every `filter` copies all columns.
A chain of them is therefore turned into one loop, written for the kinds of operators that it has::

    for row, key, value in rows:
        value = f0(value)  # MapValues
        if not f1(key, value):  # Filter
            dropped[1] += 1
            continue
        add_row(row)
        add_value(value)

The loop is compiled once per sequence of kinds and process, and debuggers can step through its lines. Nothing
in it watches for errors: when a function of the user's raises, the traceback says which line was at work, and
so which operator and which row. That row goes to the operator's handler, as it would have without the loop,
and the loop goes on with the next one.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import Any, Final

from millstream.processors.batch import Batch
from millstream.processors.operator import Emission, Operator, as_pair, explain_stop
from millstream.processors.stateless import (
    Filter,
    FilterNot,
    FlatMap,
    FlatMapValues,
    FlatMapValuesWithKey,
    Foreach,
    Map,
    MapValues,
    MapValuesWithKey,
    PassThrough,
    Peek,
    SelectKey,
    explain_iterable,
    exploded,
    exploded_pairs,
    list_of_pairs,
)

__all__ = ["GENERATED", "OperatorChain"]

GENERATED: Final = "<millstream:"
"""How the names of generated files begin."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """What one kind of operator adds to the loop. `f` stands for the user's function."""

    lines: tuple[str, ...]
    function: str | None = None
    """The attribute of the operator that holds it."""
    changes_key: bool = False
    changes_value: bool = False
    drops: bool = False
    gives_pair: bool = False
    """What it answers must be a pair."""
    exploded: Callable[[Batch, Sequence[Any]], Batch] | None = None
    """It answers a list for each row, and this makes rows of them: it can only be the last of a chain."""
    consumes: bool = False
    """Nothing goes on behind it."""


_DROP: Final = ("    dropped[{n}] += 1", "    continue")
_KINDS: Final[dict[type[Operator], _Kind]] = {
    PassThrough: _Kind(("pass",)),
    Filter: _Kind(("if not {f}(key, value):", *_DROP), "predicate", drops=True),
    FilterNot: _Kind(("if {f}(key, value):", *_DROP), "predicate", drops=True),
    Map: _Kind(
        ("pair = {f}(key, value)", "key, value = pair if type(pair) is tuple else as_pair(pair)"),
        "mapper",
        changes_key=True,
        changes_value=True,
        gives_pair=True,
    ),
    SelectKey: _Kind(("key = {f}(key, value)",), "mapper", changes_key=True),
    MapValues: _Kind(("value = {f}(value)",), "mapper", changes_value=True),
    MapValuesWithKey: _Kind(("value = {f}(key, value)",), "mapper", changes_value=True),
    Peek: _Kind(("{f}(key, value)",), "action"),
    FlatMap: _Kind(
        ("value = list_of_pairs({f}(key, value))",), "mapper", changes_value=True, exploded=exploded_pairs
    ),
    FlatMapValues: _Kind(("value = list({f}(value))",), "mapper", changes_value=True, exploded=exploded),
    FlatMapValuesWithKey: _Kind(
        ("value = list({f}(key, value))",), "mapper", changes_value=True, exploded=exploded
    ),
    Foreach: _Kind(("{f}(key, value)",), "action", consumes=True),
}
# DropNullKeys is in no chain: it looks at a whole column, and nearly always finds nothing to drop.


class OperatorChain:
    """Operators whose specs let them be chained (`topology.operator_spec.ChainingStrategy`)."""

    def __init__(self, operators: Sequence[Operator]) -> None:
        self._operators = operators
        self._kinds = kinds = [_KINDS[type(operator)] for operator in operators]
        self._loop = _loop_for(tuple(type(operator) for operator in operators))
        self._functions = [
            getattr(operator, kind.function)
            for operator, kind in zip(operators, kinds, strict=True)
            if kind.function is not None
        ]
        self._changes_key = any(kind.changes_key for kind in kinds)
        self._changes_value = any(kind.changes_value for kind in kinds)
        self._drops = any(kind.drops for kind in kinds)

    def process(self, batch: Batch) -> tuple[Emission, list[tuple[int, int]]]:
        """What goes on behind the last operator, and how many rows each operator took in and gave out."""
        last = self._kinds[-1]
        removed = [0] * len(self._operators)
        kept, failed = self._run(batch, removed)
        counts: list[tuple[int, int]] = []
        left = len(batch)
        for gone in removed:
            counts.append((left, left - gone))
            left -= gone
        if last.consumes:
            return None, [*counts[:-1], (counts[-1][0], 0)]
        result = self._result(batch, kept, failed)
        if last.exploded is not None:
            result = last.exploded(result, result.values)
        counts[-1] = (counts[-1][0], len(result))
        return result, counts

    def _run(self, batch: Batch, removed: list[int]) -> tuple[_Columns, set[int]]:
        kept = _Columns([], [], [])
        failed: set[int] = set()
        rows = zip(range(len(batch)), batch.keys, batch.values, strict=True)
        run = self._loop.function
        adding = (kept.rows.append, kept.keys.append, kept.values.append)
        while True:
            try:
                run(rows, *adding, removed, *self._functions)
            except Exception as error:  # noqa: BLE001 - a user's function may raise anything
                failure = error
            else:
                return kept, failed
            place = self._loop.place(failure)
            number = place.operator
            removed[number] += 1
            failed.add(place.row)
            self._operators[number].context.failed(_one_row(batch, place), 0, self._explained(place, failure))

    def _explained(self, place: _Place, failure: Exception) -> Exception:
        """The error as the operator by itself would tell it."""
        if isinstance(failure, StopIteration):
            return explain_stop()
        kind = self._kinds[place.operator]
        if kind.exploded is not None:
            return explain_iterable(failure)
        if kind.gives_pair and place.pair is not None:
            try:
                as_pair(place.pair)
            except TypeError as error:
                return error
        return failure

    def _result(self, batch: Batch, kept: _Columns, failed: set[int]) -> Batch:
        if self._drops:
            rows: Sequence[int] = kept.rows
        elif failed:
            rows = [row for row in range(len(batch)) if row not in failed]
        else:
            rows = range(len(batch))
        left = batch if len(rows) == len(batch) else batch.take(rows)
        if not self._changes_key and not self._changes_value:
            return left
        return left.with_columns(
            kept.keys if self._changes_key else left.keys,
            kept.values if self._changes_value else left.values,
        )


@dataclass(frozen=True, slots=True)
class _Columns:
    """What a loop has kept so far."""

    rows: list[int]
    keys: list[Any]
    values: list[Any]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a loop was when a function raised."""

    operator: int
    row: int
    key: Any
    value: Any
    pair: Any


@dataclass(frozen=True, slots=True)
class _Loop:
    """A compiled loop, and which operator each of its lines belongs to."""

    function: Callable[..., None]
    operators: tuple[int | None, ...]

    def place(self, error: Exception) -> _Place:
        """Where the loop was when the error came out of it."""
        trace: TracebackType | None = error.__traceback__
        while trace is not None and trace.tb_frame.f_code is not self.function.__code__:
            trace = trace.tb_next
        number = None if trace is None else self.operators[trace.tb_lineno - 1]
        if trace is None or number is None:
            raise error  # not a function of the user's
        seen = trace.tb_frame.f_locals
        return _Place(number, seen["row"], seen["key"], seen["value"], seen.get("pair"))


@cache
def _loop_for(kinds: tuple[type[Operator], ...]) -> _Loop:
    """The loop for a sequence of kinds of operators."""
    lines: list[tuple[int | None, str]] = []
    functions: list[str] = []
    for number, kind in enumerate(kinds):
        template = _KINDS[kind]
        name = f"f{number}"
        if template.function is not None:
            functions.append(name)
        first, *others = (line.format(f=name, n=number) for line in template.lines)
        lines += [(number, f"{first}  # {kind.__name__}"), *((number, line) for line in others)]
    templates = [_KINDS[kind] for kind in kinds]
    if any(template.drops for template in templates):
        lines.append((None, "add_row(row)"))
    if any(template.changes_key for template in templates):
        lines.append((None, "add_key(key)"))
    if any(template.changes_value for template in templates) and not templates[-1].consumes:
        lines.append((None, "add_value(value)"))
    parameters = ", ".join(["rows", "add_row", "add_key", "add_value", "dropped", *functions])
    head = [f"def chain({parameters}):\n", "    for row, key, value in rows:\n"]
    text = head + [f"        {line}\n" for _, line in lines]
    file = f"{GENERATED} {', '.join(kind.__name__ for kind in kinds)}>"
    linecache.cache[file] = (len("".join(text)), None, text, file)  # for debuggers and tracebacks
    names: dict[str, Any] = {"as_pair": as_pair, "list_of_pairs": list_of_pairs}
    exec(compile("".join(text), file, "exec"), names)  # noqa: S102 - made of the lines above, nothing else
    return _Loop(names["chain"], (None, None, *(number for number, _ in lines)))


def _one_row(batch: Batch, place: _Place) -> Batch:
    """The row that failed, as it was in front of the operator."""
    return batch.take((place.row,)).with_columns([place.key], [place.value])
