"""How many partitions a repartition has.

An explicit number wins, then the one that the repartition had when state was first kept behind it: keys must
stay where they are, though the topics that feed it may get more partitions. Otherwise a repartition is as
wide as the widest topic that feeds it; then all topics of a co-partition group take the same number: the
explicit one or that of the topics in the log (which must agree), else the largest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from millstream.errors import TopologyError
from millstream.topology.copartition import Copartition
from millstream.topology.graph import TopologyGraph
from millstream.topology.nodes import SinkNode

if TYPE_CHECKING:
    from millstream.topology.plan import Plan, SubTopology


def check_explicit_counts(graph: TopologyGraph, plan: Plan) -> None:
    """Refuse a co-partition group with two different explicit numbers."""
    for group in plan.copartition_groups:
        explicit = {topic: count for topic in group.names if (count := plan.repartition_topics.get(topic))}
        if len(set(explicit.values())) > 1:
            sites = [
                f"\n  {node.topic}: {explicit[node.topic]} partitions, at {node.site}"
                for node in graph.nodes.values()
                if isinstance(node, SinkNode) and node.topic in explicit
            ]
            raise TopologyError(
                "streams that are grouped or joined together ask for different numbers of partitions."
                f"{''.join(sites)}\n  Remedy: give them the same number, or none.{_sides(group, explicit)}"
            )


def partition_counts(plan: Plan, external: Mapping[str, int], kept: Mapping[str, int]) -> dict[str, int]:
    """Partition counts of all topics that the plan reads."""
    counts = dict(external)
    for level in plan.levels:
        for sub in level:
            _check_inputs(sub, counts)
            for sink in sub.sinks:
                if sink.topic is not None and sink.topic in plan.repartition_topics:
                    fixed = plan.repartition_topics[sink.topic] or kept.get(sink.topic)
                    counts[sink.topic] = fixed or max(
                        counts.get(sink.topic, 0), plan.task_count(sub, counts), 1
                    )
        for group in plan.copartition_groups:
            _equalise(plan, group, counts, external)
    return counts


def _check_inputs(sub: SubTopology, counts: Mapping[str, int]) -> None:
    for source in sub.sources:
        missing = [topic for topic in source.topics if topic not in counts]
        if missing:
            raise TopologyError(
                f"source {source.name!r} reads the topic {missing[0]!r}, which does not exist.\n"
                f"  at {source.site}\n"
                f"  Remedy: create it first; topics are: {', '.join(sorted(counts)) or 'none'}."
            )


def _equalise(plan: Plan, group: Copartition, counts: dict[str, int], external: Mapping[str, int]) -> None:
    fixed = {
        topic: count
        for topic in group.names
        if (count := external.get(topic) or plan.repartition_topics.get(topic)) is not None
    }
    if len(set(fixed.values())) > 1:
        raise TopologyError(
            "topics that are grouped or joined together differ in their number of partitions: "
            + ", ".join(f"{topic} has {count}" for topic, count in sorted(fixed.items()))
            + ".\n  Remedy: repartition() one of the streams to the number of the others."
            + _sides(group, fixed)
            + _call(group, fixed)
        )
    known = [counts[topic] for topic in group.names if topic in counts]
    wanted = next(iter(fixed.values()), None) or max(known, default=None)
    if wanted is not None:
        counts.update((topic, wanted) for topic in group.names if topic in plan.repartition_topics)


def _sides(group: Copartition, counts: Mapping[str, int]) -> str:
    """Both sides of a join with what is known of their numbers."""
    if not group.sides:
        return ""
    sides = " with ".join(
        f"the {side.kind} of "
        + ", ".join(f"{topic} ({counts.get(topic, 'any number')})" for topic in sorted(side.names))
        for side in group.sides
    )
    return f"\n  {group.asked_by} joins {sides}: records of one key would be in different tasks."


def _call(group: Copartition, counts: Mapping[str, int]) -> str:
    """The call that makes both sides of a join equal. A stream goes where its table is."""
    if not group.sides:
        return ""
    of_table = [] if group.table is None else [counts[one] for one in group.table.names if one in counts]
    wanted = max(of_table or counts.values())
    other = next(
        side for side in group.sides if {counts.get(topic, wanted) for topic in side.names} != {wanted}
    )
    move = f"repartition(partitions={wanted})"
    call = move if other.kind == "stream" else f"to_stream().{move}.to_table()"
    return f" It runs with .{call} on the {other.kind} of {', '.join(sorted(other.names))}."
