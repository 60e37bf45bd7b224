"""With which serdes a program keeps what outlives it: as a manifest remembers it for the next one.

Stores, by name. Topics that do for a table's changelog. And the keys of repartitions in front of stores:
their bytes decide in which partition a key's state is. Values of a repartition do not outlive their epoch,
and keys of one without a store behind it are nobody's address. (A store's kind is in the plan's summary.)
For stores of windows also which windows they are.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from millstream.serdes import bytes as raw_bytes
from millstream.serdes.descriptor import SerdeDescriptor, describe
from millstream.state.specs import StoreBuilder
from millstream.topology.plan import Plan


class KeyValueTypes(msgspec.Struct, frozen=True, omit_defaults=True):
    """The serdes of a store or topic."""

    key: SerdeDescriptor
    value: SerdeDescriptor
    window_size_ms: int | None = None
    """Of a window store: its rows know only where a window starts. None where that is not known."""
    windows: str | None = None
    """See `StoreBuilder.windows`."""


class StoredTypes(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that a program keeps."""

    stores: Mapping[str, KeyValueTypes] = {}
    source_topics: Mapping[str, KeyValueTypes] = {}
    """Those that do for a changelog."""
    repartition_keys: Mapping[str, SerdeDescriptor] = {}
    """Of the repartitions that lead to stores."""


def stored_types(plan: Plan) -> StoredTypes:
    """Describe what a program keeps."""
    stores: dict[str, KeyValueTypes] = {}
    topics: dict[str, KeyValueTypes] = {}
    repartitions: dict[str, SerdeDescriptor] = {}
    for sub in plan.all_subtopologies:
        for name, spec in sub.stores.items():
            stores[name] = types_of(spec)
        followed = {spec.source_topic for spec in sub.stores.values()}
        for source in sub.sources:
            for topic in source.topics:
                if topic in plan.repartition_topics and sub.stores:
                    repartitions[topic] = describe(source.key)
                elif topic in followed:
                    topics[topic] = KeyValueTypes(_of_topic(source.key), _of_topic(source.value))
    return StoredTypes(stores, topics, repartitions)


def types_of(spec: StoreBuilder) -> KeyValueTypes:
    """Describe what a store keeps."""
    return KeyValueTypes(describe(spec.key), describe(spec.value), spec.window_size_ms, spec.windows)


def _of_topic(serde: object) -> SerdeDescriptor:
    """Without a serde a topic of the log stays bytes."""
    return describe(raw_bytes if serde is None else serde)
