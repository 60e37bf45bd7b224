"""A random topology as data: a list of operators, each naming the operators in front of it by number.

`build.py` makes a topology of it, `oracle_graph.py` a naive interpreter. `describe` shows it to people.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from tests.properties.functions import (
    Choose,
    Combine,
    Fold,
    Join,
    NewKey,
    NewValue,
    Poison,
    Predicate,
    SameKey,
    Several,
)


@dataclass(frozen=True)
class TableStore:
    """How a table's store is asked for. Without a name some tables have none unless somebody needs it."""

    caching: bool
    named: bool


@dataclass(frozen=True)
class Cut:
    """How a stream is cut by time. Sliding windows have their difference for a size, sessions their gap."""

    kind: Literal["time", "unlimited", "sliding", "session"]
    size: int = 0
    advance: int = 0
    grace: int = 0
    start: int = 0


JoinKind = Literal["join", "left_join", "outer_join"]


@dataclass(frozen=True)
class Within:
    """How far apart in time records of two streams may be."""

    before: int
    after: int
    grace: int


# What a processor of the user's own does with a record: steps, one after the other.


@dataclass(frozen=True)
class UseStore:
    """Something done to a key-value store; its answer can be shown by what is forwarded later."""

    store: str
    how: Literal["count", "remember", "remove", "scan", "range", "if absent"]


@dataclass(frozen=True)
class ReadTable:
    """Look the record's key up in the store of a table."""

    table: int


@dataclass(frozen=True)
class ReadGlobal:
    """Look the record's key up in a global store."""

    table: int


@dataclass(frozen=True)
class Forward:
    """Send a record on: to all children, or to the one that operator `child` is."""

    show: Literal["value", "answer", "metadata", "stream time", "headers"]
    only: Predicate | None = None
    child: int | None = None
    new_key: NewKey | None = None
    time_shift: int = 0
    add_header: bool = False


@dataclass(frozen=True)
class CancelPunctuator:
    """Cancel a punctuator when a record says so."""

    punctuator: int
    when: Predicate


@dataclass(frozen=True)
class RequestCommit:
    """Ask for an early end of the epoch."""


Step = UseStore | ReadTable | ReadGlobal | Forward | CancelPunctuator | RequestCommit


@dataclass(frozen=True)
class Punctuator:
    """Scheduled in `init`; forwards the time, or what is in a store, or counts its calls in a store."""

    clock: Literal["stream", "wall"]
    interval_ms: int
    action: Literal["tick", "dump", "count"]
    store: str | None = None
    once: bool = False
    child: int | None = None


# Operators.


@dataclass(frozen=True)
class Op:
    """An operator; `id` is its number and the source of its name."""

    id: int

    @property
    def name(self) -> str:
        return f"op{self.id}"

    @property
    def store_name(self) -> str:
        """The name of its store, where it has one by name."""
        return f"store{self.id}"

    @property
    def parents(self) -> tuple[int, ...]:
        """The operators that it needs, whether it gets records from them or not."""
        return tuple(_operators_in(self))


@dataclass(frozen=True)
class Source(Op):
    topics: tuple[str, ...]
    by_pattern: bool = False


@dataclass(frozen=True)
class Table(Op):
    topic: str
    store: TableStore


@dataclass(frozen=True)
class GlobalTable(Op):
    """A global table, or with `own_processor` a global store."""

    topic: str
    own_processor: bool


@dataclass(frozen=True)
class Filter(Op):
    parent: int
    predicate: Predicate
    negated: bool


@dataclass(frozen=True)
class Map(Op):
    parent: int
    key: NewKey
    value: NewValue


@dataclass(frozen=True)
class MapValues(Op):
    parent: int
    mapper: NewValue
    with_key: bool


@dataclass(frozen=True)
class FlatMap(Op):
    parent: int
    key: NewKey
    values: Several


@dataclass(frozen=True)
class FlatMapValues(Op):
    parent: int
    values: Several
    with_key: bool


