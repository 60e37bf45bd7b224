"""Names of Kafka Streams that are called differently here: whoever asks for one is told ours.

`docs/kafka_streams_map.md` has them all; the tests compare. At run time only: checkers of types refuse names
that are unknown, these too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

__all__ = ["KafkaNames", "KafkaNamesOfClass", "missing", "missing_class"]

_MAP: Final = "docs/kafka_streams_map.md says what each name of Kafka Streams is here"
_AS_STREAM: Final = "to_stream() first: a table's updates are a stream"
_GROUPED: Final = "group_by_key() or group_by(...) first, as in stream.group_by_key().{}(...)"
_PLANNED: Final = "planned, and not there yet"

_MEMBERS: Final[dict[str, dict[str, str]]] = {
    "KStream": {
        "mapValues": "map_values(...), or map_values_with_key(...) for a function of key and value",
        "flatMapValues": "flat_map_values(...), or flat_map_values_with_key(...)",
        "through": "repartition(), or to(topic) and builder.stream(topic)",
        "branch": "split().branch(...).default_branch()",
        "transform": "process(...)",
        "flatTransform": "process(...)",
        "transformValues": "process_values(...)",
        "flatTransformValues": "process_values(...)",
        "suppress": "suppress() of a table: stream.group_by_key().count().suppress(...)",
        "queryableStoreName": "to_table(store=...) first: a stream has no store",
        **{
            name: _GROUPED.format(name)
            for name in ("count", "reduce", "aggregate", "sum", "min", "max", "mean", "cogroup")
        },
        "windowedBy": _GROUPED.format("windowed_by"),
        "windowed_by": _GROUPED.format("windowed_by"),
    },
    "KTable": {
        "mapValues": "map_values(...), or map_values_with_key(...) for a function of key and value",
        **dict.fromkeys(
            (
                "to",
                "foreach",
                "peek",
                "print",
                "process",
                "merge",
                "map",
                "flat_map",
                "flatMap",
                "select_key",
                "selectKey",
                "group_by_key",
                "groupByKey",
                "split",
            ),
            _AS_STREAM,
        ),
    },
    "KGroupedStream": {"windowedBy": "windowed_by(...)"},
    "Streams": {
        "cleanUp": "cleanup()",
        "clean_up": "cleanup()",
        "setStateListener": "on_state(listener)",
        "setUncaughtExceptionHandler": "on_uncaught(handler)",
        "setGlobalStateRestoreListener": "on_restore(listener)",
        "setStandbyUpdateListener": _PLANNED,
        "query": _PLANNED,
        "metadataForAllStreamsClients": _PLANNED,
        "streamsMetadataForStore": _PLANNED,
        "queryMetadataForKey": _PLANNED,
        "allLocalStorePartitionLags": _PLANNED,
        "stop": "close()",
    },
    "TopologyTestDriver": {
        "createInputTopic": "input_topic(...)",
        "createOutputTopic": "output_topic(...)",
        "advanceWallClockTime": "advance_wall_clock(...)",
        "getKeyValueStore": "store(...)",
        "getTimestampedKeyValueStore": "timestamped_store(...)",
        "getVersionedKeyValueStore": "versioned_store(...)",
        "getWindowStore": "window_store(...)",
        "getTimestampedWindowStore": "timestamped_window_store(...)",
        "getSessionStore": "session_store(...)",
        "getStateStore": "store(...)",
        "getAllStateStores": "store_names()",
    },
    "TimeWindows": {
        "ofSizeWithNoGrace": "TimeWindows(size)",
        "ofSizeAndGrace": "TimeWindows(size, grace=...)",
        "of": "TimeWindows(size)",
        "advanceBy": "TimeWindows(size, advance=...)",
        "size": "size_ms",
        "gracePeriodMs": "grace_ms",
        "windowsFor": "containing(timestamp)",
    },
    "SlidingWindows": {
        "ofTimeDifferenceWithNoGrace": "SlidingWindows(difference)",
        "ofTimeDifferenceAndGrace": "SlidingWindows(difference, grace=...)",
        "timeDifferenceMs": "difference_ms",
        "gracePeriodMs": "grace_ms",
    },
    "SessionWindows": {
        "ofInactivityGapWithNoGrace": "SessionWindows(gap)",
        "ofInactivityGapAndGrace": "SessionWindows(gap, grace=...)",
        "with": "SessionWindows(gap)",
        "gracePeriodMs": "grace_ms",
        "inactivityGap": "gap_ms",
    },
    "UnlimitedWindows": {
        "of": "UnlimitedWindows()",
        "startOn": "UnlimitedWindows(start=...)",
        "size": "no size: it never ends",
        "gracePeriodMs": "grace_ms",
        "windowsFor": "containing(timestamp)",
    },
    "JoinWindows": {
        "of": "JoinWindows(before)",
        "ofTimeDifferenceWithNoGrace": "JoinWindows(before)",
        "ofTimeDifferenceAndGrace": "JoinWindows(before, grace=...)",
        "before": "JoinWindows(before=...), before_ms",
        "after": "JoinWindows(after=...), after_ms",
        "grace": "JoinWindows(grace=...), grace_ms",
        "size": "size_ms",
        "gracePeriodMs": "grace_ms",
    },
    "EmitStrategy": {"type": "on_close"},
    "Suppressed": {"withName": "suppress(..., name=...)"},
}
_CLASSES: Final = {
    "KafkaStreams": "Streams",
    "Serdes": "serdes, as in serdes.string",
    "Stores": "stores, as in stores.key_value(...)",
    "Consumed": "keyword arguments of builder.stream(): key=, value=, timestamp_extractor=, offset_reset=",
    "Produced": "keyword arguments of stream.to(): key=, value=, partitioner=, name=",
    "Grouped": "keyword arguments of group_by() and group_by_key(): key=, value=, name=",
    "Repartitioned": "keyword arguments of repartition(): key=, value=, partitions=, partitioner=, name=",
    "Materialized": "store= of the operator: a name, or Store(name, key=, value=, caching=, logging=, ...)",
    "Named": "name= of the operator",
    "Branched": "keyword arguments of branch(): name=, function=, consumer=",
    "Printed": "keyword arguments of stream.print(): label=, file=, mapper=",
    "Joined": "keyword arguments of join(): key=, value=, grace=, name=",
    "StreamJoined": "keyword arguments of join(): key=, value=, other_value=, store=, name=",
    "TableJoined": _PLANNED,
    "KeyValue": "a tuple: (key, value)",
    "TopologyTestDriver": "millstream.testing.TopologyTestDriver",
    "TestInputTopic": "driver.input_topic(...) of millstream.testing.TopologyTestDriver",
    "TestOutputTopic": "driver.output_topic(...) of millstream.testing.TopologyTestDriver",
    "ContextualProcessor": "Processor: every processor keeps its context",
    "ContextualFixedKeyProcessor": "FixedKeyProcessor",
    "Transformer": "Processor, and stream.process(...)",
    "ValueTransformer": "FixedKeyProcessor, and stream.process_values(...)",
    "TimestampExtractor": "a function: see millstream.timestamps",
    "AutoOffsetReset": "offset_reset='earliest' or 'latest'",
    **dict.fromkeys(
        (
            "Predicate",
            "KeyValueMapper",
            "ValueMapper",
            "ValueMapperWithKey",
            "ForeachAction",
            "Initializer",
            "Aggregator",
            "Reducer",
            "Merger",
            "ValueJoiner",
            "ValueJoinerWithKey",
            "Punctuator",
            "ProcessorSupplier",
            "FixedKeyProcessorSupplier",
            "ValueTransformerWithKeySupplier",
        ),
        "a plain function",
    ),
}


def missing(owner: type, name: str) -> AttributeError:
    """The error to raise for a member that a class of ours does not have.

    >>> from millstream import KStream
    >>> str(missing(KStream, "groupByKey"))
    "'KStream' has no 'groupByKey'. It is called so in Kafka Streams. Remedy: group_by_key(...)"
    """
    plain = f"{owner.__name__!r} object has no attribute {name!r}"
    if name.startswith("_"):
        return AttributeError(plain)
    known = _known(owner, name)
    if known is not None:
        return AttributeError(f"{owner.__name__!r} has no {name!r}. Remedy: {known}")
    snake = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()
    if snake != name and hasattr(owner, snake):
        call = f"{snake}(...)" if callable(getattr(owner, snake)) else snake
        return AttributeError(
            f"{owner.__name__!r} has no {name!r}. It is called so in Kafka Streams. Remedy: {call}"
        )
    return AttributeError(f"{plain}. {_MAP}" if snake != name else plain)


def missing_class(name: str) -> str | None:
    """What a class of Kafka Streams that is not in the package is here.

    >>> missing_class("KafkaStreams")
    "'KafkaStreams' is called so in Kafka Streams. Remedy: Streams"
    """
    known = _CLASSES.get(name)
    return None if known is None else f"{name!r} is called so in Kafka Streams. Remedy: {known}"


def _known(owner: type, name: str) -> str | None:
    for base in owner.__mro__:
        found = _MEMBERS.get(base.__name__, {}).get(name)
        if found is not None:
            return found
    return None


class KafkaNames:
    """Mixed in: members that are asked for by Kafka's name are told ours.

    >>> from millstream import StreamsBuilder
    >>> StreamsBuilder().stream("lines").mapValues(len)
    Traceback (most recent call last):
    AttributeError: 'KStream' has no 'mapValues'. Remedy: map_values(...), or map_values_with_key(...) for ...
    """

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing(type(self), name)


class KafkaNamesOfClass(type):
    """The same for what is asked of the class itself.

    >>> from millstream import TimeWindows
    >>> TimeWindows.ofSizeWithNoGrace(5)
    Traceback (most recent call last):
    AttributeError: 'TimeWindows' has no 'ofSizeWithNoGrace'. Remedy: TimeWindows(size)
    """

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            raise missing(cls, name)
