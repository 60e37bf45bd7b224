"""From the steps of a case to a Millstream topology, of functions or of expressions where there are some.

A new operator is a method here, called like the operator, and a line in `Build.java`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.oracle_fuzz import build_joins, expressions
from tests.oracle_fuzz.functions import Function, fold, holds, new_key, new_value, number, several
from tests.oracle_fuzz.spec import Case, Step
from tests.oracle_fuzz.types import serde

import millstream
from millstream import (
    FixedKeyProcessor,
    FixedKeyRecord,
    Processor,
    PunctuationType,
    Record,
    Store,
    StreamsBuilder,
    Topology,
    serdes,
    stores,
)

_IN_COLUMNS = ["string", "int64"]
_COLUMN_WINDOWS = {"time", "unlimited"}
_COLUMN_OPERATORS = {"filter", "filter_not", "map", "map_values", "flat_map_values", "select_key", "group_by"}
_COLUMN_JOINS = {"stream_table_join", "global_table_join"}

Seen = Callable[[str, Any, Any], None]
"""Told what every `peek` sees: its name, key and value."""


def build(case: Case, seen: Seen) -> Topology:
    """The topology of functions."""
    return Building(case, seen).build()


def build_in_columns(case: Case, seen: Seen) -> Topology:
    """The topology of expressions, where its functions have some; elsewhere of functions."""
    return ColumnBuilding(case, seen).build()


def has_columns(case: Case) -> bool:
    """Whether any of a case's operators has an expression."""
    return any(
        step.get("from") == _IN_COLUMNS
        and (step["op"] in _COLUMN_OPERATORS or _sums_columns(step) or _joins_columns(step))
        for step in case.steps
    )


def _joins_columns(step: Step) -> bool:
    """Whether a stream of numbers is joined with a table of numbers, and gives numbers."""
    return (
        step["op"] in _COLUMN_JOINS
        and step["from"] == _IN_COLUMNS
        and step["types"][2] == step["joiner"]["type"] == "int64"
    )


def _sums_columns(step: Step) -> bool:
    windows = step.get("windows")
    return step.get("number") is not None and (windows is None or windows["kind"] in _COLUMN_WINDOWS)