@dataclass(frozen=True)
class SelectKey(Op):
    parent: int
    key: NewKey


@dataclass(frozen=True)
class Look(Op):
    """`peek`, or an end: `foreach` or `print`."""

    parent: int
    how: Literal["peek", "foreach", "print"]


@dataclass(frozen=True)
class Merge(Op):
    parent: int
    other: int


@dataclass(frozen=True)
class Split(Op):
    parent: int
    predicates: tuple[Predicate, ...]
    default: bool


@dataclass(frozen=True)
class Branch(Op):
    """A branch of a split; the default branch comes after all others."""

    parent: int
    number: int


@dataclass(frozen=True)
class Repartition(Op):
    parent: int
    partitions: int | None
    partitioner: Choose | None


@dataclass(frozen=True)
class To(Op):
    """A sink: to the only topic, or to the one that an extractor chooses."""

    parent: int
    topics: tuple[str, ...]
    choose: Choose


@dataclass(frozen=True)
class Process(Op):
    parent: int
    steps: tuple[Step, ...]
    punctuators: tuple[Punctuator, ...]
    fixed_key: bool


@dataclass(frozen=True)
class ToTable(Op):
    parent: int
    store: TableStore


@dataclass(frozen=True)
class Group(Op):
    """`group_by`, or `group_by_key` without a mapper. A named group has one repartition for all."""

    parent: int
    key: NewKey | None
    named: bool


@dataclass(frozen=True)
class Aggregate(Op):
    parent: int
    how: Literal["count", "sum", "min", "max", "aggregate", "reduce"]
    fold: Fold
    combine: Combine
    of: NewValue
    store: TableStore


@dataclass(frozen=True)
class Cogroup(Op):
    groups: tuple[int, ...]
    folds: tuple[Fold, ...]
    store: TableStore


@dataclass(frozen=True)
class WindowedAggregate(Op):
    """A table by key and window. The operators behind it see its keys as text."""

    parent: int
    cut: Cut
    how: Literal["count", "sum", "min", "max", "aggregate", "reduce"]
    fold: Fold
    combine: Combine
    of: NewValue
    on_close: bool
    store: TableStore


@dataclass(frozen=True)
class WindowedCogroup(Op):
    groups: tuple[int, ...]
    cut: Cut
    folds: tuple[Fold, ...]
    combine: Combine
    store: TableStore


@dataclass(frozen=True)
class TableFilter(Op):
    parent: int
    predicate: Predicate
    negated: bool
    store: TableStore


@dataclass(frozen=True)
class TableMapValues(Op):
    parent: int
    mapper: NewValue
    with_key: bool
    store: TableStore


@dataclass(frozen=True)
class TransformValues(Op):
    """`transform_values`: the result shows what the steps found out."""

    parent: int
    steps: tuple[UseStore, ...]
    show: Literal["answer", "metadata", "stream time", "headers"]
    store: TableStore
    poison: Poison


@dataclass(frozen=True)
class TableGroup(Op):
    parent: int
    key: NewKey
    value: NewValue
    named: bool


@dataclass(frozen=True)
class TableAggregate(Op):
    parent: int
    how: Literal["count", "aggregate", "reduce"]
    add: Fold
    subtract: Fold
    combine: Combine
    separate: Combine
    store: TableStore


@dataclass(frozen=True)
class VersionedTable(Op):
    """A table that is only there to be looked up by streams, as of their times."""

    topic: str


@dataclass(frozen=True)
class StreamJoin(Op):
    parent: int
    other: int
    kind: JoinKind
    within: Within
    joiner: Join
    with_key: bool


@dataclass(frozen=True)
class StreamTableJoin(Op):
    """A stream with a table, or with a versioned one; `grace` only then."""

    parent: int
    other: int
    kind: JoinKind
    joiner: Join
    with_key: bool
    grace: int | None = None


@dataclass(frozen=True)
class GlobalTableJoin(Op):
    parent: int
    other: int
    kind: JoinKind
    key_of: NewKey
    joiner: Join
    with_key: bool


