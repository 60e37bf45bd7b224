"""`Consumer`: a topic read from outside of an application, as records, as batches or as a table.

A consumer remembers how far it came: who iterates again goes on from there. It commits nothing; where to
begin is said when it is made. Records come partition after partition, those of each in its order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import pyarrow as pa

from millstream.errors import ConfigError, DeserializationError
from millstream.io.positions import LogLike, Position, as_log, offset_at, partitions_of
from millstream.io.spark_frames import TopicRange, topic_frame
from millstream.io.tables import Tabular
from millstream.io.topic_table import TopicTable
from millstream.log import LogRecordBatch, TopicPartition
from millstream.record import Headers
from millstream.serdes import ColumnError, Serde, deserialize_column, of, serde_failure
from millstream.serdes import bytes as raw_bytes
from millstream.types import Offset

if TYPE_CHECKING:
    # Without a serde keys and values are bytes. Python 3.11 has no defaults of type variables at run time.
    from typing_extensions import TypeVar as TypeVarWithDefault

    K = TypeVarWithDefault("K", default=bytes)
    V = TypeVarWithDefault("V", default=bytes)
else:
    K = TypeVar("K")
    V = TypeVar("V")
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


class Consumer(Tabular, Generic[K, V]):
    """Reads the records of one topic.

    log
        The folder of the log, its address ("file:<folder>"), or an open log.
    key, value
        Serdes; without one, bytes.
    start
        Where to begin: "earliest", "latest", a datetime with its zone (the first record that is not older),
        an offset, or a mapping from partitions to offsets.
    end
        Where to end, exclusive: the same. None: at the end as it is when that is asked for.
    partitions
        Only these.
    follow
        True: iterating waits for new records, for ever.

    >>> import tempfile
    >>> from millstream import Consumer, Producer, serdes
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Producer(folder.name, "visits", key=serdes.string, value=serdes.int64, partitions=1) as visits:
    ...     visits.send("ann", 3, timestamp=5)
    ...     visits.send("bob", 4, timestamp=6)
    >>> consumer = Consumer(folder.name, "visits", key=serdes.string, value=serdes.int64)
    >>> next(iter(consumer))
    ConsumerRecord(topic='visits', partition=0, offset=0, key='ann', value=3, timestamp=5, headers=())
    >>> consumer.positions
    {0: 1}
    >>> [(record.key, record.value) for record in consumer]  # the rest
    [('bob', 4)]
    >>> [batch.num_rows for batch in Consumer(folder.name, "visits").batches()]
    [2]
    >>> [batch.keys() for batch in Consumer(folder.name, "visits").log_batches()]
    [[b'ann', b'bob']]
    >>> table = Consumer(folder.name, "visits", key=serdes.string, value=serdes.int64, start=1).to_polars()
    >>> table.select("offset", "key", "value").rows()
    [(1, 'bob', 4)]
    >>> folder.cleanup()
    """

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
        self._key: Serde[Any] = raw_bytes if key is None else of(key)
        self._value: Serde[Any] = raw_bytes if value is None else of(value)
        self._table = TopicTable(topic, self._key, self._value)
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
            shown = self._table.of([batch], types)
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
        found = []
        for batch in self._caught_up():
            found.append(batch)
            self._passed(batch)
        return pa.Table.from_batches([self._table.of(found)]) if found else self._table.empty()

    def to_spark(self, spark: Any) -> Any:
        """The same as a Spark frame: lazy, a task per partition of the topic.

        Its end is that of now. `serdes.json` without a schema is shown as text, and what has no column form
        at all as bytes.

        >>> from millstream import Consumer, serdes
        >>> def totals(spark):
        ...     orders = Consumer("data", "orders", value=serdes.json({"shop": str, "amount": int}))
        ...     return orders.to_spark(spark).groupBy("value.shop").sum("value.amount")
        """
        ranges = [
            TopicRange(place.partition, start, self._end(place)) for place, start in self._positions.items()
        ]
        return topic_frame(spark, self._log.address, self._table, ranges)

    def log_batches(self) -> Iterator[LogRecordBatch]:
        """The records as the log has them: bytes."""
        yield from self._caught_up()
        while self._follow:
            self._log.wait(self._positions, _WAIT_MS)
            yield from self._caught_up()

    def __repr__(self) -> str:
        return f"Consumer({self._log.address!r}, {self.topic!r}, at {dict(self.positions)})"

    def _caught_up(self) -> Iterator[LogRecordBatch]:
        for place, position in self._positions.items():
            for batch in self._log.read(place, position, self._end(place)):
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