class Building:
    """One method per operator; what it returns is the handle that steps behind it use."""

    def __init__(self, case: Case, seen: Seen) -> None:
        self.case = case
        self.seen = seen
        self.builder = StreamsBuilder()
        self.handles: dict[int, Any] = {}

    def build(self) -> Topology:
        for step in self.case.steps:
            self.handles[step["id"]] = getattr(self, step["op"])(step)
        return self.builder.build(optimization=self.case.optimization)

    # What steps name.

    def parent(self, step: Step, position: int = 0) -> Any:
        return self.handles[step["of"][position]]

    def sides(self, step: Step) -> tuple[Any, Any]:
        return self.parent(step), self.parent(step, 1)

    def predicate(self, f: Function) -> Any:
        return lambda key, value: holds(f, key, value)

    def new_key(self, f: Function) -> Any:
        return lambda key, value: new_key(f, key, value)

    @staticmethod
    def types(step: Step) -> dict[str, Any]:
        key, value = step["types"]
        return {"key": serde(key), "value": serde(value)}

    def grouped(self, step: Step, prefix: str = "g") -> dict[str, Any]:
        return {"name": f"{prefix}{step['id']}" if step["named"] else None, **self.types(step)}

    def store(self, step: Step) -> dict[str, Any]:
        store = step["store"]
        if store is None:
            return {}
        more = {name: store[name] for name in ("retention", "versioned") if store[name] is not None}
        named = store["named"] or store["versioned"] is not None
        name = f"s{step['id']}" if named else None
        return {"store": Store(name, caching=store["cached"], **self.types(step), **more)}

    # Sources and streams.

    def stream(self, step: Step) -> Any:
        return self.builder.stream(step["topic"], **self.types(step))

    def table(self, step: Step) -> Any:
        return self.builder.table(step["topic"], **self.types(step), **self.store(step))

    def filter(self, step: Step) -> Any:
        return self.parent(step).filter(self.predicate(step["if"]))

    def filter_not(self, step: Step) -> Any:
        return self.parent(step).filter_not(self.predicate(step["if"]))

    def map(self, step: Step) -> Any:
        key, value = step["key"], step["value"]
        return self.parent(step).map(lambda k, v: (new_key(key, k, v), new_value(value, k, v)))

    def map_values(self, step: Step) -> Any:
        return self.parent(step).map_values(lambda value: new_value(step["value"], None, value))

    def map_values_with_key(self, step: Step) -> Any:
        return self.parent(step).map_values_with_key(lambda k, v: new_value(step["value"], k, v))

    def flat_map(self, step: Step) -> Any:
        def pairs(key: Any, value: Any) -> list[tuple[Any, Any]]:
            return [(new_key(step["key"], key, one), one) for one in several(step["values"], value)]

        return self.parent(step).flat_map(pairs)

    def flat_map_values(self, step: Step) -> Any:
        return self.parent(step).flat_map_values(lambda value: several(step["values"], value))

    def select_key(self, step: Step) -> Any:
        return self.parent(step).select_key(self.new_key(step["key"]))

    def peek(self, step: Step) -> Any:
        return self.parent(step).peek(lambda key, value: self.seen(f"peek{step['id']}", key, value))

    def merge(self, step: Step) -> Any:
        return self.parent(step).merge(self.parent(step, 1))

    def split(self, step: Step) -> Any:
        prefix = f"b{step['id']}-"
        branched = self.parent(step).split(name=prefix)
        for one in step["ifs"]:
            branched = branched.branch(self.predicate(one))
        branches = branched.default_branch() if step["default"] else branched.no_default_branch()
        numbers = [*range(1, len(step["ifs"]) + 1), *([0] if step["default"] else [])]
        return [branches[f"{prefix}{number}"] for number in numbers]

    def branch(self, step: Step) -> Any:
        return self.parent(step)[step["number"]]

    def repartition(self, step: Step) -> Any:
        return self.parent(step).repartition(**self.grouped(step, "r"))

    def process(self, step: Step) -> Any:
        store = f"s{step['id']}"
        self.builder.add_state_store(stores.key_value(store, key=serdes.string, value=serdes.int64))
        if step["fixed_key"]:
            return self.parent(step).process_values(lambda: _FixedKey(store), store)
        return self.parent(step).process(lambda: _AnyKey(store, step["every"]), store)

    def to(self, step: Step) -> Any:
        return self.parent(step).to(f"out{step['id']}", **self.types(step))

    # Groups and tables.

    def group_by_key(self, step: Step) -> Any:
        return self.parent(step).group_by_key(**self.grouped(step))

    def group_by(self, step: Step) -> Any:
        return self.parent(step).group_by(self.new_key(step["key"]), **self.grouped(step))

    def aggregation(self, step: Step) -> Any:
        grouped = self.parent(step)
        if step["windows"] is not None:
            grouped = grouped.windowed_by(self.windows(step["windows"]))
            if step["emit"] == "close":
                grouped = grouped.emit_strategy(millstream.EmitStrategy.on_window_close())
        return getattr(grouped, step["how"])(*self.folds(step), **self.store(step))

    def folds(self, step: Step) -> tuple[Any, ...]:
        f = step["fold"]
        match step["how"]:
            case "count":
                return ()
            case "reduce":
                return (lambda aggregate, value: fold(f, None, value, aggregate),)
            case "aggregate":
                folds = (lambda: f["init"], _aggregator(f))
                return (*folds, _merger(step)) if _in_sessions(step) else folds
            case _:
                return (self.numbers(step["number"]),)

    def numbers(self, f: Function) -> Any:
        return lambda value: new_value(f, None, value)

    @staticmethod
    def windows(windows: dict[str, Any]) -> Any:
        match windows["kind"]:
            case "time":
                advance = windows["advance"] if windows["advance"] != windows["size"] else None
                return millstream.TimeWindows(windows["size"], advance=advance, grace=windows["grace"])
            case "sliding":
                return millstream.SlidingWindows(windows["size"], grace=windows["grace"])
            case "session":
                return millstream.SessionWindows(windows["size"], grace=windows["grace"])
            case _:
                return millstream.UnlimitedWindows(windows["start"])

    def cogroup(self, step: Step) -> Any:
        first, *others = step["folds"]
        cogrouped = self.parent(step).cogroup(_aggregator(first))
        for position, f in enumerate(others, 1):
            cogrouped = cogrouped.cogroup(self.parent(step, position), _aggregator(f))
        if step["windows"] is not None:
            cogrouped = cogrouped.windowed_by(self.windows(step["windows"]))
        merger = [_merger(step)] if _in_sessions(step) else []
        return cogrouped.aggregate(lambda: first["init"], *merger, **self.store(step))

    def to_table(self, step: Step) -> Any:
        return self.parent(step).to_table(**self.store(step))

    def to_stream(self, step: Step) -> Any:
        key = step["key"]
        return self.parent(step).to_stream(None if key is None else lambda k, v: new_key(key, k, v))

    def table_filter(self, step: Step) -> Any:
        table = self.parent(step)
        predicate = Building.predicate(self, step["if"])
        return (table.filter_not if step["negated"] else table.filter)(predicate, **self.store(step))

    def table_map_values(self, step: Step) -> Any:
        f = step["value"]
        if step["with_key"]:
            return self.parent(step).map_values_with_key(lambda k, v: new_value(f, k, v), **self.store(step))
        return self.parent(step).map_values(lambda v: new_value(f, None, v), **self.store(step))

    def table_group_by(self, step: Step) -> Any:
        key, value = step["key"], step["value"]
        return self.parent(step).group_by(
            lambda k, v: (new_key(key, k, v), new_value(value, k, v)), **self.grouped(step)
        )

    def table_aggregation(self, step: Step) -> Any:
        add, subtract = step["fold"], step["subtract"]
        folds: dict[str, tuple[Any, ...]] = {
            "count": (),
            "reduce": (_reducer(add), _reducer(subtract)),
            "aggregate": (lambda: add["init"], _aggregator(add), _aggregator(subtract)),
        }
        return getattr(self.parent(step), step["how"])(*folds[step["how"]], **self.store(step))

    def suppress(self, step: Step) -> Any:
        bound = {} if step["max_records"] is None else {"max_records": step["max_records"]}
        suppressed = millstream.Suppressed
        if step["until"] is None:
            return self.parent(step).suppress(suppressed.until_window_closes(**bound))
        when_full = {} if step["max_records"] is None else {"when_full": step["when_full"]}
        return self.parent(step).suppress(suppressed.until_time_limit(step["until"], **bound, **when_full))

    # Joins.

    def stream_join(self, step: Step) -> Any:
        return build_joins.stream_join(*self.sides(step), step)

    def stream_table_join(self, step: Step) -> Any:
        return build_joins.stream_table_join(*self.sides(step), step, self.joiner(step))

    def global_table(self, step: Step) -> Any:
        store = f"s{step['id']}" if step["named"] else None
        return self.builder.global_table(step["topic"], store=store, **self.types(step))

    def global_table_join(self, step: Step) -> Any:
        key_of = self.new_key(step["key_of"])
        return build_joins.global_table_join(*self.sides(step), step, self.joiner(step), key_of)

    def table_join(self, step: Step) -> Any:
        return build_joins.table_join(*self.sides(step), step, self.store(step))

    def foreign_key_join(self, step: Step) -> Any:
        foreign_key = self.new_key(step["foreign_key"])
        return build_joins.foreign_key_join(*self.sides(step), step, foreign_key, self.store(step))

    def joiner(self, step: Step) -> Any:
        return build_joins.joiner(step)


