"""A producer of bytes: records one by one, or columns of them, in; whole batches out.

Records gather per topic until :meth:`Producer.flush` (or until a bound is reached); then each goes to the
partition of its key, one durable append per partition. What :meth:`flush` has returned for is durable; a
crash before that may lose the records gathered, and never half of a partition's batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Self

import polars as pl
import pyarrow as pa

from millstream.clock import now_ms
from millstream.errors import InvalidTimestampError
from millstream.log.api import Log, TopicPartition
from millstream.log.blocks import record_batch
from millstream.log.partitioner import partitions_for_keys
from millstream.record import MAX_TIME, Headers
from millstream.types import Partition

MAX_RECORDS: Final = 100_000
MAX_BYTES: Final = 16 << 20
"""How much is gathered at most."""


class Producer:
    """Appends to one topic. Not for several threads at once; make one for each.

    Leaving a ``with`` block flushes, unless it is left by an exception.
    """

    def __init__(
        self,
        log: Log,
        topic: str,
        *,
        max_records: int = MAX_RECORDS,
        max_bytes: int = MAX_BYTES,
        now_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._log = log
        self._topic = topic
        self._partitions = log.config(topic).partitions
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._now_ms = now_ms
        self._sticky = 0
        self._clear()

    def _clear(self) -> None:
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._timestamps: list[int] = []
        self._headers: list[Headers] = []
        self._chosen: list[int | None] = []
        self._bytes = 0
        self._has_headers = self._has_chosen = False

    def __len__(self) -> int:
        return len(self._timestamps)

    def send(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        timestamp: int | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Take a record; without ``timestamp`` it is from now, without ``partition`` its key decides."""
        if timestamp is not None and timestamp < 0:
            raise InvalidTimestampError(
                f"A record for topic {self._topic!r} has the timestamp {timestamp}, which is negative. "
                "Nothing of it was taken. Likely cause: a library that says so for a record without a time. "
                "Remedy: leave the timestamp out, and the record is from now; or give its time in "
                "milliseconds since 1970."
            )
        if timestamp is not None and timestamp > MAX_TIME:
            raise InvalidTimestampError(
                f"A record for topic {self._topic!r} has the timestamp {timestamp}, which does not fit: the "
                f"largest is {MAX_TIME} (2**63 - 1). Nothing of it was taken. Likely cause: a unit other "
                "than milliseconds since 1970. Remedy: give milliseconds."
            )
        self._keys.append(key)
        self._values.append(value)
        self._timestamps.append(self._now_ms() if timestamp is None else timestamp)
        self._headers.append(headers)
        self._chosen.append(partition)
        self._has_headers |= bool(headers)
        self._has_chosen |= partition is not None
        self._bytes += len(key or b"") + len(value or b"")
        if len(self) >= self._max_records or self._bytes >= self._max_bytes:
            self.flush()

    def flush(self) -> int:
        """Append what was gathered; return how many records that were."""
        count = len(self)
        if not count:
            return 0
        batch = record_batch(
            self._keys, self._values, self._timestamps, self._headers if self._has_headers else None
        )
        chosen = pl.Series("chosen", self._chosen, dtype=pl.UInt32) if self._has_chosen else None
        self._clear()
        self._append(batch, chosen)
        return count

    def send_batch(self, records: pa.RecordBatch, partitions: pl.Series | None = None) -> int:
        """Append records that stand in the log's columns, behind those gathered; return how many.

        ``partitions`` chooses where each goes; where it is null, the key decides.
        """
        self.flush()
        for start in range(0, records.num_rows, self._max_records):
            chosen = None if partitions is None else partitions.slice(start, self._max_records)
            self._append(records.slice(start, self._max_records), chosen)
        return int(records.num_rows)

    def _append(self, batch: pa.RecordBatch, chosen: pl.Series | None) -> None:
        self._partitions = self._log.config(self._topic).partitions  # it may have been given more
        parts = by_partition(batch, self._partitions, self._sticky, chosen)
        self._log.append_all({TopicPartition(self._topic, number): part for number, part in parts})
        self._sticky = (self._sticky + 1) % self._partitions

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.flush()


def by_partition(
    batch: pa.RecordBatch, partitions: int, null_keys_to: int, chosen: pl.Series | None = None
) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """The records of each partition, in their order: by ``chosen``, else by key.

    >>> batch = record_batch([b"21", None, b"21"], [b"a", b"b", b"c"], [1, 2, 3])
    >>> [(number, part.column(1).to_pylist()) for number, part in by_partition(batch, 4, null_keys_to=3)]
    [(0, [b'a', b'c']), (3, [b'b'])]
    """
    where = partitions_for_keys(batch.column(0), partitions, null_keys_to=null_keys_to)
    if chosen is not None:
        where = chosen.fill_null(where)
    for number in sorted(where.unique()):
        part = batch if partitions == 1 else batch.filter((where == number).to_arrow())
        yield Partition(number), part
