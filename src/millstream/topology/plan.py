"""The plan: what a topology means to an engine. Pure data, made once from the finished topology.

Sub-topologies and task ids are Kafka's. A **level** is ours: repartitions happen inside an epoch, so a
sub-topology runs at a level, after all sub-topologies that it gets repartitioned rows from. One that feeds
itself runs in several steps (:mod:`millstream.topology.steps`): each is a sub-topology of the plan, with a
number of its own, and what leads from one to the other is planned here as if it were a repartition.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

from millstream.state.specs import StoreBuilder
from millstream.topology.chaining import chains_of
from millstream.topology.combiner import with_combiners
from millstream.topology.copartition import Copartition
from millstream.topology.edges import Edge, edges_of
from millstream.topology.execution_units import ExecutionUnit, units_of
from millstream.topology.graph import TopologyGraph
from millstream.topology.grouping import node_groups
from millstream.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode
from millstream.topology.operator_spec import OperatorSpec
from millstream.topology.partitions import check_explicit_counts, partition_counts
from millstream.topology.step_links import StepLinks, step_links
from millstream.topology.steps import Step, steps_of, undivided_steps


@dataclass(frozen=True)
class SubTopology:
    """Nodes that run together in one task per partition."""

    number: int
    level: int
    is_global: bool
    nodes: Mapping[str, Node]
    children: Mapping[str, tuple[str, ...]]
    stores: Mapping[str, StoreBuilder]
    units: tuple[ExecutionUnit, ...]
    ordered: bool
    """Rows carry order keys, because somewhere two edges have to be interleaved."""
    looked_up: frozenset[str]
    """Stores that some operators read as they were at each of their rows: see `processors.table_history`."""
    copied: Mapping[str, tuple[str, ...]]
    """Stores of which later steps have copies, and the topics by which these get what is written."""
    copies: Mapping[str, str]
    """By topic, the store that is a copy of an earlier step's."""

    @cached_property
    def sources(self) -> tuple[SourceNode, ...]:
        """The nodes that read topics."""
        return tuple(node for node in self.nodes.values() if isinstance(node, SourceNode))

    @cached_property
    def sinks(self) -> tuple[SinkNode, ...]:
        """The nodes that write to topics."""
        return tuple(node for node in self.nodes.values() if isinstance(node, SinkNode))

    @cached_property
    def connections(self) -> dict[str, tuple[str, ...]]:
        """Stores of each processor."""
        nodes = self.nodes.values()
        return {node.name: node.spec.stores for node in nodes if isinstance(node, ProcessorNode)}

    @cached_property
    def may_schedule(self) -> bool:
        """Whether an operator may wait for the wall clock: a processor of the user's, or a window's close."""
        return any(isinstance(node, ProcessorNode) and node.spec.may_schedule for node in self.nodes.values())

    @cached_property
    def processors(self) -> tuple[ProcessorNode, ...]:
        """The nodes with an operator."""
        return tuple(node for node in self.nodes.values() if isinstance(node, ProcessorNode))

    @cached_property
    def edges(self) -> Mapping[str, tuple[Edge, ...]]:
        """How rows get from each node to those behind it."""
        return edges_of(self.nodes, self.children)

    @cached_property
    def chains(self) -> Mapping[str, tuple[str, ...]]:
        """The nodes of each chain of operators that run as one, by its first node."""
        return chains_of(self.nodes, self.children, self.units)

    @cached_property
    def unit_of(self) -> Mapping[str, ExecutionUnit]:
        """The unit of each node that shares one with others."""
        return {name: unit for unit in self.units if len(unit) > 1 for name in unit}

    @cached_property
    def column_sources(self) -> frozenset[str]:
        """Sources with operators right behind them that work on columns."""
        return frozenset(
            source.name
            for source in self.sources
            if any(spec.columnar for spec in self.operators_behind(source.name))
        )

    def store_name(self, asked_for: str) -> str:
        """The store that an operator means by a name: a copy, where an earlier step writes the store."""
        return self._copy_names.get(asked_for, asked_for)

    @cached_property
    def _copy_names(self) -> dict[str, str]:
        return {spec.copy_of: name for name, spec in self.stores.items() if spec.copy_of is not None}

    def operators_behind(self, node: str) -> list[OperatorSpec]:
        """What the operators right behind a node are."""
        behind = [self.nodes[child] for child in self.children[node]]
        return [child.spec for child in behind if isinstance(child, ProcessorNode)]

    def source_of(self, topic: str) -> SourceNode | None:
        """The source that reads a topic, None if no one does."""
        for source in self.sources:
            if topic in source.topics or (source.pattern and source.pattern.fullmatch(topic)):
                return source
        return None

    def task_id(self, partition: int) -> str:
        """Kafka's name of the task of a partition. That of a global store is for all of them: ``2_0``."""
        return f"{self.number}_{0 if self.is_global else partition}"


