"""The naive oracle, part four: from each operator of a spec to nodes of the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import singledispatch
from typing import Any, TypeVar

from tests.properties import spec as s
from tests.properties.functions import Key, NewKey, SameKey, Value
from tests.properties.oracle_graph import Graph, Grouped, Stream
from tests.properties.oracle_joins import (
    LEFT,
    RIGHT,
    LookupNode,
    SideNode,
    StreamJoinNode,
    TableJoinNode,
    VersionedNode,
    WaitingLookupNode,
)
from tests.properties.oracle_nodes import (
    GlobalKeeper,
    LookNode,
    Node,
    ProcessNode,
    Rec,
    SinkNode,
    SourceNode,
    SplitNode,
    Stateless,
)
from tests.properties.oracle_tables import (
    AggregateNode,
    CogroupNode,
    DerivedTableNode,
    ReduceNode,
    RegroupNode,
    TableAggregateNode,
    TableNode,
    TableSourceNode,
    transformer,
)
from tests.properties.oracle_windows import windowed

J = TypeVar("J", StreamJoinNode, TableJoinNode)

SKIPPING = {"sum", "min", "max"}
"""Aggregations that have no use for a record without a value, whatever their windows take."""


def compile_spec(spec: s.Spec) -> Graph:
    """The nodes of a spec."""
    graph = Graph()
    for op in spec.ops:
        graph.handles[op.id] = attach(op, graph)
    graph.put_in_order()
    graph.let_null_keys_by()
    for node in graph.nodes:
        if isinstance(node, TableNode) and not node.stored:
            node.stores = node.stores[1:]
    return graph


@singledispatch
def attach(op: s.Op, graph: Graph) -> Any:
    """Add the nodes of an operator. The result is what operators behind it attach to."""
    raise NotImplementedError(op, graph)


# Sources.


@attach.register
def _(op: s.Source, graph: Graph) -> Stream:
    for node in graph.nodes:
        if isinstance(node, SourceNode) and node.topics == op.topics:
            return Stream(node, False)
    return Stream(graph.add(SourceNode(op.name, topics=op.topics)), False)


@attach.register
def _(op: s.Table, graph: Graph) -> TableNode:
    return graph.add(_source_table(op), graph.add(SourceNode(f"{op.name}-source", topics=(op.topic,))))


@attach.register
def _(op: s.GlobalTable, graph: Graph) -> Node:
    source = graph.add(SourceNode(f"{op.name}-source", topics=(op.topic,)))
    graph.global_stores.add(op.store_name)
    keeper = GlobalKeeper(op.name, stores=[op.store_name], with_timestamps=not op.own_processor)
    return graph.add(keeper, source)


# Streams.


@attach.register
def _(op: s.Filter, graph: Graph) -> Stream:
    return _stateless(op, graph, lambda rec: [rec] * (op.predicate(rec.key, rec.value) != op.negated))


@attach.register
def _(op: s.Map, graph: Graph) -> Stream:
    def mapped(rec: Rec) -> list[Rec]:
        key = op.key(rec.key, rec.value)
        return [rec.with_key(key).with_value(op.value(rec.key, rec.value))]

    return _stateless(op, graph, mapped).moved()


@attach.register
def _(op: s.MapValues, graph: Graph) -> Stream:
    return _stateless(op, graph, lambda rec: [rec.with_value(op.mapper(_shown(op, rec.key), rec.value))])


@attach.register
def _(op: s.FlatMap, graph: Graph) -> Stream:
    def mapped(rec: Rec) -> list[Rec]:
        values = op.values(rec.key, rec.value)
        return [rec.with_key(op.key(rec.key, value)).with_value(value) for value in values]

    return _stateless(op, graph, mapped).moved()


@attach.register
def _(op: s.FlatMapValues, graph: Graph) -> Stream:
    def mapped(rec: Rec) -> list[Rec]:
        return [rec.with_value(value) for value in op.values(_shown(op, rec.key), rec.value)]

    return _stateless(op, graph, mapped)


@attach.register
def _(op: s.SelectKey, graph: Graph) -> Stream:
    stream: Stream = graph.handles[op.parent]
    return _rekeyed(op.name, graph, stream.node, op.key)


@attach.register
def _(op: s.Look, graph: Graph) -> Stream:
    stream: Stream = graph.handles[op.parent]
    return Stream(graph.add(LookNode(op.name, ends=op.how != "peek"), stream.node), stream.rekeyed)


@attach.register
def _(op: s.Merge, graph: Graph) -> Stream:
    stream, other = graph.handles[op.parent], graph.handles[op.other]
    return Stream(graph.add(Node(op.name), stream.node, other.node), stream.rekeyed or other.rekeyed)


@attach.register
def _(op: s.Split, graph: Graph) -> list[Stream]:
    stream: Stream = graph.handles[op.parent]
    split = graph.add(SplitNode(op.name, predicates=op.predicates), stream.node)
    return [
        Stream(graph.add(Node(f"{op.name}-{number}"), split), stream.rekeyed)
        for number in range(len(op.predicates) + op.default)
    ]


@attach.register
def _(op: s.Branch, graph: Graph) -> Stream:
    branches: list[Stream] = graph.handles[op.parent]
    return branches[op.number]


@attach.register
def _(op: s.Repartition, graph: Graph) -> Stream:
    stream: Stream = graph.handles[op.parent]
    source = graph.repartition(stream.node, op.name, op.partitioner)
    graph.repartitions[source.topics[0]] = op.partitions
    return Stream(source, False)


@attach.register
def _(op: s.To, graph: Graph) -> Node:
    stream: Stream = graph.handles[op.parent]
    sink = SinkNode(op.name, topic_of=lambda rec: op.topics[op.choose(rec.value, len(op.topics))])
    return graph.add(sink, stream.node)


@attach.register
def _(op: s.Process, graph: Graph) -> Stream:
    stream: Stream = graph.handles[op.parent]
    used = [*s.stores_used(op), *(f"store{table}" for table in s.tables_read(op))]
    node = graph.add(ProcessNode(op.name, stores=used, op=op), stream.node)
    return Stream(node, stream.rekeyed or not op.fixed_key)


@attach.register
def _(op: s.Group, graph: Graph) -> Grouped:
    stream: Stream = graph.handles[op.parent]
    return Grouped(stream if op.key is None else _rekeyed(op.name, graph, stream.node, op.key), op)


# Tables.


@attach.register
def _(op: s.ToTable, graph: Graph) -> TableNode:
    stream: Stream = graph.handles[op.parent]
    parent = graph.repartition(stream.node, op.name) if stream.rekeyed else stream.node
    return graph.add(_source_table(op), parent)


@attach.register
def _(op: s.ToStream, graph: Graph) -> Stream:
    node = graph.add(
        Stateless(op.name, function=lambda rec: [replace(rec, old=None)]), graph.handles[op.parent]
    )
    return Stream(node, False) if op.key is None else _rekeyed(f"{op.name}-key", graph, node, op.key)


@attach.register
def _(op: s.Aggregate, graph: Graph) -> TableNode:
    return graph.add(_aggregation(op), _behind_group(op, graph, graph.handles[op.parent]))


@attach.register
def _(op: s.Cogroup, graph: Graph) -> TableNode:
    parents = [_behind_group(op, graph, graph.handles[group]) for group in op.groups]
    start = op.folds[0].start
    nodes = [
        graph.add(
            AggregateNode(
                f"{op.name}-{number}", store=op.store, stores=[op.store_name], start=start, fold=fold
            ),
            parent,
        )
        for number, (parent, fold) in enumerate(zip(parents, op.folds, strict=True))
    ]
    return graph.add(CogroupNode(op.name, store=op.store, inputs=nodes), *nodes)


@attach.register
def _(op: s.WindowedAggregate, graph: Graph) -> TableNode:
    node = windowed(
        op,
        op.name,
        *_folding(op),
        merge=_merging(op),
        on_close=op.on_close,
        skips_nulls=op.how in SKIPPING,
    )
    return graph.add(node, _behind_group(op, graph, graph.handles[op.parent]))


@attach.register
def _(op: s.WindowedCogroup, graph: Graph) -> TableNode:
    parents = [_behind_group(op, graph, graph.handles[group]) for group in op.groups]
    nodes = [
        graph.add(
            windowed(
                op, f"{op.name}-{number}", op.folds[0].start, fold, merge=s.merger(op.folds[0], op.combine)
            ),
            parent,
        )
        for number, (parent, fold) in enumerate(zip(parents, op.folds, strict=True))
    ]
    return graph.add(CogroupNode(op.name, store=op.store, inputs=nodes), *nodes)


@attach.register
def _(op: s.TableFilter, graph: Graph) -> TableNode:
    def keep(_task: Any, rec: Rec, value: Value) -> Value:
        return value if value is not None and op.predicate(rec.key, value) != op.negated else None

    node = _derived(op, graph, keep)
    node.is_filter = True
    node.sends_old = node.parent_table.ask_for_old(must=False)
    return node


@attach.register
def _(op: s.TableMapValues, graph: Graph) -> TableNode:
    def mapped(_task: Any, rec: Rec, value: Value) -> Value:
        return None if value is None else op.mapper(_shown(op, rec.key), value)

    return _derived(op, graph, mapped)


@attach.register
def _(op: s.TransformValues, graph: Graph) -> TableNode:
    node = _derived(op, graph, transformer(op))
    node.stores += s.stores_used(op)
    node.runs_user_code = True
    return node


@attach.register
def _(op: s.TableGroup, graph: Graph) -> Grouped:
    table: TableNode = graph.handles[op.parent]
    table.ask_for_old(must=True)
    node = RegroupNode(op.name, mapper=lambda key, value: (op.key(key, value), op.value(key, value)))
    return Grouped(Stream(graph.add(node, table), True), op)


@attach.register
def _(op: s.TableAggregate, graph: Graph) -> TableNode:
    def add(key: Key, value: Value, so_far: Value) -> Value:
        if op.how == "count":
            return 1 if so_far is None else so_far + 1
        if op.how == "reduce":
            return value if so_far is None else op.combine(so_far, value)
        return op.add(key, value, op.add.start() if so_far is None else so_far)

    def subtract(key: Key, value: Value, so_far: Value) -> Value:
        if op.how == "count":
            return so_far - 1
        return op.separate(so_far, value) if op.how == "reduce" else op.subtract(key, value, so_far)

    node = TableAggregateNode(op.name, store=op.store, stores=[op.store_name], add=add, subtract=subtract)
    return graph.add(node, _behind_group(op, graph, graph.handles[op.parent]))


# Joins.


@attach.register
def _(op: s.VersionedTable, graph: Graph) -> VersionedNode:
    source = graph.add(SourceNode(f"{op.name}-source", topics=(op.topic,)))
    return graph.add(VersionedNode(op.name, stores=[op.store_name]), source)


@attach.register
def _(op: s.StreamJoin, graph: Graph) -> Stream:
    left = _in_place(f"{op.name}-left", graph, graph.handles[op.parent])
    right = _in_place(f"{op.name}-right", graph, graph.handles[op.other])
    sides = [graph.add(Node(f"{op.name}-windowed"), stream) for stream in (left, right)]
    join = StreamJoinNode(
        f"{op.name}-merge",
        within=op.within,
        outer=_outer(op),
        joiner=_joiner(op),
        takes_null_keys=op.kind != "join",
    )
    return Stream(_two_sides(op, graph, join, sides), False)


@attach.register
def _(op: s.StreamTableJoin, graph: Graph) -> Stream:
    stream = _in_place(op.name, graph, graph.handles[op.parent])
    table: TableNode | VersionedNode = graph.handles[op.other]
    shared: dict[str, Any] = {
        "table": table,
        "left": op.kind == "left_join",
        "joiner": _joiner(op),
        "looks_up": table.look_up() if isinstance(table, TableNode) else table.stores,
        "takes_null_keys": op.kind == "left_join",
    }
    if op.grace is None:
        return Stream(graph.add(LookupNode(op.name, **shared), stream), False)
    return Stream(graph.add(WaitingLookupNode(op.name, grace=op.grace, **shared), stream), False)


@attach.register
def _(op: s.GlobalTableJoin, graph: Graph) -> Stream:
    stream: Stream = graph.handles[op.parent]
    left = op.kind == "left_join"
    node = LookupNode(
        op.name,
        table=graph.handles[op.other],
        left=left,
        joiner=_joiner(op),
        key_of=op.key_of,
        takes_null_keys=left,
    )
    return Stream(graph.add(node, stream.node), stream.rekeyed)


@attach.register
def _(op: s.TableJoin, graph: Graph) -> TableNode:
    tables: tuple[TableNode, TableNode] = (graph.handles[op.parent], graph.handles[op.other])
    outer = _outer(op)
    for table, is_outer in zip(tables, outer, strict=True):
        if is_outer:
            table.ask_for_old(must=True)
    join = TableJoinNode(
        f"{op.name}-merge",
        store=op.store,
        stores=[op.store_name],
        stored=op.store.named,
        sides=tables,
        outer=outer,
        joiner=_joiner(op),
        looks_up=[name for table in tables for name in table.look_up()],
    )
    return _two_sides(op, graph, join, tables)


def _two_sides(op: Any, graph: Graph, join: J, sides: Sequence[Node]) -> J:
    ports = [SideNode(op.name, join=join, side=number) for number in (LEFT, RIGHT)]
    for port, side in zip(ports, sides, strict=True):
        graph.add(port, side)
    return graph.add(join, *ports)


def _in_place(name: str, graph: Graph, stream: Stream) -> Node:
    """A stream with its records where their keys belong."""
    return graph.repartition(stream.node, name) if stream.rekeyed else stream.node


def _outer(op: s.StreamJoin | s.TableJoin) -> tuple[bool, bool]:
    return op.kind != "join", op.kind == "outer_join"


def _joiner(op: Any) -> Callable[[Key, Value, Value], Value]:
    return lambda key, left, right: op.joiner(_shown(op, key), left, right)


# Pieces that several operators need.


def _stateless(op: Any, graph: Graph, function: Callable[[Rec], list[Rec]]) -> Stream:
    stream: Stream = graph.handles[op.parent]
    return Stream(graph.add(Stateless(op.name, function=function), stream.node), stream.rekeyed)


def _rekeyed(name: str, graph: Graph, parent: Node, new_key: NewKey | SameKey) -> Stream:
    select = Stateless(name, function=lambda rec: [rec.with_key(new_key(rec.key, rec.value))])
    return Stream(graph.add(select, parent), True)


def _source_table(op: s.Table | s.ToTable) -> TableSourceNode:
    return TableSourceNode(op.name, store=op.store, stores=[op.store_name], stored=op.store.named)


def _derived(op: Any, graph: Graph, compute: Callable[[Any, Rec, Value], Value]) -> DerivedTableNode:
    parent: TableNode = graph.handles[op.parent]
    node = DerivedTableNode(
        op.name,
        store=op.store,
        stores=[op.store_name],
        stored=op.store.named,
        parent_table=parent,
        compute=compute,
    )
    return graph.add(node, parent)


def _aggregation(op: s.Aggregate) -> TableNode:
    if op.how == "reduce":
        return ReduceNode(op.name, store=op.store, stores=[op.store_name], combine=op.combine)
    start, fold = _folding(op)
    return AggregateNode(op.name, store=op.store, stores=[op.store_name], start=start, fold=fold)


def _folding(
    op: s.Aggregate | s.WindowedAggregate,
) -> tuple[Callable[[], Value], Callable[[Key, Value, Value], Value]]:
    """What an aggregation starts with, and what it makes of that and a value."""
    folds: dict[str, tuple[Callable[[], Value], Callable[[Key, Value, Value], Value]]] = {
        "count": (lambda: 0, lambda _key, _value, count: count + 1),
        "sum": (lambda: 0, lambda _key, value, total: total + op.of(None, value)),
        "min": (lambda: None, lambda _key, value, least: _extreme(min, op.of(None, value), least)),
        "max": (lambda: None, lambda _key, value, most: _extreme(max, op.of(None, value), most)),
        "aggregate": (op.fold.start, op.fold),
        "reduce": (
            lambda: None,
            lambda _key, value, so_far: value if so_far is None else op.combine(so_far, value),
        ),
    }
    return folds[op.how]


def _merging(op: s.WindowedAggregate) -> Callable[[Value, Value], Value]:
    """One aggregate of two, where sessions become one."""
    merges: dict[str, Callable[[Value, Value], Value]] = {
        "count": lambda one, other: one + other,
        "sum": lambda one, other: one + other,
        "min": min,
        "max": max,
        "reduce": op.combine,
        "aggregate": s.merger(op.fold, op.combine),
    }
    return merges[op.how]


def _extreme(choose: Callable[[int, int], int], value: int, so_far: int | None) -> int:
    return value if so_far is None else choose(so_far, value)


def _behind_group(op: Any, graph: Graph, grouped: Grouped) -> Node:
    """What an aggregation hangs behind: the grouped stream itself, or a repartition of it."""
    if not grouped.stream.rekeyed:
        return grouped.stream.node
    if grouped.shared is not None:
        for node in (*grouped.shared.after, grouped.shared):
            graph.touch(node)
        return grouped.shared
    through = graph.through_topic if isinstance(grouped.op, s.TableGroup) else graph.repartition
    source = through(grouped.stream.node, grouped.op.name if grouped.op.named else _name_of_store(op))
    if grouped.op.named:
        grouped.shared = source
    return source


def _name_of_store(op: Any) -> str:
    """Names decide in which order topics are read whose next records are equally old."""
    if op.store.named:
        return str(op.store_name)
    prefix = {
        s.Cogroup: "COGROUPKSTREAM-AGGREGATE",
        s.WindowedCogroup: "COGROUPKSTREAM-AGGREGATE",
        s.TableAggregate: "KTABLE-AGGREGATE",
    }.get(type(op))
    if prefix is None:
        prefix = "KSTREAM-REDUCE" if op.how == "reduce" else "KSTREAM-AGGREGATE"
    return f"{prefix}-STATE-STORE-{op.id:010d}"


def _shown(op: Any, key: Key) -> Key:
    return key if op.with_key else None
