"""Kafka's `reuse.ktable.source.topics`: a table's source topic does for the changelog of its store.

Every record that a table takes in is in its topic already: a changelog would hold it a second time. Without
one, the store is restored from the topic, up to the committed offset. Stricter than Kafka: only where the
topic's bytes prove what the store must hold (:mod:`millstream.state.changelog.source_changelog` has the
rules); any other table keeps its changelog. So does one whose store is given to a processor of the user's
own, which might write to it.
"""

from __future__ import annotations

from millstream.dsl.graph import Graph
from millstream.dsl.table_state import TableSourceNode
from millstream.serdes.canonical_serdes import readable_by
from millstream.timestamps import fail_on_invalid_timestamp

__all__ = ["reuse_ktable_source_topics"]


def reuse_ktable_source_topics(graph: Graph) -> None:
    """Choose the tables whose stores need no changelog."""
    graph.topic_is_changelog.update(
        node.state.materialized.name
        for node in graph.nodes
        if isinstance(node, TableSourceNode) and _does_for_a_changelog(node)
    )


def _does_for_a_changelog(node: TableSourceNode) -> bool:
    store = node.state.materialized.store
    return (
        node.state.stored
        and store.logging
        and store.versioned is None
        and node.timestamp_extractor in (None, fail_on_invalid_timestamp)
        and readable_by(store.key) is not None
        and readable_by(store.value) is not None
    )
