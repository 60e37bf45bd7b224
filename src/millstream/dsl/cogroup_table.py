"""How the table of a cogroup is built, with windows or without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from millstream.dsl.functions import Initializer
from millstream.dsl.given import check_functions
from millstream.dsl.graph import GraphNode, first_given
from millstream.dsl.ktable import KTable
from millstream.dsl.materialized import Materialized
from millstream.dsl.table_state import AggregateState, MergedState, TableState
from millstream.processors.aggregations.aggregate import aggregate_by
from millstream.processors.operator import Operator
from millstream.processors.stateless import PassThrough
from millstream.topology.copartition import Copartition
from millstream.topology.operator_spec import CHAINED, PLAIN, OperatorSpec
from millstream.topology.topology import Topology
from millstream.windows import Windows

if TYPE_CHECKING:
    from millstream.dsl.cogrouped import CogroupedKStream

__all__ = ["AGGREGATE", "cogroup_table", "cogrouped_keys"]

AGGREGATE = "COGROUPKSTREAM-AGGREGATE-"
MERGE = "COGROUPKSTREAM-MERGE-"


def cogroup_table(
    cogrouped: CogroupedKStream[Any, Any],
    own: Materialized,
    name: str | None,
    initializer: Initializer[Any],
    make: Callable[..., Operator],
    *,
    key: Any,
    windows: Windows | None = None,
) -> KTable[Any, Any]:
    """Build the table: an aggregation per stream, all of one store, and what brings them together.

    `make` makes the operator of one of them; `key` is the serde of the table's keys.
    """
    check_functions("aggregate", initializer=initializer)
    graph = cogrouped.graph
    places = [grouped.repartitioned(own.name) for grouped, _ in cogrouped.groups]
    sources = frozenset[str]().union(*(names for _, names in places))
    graph.copartitions.append(Copartition(sources))
    states: list[TableState] = []
    nodes: list[GraphNode] = []
    for number, ((_, aggregator), (parent, _)) in enumerate(zip(cogrouped.groups, places, strict=True)):
        state = AggregateState(own)
        node_name = graph.suffixed_or_new(name, f"-cogroup-agg-{number}", AGGREGATE)
        planned = partial(make, own.name, aggregation=aggregate_by(initializer, aggregator))
        node = GraphNode(
            node_name,
            _writer(node_name, planned, own, state, replace(PLAIN, hides_writes=windows is not None)),
            windows=windows,
        )
        nodes.append(graph.add(node, parent))
        states.append(state)
    merge = graph.suffixed_or_new(name, "-cogroup-merge", MERGE)

    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_operator(merge, PassThrough, parents, CHAINED)

    node = graph.add(GraphNode(merge, write), *nodes)
    merged = MergedState(states)
    return KTable(graph, node, key, own.store.value, sources, own.queryable_name, merged)


def cogrouped_keys(cogrouped: CogroupedKStream[Any, Any]) -> Any:
    """The serde of the keys that the streams were grouped by, where one of them has it."""
    return first_given(*(grouped.key_serde for grouped, _ in cogrouped.groups))


def _writer(
    name: str, planned: Callable[..., Operator], own: Materialized, state: TableState, spec: OperatorSpec
) -> Callable[[Topology, tuple[str, ...]], None]:
    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        make = partial(planned, send_old=state.sends_old)
        topology.add_table_operator(name, make, parents, spec, caching=own.caching)
        topology.add_state_store(own.builder, name)

    return write