class ColumnBuilding(Building):
    """Expressions instead of functions, where values are numbers and keys are strings."""

    def has_columns(self, step: Step) -> bool:
        return bool(step["from"] == _IN_COLUMNS)

    def filter(self, step: Step) -> Any:
        if not self.has_columns(step):
            return super().filter(step)
        return self.parent(step).filter(expressions.holds(step["if"]))

    def filter_not(self, step: Step) -> Any:
        if not self.has_columns(step):
            return super().filter_not(step)
        return self.parent(step).filter_not(expressions.holds(step["if"]))

    def map(self, step: Step) -> Any:
        if not self.has_columns(step) or step["value"]["type"] != "int64":
            return super().map(step)
        return self.parent(step).map((expressions.new_key(step["key"]), expressions.new_value(step["value"])))

    def map_values(self, step: Step) -> Any:
        if not self.has_columns(step) or step["value"]["type"] != "int64":
            return super().map_values(step)
        return self.parent(step).map_values(expressions.new_value({**step["value"], "key": False}))

    def flat_map_values(self, step: Step) -> Any:
        if not self.has_columns(step) or step["values"]["type"] != "int64":
            return super().flat_map_values(step)
        return self.parent(step).flat_map_values(expressions.several(step["values"]))

    def select_key(self, step: Step) -> Any:
        if not self.has_columns(step):
            return super().select_key(step)
        return self.parent(step).select_key(expressions.new_key(step["key"]))

    def group_by(self, step: Step) -> Any:
        if not self.has_columns(step):
            return super().group_by(step)
        return self.parent(step).group_by(expressions.new_key(step["key"]), **self.grouped(step))

    def aggregation(self, step: Step) -> Any:
        if not _sums_columns(step) or not self.has_columns(step):
            return super().aggregation(step)
        return super().aggregation({**step, "number": {**step["number"], "expression": True}})

    def numbers(self, f: Function) -> Any:
        return expressions.new_value(f) if f.get("expression") else super().numbers(f)

    def joiner(self, step: Step) -> Any:
        if not _joins_columns(step):
            return super().joiner(step)
        return expressions.joined(step["joiner"], with_key=step["with_key"])


