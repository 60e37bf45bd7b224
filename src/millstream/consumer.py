"""`Consumer`, as users know it: `millstream.io.consumer` and, on top of it, Spark."""

from __future__ import annotations

from typing import Any

from millstream.io.consumer import TopicConsumer
from millstream.io.spark_frames import topic_parts
from millstream.type_variables import K, V


class Consumer(TopicConsumer[K, V]):
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

    def to_spark(self, spark: Any) -> Any:
        """The same as a Spark frame: lazy, a task per partition of the topic.

        Its end is that of now. `serdes.json` without a schema is shown as text, and what has no column form
        at all as bytes.

        >>> from millstream import Consumer, serdes
        >>> def totals(spark):
        ...     orders = Consumer("data", "orders", value=serdes.json({"shop": str, "amount": int}))
        ...     return orders.to_spark(spark).groupBy("value.shop").sum("value.amount")
        """
        from millstream.engine.spark.datasource.parts import frame_of_parts  # noqa: PLC0415 - only here

        schema, parts = topic_parts(self.address, self.table, self.ranges)
        return frame_of_parts(spark, schema, parts)
