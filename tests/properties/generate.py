"""Random topologies: one number in, one spec out.

Operators are added one by one behind operators that are there. One that would not make a legal topology
(a cycle through a repartition, inputs of a cogroup with different numbers of partitions) is thrown away.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tests.properties import spec as s
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
from tests.properties.oracle_attach import compile_spec
from tests.properties.oracle_plan import levels, partition_counts

TOPICS = ("in-a", "in-b", "in-c", "in-d")
OUTPUTS = ("out-x", "out-y", "out-z")
PLAIN_STORES = ("shared", "mine", "yours")
AGGREGATIONS: tuple[Literal["count", "sum", "min", "max", "aggregate", "reduce"], ...]
AGGREGATIONS = ("count", "sum", "min", "max", "aggregate", "aggregate", "reduce", "reduce")
CUTS: tuple[Literal["time", "unlimited", "sliding", "session"], ...]
CUTS = ("time", "time", "sliding", "session", "session", "unlimited")
SHOWN: tuple[Literal["answer", "metadata", "stream time", "headers"], ...]
SHOWN = ("answer", "answer", "metadata", "stream time", "headers")
TABLES_SURVIVE_BAD_ROWS = True
"""Whether a table may meet values that can't be stored, and aggregators that fail half way.

Not yet: rows of the same key behind such a row, in the same batch, still see what it left behind.
"""
MOST_COPIES = 6
"""So many records may come of one input record on one edge."""
NAMED_CHILDREN = (
    s.Filter,
    s.Map,
    s.MapValues,
    s.FlatMap,
    s.FlatMapValues,
    s.SelectKey,
    s.Look,
    s.To,
    s.Process,
)


JOIN_ATTEMPTS = 3
JOINS = (s.StreamJoin, s.StreamTableJoin, s.TableJoin)


def random_spec(seed: int) -> s.Spec:
    """The topology of a seed."""
    return _Generator(seed).run()


def random_column_spec(seed: int) -> s.Spec:
    """The topology of a seed for both tiers: all values are numbers, and can be written."""
    return _Generator(seed, for_columns=True).run()


@dataclass
class _Generator:
    seed: int
    for_columns: bool = False
    streams: list[int] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    tables: list[int] = field(default_factory=list)
    table_groups: list[int] = field(default_factory=list)
    copies: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"topology of {self.seed}")
        self.poisoned = self.rng.random() < 0.35
        self.lists = self.rng.random() < 0.6 and not self.for_columns
        self.topics = list(TOPICS[: self.rng.randint(2, 4)])
        self.spec = s.Spec(
            seed=self.seed,
            partitions=self.rng.choice((1, 1, 2, 3)),
            ops=(),
            on_poison=self.rng.choice(("skip", "dead letter")),
            serdes="explicit" if self.lists else "automatic",
        )
        self.globals: list[int] = []

    def run(self) -> s.Spec:
        self.add_source()
        moves: dict[Callable[[], None], int] = {
            self.add_source: 3,
            self.add_stateless: 5,
            self.add_merge: 2,
            self.add_split: 1,
            self.add_repartition: 1,
            self.add_process: 5,
            self.add_aggregate: 3,
            self.add_cogroup: 2,
            self.add_table_op: 4,
            self.add_table_aggregate: 4,
            self.add_to_stream: 2,
            self.add_to_table: 1,
        }
        if self.for_columns:
            moves |= {
                self.add_stateless: 16,
                self.add_aggregate: 8,
                self.add_to_stream: 4,
                self.add_process: 2,
                self.add_split: 3,
            }
        for move in self.rng.choices(list(moves), list(moves.values()), k=self.rng.randint(7, 14)):
            move()
        self.add_ends()
        self.name_children()
        self.add_windows()
        self.add_joins()
        return self.spec

    # Small decisions.

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def poison(self) -> Poison:
        if not self.poisoned or self.chance(0.6):
            return Poison()
        raising, spoiling = self.rng.choice(((True, False), (False, True), (True, True)))
        if not TABLES_SURVIVE_BAD_ROWS or self.for_columns:
            raising, spoiling = True, False
        return Poison(self.rng.randrange(13) if raising else -1, self.rng.randrange(13) if spoiling else -1)

    def predicate(self) -> Predicate:
        modulus = self.rng.randint(2, 5)
        return Predicate(modulus, self.rng.randint(1, modulus), self.poison())

    def new_key(self) -> NewKey:
        return NewKey(self.rng.randint(2, 5), self.rng.choice((-1, -1, 0)), self.poison())

    def new_value(self, *, null: bool = True) -> NewValue:
        null_at = self.rng.choice((-1, -1, 2)) if null else -1
        return NewValue(self.rng.randint(1, 9), self.rng.randint(0, 9), null_at, self.poison())

    def several(self) -> Several:
        return Several(self.rng.randint(2, 3), self.poison())

    def fold(self, *, in_place: bool) -> Fold:
        poison = Poison() if in_place and not TABLES_SURVIVE_BAD_ROWS else self.poison()
        return Fold(self.rng.randint(1, 9), self.rng.choice((-1, -1, 3)), in_place, poison)

    def combine(self) -> Combine:
        return Combine(self.rng.randint(1, 9), self.rng.choice((-1, -1, 3)), self.poison())

    def store(self) -> s.TableStore:
        return s.TableStore(caching=self.chance(0.5), named=self.chance(0.6))

    # Adding.

    def next_id(self) -> int:
        return max((op.id for op in self.spec.ops), default=-1) + 1

    def add(self, op: s.Op, kind: list[int] | None, copies: int = 1) -> bool:
        """Add an operator, unless the topology would be illegal or too large."""
        grown = replace(self.spec, ops=(*self.spec.ops, op))
        copies *= sum(self.copies[parent] for parent in op.parents if parent in self.copies) or 1
        if copies > MOST_COPIES or not is_legal(grown):
            return False
        self.spec = grown
        self.copies[op.id] = copies
        if kind is not None:
            kind.append(op.id)
        return True

    def add_source(self) -> None:
        number = self.next_id()
        sources = [op for op in self.spec.ops if isinstance(op, s.Source)]
        if not self.topics or (sources and self.chance(0.15)):
            if sources:
                again = self.rng.choice(sources)
                self.add(replace(again, id=number), self.streams)
            return
        topic = self.topics.pop(0)
        kind = self.rng.choices(("stream", "list", "pattern", "table", "global"), (5, 1, 1, 4, 2))[0]
        if kind in {"list", "pattern"} and self.topics:
            topics = (topic, self.topics.pop(0))
            self.add(s.Source(number, topics, by_pattern=kind == "pattern"), self.streams)
        elif kind == "table":
            self.add(s.Table(number, topic, self.store()), self.tables)
        elif kind == "global" and self.streams:
            self.add(s.GlobalTable(number, topic, self.chance(0.5)), self.globals)
        else:
            self.add(s.Source(number, (topic,)), self.streams)

    def stream(self) -> int:
        """A stream to go on from, rather a new one than an old one."""
        if not self.streams:
            table = self.rng.choice(self.tables)
            self.add(s.ToStream(self.next_id(), table, None), self.streams)
        return self.rng.choice(self.streams[-3:] if self.chance(0.6) else self.streams)

    def table(self) -> int:
        """A table to go on from."""
        if not self.tables:
            self.add_to_table()
        return self.rng.choice(self.tables[-3:] if self.chance(0.6) else self.tables)

    def add_stateless(self) -> None:
        parent = self.stream()
        number = self.next_id()
        makers: tuple[Callable[[], s.Op], ...] = (
            lambda: s.Filter(number, parent, self.predicate(), self.chance(0.5)),
            lambda: s.Map(number, parent, self.new_key(), self.new_value()),
            lambda: s.MapValues(number, parent, self.new_value(), self.chance(0.5)),
            lambda: s.FlatMap(number, parent, self.new_key(), self.several()),
            lambda: s.FlatMapValues(number, parent, self.several(), self.chance(0.5)),
            lambda: s.SelectKey(number, parent, self.new_key()),
            lambda: s.Look(number, parent, "peek"),
        )
        op = self.rng.choice(makers)()
        self.add(op, self.streams, copies=2 if isinstance(op, s.FlatMap | s.FlatMapValues) else 1)

    def add_merge(self) -> None:
        parent = self.stream()
        self.add(s.Merge(self.next_id(), parent, self.rng.choice(self.streams)), self.streams)

    def add_split(self) -> None:
        parent = self.stream()
        predicates = tuple(self.predicate() for _ in range(self.rng.randint(1, 2)))
        split = s.Split(self.next_id(), parent, predicates, self.chance(0.6))
        if self.add(split, None):
            for number in range(len(split.predicates) + split.default):
                self.add(s.Branch(self.next_id(), split.id, number), self.streams)

    def add_repartition(self) -> None:
        parent = self.stream()
        partitioner = Choose(self.rng.randrange(5)) if self.chance(0.3) else None
        partitions = self.rng.choice((None, None, 1, 2, 3))
        self.add(s.Repartition(self.next_id(), parent, partitions, partitioner), self.streams)

    def add_process(self) -> None:
        op = self.process(self.stream())
        self.add(op, self.streams, copies=sum(isinstance(step, s.Forward) for step in op.steps))

    def process(self, parent: int) -> s.Process:
        fixed = self.chance(0.4)
        stores = self.rng.sample(PLAIN_STORES, self.rng.choice((0, 1, 1, 2)))
        punctuators = tuple(self.punctuator(stores) for _ in range(self.rng.choice((0, 0, 1, 2))))
        steps: list[s.Step] = [self.forward(fixed=fixed)]
        for store in stores:
            steps += [
                s.UseStore(
                    store, self.rng.choice(("count", "remember", "remove", "scan", "range", "if absent"))
                )
                for _ in range(self.rng.choice((1, 1, 2)))
            ]
        readable = [op.id for op in self.spec.ops if op.id in self.tables and _has_named_store(op)]
        if readable and self.chance(0.3):
            steps.append(s.ReadTable(self.rng.choice(readable)))
        if self.globals and self.chance(0.6):
            steps.append(s.ReadGlobal(self.rng.choice(self.globals)))
        if self.chance(0.2):
            steps.append(self.forward(fixed=fixed))
        if punctuators and self.chance(0.4):
            steps.append(s.CancelPunctuator(self.rng.randrange(len(punctuators)), Predicate(19, 1)))
        if self.chance(0.1):
            steps.append(s.RequestCommit())
        self.rng.shuffle(steps)
        if self.chance(0.7):  # most of the time the last word is a forward that shows what was found
            steps.sort(key=lambda step: isinstance(step, s.Forward))
        return s.Process(self.next_id(), parent, tuple(steps), punctuators, fixed)

    def forward(self, *, fixed: bool) -> s.Forward:
        return s.Forward(
            show=self.rng.choice(("value", "answer", "answer", "metadata", "stream time", "headers")),
            only=self.predicate() if self.chance(0.3) else None,
            new_key=None if fixed or self.chance(0.6) else self.new_key(),
            time_shift=self.rng.choice((0, 0, 0, 2, 15)),
            add_header=self.chance(0.2),
        )

    def punctuator(self, stores: list[str]) -> s.Punctuator:
        return s.Punctuator(
            clock=self.rng.choice(("stream", "wall")),
            interval_ms=self.rng.choice((4, 7, 10, 30)),
            action=self.rng.choice(("tick", "dump", "count")),
            store=self.rng.choice(stores) if stores else None,
            once=self.chance(0.15),
        )

    def group(self) -> int | None:
        """A grouped stream, often a new one."""
        if not self.groups or self.chance(0.6):
            parent = self.stream()
            key = self.new_key() if self.chance(0.5) else None
            self.add(s.Group(self.next_id(), parent, key, self.chance(0.6)), self.groups)
        return self.rng.choice(self.groups[-3:]) if self.groups else None

    def add_aggregate(self) -> None:
        group = self.group()
        if group is not None:
            how = self.rng.choice(AGGREGATIONS)
            fold = self.fold(in_place=self.lists and self.chance(0.5))
            of = NewValue(self.rng.randint(1, 9), self.rng.randint(0, 9))  # it is compared with others
            aggregate = s.Aggregate(self.next_id(), group, how, fold, self.combine(), of, self.store())
            self.add(aggregate, self.tables)

    def add_cogroup(self) -> None:
        groups = {group for group in (self.group(), self.group(), self.group()) if group is not None}
        if len(groups) > 1:
            chosen = tuple(self.rng.sample(sorted(groups), 2))
            in_place = self.lists and self.chance(0.5)
            folds = tuple(self.fold(in_place=in_place) for _ in chosen)
            self.add(s.Cogroup(self.next_id(), chosen, folds, self.store()), self.tables)

    def add_windows(self) -> None:
        """Windowed tables, of draws of their own: without them, a seed is the topology that it always was."""
        self.rng = random.Random(f"windows of {self.seed}")
        for _ in range(self.rng.choice((0, 1, 1, 2))):
            windowed: list[int] = []
            if self.chance(0.25):
                self.add_windowed_cogroup(windowed)
            else:
                self.add_windowed_aggregate(windowed)
            for table in windowed:
                if self.chance(0.3):
                    value = self.new_value(null=False)
                    group = s.TableGroup(self.next_id(), table, self.new_key(), value, self.chance(0.5))
                    if self.add(group, self.table_groups, copies=2):
                        self.add_table_aggregate()
                key = self.new_key() if self.chance(0.3) else SameKey()
                self.add(s.ToStream(self.next_id(), table, key), self.streams)
            if self.chance(0.3):
                self.add_aggregate()
        self.add_ends()

    def add_windowed_aggregate(self, windowed: list[int]) -> None:
        group, cut = self.group(), self.cut()
        if group is not None:
            how = self.rng.choice(AGGREGATIONS)
            fold = self.fold(in_place=self.lists and self.chance(0.5))
            of = NewValue(self.rng.randint(1, 9), self.rng.randint(0, 9))
            on_close = self.chance(0.3) and cut.kind != "unlimited"
            aggregate = s.WindowedAggregate(
                self.next_id(), group, cut, how, fold, self.combine(), of, on_close, self.store()
            )
            self.add(aggregate, windowed, copies=3)

    def add_windowed_cogroup(self, windowed: list[int]) -> None:
        groups = {group for group in (self.group(), self.group(), self.group()) if group is not None}
        if len(groups) > 1:
            chosen = tuple(self.rng.sample(sorted(groups), 2))
            in_place = self.lists and self.chance(0.5)
            folds = tuple(self.fold(in_place=in_place) for _ in chosen)
            cogroup = s.WindowedCogroup(
                self.next_id(), chosen, self.cut(), folds, self.combine(), self.store()
            )
            self.add(cogroup, windowed, copies=2)

    def cut(self) -> s.Cut:
        size, grace = self.rng.choice((4, 7, 10)), self.rng.choice((0, 0, 3, 10, 25))
        kind = self.rng.choice(CUTS)
        if kind == "unlimited":
            return s.Cut(kind, start=self.rng.choice((0, 12)))
        return s.Cut(kind, size, self.rng.choice((size, size, size // 2, 3)), grace)

    def add_joins(self) -> None:
        """Joins, of draws of their own, too."""
        self.rng = random.Random(f"joins of {self.seed}")
        moves = (
            *[self.add_stream_join] * 5,
            *[self.add_stream_table_join] * 3,
            *[self.add_lookup_by_time] * 2,
            *[self.add_global_table_join] * 2,
            *[self.add_table_join] * 4,
        )
        for move in self.rng.choices(moves, k=self.rng.choice((0, 1, 2, 2, 3))):
            any(move() for _ in range(JOIN_ATTEMPTS))
            if self.chance(0.25):
                self.rng.choice((self.add_aggregate, self.add_table_aggregate, self.add_stateless))()
        self.add_ends()

    def joining(self, *, outer: bool) -> tuple[s.JoinKind, Join, bool]:
        kinds: tuple[s.JoinKind, ...] = ("join", "left_join", "outer_join")
        kind = self.rng.choice(kinds if outer else kinds[:2])
        return kind, Join(self.rng.randint(1, 9), self.rng.choice((-1, -1, 3))), self.chance(0.4)

    def add_stream_join(self) -> bool:
        left = self.stream()
        right = left if self.chance(0.15) else self.rng.choice(self.streams)
        kind, joiner, with_key = self.joining(outer=True)
        before, after, grace = (
            self.rng.choice(some) for some in ((0, 3, 8, 20), (-3, 0, 5, 8, 20), (0, 0, 4, 15))
        )
        if self.chance(0.3):
            before, after = after, before
        within = s.Within(before, max(after, -before), grace)
        join = s.StreamJoin(self.next_id(), left, right, kind, within, joiner, with_key)
        return self.add(join, self.streams)

    def add_stream_table_join(self) -> bool:
        tables = [table for table in self.tables if can_be_looked_up(self.spec, table)]
        if not tables:
            return False
        stream, table = self.stream(), self.rng.choice(tables)
        join = s.StreamTableJoin(self.next_id(), stream, table, *self.joining(outer=False))
        return self.add(join, self.streams)

    def add_lookup_by_time(self) -> bool:
        stream = self.stream()
        versioned = [op.id for op in self.spec.ops if isinstance(op, s.VersionedTable)]
        if not versioned:
            number = self.next_id()
            self.add(s.VersionedTable(number, "in-versions"), versioned)
        grace = self.rng.choice((None, 0, 5, 5, 20))
        number, table = self.next_id(), self.rng.choice(versioned)
        join = s.StreamTableJoin(number, stream, table, *self.joining(outer=False), grace)
        return self.add(join, self.streams)

    def add_global_table_join(self) -> bool:
        stream = self.stream()
        tables = [op.id for op in self.spec.ops if isinstance(op, s.GlobalTable) and not op.own_processor]
        if not tables:
            self.add(s.GlobalTable(self.next_id(), "in-global", own_processor=False), tables)
        kind, joiner, with_key = self.joining(outer=False)
        number, table = self.next_id(), self.rng.choice(tables)
        join = s.GlobalTableJoin(number, stream, table, kind, self.new_key(), joiner, with_key)
        return self.add(join, self.streams)

    def add_table_join(self) -> bool:
        tables = [table for table in self.tables if can_be_looked_up(self.spec, table)]
        if not tables:
            return False
        left = self.rng.choice(tables)
        right = left if self.chance(0.1) else self.rng.choice(tables)
        join = s.TableJoin(self.next_id(), left, right, *self.joining(outer=True), self.store())
        return self.add(join, self.tables)

    def add_table_aggregate(self) -> None:
        if not self.table_groups or self.chance(0.7):
            table = self.table()
            value = self.new_value(null=self.chance(0.3))
            group = s.TableGroup(self.next_id(), table, self.new_key(), value, self.chance(0.5))
            if not self.add(group, self.table_groups, copies=2):
                return
        in_place = self.lists and self.chance(0.5)
        aggregate = s.TableAggregate(
            self.next_id(),
            self.rng.choice(self.table_groups[-2:]),
            self.rng.choice(("count", "aggregate", "aggregate", "reduce")),
            self.fold(in_place=in_place),
            self.fold(in_place=in_place),
            self.combine(),
            self.combine(),
            self.store(),
        )
        self.add(aggregate, self.tables)

    def add_table_op(self) -> None:
        table = self.table()
        number = self.next_id()
        makers: tuple[Callable[[], s.Op], ...] = (
            lambda: s.TableFilter(number, table, self.predicate(), self.chance(0.5), self.store()),
            lambda: s.TableMapValues(number, table, self.new_value(), self.chance(0.5), self.store()),
            lambda: self.transform_values(number, table),
        )
        self.add(self.rng.choice(makers)(), self.tables)

    def add_to_stream(self) -> None:
        table = self.table()
        key = self.new_key() if self.chance(0.3) else None
        self.add(s.ToStream(self.next_id(), table, key), self.streams)

    def add_to_table(self) -> None:
        parent = self.stream()
        self.add(s.ToTable(self.next_id(), parent, self.store()), self.tables)

    def transform_values(self, number: int, table: int) -> s.TransformValues:
        steps = tuple(
            s.UseStore(self.rng.choice(PLAIN_STORES), self.rng.choice(("count", "remember", "scan")))
            for _ in range(self.rng.choice((0, 1, 1, 2)))
        )
        show = self.rng.choice(SHOWN)
        return s.TransformValues(number, table, steps, show, self.store(), self.poison())

    # Finishing.

    def add_ends(self) -> None:
        """Everything that nobody reads gets a sink, so that its records are seen; two may share a topic."""
        for table in self.unread(self.tables):
            if self.chance(0.9):
                self.add(s.ToStream(self.next_id(), table, None), self.streams)
        for stream in self.unread(self.streams):
            number = self.next_id()
            if self.chance(0.15):
                self.add(s.Look(number, stream, self.rng.choice(("foreach", "print"))), None)
            elif self.chance(0.1):
                self.add(s.To(number, stream, OUTPUTS, Choose(self.rng.randrange(3))), None)
            else:
                self.add(s.To(number, stream, (self.rng.choice(OUTPUTS),), Choose(0)), None)

    def unread(self, handles: list[int]) -> list[int]:
        read = {parent for op in self.spec.ops for parent in op.parents}
        return [handle for handle in handles if handle not in read]

    def name_children(self) -> None:
        """Some forwards and punctuators now address one of their children."""
        self.spec = replace(self.spec, ops=tuple(self._addressed(op) for op in self.spec.ops))

    def _addressed(self, op: s.Op) -> s.Op:
        if not isinstance(op, s.Process):
            return op
        children = [
            one.id for one in self.spec.ops if isinstance(one, NAMED_CHILDREN) and one.parent == op.id
        ]
        if not children:
            return op

        def child() -> int | None:
            return self.rng.choice(children) if self.chance(0.35) else None

        steps = [replace(one, child=child()) if isinstance(one, s.Forward) else one for one in op.steps]
        punctuators = [replace(one, child=child()) for one in op.punctuators]
        return replace(op, steps=tuple(steps), punctuators=tuple(punctuators))


def _has_named_store(op: s.Op) -> bool:
    store = getattr(op, "store", None)
    return isinstance(store, s.TableStore) and store.named


def can_be_looked_up(spec: s.Spec, table: int) -> bool:
    """Not what is found by asking a transformer again: that may change its stores."""
    op = spec.op(table)
    if _has_named_store(op):
        return True
    if isinstance(op, s.TransformValues):
        return False
    if isinstance(op, s.TableFilter | s.TableMapValues):
        return can_be_looked_up(spec, op.parent)
    if isinstance(op, s.TableJoin):
        return can_be_looked_up(spec, op.parent) and can_be_looked_up(spec, op.other)
    return True


def _node(handle: Any) -> Any:
    return getattr(handle, "node", handle)


def is_legal(spec: s.Spec) -> bool:
    """Whether a topology can be built and run: what is refused here is refused by Kafka, or not a test."""
    graph = compile_spec(spec)
    by_level = levels(graph)
    if by_level is None:
        return False
    counts = partition_counts(spec, graph, by_level)
    widths = {
        node: {counts[topic] for source in sub.sources for topic in source.topics}
        for level in by_level
        for sub in level
        for node in sub.nodes
    }
    for op in spec.ops:
        if isinstance(op, s.Cogroup | s.WindowedCogroup):
            groups = [graph.handles[group] for group in op.groups]
            unnamed = [group for group in groups if group.stream.rekeyed and not group.op.named]
            if len(unnamed) > 1 or len(set.union(*(widths[group.stream.node] for group in groups))) > 1:
                return False
        if isinstance(op, JOINS) and len(widths[_node(graph.handles[op.id])]) > 1:
            return False
        for table in s.tables_read(op):  # a store has to be there when a processor asks for it
            if graph.handles[table].number > graph.handles[op.id].node.number:
                return False
    return True
