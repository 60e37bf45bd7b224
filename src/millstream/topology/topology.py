"""`Topology`: nodes, stores and how they hang together. The DSL writes one; the Processor API is one.

Its methods check what can be checked at once and name the user's lines that disagree. What needs the
whole picture (sub-topologies, cycles, partition counts) is found by `Topology.plan()`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, Self

from millstream.errors import TopologyError
from millstream.kafka_names import KafkaNames
from millstream.names import HOW_TO_NAME, is_topic_name
from millstream.offset_reset import OffsetReset, how_to_reset, is_offset_reset
from millstream.processors.api import FixedKeyProcessor, Processor
from millstream.processors.operator import Operator
from millstream.processors.user import UserFixedKeyProcessor, UserProcessor
from millstream.serdes.api import short_repr
from millstream.state.specs import StoreBuilder
from millstream.timestamps import HOW_TO_EXTRACT
from millstream.topology.blame import call_site
from millstream.topology.copartition import Copartition
from millstream.topology.describe import describe
from millstream.topology.graph import TopologyGraph
from millstream.topology.mermaid import mermaid
from millstream.topology.nodes import ProcessorNode, SinkNode, SourceNode
from millstream.topology.operator_spec import PROCESSOR, OperatorSpec
from millstream.topology.picture import picture
from millstream.topology.plan import Plan, make_plan, make_undivided_plan
from millstream.topology.refusals import (
    Refusal,
    function_refusal,
    partitioner_refusal,
    refuse,
    serde_refusal,
    store_builder_refusal,
    supplier_refusal,
    topic_refusal,
)

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


class Topology(KafkaNames):
    """A graph of sources, processors, sinks and state stores.

    >>> from millstream import Processor, Topology, serdes
    >>> class Echo(Processor[str, str, str, str]):
    ...     def process(self, record):
    ...         self.context.forward(record)
    >>> topology = (
    ...     Topology()
    ...     .add_source("in", "orders", key=serdes.string, value=serdes.string)
    ...     .add_processor("echo", Echo, "in")
    ...     .add_sink("out", "copies", "echo", key=serdes.string, value=serdes.string)
    ... )
    >>> print(topology.describe().splitlines()[2].strip())
    Source: in (topics: [orders])
    """

    def __init__(self) -> None:
        self.graph = TopologyGraph()
        self._store_sites: dict[str, str] = {}

    def add_source(
        self,
        name: str,
        *topics: str | re.Pattern[str],
        key: Any = None,
        value: Any = None,
        timestamp_extractor: Any = None,
        offset_reset: OffsetReset | None = None,
    ) -> Self:
        """Read one or more topics, or those that match one pattern.

        >>> from millstream import Topology
        >>> list(Topology().add_source("in", "a", "b").graph.nodes)
        ['in']
        """
        self._add_source(name, topics, key, value, timestamp_extractor, offset_reset)
        return self

    def add_processor(
        self,
        name: str,
        supplier: Callable[[], Processor[Any, Any, Any, Any] | FixedKeyProcessor[Any, Any, Any]],
        *parents: str,
    ) -> Self:
        """Add a processor of your own behind its parents. `supplier` makes a new instance for each task.

        >>> from millstream import Processor, Topology
        >>> _ = Topology().add_source("in", "a").add_processor("p", Processor, "in")
        """
        self.add_operator(name, operator_of(supplier), parents, PROCESSOR)
        return self

    def add_sink(
        self,
        name: str,
        topic: str | Callable[[Any, Any, Any], str],
        *parents: str,
        key: Any = None,
        value: Any = None,
        partitioner: Any = None,
    ) -> Self:
        """Write what the parents forward to a topic, or to the topic that an extractor names.

        >>> from millstream import Topology
        >>> _ = Topology().add_source("in", "a").add_sink("out", "b", "in")
        """
        self._refuse(f"sink {name!r}", partitioner_refusal(partitioner))
        self.add_sink_node(name, topic, parents, key, value, partitioner)
        return self

    def add_state_store(self, store: StoreBuilder, *processors: str) -> Self:
        """Add a store and connect it to processors.

        >>> from millstream import Topology, stores
        >>> _ = Topology().add_state_store(stores.key_value("seen"))
        """
        self._refuse("", store_builder_refusal(store))
        known = self.graph.stores.get(store.name)
        self._check_store_name(store.name)
        if store.name in self.graph.global_stores or (known is not None and known is not store):
            self._clash(
                f"a different state store with the name {store.name!r} is there already",
                [self._store_sites[store.name]],
                "give one of them another name; two processors that share a store use the same builder",
            )
        self.graph.stores[store.name] = store
        self._store_sites.setdefault(store.name, call_site())
        for processor in processors:
            self._connect(processor, store.name)
        return self

    def connect_processor_and_state_stores(self, processor: str, *stores: str) -> Self:
        """Give a processor access to stores that were added before.

        >>> from millstream import Processor, Topology, stores
        >>> topology = Topology().add_source("in", "a").add_processor("p", Processor, "in")
        >>> _ = topology.add_state_store(stores.key_value("seen"))
        >>> _ = topology.connect_processor_and_state_stores("p", "seen")
        """
        if not stores:
            self._clash(f"no state store is named to connect with {processor!r}", [], "name at least one")
        for store in stores:
            self._connect(processor, store)
        return self

    def add_global_store(
        self,
        store: StoreBuilder,
        source: str,
        topic: str,
        processor: str,
        supplier: Callable[[], Processor[Any, Any, Any, Any]],
        *,
        key: Any = None,
        value: Any = None,
        timestamp_extractor: Any = None,
    ) -> Self:
        """Keep a copy of a whole topic on every instance, written by a processor of your own.

        >>> from millstream import Processor, Topology, stores
        >>> _ = Topology().add_global_store(stores.key_value("rates"), "src", "rates", "update", Processor)
        """
        consumed = (key, value, timestamp_extractor)
        self.add_global_operator(store, source, topic, processor, operator_of(supplier), PROCESSOR, consumed)
        return self

    def describe(self) -> str:
        """The topology in Kafka Streams' text format, which many tools read.

        >>> from millstream import Topology
        >>> print(Topology().add_source("in", "a").describe().splitlines()[0])
        Topologies:
        """
        return describe(self.graph)

    def to_mermaid(self) -> str:
        """The topology as a Mermaid flow chart.

        >>> from millstream import Topology
        >>> print(Topology().add_source("in", "a").to_mermaid().splitlines()[0])
        flowchart TD
        """
        return mermaid(self.graph)

    def without_caching(self) -> Topology:
        """The same topology with no table cached, whatever its store says: every update goes on.

        >>> from millstream import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> _ = builder.stream("words").group_by_key().count(store="counts")
        >>> builder.build().without_caching().graph.stores["counts"].caching
        False
        """
        uncached = Topology()
        graph = self.graph
        uncached.graph = replace(
            graph,
            nodes={
                name: node.without_cache() if isinstance(node, ProcessorNode) else node
                for name, node in graph.nodes.items()
            },
            stores={name: replace(store, caching=False) for name, store in graph.stores.items()},
        )
        return uncached

    def __repr__(self) -> str:
        graph = self.graph
        topics = [
            topic for node in graph.nodes.values() if isinstance(node, SourceNode) for topic in node.topics
        ]
        read = ", ".join(sorted(set(topics) - graph.internal_topics.keys())) or "nothing"
        stores = ", ".join(sorted({**graph.stores, **graph.global_stores})) or "none"
        return f"<Topology of {len(graph.nodes)} nodes, reads {read}, stores {stores}>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """For notebooks: a picture, and the description for those who show none."""
        del include, exclude
        shown = {"text/plain": self.describe() if self.graph.nodes else repr(self)}
        return {**shown, "image/svg+xml": picture(self.graph)} if self.graph.nodes else shown

    def plan(self) -> Plan:
        """Sub-topologies, levels and stores, checked as a whole.

        >>> from millstream import Topology
        >>> len(Topology().add_source("in", "a").plan().subtopologies)
        1
        """
        return make_plan(self.graph)

    def undivided_plan(self) -> Plan:
        """The plan for who takes one record at a time, each to its end: sub-topologies are whole.

        >>> from millstream import Topology
        >>> len(Topology().add_source("in", "a").undivided_plan().subtopologies)
        1
        """
        return make_undivided_plan(self.graph)

    # What the DSL calls: operators instead of a user's processors, repartition topics.

    def add_operator(
        self,
        name: str,
        make: Callable[[], Operator],
        parents: Iterable[str],
        spec: OperatorSpec,
        make_uncached: Callable[[], Operator] | None = None,
    ) -> None:
        """Add a node that runs an operator, and declare what it is."""
        self._check_name(name)
        known = self._check_parents(name, tuple(parents))
        if spec.ports not in (1, len(known)):
            self._clash(
                f"operator {name!r} has {spec.ports} ports, but the parents {', '.join(known)}",
                [],
                "give it a parent of its own for each port",
            )
        self.graph.nodes[name] = ProcessorNode(name, known, make, spec, call_site(), make_uncached)

    def add_table_operator(
        self,
        name: str,
        make: Callable[..., Operator],
        parents: Iterable[str],
        spec: OperatorSpec,
        *,
        caching: bool,
    ) -> None:
        """Add a node whose operator writes a table, with a cache or without. `make` takes `caching`."""
        uncached = partial(make, caching=False) if caching else None
        self.add_operator(name, partial(make, caching=caching), parents, spec, uncached)

    def add_repartition_source(
        self, name: str, topic: str, key: Any, value: Any, *, carries_changes: bool
    ) -> None:
        """Read a repartition topic."""
        self._add_source(name, (topic,), key, value, None, None, carries_changes=carries_changes)

    def add_sink_node(
        self,
        name: str,
        topic: str | Callable[[Any, Any, Any], str],
        parents: Iterable[str],
        key: Any,
        value: Any,
        partitioner: Any,
        *,
        carries_changes: bool = False,
    ) -> None:
        """Write to a topic."""
        self._check_name(name)
        known = self._check_parents(name, tuple(parents))
        if isinstance(topic, str) and not is_topic_name(topic):
            self._clash(
                f"sink {name!r} writes to {topic!r}, which can't be the name of a topic", [], HOW_TO_NAME
            )
        if not isinstance(topic, str) and not callable(topic):
            self._clash(
                f"sink {name!r} writes to {topic!r}", [], "give a topic's name, or a function that does"
            )
        if not isinstance(topic, str):
            refusal = function_refusal("to()", topic, "key", "value", "context")
            self._refuse(f"sink {name!r}", refusal)
        self._check_serdes(f"sink {name!r}", key, value)
        static = topic if isinstance(topic, str) else None
        extractor = None if isinstance(topic, str) else topic
        self.graph.nodes[name] = SinkNode(
            name, known, static, extractor, key, value, partitioner, call_site(), carries_changes
        )

    def add_internal_topic(self, topic: str, partitions: int | None) -> None:
        """Declare a repartition topic: part of the epoch, not of the log."""
        self.graph.internal_topics[topic] = partitions

    def add_global_operator(
        self,
        store: StoreBuilder,
        source: str,
        topic: str,
        processor: str,
        make: Callable[[], Operator],
        spec: OperatorSpec,
        consumed: tuple[Any, Any, Any],
    ) -> None:
        """Add a global store with its source and its processor."""
        if source == processor:
            self._clash(
                f"source and processor of a global store are both called {source!r}", [], "rename one"
            )
        self._refuse("", store_builder_refusal(store))
        self._check_store_name(store.name)
        if store.name in self.graph.stores or store.name in self.graph.global_stores:
            self._clash(
                f"a state store with the name {store.name!r} is there already",
                [self._store_sites[store.name]],
                "give one of them another name",
            )
        self._add_source(source, (topic,), *consumed, None)
        self.add_operator(processor, make, (source,), spec.connected(store.name))
        self.graph.global_stores[store.name] = store
        self._store_sites[store.name] = call_site()
        self.graph.global_sources.add(source)

    def connect(self, processor: str, stores: Iterable[str]) -> None:
        """Give an operator its stores."""
        for store in stores:
            self._connect(processor, store)

    def add_row_serdes(self, node: str, key: Any, value: Any) -> None:
        """Say which serdes fit the rows of a node, if they have to go to a later step of the epoch."""
        self.graph.row_serdes[node] = (key, value)

    def copartition(self, sources: Copartition) -> None:
        """Demand the same number of partitions for the topics of these sources."""
        self.graph.copartition_groups.append(sources)

    def _add_source(
        self,
        name: str,
        topics: tuple[str | re.Pattern[str], ...],
        key: Any,
        value: Any,
        timestamp_extractor: Any,
        offset_reset: OffsetReset | None,
        *,
        carries_changes: bool = False,
    ) -> None:
        self._check_name(name)
        for topic in topics:
            if not isinstance(topic, re.Pattern):
                self._refuse(f"source {name!r}", topic_refusal(topic))
        self._check_serdes(f"source {name!r}", key, value)
        names = tuple(topic for topic in topics if isinstance(topic, str))
        patterns = [topic for topic in topics if not isinstance(topic, str)]
        if len(topics) == 0 or (patterns and len(topics) > 1):
            self._clash(
                f"source {name!r} names {len(topics)} topics and patterns",
                [],
                "a source reads one or more topics, or one pattern",
            )
        if offset_reset is not None and not is_offset_reset(offset_reset):
            self._clash(f"source {name!r} has offset_reset={offset_reset!r}", [], how_to_reset())
        if timestamp_extractor is not None and not callable(timestamp_extractor):
            what = (
                f"source {name!r} has the timestamp_extractor {timestamp_extractor!r}, which can't be called"
            )
            self._clash(what, [], HOW_TO_EXTRACT)
        if len(set(names)) < len(names):
            self._clash(f"source {name!r} names a topic twice", [], "name it once")
        pattern = patterns[0] if patterns else None
        self._check_topics(name, names, pattern)
        self.graph.nodes[name] = SourceNode(
            name, names, pattern, key, value, timestamp_extractor, offset_reset, call_site(), carries_changes
        )

    def _check_topics(self, name: str, topics: tuple[str, ...], pattern: re.Pattern[str] | None) -> None:
        for other in self.graph.nodes.values():
            if not isinstance(other, SourceNode):
                continue
            shared = [topic for topic in topics if _reads(other, topic)]
            if pattern is not None:
                shared += [topic for topic in other.topics if pattern.fullmatch(topic)]
            if shared:
                self._clash(
                    f"topic {shared[0]!r} is read by source {other.name!r} and by source {name!r}",
                    [other.site],
                    "read it once and use the stream (or table) twice",
                )

    def _check_name(self, name: str) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            self._clash(
                f"{name!r} can't be a name",
                [],
                "use letters, digits, '.', '_' and '-', at most 249 of them",
            )
        if name in self.graph.nodes:
            self._clash(
                f"two operators have the name {name!r}",
                [self.graph.nodes[name].site],
                "names are the identity of state: give each operator its own",
            )

    def _check_store_name(self, name: str) -> None:
        if not is_topic_name(name):
            self._clash(
                f"{name!r} can't be the name of a state store: it names a folder and a topic",
                [],
                HOW_TO_NAME,
            )

    def _check_parents(self, name: str, parents: tuple[str, ...]) -> tuple[str, ...]:
        if not parents:
            self._clash(f"node {name!r} has no parent", [], "name the nodes that it gets its records from")
        for parent in parents:
            if parent == name:
                self._clash(f"node {name!r} is its own parent", [], "a topology has no cycles")
            if parent not in self.graph.nodes:
                known = ", ".join(sorted(self.graph.nodes)) or "none"
                self._clash(
                    f"node {name!r} has the unknown parent {parent!r}",
                    [],
                    f"add the parent first; there are: {known}",
                )
            if isinstance(self.graph.nodes[parent], SinkNode):
                self._clash(
                    f"node {name!r} has the sink {parent!r} as a parent",
                    [self.graph.nodes[parent].site],
                    "a sink forwards nothing: name the sink's own parent",
                )
        return tuple(dict.fromkeys(parents))

    def _refuse(self, where: str, refusal: Refusal | None) -> None:
        if refusal is not None:
            self._clash(f"{where}: {refusal[0]}" if where else refusal[0], [], refusal[1])

    def _check_serdes(self, where: str, key: Any, value: Any) -> None:
        self._refuse(where, serde_refusal("key", key))
        self._refuse(where, serde_refusal("value", value))

    def _connect(self, processor: str, store: str) -> None:
        if not isinstance(store, str):
            name = getattr(store, "name", None)
            self._clash(
                f"processor {processor!r} is to be connected with {short_repr(store)}, which is no name",
                [],
                f"give the store's name{f', {name!r},' if name else ''} and add it with add_state_store",
            )
        if store in self.graph.global_stores:
            self._clash(
                f"store {store!r} is global and can't be connected with {processor!r}",
                [self._store_sites[store]],
                "every processor may read a global store: leave the connection out",
            )
        if store not in self.graph.stores:
            known = ", ".join(sorted(self.graph.stores)) or "none"
            self._clash(
                f"processor {processor!r} asks for the state store {store!r}, which is unknown",
                [self.graph.nodes[processor].site] if processor in self.graph.nodes else [],
                f"add it with add_state_store first; there are: {known}",
            )
        node = self.graph.nodes.get(processor)
        if not isinstance(node, ProcessorNode):
            known = ", ".join(sorted(node.name for node in self.graph.processors)) or "none"
            self._clash(
                f"store {store!r} can't be connected with {processor!r}, which is no processor here",
                [],
                f"processors are: {known}",
            )
        self.graph.nodes[processor] = replace(node, spec=node.spec.connected(store))

    def _clash(self, what: str, sites: list[str], remedy: str) -> NoReturn:
        raise TopologyError(_with_sites(what, [*sites, call_site()], remedy))


def operator_of(
    supplier: Callable[[], Processor[Any, Any, Any, Any] | FixedKeyProcessor[Any, Any, Any]],
) -> Callable[[], Operator]:
    """Makes the operator that runs what the supplier supplies."""
    if not callable(supplier):
        raise TopologyError(
            f"{supplier!r} is not a supplier: each task needs one of its own. Remedy: pass the class, "
            "or a function that makes a new instance, not an instance"
        )
    refuse(supplier_refusal(supplier))
    if supplier() is supplier():
        raise TopologyError(
            f"{supplier!r} supplies the same processor twice. Each task needs one of its own: return a new "
            "instance each time"
        )
    return partial(_run_user_processor, supplier)


def _run_user_processor(supplier: Callable[[], Any]) -> Operator:
    processor = supplier()
    fixed = isinstance(processor, FixedKeyProcessor)
    return UserFixedKeyProcessor(processor) if fixed else UserProcessor(processor)


def _reads(source: SourceNode, topic: str) -> bool:
    return topic in source.topics or (source.pattern is not None and bool(source.pattern.fullmatch(topic)))


def _with_sites(what: str, sites: list[str], remedy: str) -> str:
    lines = "".join(f"\n  at {site}" for site in dict.fromkeys(sites))
    return f"{what}.{lines}\n  Remedy: {remedy}."
