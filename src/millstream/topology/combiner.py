"""Which repartitions may carry one row per key instead of one per record.

An aggregation whose result depends on neither the order nor the grouping of its values (count; sum, min and
max of whole numbers; a reducer that is declared to be commutative) can be done half in front of its
repartition: each sender combines its rows of a key, and far fewer rows travel. Nobody must be able to tell.
So:

- the repartition has one writer and one reader, and only the aggregation is behind it;
- the table is cached: it sends one update per key and epoch anyway;
- nothing but the aggregation uses its store, and of those that work on columns it is a count (what an
  expression looks at is only known behind the repartition);
- no processor or topic extractor of the user's own is in the sub-topology behind: it could see offsets, and
  stream time that moves in larger steps.

What depends on the data (types, the order of timestamps) is decided per batch: see `runtime.precombined`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

from millstream.processors.aggregations.aggregation import Aggregation
from millstream.processors.aggregations.keyed import KeyedAggregation
from millstream.processors.operator import Operator
from millstream.processors.table_values import StoredTableTransformValues, TableTransformValues
from millstream.topology.levels import repartition_edges
from millstream.topology.nodes import Node, ProcessorNode, SinkNode
from millstream.topology.topology import Topology

__all__ = ["precombined"]


def precombined(topology: Topology, groups: list[list[str]]) -> dict[str, Node]:
    """The sinks and sources of repartitions that may carry combined rows, by name, told so."""
    group_of = {name: set(names) for names in groups for name in names}
    edges = repartition_edges(topology)
    writers = Counter(source.name for _, source in edges)
    changed: dict[str, Node] = {}
    for sink, source in edges:
        combine = _combine_behind(topology, source.name)
        if (
            combine is not None
            and writers[source.name] == 1
            and len(source.topics) == 1
            and sink.partitioner is None
            and not sink.carries_changes
            and not any(_is_users_own(topology.nodes[name]) for name in group_of[source.name])
        ):
            changed[sink.name] = replace(sink, combine=combine)
            changed[source.name] = replace(source, carries_combined=True)
    return changed


def _combine_behind(topology: Topology, source: str) -> Aggregation | None:
    """How the only node behind a source combines, if it does, and if it has its store to itself."""
    children = [node for node in topology.nodes.values() if source in node.parents]
    if len(children) != 1 or not isinstance(children[0], ProcessorNode) or len(children[0].parents) != 1:
        return None
    made = _class_of(children[0])
    if not (isinstance(made, type) and issubclass(made, KeyedAggregation)):
        return None
    operator = children[0].make()
    assert isinstance(operator, KeyedAggregation)  # see above
    sharing = [name for name, stores in topology.connections.items() if operator.store_name in stores]
    alone = sharing == [children[0].name]
    aggregation = operator.aggregation
    form = aggregation.columns if operator.columnar else None
    known_in_front = form is None or not form.looks_at_values
    may = aggregation.combiner is not None and operator.caching and alone and known_in_front
    return aggregation if may else None


def _is_users_own(node: Node) -> bool:
    """Whether code of the user's could see offsets or stream time: a processor, a topic extractor."""
    if not isinstance(node, ProcessorNode):
        return isinstance(node, SinkNode) and node.topic is None
    made = _class_of(node)
    if not (isinstance(made, type) and issubclass(made, Operator)):
        return True
    return issubclass(made, (TableTransformValues, StoredTableTransformValues))


def _class_of(node: ProcessorNode) -> Any:
    """What a node's maker calls in the end."""
    made: Any = node.make
    while isinstance(made, partial):
        made = made.func
    return made
