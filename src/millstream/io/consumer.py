"""`TopicConsumer`: a topic read from outside of an application, as records, as batches or as a table.

A consumer remembers how far it came: who iterates again goes on from there. It commits nothing; where to
begin is said when it is made. Records come partition after partition, those of each in its order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa

from millstream.errors import ConfigError, DeserializationError
from millstream.io.positions import LogLike, Position, as_log, offset_at, partitions_of
from millstream.io.spark_frames import TopicRange
from millstream.io.tables import Tabular
from millstream.io.topic_table import TopicTable
from millstream.log import LogRecordBatch, TopicPartition
from millstream.record import Headers
from millstream.serdes import ColumnError, Serde, deserialize_column, of, serde_failure
from millstream.serdes import bytes as raw_bytes
from millstream.type_variables import K, V
from millstream.types import Offset

T = TypeVar("T")

_WAIT_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class ConsumerRecord(Generic[K, V]):
    """A record, and where it is.

    >>> from millstream import ConsumerRecord
    >>> ConsumerRecord("visits", 0, 41, "ann", 3, timestamp=5).offset
    41
    """

    topic: str
    partition: int
    offset: int
    key: K | None
    value: V | None
    """None is a tombstone."""
    timestamp: int
    headers: Headers = ()


class TopicConsumer(Tabular, Generic[K, V]):
    """Reads the records of one topic: see `millstream.Consumer`."""

    def __init__(
        self,
        log: LogLike,
        topic: str,
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        start: Position = "earliest",
        end: Position | None = None,
        partitions: Iterable[int] | None = None,
        follow: bool = False,
    ) -> None:
        self.topic = topic
        self._log = as_log(log)
        self.address = self._log.address
        self._key: Serde[Any] = raw_bytes if key is None else of(key)
        self._value: Serde[Any] = raw_bytes if value is None else of(value)
        self.table = TopicTable(topic, self._key, self._value)
        if follow and end is not None:
            raise ConfigError(
                f"Consumer of {topic!r}: follow=True never ends, and end={end!r} does. Remedy: leave one out"
            )
        self._follow = follow
        places = partitions_of(self._log, topic, partitions)
        self._positions = {place: offset_at(self._log, place, start, "start") for place in places}
        self._ends = (
            {} if end is None else {place: offset_at(self._log, place, end, "end") for place in places}
        )

    @property
    def positions(self) -> Mapping[int, int]:
        """By partition, the offset of the record that is read next."""
        return {place.partition: offset for place, offset in self._positions.items()}

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        for batch in self.log_batches():
            yield from self._records(batch)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Arrow batches with the columns of `to_arrow`, as the log has them: no object is made per record.

        All have one schema. Where the serde has no type of its own (`serdes.json` without a schema), it is
        that of the first batch.
        """
        types: tuple[pa.DataType | None, pa.DataType | None] = (None, None)
        for batch in self.log_batches():
            shown = self.table.of([batch], types)
            types = (shown.schema.field("key").type, shown.schema.field("value").type)
            self._passed(batch)
            yield shown

    def to_arrow(self) -> pa.Table:  # type: ignore[override] # a consumer's range is its own
        """The records from where the consumer stands, as a table.

        Its columns: `partition`, `offset`, `timestamp`, `key`, `value` and `headers`; keys with windows are
        shown as `start`, `end` and `key`.

        >>> import tempfile
        >>> from millstream import Consumer, Producer, Window, Windowed, serdes
        >>> keys = serdes.time_windowed(serdes.string, 60_000)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Producer(folder, "counts", key=keys, value=serdes.int64, partitions=1) as producer:
        ...         producer.send(Windowed("ann", Window(0, 60_000)), 3)
        ...     Consumer(folder, "counts", key=keys, value=serdes.int64).to_arrow().column_names
        ['partition', 'offset', 'timestamp', 'start', 'end', 'key', 'value', 'headers']
        """
        found: list[LogRecordBatch] = []
        for batches in self._streams():
            found += batches
        return pa.Table.from_batches([self.table.of(found)]) if found else self.table.empty()

    @property
    def ranges(self) -> list[TopicRange]:
        """What is left to read, as it is now."""
        return [
            TopicRange(place.partition, start, self._end(place)) for place, start in self._positions.items()
        ]

    def log_batches(self) -> Iterator[LogRecordBatch]:
        """The records as the log has them: bytes."""
        for streams in self.polls():
            for batches in streams:
                yield from batches

    def polls(self) -> Iterator[list[Iterator[LogRecordBatch]]]:
        """What is there now, as a stream of batches per partition; who follows gets what comes, and so on.

        How far a stream was taken is where the next poll goes on.
        """
        yield self._streams()
        while self._follow:
            self._log.wait(self._positions, _WAIT_MS)
            yield self._streams()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._log.address!r}, {self.topic!r}, at {dict(self.positions)})"

    def _streams(self) -> list[Iterator[LogRecordBatch]]:
        return [self._there(place, self._end(place)) for place in self._positions]

    def _there(self, place: TopicPartition, end: Offset) -> Iterator[LogRecordBatch]:
        for batch in self._log.read(place, self._positions[place], end):
            if len(batch):
                yield batch
            self._passed(batch)

    def _end(self, place: TopicPartition) -> Offset:
        latest = self._log.latest(place)
        position = self._positions[place]
        return max(position, min(latest, self._ends.get(place, latest))) if position <= latest else position

    def _passed(self, batch: LogRecordBatch) -> None:
        self._move(batch.topic_partition, batch.next_offset)

    def _move(self, place: TopicPartition, offset: Offset) -> None:
        self._positions[place] = offset

    def _records(self, batch: LogRecordBatch) -> Iterator[ConsumerRecord[K, V]]:
        place = batch.topic_partition
        try:
            keys = self._values(batch, self._key, "key", batch.keys())
            values = self._values(batch, self._value, "value", batch.values())
        except DeserializationError as error:
            good = batch.offsets().index(error.offset or 0)
            yield from self._records(batch.head(good)) if good else ()
            raise
        for offset, key, value, time, headers in zip(
            batch.offsets(), keys, values, batch.timestamps(), batch.headers(), strict=True
        ):
            self._move(place, Offset(offset + 1))
            yield ConsumerRecord(place.topic, place.partition, offset, key, value, time, headers)

    def _values(
        self, batch: LogRecordBatch, serde: Serde[T], part: str, data: list[bytes | None]
    ) -> list[T | None]:
        try:
            return deserialize_column(serde, data)
        except ColumnError as error:
            place = batch.topic_partition
            raise serde_failure(
                error.cause,
                serde=serde,
                data=data[error.index] or b"",
                part=part,
                topic=place.topic,
                partition=place.partition,
                offset=batch.offsets()[error.index],
            ) from error.cause
