"""Records of a table's source topic as rows of its store: a topic that does for the store's changelog.

A record without a key leaves no trace in the table, one without a value deletes, the last one of a key wins;
the stored bytes are the record's timestamp and its value. So the store can be had from the topic alone, if

- the bytes of keys and values are what the store would write: serdes of one form only
  (:mod:`millstream.serdes.canonical_serdes`);
- a record that the serde can't read is left out here, as it was when it was processed;
- timestamps are the records' own;
- nobody but the table writes to the store.

Kafka Streams takes the bytes as they are, also those that it could not read (KAFKA-8037), and from the start
of the topic, wherever the table began. Here a store keeps its changelog where the above can't be shown.
"""

from __future__ import annotations

import struct
from functools import partial

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from millstream.log.api import TopicPartition
from millstream.serdes.canonical_serdes import Readable, readable_by
from millstream.state.changelog.follow import StorePosition, Target
from millstream.state.changelog.rows import changelog_topic
from millstream.state.specs import StoreBuilder
from millstream.types import Offset, Partition


class StoreStart(msgspec.Struct, frozen=True):
    """How a store began that has its source topic for a changelog."""

    first: Offset
    """The first offset that was read for it: what is before has never been in the table."""
    compacted_to: Offset
    """How far the topic was compacted by then: what was missing had been missing all along."""


def target_of(
    spec: StoreBuilder,
    application_id: str,
    partition: Partition,
    position: StorePosition,
    origin: StoreStart | None,
) -> Target:
    """Where a logged store has to get to, and in which topic."""
    if spec.source_topic is None:
        changelog = TopicPartition(changelog_topic(application_id, spec.name), partition)
        return Target(spec.name, changelog, position, spec.is_segmented)
    key, value = readable_by(spec.key), readable_by(spec.value)
    assert key is not None  # else the topic would not do for a changelog
    assert value is not None
    begin = StoreStart(Offset(0), Offset(0)) if origin is None else origin
    return Target(
        spec.name,
        TopicPartition(spec.source_topic, partition),
        position,
        first=begin.first,
        compacted_before=begin.compacted_to,
        writes_of=partial(table_writes, key, value),
    )


def table_writes(key: Readable, value: Readable, rows: pa.RecordBatch) -> pa.RecordBatch:
    """What records write to a timestamped key-value store, in the order of the log."""
    usable = pc.and_(pc.fill_null(key(rows.column(0)), False), pc.fill_null(value(rows.column(1)), True))
    if not pc.all(usable).as_py():
        rows = rows.filter(usable)
    stored = pc.binary_join_element_wise(_as_bytes(rows.column(2)), rows.column(1), b"")
    return pa.record_batch([rows.column(0), stored], names=["key", "value"])


def _as_bytes(timestamps: pa.Array) -> pa.Array:
    """Each as eight bytes, big endian."""
    packed = pa.py_buffer(struct.pack(f">{len(timestamps)}q", *timestamps.to_pylist()))
    return pa.Array.from_buffers(pa.binary(8), len(timestamps), [None, packed]).cast(pa.binary())
