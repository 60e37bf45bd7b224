"""`StreamsBuilder`: where a program of the DSL begins and ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from millstream.dsl.frame_source import check_frame, frame_source
from millstream.dsl.given import check_extractor, check_topics
from millstream.dsl.graph import Graph, GraphNode, Handles, StreamSourceNode
from millstream.dsl.grouped_table import KGroupedTable
from millstream.dsl.kstream import KStream
from millstream.dsl.ktable import GlobalKTable, KTable, write_table_source
from millstream.dsl.materialized import Materialized, StoreLike, as_store
from millstream.dsl.optimizations import chosen
from millstream.dsl.table_state import SourceState, TableSourceNode
from millstream.errors import TopologyError
from millstream.kafka_names import KafkaNames
from millstream.offset_reset import OffsetReset
from millstream.processors.api import Processor
from millstream.processors.table_source import StoredTableSource
from millstream.serdes import Serde
from millstream.state.specs import StoreBuilder
from millstream.topology.operator_spec import PLAIN
from millstream.topology.refusals import refuse, store_builder_refusal
from millstream.topology.topology import Topology
from millstream.type_variables import K, V


class StreamsBuilder(KafkaNames):
    """Builds a topology out of streams and tables.

    >>> from millstream import StreamsBuilder, serdes
    >>> builder = StreamsBuilder()
    >>> (
    ...     builder.stream("lines", value=serdes.string)
    ...     .flat_map_values(str.split)
    ...     .group_by(lambda _, word: word)
    ...     .count(store="counts")
    ...     .to_stream()
    ...     .to("word-counts", value=serdes.int64)
    ... )
    >>> topology = builder.build()
    """

    def __init__(self) -> None:
        self._graph = Graph(Handles(KStream, KGroupedTable))

    def __repr__(self) -> str:
        return f"<StreamsBuilder with {len(self._graph.nodes)} operators>"

    def stream(
        self,
        topics: str | Sequence[str] | re.Pattern[str],
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        timestamp_extractor: Callable[..., int] | None = None,
        offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Read a topic, several, or all that match a pattern, as a stream.

        `offset_reset` says where to begin if the application has never read it: "earliest", "latest", a time
        (milliseconds or a datetime) or a timedelta before now; else the application's own setting counts.

        >>> import re
        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().stream(re.compile("orders-.*")).node.name
        'KSTREAM-SOURCE-0000000000'
        """
        check_extractor(timestamp_extractor)
        check_topics(topics)
        pattern = topics if isinstance(topics, re.Pattern) else None
        names: tuple[str, ...] = ()
        if isinstance(topics, str):
            names = (topics,)
        elif not isinstance(topics, re.Pattern):
            names = tuple(dict.fromkeys(topics))
        source = self._graph.name_or_new(name, "KSTREAM-SOURCE-")

        def write(topology: Topology, _parents: tuple[str, ...]) -> None:
            topology.add_source(
                source,
                *((pattern,) if pattern is not None else names),
                key=key,
                value=value,
                timestamp_extractor=timestamp_extractor,
                offset_reset=offset_reset,
            )

        node = StreamSourceNode(source, write, topics=names, pattern=pattern, offset_reset=offset_reset)
        self._graph.add(node)
        return KStream(self._graph, node, key, value, frozenset({source}), False)

    def stream_from(
        self,
        frame: Any,
        *,
        key: Any = None,
        value: Any = None,
        timestamp: Any = None,
        topic: str | None = None,
        partitions: int | None = None,
        name: str | None = None,
    ) -> KStream[Any, Any]:
        """Read a streaming DataFrame of Spark as a stream: any source of Structured Streaming.

        While the application runs, a streaming query writes the frame to a topic of the log, every batch
        exactly once, and the stream reads that topic.

        key, value
            The name of a column, several names (a record of these), or an expression of Spark. Without a
            key records have none; without a value it is a record of all columns. Serdes follow from the
            types: records and lists are JSON.
        timestamp
            The column with the time of records (TIMESTAMP, or BIGINT of milliseconds); without one it is
            the time at which they came into the log.
        topic
            The topic that the frame is written to, of this application alone; by default it is called after
            the source.
        partitions
            How many the topic gets when it is made; by default as many as the application's own topics.

        >>> from millstream import StreamsBuilder
        >>> def program(spark):
        ...     readings = spark.readStream.schema("sensor STRING, celsius DOUBLE, at TIMESTAMP").json("in/")
        ...     builder = StreamsBuilder()
        ...     stream = builder.stream_from(readings, key="sensor", value="celsius", timestamp="at")
        ...     stream.group_by_key().max(store="hottest")
        ...     return builder.build()
        """
        check_frame(frame)
        source = self._graph.name_or_new(name, "KSTREAM-SOURCE-")
        found, key_serde, value_serde = frame_source(
            frame, topic or f"{source}-frame", key, value, timestamp, partitions
        )

        def write(topology: Topology, _parents: tuple[str, ...]) -> None:
            topology.add_source(source, found.topic, key=key_serde, value=value_serde)
            topology.graph.frames[found.topic] = found

        node = StreamSourceNode(source, write, topics=(found.topic,), pattern=None, offset_reset=None)
        self._graph.add(node)
        return KStream(self._graph, node, key_serde, value_serde, frozenset({source}), False)

    def table(
        self,
        topic: str,
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        store: StoreLike = None,
        timestamp_extractor: Callable[..., int] | None = None,
        offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Read a topic as a table: the last value of each key; None deletes.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().table("users", store="users").queryable_store_name
        'users'
        """
        check_extractor(timestamp_extractor)
        check_topics([topic])
        own = Materialized.of(self._graph, as_store(store, key, value), f"{topic}-")
        source = self._graph.suffixed_or_new(name, "-source", "KSTREAM-SOURCE-")
        table = self._graph.name_or_new(name, "KTABLE-SOURCE-")
        state = SourceState(own)
        spec = own.store

        def write(topology: Topology, _parents: tuple[str, ...]) -> None:
            topology.add_source(
                source,
                topic,
                key=spec.key,
                value=spec.value,
                timestamp_extractor=timestamp_extractor,
                offset_reset=offset_reset,
            )
            reused = topic if own.name in self._graph.topic_is_changelog else None
            write_table_source(topology, table, state, (source,), source_topic=reused)

        node = self._graph.add(
            TableSourceNode(table, write, state=state, timestamp_extractor=timestamp_extractor)
        )
        return KTable(self._graph, node, spec.key, spec.value, frozenset({source}), own.queryable_name, state)

    def global_table(
        self,
        topic: str,
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        store: StoreLike = None,
        timestamp_extractor: Callable[..., int] | None = None,
        name: str | None = None,
    ) -> GlobalKTable[K, V]:
        """Read a topic as a table of which every instance has a full copy.

        >>> from millstream import StreamsBuilder
        >>> StreamsBuilder().global_table("rates", store="rates").queryable_store_name
        'rates'
        """
        check_extractor(timestamp_extractor)
        check_topics([topic])
        own = Materialized.of(self._graph, as_store(store, key, value), f"{topic}-")
        if own.is_versioned:
            raise TopologyError(
                f"the global table of topic {topic!r} can't be versioned: what it is joined with sees its "
                "rows as they are now. Remedy: leave versioned= out, or read the topic with table()"
            )
        source = self._graph.suffixed_or_new(name, "-source", "KSTREAM-SOURCE-")
        table = self._graph.name_or_new(name, "KTABLE-SOURCE-")
        spec = own.store

        def write(topology: Topology, _parents: tuple[str, ...]) -> None:
            make = partial(StoredTableSource, own.name, caching=False, send_old=False)
            topology.add_global_operator(
                own.builder, source, topic, table, make, PLAIN, (spec.key, spec.value, timestamp_extractor)
            )

        self._graph.add(GraphNode(table, write))
        return GlobalKTable(own.name, self._graph, spec.key, spec.value)

    def add_state_store(self, store: StoreBuilder) -> StreamsBuilder:
        """Add a store for `process`, `process_values` or `transform_values` to name.

        >>> from millstream import StreamsBuilder, serdes, stores
        >>> builder = StreamsBuilder()
        >>> builder.add_state_store(
        ...     stores.key_value("seen", key=serdes.string, value=serdes.int64)
        ... ) is builder
        True
        """
        refuse(store_builder_refusal(store))

        def write(topology: Topology, _parents: tuple[str, ...]) -> None:
            topology.add_state_store(store)

        self._graph.add(GraphNode(store.name, write))
        return self

    def add_global_store(
        self,
        store: StoreBuilder,
        topic: str,
        supplier: Callable[[], Processor[Any, Any, Any, Any]],
        *,
        key: Any = None,
        value: Any = None,
        timestamp_extractor: Callable[..., int] | None = None,
        name: str | None = None,
    ) -> StreamsBuilder:
        """Keep a store on every instance that a processor of your own writes from a topic.

        >>> from millstream import Processor, StreamsBuilder, stores
        >>> builder = StreamsBuilder()
        >>> builder.add_global_store(stores.key_value("rates"), "rates", Processor) is builder
        True
        """
        check_extractor(timestamp_extractor)
        check_topics([topic])
        refuse(store_builder_refusal(store))
        source = self._graph.suffixed_or_new(name, "-source", "KSTREAM-SOURCE-")
        processor = self._graph.name_or_new(name, "KTABLE-SOURCE-")

        def write(topology: Topology, _parents: tuple[str, ...]) -> None:
            topology.add_global_store(
                store,
                source,
                topic,
                processor,
                supplier,
                key=key,
                value=value,
                timestamp_extractor=timestamp_extractor,
            )

        self._graph.add(GraphNode(store.name, write))
        return self

    def build(self, *, optimization: str | Collection[str] = "none") -> Topology:
        """The finished topology. Mistakes that need the whole picture are found here.

        `optimization` is Kafka's `topology.optimization`: "none", "all", or names of optimisations:
        "merge_repartition_topics", "reuse_ktable_source_topics", "single_store_self_join". They change names
        of operators, which stores there are and where state is restored from: decide before there is state.

        >>> from millstream import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> builder.stream("orders").to("copies")
        >>> print(builder.build().describe().splitlines()[0])
        Topologies:
        """
        topology = Topology()
        self._graph.write(topology, chosen(optimization))
        topology.plan()
        return topology
