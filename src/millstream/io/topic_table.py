"""Records of a topic as a table: which columns it has, and how batches of the log become one.

====================== ========================================================================
partition, offset      where the record is
timestamp              its time
start, end             the window of its key, if keys have windows
key, value             as their serdes read them
headers                its headers
====================== ========================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.io.arrow_columns import TIMESTAMP, Place, arrow_type, decode, has_windows
from millstream.log import LogRecordBatch
from millstream.log.blocks import HEADERS_TYPE
from millstream.serdes import Serde


@dataclass(frozen=True, slots=True)
class TopicTable:
    """How the records of a topic are shown."""

    topic: str
    key: Serde[Any]
    value: Serde[Any]

    def of(
        self, batches: Sequence[LogRecordBatch], types: Sequence[pa.DataType | None] = (None, None)
    ) -> pa.RecordBatch:
        """Batches as one; `types` are those of key and value, where the serdes do not know them."""
        rows = pa.Table.from_batches([batch.records for batch in batches]).combine_chunks()
        keys, values, times, headers = (_whole(column) for column in rows.columns)
        place = self._place(batches)
        shown = {
            "partition": pa.array(
                [number for batch in batches for number in [batch.topic_partition.partition] * len(batch)],
                pa.int32(),
            ),
            "offset": pa.array([offset for batch in batches for offset in batch.offsets()], pa.int64()),
            "timestamp": times.cast(TIMESTAMP),
            **key_columns(self.key, decode(self.key, keys, place, part="key", kind=types[0])),
            "value": decode(self.value, values, place, kind=types[1]),
            "headers": headers,
        }
        return pa.RecordBatch.from_pydict(shown)

    def empty(self) -> pa.Table:
        """The table of no records. Columns whose type nobody knows are of bytes."""
        keys = pa.array([], arrow_type(self.key) or pa.binary())
        shown = {
            "partition": pa.array([], pa.int32()),
            "offset": pa.array([], pa.int64()),
            "timestamp": pa.array([], TIMESTAMP),
            **key_columns(self.key, keys),
            "value": pa.array([], arrow_type(self.value) or pa.binary()),
            "headers": pa.array([], HEADERS_TYPE),
        }
        return pa.table(shown)

    def _place(self, batches: Sequence[LogRecordBatch]) -> Place:
        def place(row: int) -> dict[str, Any]:
            left = row
            for batch in batches:
                if left < len(batch):
                    partition, offset = batch.topic_partition.partition, batch.offsets()[left]
                    return {"topic": self.topic, "partition": partition, "offset": offset}
                left -= len(batch)
            return {"topic": self.topic}

        return place


def key_columns(serde: Serde[Any], keys: pa.Array) -> dict[str, pa.Array]:
    """The columns that show keys: one, or window and key."""
    if not has_windows(serde) or not pa.types.is_struct(keys.type):
        return {"key": keys}
    key, start, end = keys.flatten()
    return {"start": start.cast(TIMESTAMP), "end": end.cast(TIMESTAMP), "key": key}


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else whole.chunk(0)
