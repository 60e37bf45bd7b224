"""Which repartitions may carry one row per key instead of one per record.

An aggregation whose result depends on neither the order nor the grouping of its values (count; sum, min and
max of whole numbers; a reducer that is declared to be commutative) can be done half in front of its
repartition: each sender combines its rows of a key, and far fewer rows travel. Nobody must be able to tell.
So:

- the repartition has one writer and one reader, and only the aggregation is behind it;
- the aggregation declares how (`OperatorSpec.combine`): then its table is cached and sends one update per
  key and epoch anyway;
- nothing but the aggregation uses its store;
- no processor or topic extractor of the user's own is in the sub-topology behind: it could see offsets, and
  stream time that moves in larger steps.

What depends on the data (types, the order of timestamps) is decided per batch: see `task.combiner`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from millstream.processors.aggregations.aggregation import Aggregation
from millstream.topology.graph import TopologyGraph
from millstream.topology.nodes import Node, ProcessorNode, SinkNode


def with_combiners(graph: TopologyGraph, groups: list[list[str]]) -> dict[str, Node]:
    """The sinks and sources of repartitions that may carry combined rows, by name, told so."""
    group_of = {name: set(names) for names in groups for name in names}
    edges = graph.repartition_edges
    writers = Counter(source.name for _, source in edges)
    changed: dict[str, Node] = {}
    for sink, source in edges:
        combine = _combine_behind(graph, source.name)
        if (
            combine is not None
            and writers[source.name] == 1
            and len(source.topics) == 1
            and sink.partitioner is None
            and not sink.carries_changes
            and not any(_sees_context(graph.nodes[name]) for name in group_of[source.name])
        ):
            changed[sink.name] = replace(sink, combine=combine)
            changed[source.name] = replace(source, carries_partials=True)
    return changed


def _combine_behind(graph: TopologyGraph, source: str) -> Aggregation | None:
    """How the only node behind a source combines, if it does, and if it has its store to itself."""
    children = [node for node in graph.nodes.values() if source in node.parents]
    if len(children) != 1 or not isinstance(children[0], ProcessorNode) or len(children[0].parents) != 1:
        return None
    spec, users = children[0].spec, graph.store_users
    alone = all(len(users[store]) == 1 for store in spec.stores)
    return spec.combine if alone else None


def _sees_context(node: Node) -> bool:
    """Whether code of the user's could see offsets or stream time: a processor, a topic extractor."""
    if isinstance(node, ProcessorNode):
        return node.spec.sees_context
    return isinstance(node, SinkNode) and node.topic is None
