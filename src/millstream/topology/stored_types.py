"""With which serdes a program keeps what outlives it: as a manifest remembers it for the next one.

Stores, by name. Topics that do for a table's changelog. And the keys of repartitions in front of stores:
their bytes decide in which partition a key's state is. Values of a repartition do not outlive their epoch,
and keys of one without a store behind it are nobody's address. (A store's kind is in the plan's summary.)
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from millstream.serdes import bytes as raw_bytes
from millstream.serdes.descriptor import SerdeDescriptor, describe
from millstream.topology.plan import Plan


class KeyValueTypes(msgspec.Struct, frozen=True, omit_defaults=True):
    """The serdes of a store or topic."""

    key: SerdeDescriptor
    value: SerdeDescriptor


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
    for sub in plan.subtopologies:
        for name, spec in sub.stores.items():
            stores[name] = KeyValueTypes(describe(spec.key), describe(spec.value))
        followed = {spec.source_topic for spec in sub.stores.values()}
        for source in sub.sources:
            for topic in source.topics:
                if topic in plan.repartition_topics and sub.stores:
                    repartitions[topic] = describe(source.key)
                elif topic in followed:
                    topics[topic] = KeyValueTypes(_of_topic(source.key), _of_topic(source.value))
    return StoredTypes(stores, topics, repartitions)


def _of_topic(serde: object) -> SerdeDescriptor:
    """Without a serde a topic of the log stays bytes."""
    return describe(raw_bytes if serde is None else serde)
