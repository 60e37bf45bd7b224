"""How joins with tables are built: a stream with a table, or with a global one, and two tables.

Names, numbers, stores in descriptions, repartitions and co-partitioning are Kafka's. A table that has no
store gets one, or, if it is computed from another table, is computed again for each lookup.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from millstream.clock import milliseconds
from millstream.dsl.functions import is_expression
from millstream.dsl.given import check_functions, check_joiner
from millstream.dsl.graph import GraphNode, first_given
from millstream.dsl.joins import (
    JoinKind,
    check_same_graph,
    copartitioned,
    joined_key_serde,
    repartitioned_for_join,
)
from millstream.dsl.materialized import Materialized, StoreLike, as_store
from millstream.dsl.table_state import JoinedState
from millstream.errors import TopologyError
from millstream.processors.joins.grace import StreamTableJoinWithGrace
from millstream.processors.joins.stream_table import StreamTableJoin, StreamTableJoiner
from millstream.processors.joins.table_table import StoredTableTableJoin, TableTableJoin
from millstream.processors.joins.table_view import PairJoiner, StoreView, TableView
from millstream.processors.operator import Operator
from millstream.processors.stateless import PassThrough
from millstream.state.specs import StoreBuilder, time_ordered_buffer
from millstream.topology.operator_spec import COLUMNAR, PLAIN, OperatorSpec
from millstream.topology.topology import Topology

if TYPE_CHECKING:
    from millstream.dsl.kstream import KStream
    from millstream.dsl.ktable import GlobalKTable, KTable

__all__ = [
    "TableJoined",
    "check_is_table",
    "connect",
    "join_stream_with_global",
    "join_stream_with_table",
    "join_tables",
    "reading",
]

_MERGE = "KTABLE-MERGE-"


@dataclass(frozen=True, slots=True)
class TableJoined:
    """What users say about a join with a table."""

    with_key: bool = False
    key: Any = None
    value: Any = None
    name: str | None = None
    grace: int | timedelta | None = None
    store: StoreLike = None


def join_stream_with_table(
    stream: KStream[Any, Any],
    table: KTable[Any, Any],
    joiner: Callable[..., Any],
    kind: JoinKind,
    joined: TableJoined,
) -> KStream[Any, Any]:
    """Build the join of a stream with a table."""
    check_same_graph(kind.method, stream.graph, table)
    grace_ms = _grace_ms(table, kind, joined.grace)
    key = joined_key_serde(kind.method, joined.key, stream.key_serde, table.key_serde)
    stream = repartitioned_for_join(stream, joined.name, key, joined.value)
    graph = stream.graph
    sources = copartitioned(graph, kind, ("stream", stream.source_names), ("table", table.source_names))
    name = graph.name_or_new(joined.name, _stream_prefix(kind))
    view = table.state.look_up()
    join, value_serde = _joiner(joiner, kind, joined, stream, table.value_serde)
    by_time = table.state.is_versioned
    make: Callable[[], Operator] = partial(StreamTableJoin, view, join, as_of_time=by_time)
    buffer: StoreBuilder | None = None
    if grace_ms is not None:
        buffer = time_ordered_buffer(
            f"{name}-Buffer", key=key, value=stream.value_serde, retain_duplicates=True
        )
        make = partial(StreamTableJoinWithGrace, buffer.name, grace_ms, view, join)

    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        spec = COLUMNAR if join.in_columns else PLAIN
        topology.add_operator(name, make, parents, reading(spec, view))
        if buffer is not None:  # before the table: descriptions show the first one if their hashes are alike
            topology.add_state_store(buffer, name)
        connect(topology, name, view)

    node = graph.add(GraphNode(name, write, changes="value", takes_null_keys=kind.left), stream.node)
    return replace(
        stream,
        node=node,
        key_serde=key,
        value_serde=value_serde,
        source_names=sources,
        in_columns=is_expression(joiner),
    )


def join_stream_with_global(
    stream: KStream[Any, Any],
    table: GlobalKTable[Any, Any],
    joiner: Callable[..., Any],
    key_of: Callable[[Any, Any], Any] | None,
    kind: JoinKind,
    joined: TableJoined,
) -> KStream[Any, Any]:
    """Build the join of a stream with a global table. Its key stays, and so does where its records are."""
    check_same_graph(kind.method, stream.graph, table)
    if key_of is None:
        raise TopologyError(
            f"{kind.method}() with the global table {table.queryable_store_name!r} without key_of: nothing "
            "says which row belongs to a record. Remedy: key_of=lambda key, value: ... gives the row's key"
        )
    check_functions(kind.method, key_of=key_of)
    # Kafka calls inner joins so, too.
    name = stream.graph.name_or_new(joined.name, "KSTREAM-LEFTJOIN-")
    join, value_serde = _joiner(joiner, kind, joined, stream, table.value_serde, key_of)

    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        make = partial(StreamTableJoin, StoreView(table.queryable_store_name), join)
        topology.add_operator(name, make, parents, COLUMNAR if join.in_columns else PLAIN)

    node = stream.graph.add(GraphNode(name, write, changes="value", takes_null_keys=kind.left), stream.node)
    return replace(stream, node=node, value_serde=value_serde, in_columns=is_expression(joiner))


def join_tables(
    left: KTable[Any, Any],
    right: KTable[Any, Any],
    joiner: Callable[..., Any],
    kind: JoinKind,
    joined: TableJoined,
) -> KTable[Any, Any]:
    """Build the join of two tables by their keys."""
    check_is_table(left, right, kind)
    check_joiner(kind.method, joiner, with_key=joined.with_key)
    key = joined_key_serde(kind.method, joined.key, left.key_serde, right.key_serde)
    graph = left.graph
    own: Materialized | None = None
    if joined.store is not None or joined.key is not None or joined.value is not None:
        own = Materialized.of(graph, as_store(joined.store, key, joined.value), _MERGE)
    merge = graph.name_or_new(joined.name, _MERGE)
    sources = copartitioned(graph, kind, ("table", left.source_names), ("table", right.source_names))
    if kind.left:
        left.state.demand_old_values()
    if kind.right:
        right.state.demand_old_values()
    this = graph.suffixed_or_new(joined.name, "-join-this", "KTABLE-JOINTHIS-")
    other = graph.suffixed_or_new(joined.name, "-join-other", "KTABLE-JOINOTHER-")
    join = PairJoiner(joiner, joined.with_key, kind.left, kind.right)
    views = (left.state.look_up(), right.state.look_up())
    state = JoinedState(left.state, right.state, own, join)

    def write(topology: Topology, _parents: tuple[str, ...]) -> None:
        hand_on = [(this, left.node.name, views[1]), (other, right.node.name, views[0])]
        for name, parent, looked_up in hand_on:
            topology.add_operator(
                name,
                PassThrough,
                (parent,),
                replace(PLAIN, described_stores=(*looked_up.stores, *looked_up.shared_stores)),
            )
        spec = OperatorSpec(ports=2, described_stores=() if own is None else (own.name,))
        for view in views:
            spec = reading(spec, view)
        if own is None:
            make = partial(TableTableJoin, *views, join, send_old=state.sends_old)
            topology.add_operator(merge, make, (this, other), spec)
        else:
            stored = partial(StoredTableTableJoin, own.name, *views, join, send_old=state.sends_old)
            topology.add_table_operator(merge, stored, (this, other), spec, caching=own.caching)
        for view in views:
            connect(topology, merge, view)
        if own is not None:
            topology.add_state_store(own.builder, merge)

    graph.keep_row_serdes(left, right)
    node = graph.add(GraphNode(merge, write), left.node, right.node)
    return replace(
        left,
        node=node,
        key_serde=first_given(None if own is None else own.store.key, key),
        value_serde=None if own is None else own.store.value,
        source_names=sources,
        queryable_store_name=None if own is None else own.queryable_name,
        state=state,
    )


def check_is_table(left: KTable[Any, Any], right: Any, kind: JoinKind) -> None:
    """Refuse to join a table with what is none, or is one of another builder's."""
    if not isinstance(right, type(left)):
        raise TopologyError(
            f"{kind.method}() with {right!r}. Remedy: join a table with a table; a stream becomes one by "
            "to_table(), and a global table is joined with a stream"
        )
    check_same_graph(kind.method, left.graph, right)


