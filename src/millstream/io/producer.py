"""`Producer`: values in, records in a topic out.

It is `millstream.log.producer` with serdes in front: records gather until `flush` (or until there are many)
and are durable when it has returned; each goes to the partition of its key, as Kafka's clients do it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, Self

import pyarrow as pa

from millstream.clock import now_ms
from millstream.io.arrow_columns import encode
from millstream.io.positions import LogLike, as_log, time_ms
from millstream.io.tables_in import (
    Columns,
    RecordColumns,
    Table,
    batches_of,
    csv_batches,
    parquet_batches,
)
from millstream.log import Producer as BytesProducer
from millstream.log import TopicConfig
from millstream.log.blocks import record_batch
from millstream.log.errors import NoSuchLogError, TopicExistsError, UnknownTopicError
from millstream.log.producer import MAX_BYTES, MAX_RECORDS
from millstream.record import Headers
from millstream.serdes import Serde, bind, of, serde_failure
from millstream.serdes import bytes as raw_bytes
from millstream.type_variables import K, V


class Producer(Generic[K, V]):
    """Writes records to one topic.

    log
        The folder of the log, its address ("file:<folder>"), or an open log.
    key, value
        Serdes; without one, bytes.
    partitions
        Create the topic with so many partitions if it is not there. Without it, a missing topic is an error.
    max_records, max_bytes
        How much is gathered before it is written without being asked to.

    Records are durable when `flush` has returned, or a `with` block has been left; one that is left by an
    exception writes nothing of what was gathered. Not for several threads at once: make one for each.

    >>> import tempfile
    >>> from millstream import Consumer, Producer, serdes
    >>> folder = tempfile.TemporaryDirectory()
    >>> log = folder.name + "/log"
    >>> with Producer(log, "visits", key=serdes.string, value=serdes.int64, partitions=2) as visits:
    ...     visits.send("ann", 3, timestamp=5)
    ...     visits.send("bob", 4, timestamp=6, headers=(("trace", b"7"),))
    ...     len(visits), visits.flush(), len(visits)
    (2, 2, 0)
    >>> [record.value for record in Consumer(log, "visits", value=serdes.int64)]
    [3, 4]
    >>> folder.cleanup()
    """

    def __init__(
        self,
        log: LogLike,
        topic: str,
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        partitions: int | None = None,
        max_records: int = MAX_RECORDS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.topic = topic
        self._log = as_log(log)
        self._key: Serde[Any] = raw_bytes if key is None else bind(of(key), topic)
        self._value: Serde[Any] = raw_bytes if value is None else bind(of(value), topic)
        if partitions is not None:
            self._create(partitions)
        self._records = BytesProducer(self._log, topic, max_records=max_records, max_bytes=max_bytes)

    def send(
        self,
        key: K | None,
        value: V | None,
        *,
        timestamp: int | datetime | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Take a record; without `timestamp` it is from now, without `partition` its key decides.

        A value of None is a tombstone: it deletes the key where the topic is read as a table.
        """
        self._records.send(
            self._bytes(self._key, key, "key"),
            self._bytes(self._value, value, "value"),
            timestamp=None if timestamp is None else time_ms(timestamp, "the timestamp of a record"),
            headers=headers,
            partition=partition,
        )

    def send_table(
        self, table: Table, *, key: Columns = None, value: Columns = None, timestamp: str | None = None
    ) -> int:
        """Write the rows of an Arrow table, a Polars or a pandas frame; return how many.

        key, value
            Which column is what, or which columns make a record of it. By default the columns `key` and
            `value`; without these, no key, and a record of all columns as value (with a serde that has a
            schema: of its fields).
        timestamp
            The column of times (or of milliseconds); by default `timestamp`, if there is one, else now.

        What `Consumer.to_arrow` gives can be sent as it is; columns `partition` and `offset` are ignored.
        Written and durable when it returns, a batch of 100,000 rows after the other.

        >>> import tempfile
        >>> import polars as pl
        >>> from millstream import Consumer, Producer, serdes
        >>> orders = pl.DataFrame({"shop": ["north", "south"], "amount": [3, 4]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     producer = Producer(
        ...         folder + "/log", "orders", key=serdes.string, value=serdes.json, partitions=1
        ...     )
        ...     producer.send_table(orders, key="shop")
        ...     records = Consumer(folder + "/log", "orders", key=serdes.string, value=serdes.json)
        ...     [(record.key, record.value) for record in records]
        2
        [('north', {'amount': 3, 'shop': 'north'}), ('south', {'amount': 4, 'shop': 'south'})]
        """
        return self._send_batches(batches_of(table), RecordColumns(key, value, timestamp))

    def send_csv(
        self,
        path: str | Path,
        *,
        key: Columns = None,
        value: Columns = None,
        timestamp: str | None = None,
        **options: Any,
    ) -> int:
        r"""Write the rows of a CSV file, whose first line has the names of columns; return how many.

        Columns as in `send_table`; `options` are those of `pyarrow.csv.open_csv`.

        >>> import tempfile
        >>> from pathlib import Path
        >>> from millstream import Producer, serdes
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "orders.csv").write_text("shop,amount\nnorth,3\n")
        ...     producer = Producer(folder + "/log", "orders", value=serdes.json, partitions=1)
        ...     producer.send_csv(folder + "/orders.csv")
        1
        """
        return self._send_batches(csv_batches(path, **options), RecordColumns(key, value, timestamp))

    def send_parquet(
        self, path: str | Path, *, key: Columns = None, value: Columns = None, timestamp: str | None = None
    ) -> int:
        """Write the rows of a Parquet file; return how many. Columns as in `send_table`.

        >>> import tempfile
        >>> import polars as pl
        >>> from millstream import Producer, serdes
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pl.DataFrame({"shop": ["north"], "amount": [3]}).write_parquet(folder + "/orders.parquet")
        ...     producer = Producer(
        ...         folder + "/log", "orders", key=serdes.string, value=serdes.int64, partitions=1
        ...     )
        ...     producer.send_parquet(folder + "/orders.parquet", key="shop", value="amount")
        1
        """
        return self._send_batches(parquet_batches(path), RecordColumns(key, value, timestamp))

    def flush(self) -> int:
        """Write what was gathered; return how many records that were. They are durable now."""
        return self._records.flush()

    def __len__(self) -> int:
        """How many records are gathered and not written yet."""
        return len(self._records)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.flush()

    def __repr__(self) -> str:
        return f"Producer({self._log.address!r}, {self.topic!r}, {len(self)} records gathered)"

    def _send_batches(self, batches: Iterable[pa.RecordBatch], columns: RecordColumns) -> int:
        return sum(self._records.send_batch(self._encoded(batch, columns)) for batch in batches)

    def _encoded(self, batch: pa.RecordBatch, columns: RecordColumns) -> pa.RecordBatch:
        return encoded_batch(batch, columns, self._key, self._value, self.topic, now_ms())

    def _bytes(self, serde: Serde[Any], value: Any, part: str) -> bytes | None:
        if value is None:
            return None
        try:
            return serde.serialize(value)
        except Exception as error:
            raise serde_failure(error, serde=serde, value=value, part=part, topic=self.topic) from error

    def _create(self, partitions: int) -> None:
        try:
            self._log.config(self.topic)
        except (NoSuchLogError, UnknownTopicError):
            try:
                self._log.create_topic(self.topic, TopicConfig(partitions=partitions))
            except TopicExistsError:
                return  # another process was faster


def encoded_batch(
    batch: pa.RecordBatch,
    columns: RecordColumns,
    key: Serde[Any],
    value: Serde[Any],
    topic: str,
    now_ms: int,
) -> pa.RecordBatch:
    """Rows of a table as records of a topic, in the log's columns."""

    def encoded(serde: Serde[Any], column: pa.Array, part: str) -> pa.Array:
        return encode(serde, column, lambda _: {"topic": topic}, part=part)

    keys = columns.keys(batch, key)
    return record_batch(
        pa.nulls(batch.num_rows, pa.binary()) if keys is None else encoded(key, keys, "key"),
        encoded(value, columns.values(batch, value), "value"),
        columns.timestamps(batch, now_ms),
        columns.headers(batch),
    )