@dataclass(frozen=True)
class Plan:
    """All sub-topologies of an application, and what connects them."""

    subtopologies: tuple[SubTopology, ...]
    """Those that have a task per partition, in the order of their numbers."""
    global_subtopologies: tuple[SubTopology, ...]
    """Each writes a global store. One task reads all partitions, and every host has a copy of the store."""
    repartition_topics: Mapping[str, int | None]
    """Topics that are shuffles inside an epoch, with their explicit number of partitions."""
    copartition_groups: tuple[Copartition, ...]
    """Topics that need the same number of partitions."""

    @cached_property
    def levels(self) -> tuple[tuple[SubTopology, ...], ...]:
        """Sub-topologies by level: all of a level may run at once, after all of the level before."""
        every = self.all_subtopologies
        depth = max((sub.level for sub in every), default=-1) + 1
        return tuple(tuple(sub for sub in every if sub.level == level) for level in range(depth))

    @cached_property
    def all_subtopologies(self) -> tuple[SubTopology, ...]:
        """Those of global stores first, then the others."""
        return (*self.global_subtopologies, *self.subtopologies)

    def fills_global_store(self, topic: str) -> bool:
        """Whether a global store reads a topic."""
        return any(sub.source_of(topic) is not None for sub in self.global_subtopologies)

    @cached_property
    def by_number(self) -> Mapping[int, SubTopology]:
        """All sub-topologies, by number."""
        return {sub.number: sub for sub in self.all_subtopologies}

    @cached_property
    def reads_what_it_writes(self) -> bool:
        """Whether a topic that is written is a source, too. It may be if rows say where they go."""
        sinks = (sink for sub in self.all_subtopologies for sink in sub.sinks)
        topics = {sink.topic for sink in sinks} - self.repartition_topics.keys()
        return any(
            topic is None or any(sub.source_of(topic) is not None for sub in self.all_subtopologies)
            for topic in topics
        )

    @cached_property
    def repartition_readers(self) -> Mapping[str, int]:
        """The number of the one sub-topology that reads each repartition."""
        return {
            topic: sub.number
            for topic in self.repartition_topics
            for sub in self.subtopologies
            if sub.source_of(topic) is not None
        }

    def changelog_topics(self, application_id: str) -> dict[str, str]:
        """The changelog topic of each store that has one."""
        return {
            name: f"{application_id}-{name}-changelog"
            for sub in self.all_subtopologies
            for name, store in sub.stores.items()
            if store.has_changelog
        }

    def partitions(
        self, external: Mapping[str, int], kept: Mapping[str, int] = MappingProxyType({})
    ) -> dict[str, int]:
        """Partition counts of all topics that are read, given those of the topics in the log.

        `kept` has those of repartitions that keep what they had.
        """
        return partition_counts(self, external, kept)

    def task_count(self, sub: SubTopology, counts: Mapping[str, int]) -> int:
        """How many tasks a sub-topology has: as many as its widest source topic has partitions.

        That of a global store has one, which reads them all.
        """
        if sub.is_global:
            return 1
        return max(
            (counts[topic] for topic in counts if sub.source_of(topic) is not None),
            default=0,
        )

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The plan as plain data: what decides whether old state fits a changed program."""
        return {
            "subtopologies": [_summary(sub) for sub in (*self.subtopologies, *self.global_subtopologies)],
            "repartition_topics": dict(self.repartition_topics),
        }

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the summary: equal if nothing that state depends on has changed."""
        text = json.dumps(self.summary, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def make_plan(graph: TopologyGraph) -> Plan:
    """Check the topology as a whole and derive its plan."""
    groups = node_groups(graph)
    return _plan(graph, groups, steps_of(graph, groups))


def make_undivided_plan(graph: TopologyGraph) -> Plan:
    """The plan for one record at a time, each to its end: no sub-topology needs to be cut into steps."""
    groups = node_groups(graph)
    return _plan(graph, groups, undivided_steps(graph, groups))


def _plan(graph: TopologyGraph, groups: list[list[str]], steps: Sequence[Step]) -> Plan:
    links = step_links(graph, steps, with_combiners(graph, groups))
    subs = tuple(_subtopology(graph, step, links) for step in steps)
    plan = Plan(
        subtopologies=tuple(sub for sub in subs if not sub.is_global),
        global_subtopologies=tuple(sub for sub in subs if sub.is_global),
        repartition_topics={**graph.internal_topics, **dict.fromkeys(links.topics)},
        copartition_groups=tuple(
            group.renamed(partial(_topics_of, graph)) for group in graph.copartition_groups
        ),
    )
    check_explicit_counts(graph, plan)
    return plan


def _subtopology(graph: TopologyGraph, step: Step, links: StepLinks) -> SubTopology:
    nodes = links.nodes[step.number]
    children: dict[str, list[str]] = {name: [] for name in nodes}
    for node in nodes.values():
        for parent in node.parents:
            children[parent].append(node.name)
    copies = links.copies_in(step.number)
    users = {
        store: here
        for store, used_by in graph.store_users.items()
        if (here := [node for node in used_by if node.name in nodes])
    }
    known = {**graph.stores, **graph.global_stores}
    # What is a copy does not change while it is read.
    readers = {
        store: used_by if store in copies else _readers_as_of(store, used_by)
        for store, used_by in users.items()
    }
    looked_up = frozenset(store for store, reading in readers.items() if reading and store not in copies)
    units = units_of(
        _with_readers(children, users, readers),
        [
            taking_turns
            for store, used_by in users.items()
            if len(taking_turns := [node.name for node in used_by if node not in readers[store]]) > 1
        ],
    )
    is_global = any(name in graph.global_sources for name in step.names)
    stores = {
        store: _as_used(known[store], graph.store_users[store], is_global=is_global)
        for store in users
        if store not in copies
    }
    return SubTopology(
        number=step.number,
        level=step.level,
        is_global=is_global,
        nodes=nodes,
        children={name: tuple(behind) for name, behind in children.items()},
        stores=stores | {copy.name: copy.builder(known[copy.store]) for copy in copies.values()},
        units=units,
        ordered=_needs_order(nodes.values(), units) or bool(looked_up),
        looked_up=looked_up,
        copied=links.copied_from(step.number),
        copies={copy.topic: copy.name for copy in copies.values()},
    )


def _readers_as_of(store: str, users: Sequence[ProcessorNode]) -> list[ProcessorNode]:
    """Who reads a store as of a row: only where all who write to it tell what each row has written."""
    readers = [node for node in users if store in node.spec.reads_as_of]
    others = [node for node in users if store not in node.spec.reads_as_of]
    hidden = any(node.spec.hides_writes or node.spec.sees_context for node in others)
    return [] if hidden else readers


def _with_readers(
    children: Mapping[str, Sequence[str]],
    users: Mapping[str, Sequence[ProcessorNode]],
    readers: Mapping[str, Sequence[ProcessorNode]],
) -> dict[str, list[str]]:
    """The nodes behind each node; who reads a store as of a row is behind those who write to it."""
    behind = {name: list(after) for name, after in children.items()}
    for store, reading in readers.items():
        for node in users[store]:
            if node not in reading:
                behind[node.name] += [reader.name for reader in reading]
    return behind


def _as_used(store: StoreBuilder, users: Sequence[ProcessorNode], *, is_global: bool) -> StoreBuilder:
    """A store that others may write to, besides its table, is not what its source topic says.

    A global one has a changelog, whatever it asks for: by it every host has the same.
    """
    if is_global:
        return replace(store, logging=True)
    writers = [node for node in users if node.spec.writes(store.name)]
    return replace(store, source_topic=None) if len(writers) > 1 else store


def _needs_order(nodes: Iterable[Node], units: Iterable[ExecutionUnit]) -> bool:
    sinks = [node for node in nodes if isinstance(node, SinkNode)]
    topics = [sink.topic for sink in sinks]
    return (
        any(len(node.parents) > 1 for node in nodes)
        or any(len(unit) > 1 for unit in units)
        or (len(sinks) > 1 and (None in topics or len(set(topics)) < len(topics)))
    )


def _topics_of(graph: TopologyGraph, sources: frozenset[str]) -> frozenset[str]:
    topics: set[str] = set()
    for name in sources:
        node = graph.nodes.get(name)
        if isinstance(node, SourceNode):
            topics.update(node.topics)
    return frozenset(topics)


def _summary(sub: SubTopology) -> dict[str, Any]:
    return {
        "number": sub.number,
        "nodes": [
            {
                "name": node.name,
                "kind": type(node).__name__,
                "parents": list(node.parents),
                "topics": _topics(node),
                "stores": list(node.spec.stores) if isinstance(node, ProcessorNode) else [],
            }
            for node in sub.nodes.values()
        ],
        "stores": [
            {
                "name": store.name,
                "kind": store.layout,
                "logging": store.logging,
                "source_topic": store.source_topic,
                **({} if store.copy_of is None else {"copy_of": store.copy_of}),
            }
            for store in sub.stores.values()
        ],
    }


def _topics(node: Node) -> list[str]:
    if isinstance(node, SourceNode):
        return list(node.topics) if node.pattern is None else [node.pattern.pattern]
    return [node.topic or "(chosen per record)"] if isinstance(node, SinkNode) else []