def _joiner(
    joiner: Any,
    kind: JoinKind,
    joined: TableJoined,
    stream: KStream[Any, Any],
    other: Any,
    key_of: Callable[[Any, Any], Any] | None = None,
) -> tuple[StreamTableJoiner, Any]:
    """What makes the values, a function or an expression, and their serde where it is known."""
    if not is_expression(joiner):
        check_joiner(kind.method, joiner, with_key=joined.with_key)
        return StreamTableJoiner(joiner, joined.with_key, kind.left, key_of), None
    from millstream.dsl.columns import column_joiner  # noqa: PLC0415 - imports Polars, which is there

    columns = column_joiner(joiner, kind.method, stream.key_serde, stream.value_serde, other)
    return columns.make(joined.with_key, kind.left, key_of), columns.serdes[0]


def _stream_prefix(kind: JoinKind) -> str:
    return "KSTREAM-LEFTJOIN-" if kind.left else "KSTREAM-JOIN-"


def _grace_ms(table: KTable[Any, Any], kind: JoinKind, grace: int | timedelta | None) -> int | None:
    if grace is None:
        return None
    grace_ms, history_ms = milliseconds(grace, f"the grace of {kind.method}()"), table.state.history_ms
    if grace_ms < 0:
        raise TopologyError(f"{kind.method}() with a grace of {grace_ms} ms. Remedy: 0 or more milliseconds")
    if history_ms is None:
        raise TopologyError(
            f"{kind.method}() with grace= needs a versioned table, but the one at {table.node.name!r} only "
            "knows its rows as they are now: a record that waits would be joined with a row of another time. "
            "Remedy: Store(versioned=...) for the table, with a history of at least the grace, or no grace"
        )
    if history_ms < grace_ms:
        raise TopologyError(
            f"{kind.method}() with a grace of {grace_ms} ms, but the table at {table.node.name!r} keeps only "
            f"{history_ms} ms of history: a record that has waited would not find the row of its time. "
            f"Remedy: Store(versioned={grace_ms}) or more for the table, or a shorter grace"
        )
    return grace_ms


def reading(spec: OperatorSpec, view: TableView) -> OperatorSpec:
    """The operator, if it looks a table up."""
    stores = frozenset(view.stores)
    never_written = stores | (frozenset(view.shared_stores) - frozenset(view.written_stores))
    return replace(
        spec,
        only_reads=spec.only_reads | never_written,
        reads_as_of=spec.reads_as_of | stores,
        sees_context=spec.sees_context or view.sees_context,
    )


def connect(topology: Topology, name: str, view: TableView) -> None:
    """Give an operator the stores that it looks a table up in."""
    topology.connect(name, (*view.stores, *view.shared_stores))