def _aggregator(f: Function) -> Any:
    return lambda key, value, aggregate: fold(f, key, value, aggregate)


def _reducer(f: Function) -> Any:
    return lambda aggregate, value: fold(f, None, value, aggregate)


def _merger(step: Step) -> Any:
    return lambda key, one, other: fold(step["merger"], key, other, one)


def _in_sessions(step: Step) -> bool:
    return step["windows"] is not None and step["windows"]["kind"] == "session"


def _remembered(context: Any, name: str, key: Any, value: Any) -> tuple[int, int]:
    """Keep a number for each key: what was there, and what is there now. `Remembering.java` is the same."""
    store = context.state_store(name)
    place = f"p{number(key) % 5}"
    before = number(store.get(place))
    now = (before * 3 + number(value) + 1) % 9973
    store.put(place, None if now % 4 == 0 else now)
    return before, now


class _AnyKey(Processor[Any, Any, Any, Any]):
    """Tells what is in the store every now and then, by the wall clock."""

    def __init__(self, store: str, every: int | None) -> None:
        self.store = store
        self.every = every

    def init(self, context: Any) -> None:
        super().init(context)
        if self.every is not None:
            context.schedule(self.every, PunctuationType.WALL_CLOCK_TIME, self.tell)

    def tell(self, now_ms: int) -> None:
        with self.context.state_store(self.store).all() as entries:
            for key, value in entries:
                self.context.forward(Record(key, value, now_ms))

    def process(self, record: Record[Any, Any]) -> None:
        before, now = _remembered(self.context, self.store, record.key, record.value)
        self.context.forward(record.with_value(now))
        if now % 3 == 0:
            self.context.forward(record.with_key(f"k{now % 4}").with_value(before))


class _FixedKey(FixedKeyProcessor[Any, Any, Any]):
    def __init__(self, store: str) -> None:
        self.store = store

    def process(self, record: FixedKeyRecord[Any, Any]) -> None:
        before, now = _remembered(self.context, self.store, record.key, record.value)
        self.context.forward(record.with_value(now))
        if now % 3 == 0:
            self.context.forward(record.with_value(before))
