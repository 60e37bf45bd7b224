"""How joins of tables by a foreign key are built: names, topics, stores and co-partitioning are Kafka's.

Kafka runs the right side as three nodes that share stores. Here one operator behind them is at work, which no
description shows; the three hand their rows on (see `topology.operator_spec`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from millstream.dsl.given import check_function, check_joiner
from millstream.dsl.graph import Graph, GraphNode, first_given
from millstream.dsl.joins import JoinKind, hand_on
from millstream.dsl.materialized import Materialized, as_store
from millstream.dsl.table_joins import TableJoined, check_is_table, connect, reading
from millstream.errors import TopologyError
from millstream.processors.joins.foreign_key.messages import ToSubscribers
from millstream.processors.joins.foreign_key.resolver import AnswerResolver
from millstream.processors.joins.foreign_key.responder import SubscriptionResponder
from millstream.processors.joins.foreign_key.sender import SubscriptionSender
from millstream.processors.joins.foreign_key.serdes import ForeignKeySerdes
from millstream.processors.joins.table_view import TableView
from millstream.serdes import bytes as raw_bytes
from millstream.state.specs import key_value
from millstream.topology.copartition import Copartition
from millstream.topology.operator_spec import PLAIN, OperatorSpec
from millstream.topology.topology import Topology

if TYPE_CHECKING:
    from millstream.dsl.ktable import KTable

__all__ = ["FOREIGN_KEY_OUTPUT", "ForeignKeyResult", "join_by_foreign_key"]

_PREFIX = "KTABLE-FK-JOIN-"
_REGISTRATION = f"{_PREFIX}SUBSCRIPTION-REGISTRATION-"
_PROCESSOR = f"{_PREFIX}SUBSCRIPTION-PROCESSOR-"
_RESPONSE = f"{_PREFIX}SUBSCRIPTION-RESPONSE-"
FOREIGN_KEY_OUTPUT = f"{_PREFIX}OUTPUT-"


@dataclass(frozen=True, slots=True)
class _Names:
    """The nodes, topics and stores of a join, in the order in which Kafka numbers them."""

    registration: str
    sender: str
    registration_sink: str
    registration_source: str
    store: str
    receive: str
    subscription_join: str
    foreign_join: str
    response: str
    response_sink: str
    response_source: str
    resolver: str
    result: str

    @classmethod
    def of(cls, graph: Graph, name: str | None) -> _Names:
        """Given ones, or numbered ones. Numbers are used up either way, as Kafka does."""
        new = partial(graph.suffixed_or_new, name)
        return cls(
            registration=f"{new('-subscription-registration', _REGISTRATION)}-topic",
            sender=new("-subscription-registration-processor", _REGISTRATION),
            registration_sink=new("-subscription-registration-sink", "KTABLE-SINK-"),
            registration_source=new("-subscription-registration-source", "KTABLE-SOURCE-"),
            store=new("-subscription-store", f"{_PREFIX}SUBSCRIPTION-STATE-STORE-"),
            receive=new("-subscription-receive", _PROCESSOR),
            subscription_join=new("-subscription-join-foreign", _PROCESSOR),
            foreign_join=new("-foreign-join-subscription", _PROCESSOR),
            response=f"{new('-subscription-response', _RESPONSE)}-topic",
            response_sink=new("-subscription-response-sink", "KTABLE-SINK-"),
            response_source=new("-subscription-response-source", "KTABLE-SOURCE-"),
            resolver=new("-subscription-response-resolver", f"{_RESPONSE}RESOLVER-PROCESSOR-"),
            result=new("-result", FOREIGN_KEY_OUTPUT),
        )


@dataclass(frozen=True, slots=True)
class ForeignKeyResult:
    """The end of a join, on which its table is built."""

    node: GraphNode
    name: str
    materialized: Materialized
    source_names: frozenset[str]


def join_by_foreign_key(
    left: KTable[Any, Any],
    right: KTable[Any, Any],
    foreign_key: Callable[[Any, Any], Any],
    joiner: Callable[..., Any],
    kind: JoinKind,
    joined: TableJoined,
) -> ForeignKeyResult:
    """Build the join of a table with the rows of another that its values refer to."""
    _check(left, right, foreign_key, joiner, kind, with_key=joined.with_key)
    graph = left.graph
    left.state.demand_old_values()
    graph.keep_row_serdes(left, right)
    names = _Names.of(graph, joined.name)
    serdes = ForeignKeySerdes(
        names.registration,
        names.response,
        left.key_serde,
        left.value_serde,
        right.key_serde,
        right.value_serde,
    )
    make_sender = partial(SubscriptionSender, foreign_key, serdes, left_join=kind.left)
    sender = graph.add(_operator(names.sender, make_sender), left.node)
    registered = _through(
        graph, sender, names.registration, names.registration_sink, names.registration_source
    )
    graph.copartitions.append(Copartition(right.source_names | {registered.name}))
    right_view = right.state.look_up()
    receive = graph.add(_described(names.receive, names.store), registered)
    subscribing = graph.add(_described(names.subscription_join, *_stores(right_view)), receive)
    updating = graph.add(_described(names.foreign_join, names.store), right.node)
    responding = _responder(names, right_view, serdes)
    answered = _through(
        graph, subscribing, names.response, names.response_sink, names.response_source, updating, responding
    )
    sources = left.source_names | {answered.name}
    graph.copartitions.append(Copartition(sources))
    left_view = left.state.look_up()
    _check_left(left, left_view, kind)
    make_resolver = partial(
        AnswerResolver, left_view, joiner, serdes, with_key=joined.with_key, left_join=kind.left
    )
    resolver = graph.add(_operator(names.resolver, make_resolver, left_view), answered)
    store = as_store(joined.store, first_given(joined.key, left.key_serde), joined.value)
    own = Materialized.of(graph, store, FOREIGN_KEY_OUTPUT)
    return ForeignKeyResult(resolver, names.result, own, sources)


def _check(
    left: KTable[Any, Any],
    right: Any,
    foreign_key: object,
    joiner: object,
    kind: JoinKind,
    *,
    with_key: bool,
) -> None:
    check_is_table(left, right, kind)
    if not callable(foreign_key):
        raise TopologyError(
            f"{kind.method}() with the foreign_key {foreign_key!r}, which can't be called. Remedy: give a "
            "function of key and value of the left row that returns the key of the right row, as in "
            'foreign_key=lambda key, value: value["customer"]; None refers to no row'
        )
    if not callable(joiner):
        raise TopologyError(
            f"{kind.method}() with the joiner {joiner!r}, which can't be called. Remedy: give a function of "
            "left and right value, or of key, left and right value with with_key=True"
        )
    check_function("foreign_key", foreign_key, "key", "value")
    check_joiner(kind.method, joiner, with_key=with_key)


def _check_left(left: KTable[Any, Any], view: TableView, kind: JoinKind) -> None:
    """Refuse a left table whose rows are found by code that may write: another step would run it again."""
    if view.written_stores:
        names = ", ".join(map(repr, view.written_stores))
        raise TopologyError(
            f"{kind.method}() of the table at {left.node.name!r}, whose rows are found by asking the "
            f"transformer of transform_values() again, with its state stores {names}: the last step of the "
            "join runs apart from that. Remedy: transform_values(..., store=Store(...)), so that rows are "
            "found in a store"
        )


def _operator(name: str, make: Callable[[], Any], view: TableView | None = None) -> GraphNode:
    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_operator(name, make, parents, PLAIN if view is None else reading(PLAIN, view))
        if view is not None:
            connect(topology, name, view)

    return GraphNode(name, write)


def _described(name: str, *stores: str) -> GraphNode:
    """A node that descriptions show with stores, and that only hands its rows on."""

    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        hand_on(topology, name, parents, *stores)

    return GraphNode(name, write)


def _responder(
    names: _Names, right: TableView, serdes: ForeignKeySerdes
) -> Callable[[Topology, tuple[str, ...]], str]:
    """What adds the operator of the right side behind the nodes that are described."""
    name = f"{names.subscription_join}-responder"

    def add(topology: Topology, parents: tuple[str, ...]) -> str:
        spec = reading(OperatorSpec(ports=2, described=False, described_stores=()), right)
        make = partial(SubscriptionResponder, names.store, serdes=serdes)
        topology.add_operator(
            name, partial(make, right.as_sent()), parents, spec, make_uncached=partial(make, right)
        )
        topology.add_state_store(key_value(names.store, key=raw_bytes, value=raw_bytes), name)
        connect(topology, name, right)
        return name

    return add


def _through(
    graph: Graph,
    parent: GraphNode,
    topic: str,
    sink_name: str,
    source_name: str,
    other_parent: GraphNode | None = None,
    add_operator: Callable[[Topology, tuple[str, ...]], str] | None = None,
) -> GraphNode:
    """A repartition: a sink behind the parents, perhaps with an operator in front of it, and the source."""

    def write_sink(topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_internal_topic(topic, None)
        if add_operator is None:
            topology.add_sink_node(sink_name, topic, parents, raw_bytes, raw_bytes, None)
        else:
            behind = (add_operator(topology, parents),)
            topology.add_sink_node(sink_name, topic, behind, raw_bytes, raw_bytes, ToSubscribers())

    def write_source(topology: Topology, _parents: tuple[str, ...]) -> None:
        topology.add_repartition_source(source_name, topic, raw_bytes, raw_bytes, carries_changes=False)

    parents = (parent,) if other_parent is None else (parent, other_parent)
    sink = graph.add(GraphNode(sink_name, write_sink), *parents)
    return graph.add(GraphNode(source_name, write_source), sink)


def _stores(view: TableView) -> tuple[str, ...]:
    return (*view.stores, *view.shared_stores)