@dataclass(frozen=True)
class TableJoin(Op):
    """Two tables. Without a name for its store it has none."""

    parent: int
    other: int
    kind: JoinKind
    joiner: Join
    with_key: bool
    store: TableStore


@dataclass(frozen=True)
class ToStream(Op):
    parent: int
    key: NewKey | SameKey | None


@dataclass(frozen=True)
class Spec:
    """A topology, and how its application is set up."""

    seed: int
    partitions: int
    """Of each topic of the log."""
    ops: tuple[Op, ...]
    on_poison: Literal["skip", "dead letter"]
    serdes: Literal["explicit", "automatic"]

    def op(self, number: int) -> Op:
        return next(op for op in self.ops if op.id == number)

    def above(self, number: int) -> set[int]:
        """An operator, and all that it needs."""
        return {number}.union(*(self.above(parent) for parent in self.op(number).parents))

    @property
    def input_topics(self) -> tuple[str, ...]:
        named = [op.topics for op in self.ops if isinstance(op, Source)]
        single = [op.topic for op in self.ops if isinstance(op, Table | GlobalTable | VersionedTable)]
        return tuple(sorted({topic for topics in named for topic in topics} | set(single)))

    @property
    def plain_stores(self) -> tuple[str, ...]:
        """The key-value stores that processors and transformers use."""
        return tuple(sorted({name for op in self.ops for name in stores_used(op)}))

    def without(self, number: int) -> Spec:
        """The same without an operator and all that needs it."""
        gone = {number}
        for op in self.ops:
            if gone.intersection(op.parents):
                gone.add(op.id)
        return replace(self, ops=tuple(_forgetting(op, gone) for op in self.ops if op.id not in gone))

    def uncached(self) -> Spec:
        """The same with caching off everywhere."""
        return replace(self, ops=tuple(_uncached(op) for op in self.ops))


def merger(fold: Fold, combine: Combine) -> Callable[[Any, Any], Any]:
    """How two aggregates of a fold become one."""
    return (lambda one, other: [*one, *other]) if fold.in_place else combine


def describe(spec: Spec) -> str:
    """The topology, an operator a line."""
    head = f"{spec.partitions} partitions, {spec.serdes} serdes, on poison: {spec.on_poison}"
    return "\n".join([head, *(f"  {op}" for op in spec.ops)])


def stores_used(op: Op) -> list[str]:
    """The key-value stores that a processor or transformer is connected to."""
    steps = op.steps if isinstance(op, Process | TransformValues) else ()
    names = [step.store for step in steps if isinstance(step, UseStore)]
    if isinstance(op, Process):
        names += [one.store for one in op.punctuators if one.store is not None]
    return list(dict.fromkeys(names))


def tables_read(op: Op) -> list[int]:
    """The tables whose stores a processor is connected to."""
    steps = op.steps if isinstance(op, Process) else ()
    return list(dict.fromkeys(step.table for step in steps if isinstance(step, ReadTable)))


def _operators_in(op: Op) -> Iterator[int]:
    for name in ("parent", "other"):
        if hasattr(op, name):
            yield getattr(op, name)
    yield from getattr(op, "groups", ())
    if isinstance(op, Process):
        yield from (step.table for step in op.steps if isinstance(step, ReadTable | ReadGlobal))


def _forgetting(op: Op, gone: set[int]) -> Op:
    """The same without forwards to children that are gone."""
    if not isinstance(op, Process):
        return op

    def addressed(one: Any) -> Any:
        return replace(one, child=None) if getattr(one, "child", None) in gone else one

    return replace(
        op, steps=tuple(map(addressed, op.steps)), punctuators=tuple(map(addressed, op.punctuators))
    )


def _uncached(op: Op) -> Any:
    if "store" not in {field.name for field in fields(op)}:
        return op
    plain = replace(op.store, caching=False)  # type: ignore[attr-defined]
    return replace(op, store=plain)  # type: ignore[call-arg]
