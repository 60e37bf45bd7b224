"""What a task sends to topics: rows of its sinks, serialized and in depth-first order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import merge as merge_sorted
from typing import Any, Protocol, runtime_checkable

from millstream.errors import ProductionError
from millstream.log.partitioner import partition_for_key, partitions_for_keys
from millstream.processors.batch import Batch, OrderKey
from millstream.processors.columns.column import Column, are_few
from millstream.record import Headers
from millstream.serdes import ColumnError, Serde, SessionWindowedSerde, TimeWindowedSerde, serde_failure
from millstream.serdes import serialize_column as serialize
from millstream.task.change_codec import encode_change
from millstream.task.column_codec import encoded
from millstream.task.combiner import combined_rows, mark_single
from millstream.task.records import OutputBatch
from millstream.task.serde_book import SerdeBook
from millstream.topology.nodes import SinkNode


@runtime_checkable
class BatchPartitioner(Protocol):
    """Chooses partitions for a whole batch: what operators of our own use."""

    def partitions_of(self, batch: Batch) -> Sequence[int | None]:
        """The partition of each row; None where the key decides."""


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a topic extractor is told about a record besides key and value."""

    topic: str | None
    partition: int | None
    offset: int | None
    timestamp: int
    headers: Headers


@dataclass(frozen=True, slots=True)
class _Rows:
    """Serialized rows of one sink for one topic."""

    batch: Batch
    keys: Column
    values: Column
    partitions: Sequence[int | None] | None


class Outputs:
    """Collects rows by topic; a pass over the topology ends with `end_pass`, which puts them in order."""

    def __init__(self) -> None:
        self._open: dict[str, list[_Rows]] = {}
        self._done: dict[str, list[OutputBatch]] = {}

    def add(self, topic: str, rows: _Rows) -> None:
        """Some rows of one sink."""
        self._open.setdefault(topic, []).append(rows)

    def end_pass(self) -> None:
        """Interleave what several sinks wrote to one topic."""
        for topic, parts in self._open.items():
            self._done.setdefault(topic, []).append(_interleaved(topic, parts))
        self._open = {}

    def forget(self) -> None:
        """Drop everything since the last `take`."""
        self._open = {}
        self._done = {}

    def take(self) -> list[OutputBatch]:
        """All outputs since the last call."""
        done, self._done = self._done, {}
        return [batch for batches in done.values() for batch in batches]


class Sink:
    """Serializes the rows that reach one sink node."""

    def __init__(
        self,
        node: SinkNode,
        book: SerdeBook,
        outputs: Outputs,
        failed: Callable[[Batch, int, Exception], None],
        count: Callable[[str, int], None],
        context_of: Callable[[Batch, int], SinkContext],
        partitions_of: Callable[[str], int],
        *,
        combines: bool = True,
        is_internal: Callable[[str], bool] = lambda _topic: False,
        task_partition: int = 0,
    ) -> None:
        self._node = node
        self._book = book
        self._outputs = outputs
        self._failed = failed
        self._count = count
        self._context_of = context_of
        self._partitions_of = partitions_of
        self._combines = combines
        self._is_internal = is_internal
        self._task_partition = task_partition

    def write(self, batch: Batch) -> None:
        """Take the rows in."""
        if self._node.to_later_step and batch.latest is not None:  # nobody who joins tables takes the others
            batch = batch.take([row for row, is_latest in enumerate(batch.latest) if is_latest])
        if self._node.topic is not None:
            self._write_to(self._node.topic, batch)
            return
        by_topic: dict[str, list[int]] = {}
        for row in range(len(batch)):
            try:
                by_topic.setdefault(self._extract(batch, row), []).append(row)
            except Exception as error:  # noqa: BLE001 - a user's function may raise anything
                self._failed(batch, row, error)
        for topic, rows in by_topic.items():
            self._write_to(topic, batch.take(rows))

    def _extract(self, batch: Batch, row: int) -> str:
        assert self._node.extractor is not None  # a sink has a topic or an extractor
        topic = self._node.extractor(batch.keys[row], batch.values[row], self._context_of(batch, row))
        if not isinstance(topic, str) or not topic:
            message = f"the topic extractor of sink {self._node.name!r} answered {topic!r}, which is no topic"
            raise ProductionError(message)
        return topic

    def _write_to(self, topic: str, batch: Batch) -> None:
        key_serde = self._book.bound(topic, "key", self._node.key)
        value_serde = self._book.bound(topic, "value", self._node.value)
        try:
            rows = self._rows(topic, key_serde, value_serde, batch)
        except _BadRowError:
            batch = self._without_bad_rows(topic, key_serde, value_serde, batch)
            rows = self._rows(topic, key_serde, value_serde, batch)
        if len(batch):
            self._outputs.add(topic, rows)

    def _rows(self, topic: str, key_serde: Serde[Any], value_serde: Serde[Any], batch: Batch) -> _Rows:
        combine = self._node.combine if self._combines else None
        if combine is not None and len(batch) > 1:
            combined = combined_rows(batch, key_serde, value_serde, combine)
            if combined is not None:
                last, marked = combined
                return _Rows(last, self._column(topic, "key", key_serde, last.keys), marked, None)
            self._count("partials-fell-back", len(batch))
        keys = self._column(topic, "key", key_serde, batch.keys)
        values = self._values(topic, value_serde, batch)
        if combine is not None:
            values = mark_single(values)
        if self._node.to_later_step:
            return _Rows(batch, keys, values, [self._task_partition] * len(batch))
        if self._node.partitioner is None:
            return _Rows(batch, keys, values, self._partitions_of_windows(topic, key_serde, keys))
        if isinstance(self._node.partitioner, BatchPartitioner):
            return _Rows(batch, keys, values, self._node.partitioner.partitions_of(batch))
        return _Rows(batch, keys, values, self._partitions(topic, self._node.partitioner, batch))

    def _without_bad_rows(
        self, topic: str, key_serde: Serde[Any], value_serde: Serde[Any], batch: Batch
    ) -> Batch:
        """Go through the rows one by one: there may be several that can't be written."""
        good: list[int] = []
        for row in range(len(batch)):
            try:
                self._rows(topic, key_serde, value_serde, batch.take((row,)))
                good.append(row)
            except _BadRowError as bad:
                self._failed(batch, row, bad.error)
        return batch.take(good)

    def _values(self, topic: str, serde: Serde[Any], batch: Batch) -> Column:
        news = self._column(topic, "value", serde, batch.values)
        if not self._node.carries_changes:
            return news
        olds = self._column(topic, "value", serde, batch.olds or Column([None] * len(batch)))
        pairs = zip(news, olds, strict=True)
        return Column(
            [None if new is None and old is None else encode_change(new, old) for new, old in pairs]
        )

    def _column(self, topic: str, part: Any, serde: Serde[Any], column: Column) -> Column:
        if column.in_arrow:
            whole = encoded(serde, column)
            if whole is not None:
                return whole
            self._count("columns-fell-back", len(column))
        try:
            return Column(serialize(serde, column.rows()))
        except ColumnError as bad:
            value = column[bad.index]
            error = serde_failure(bad.cause, serde=serde, value=value, part=part, topic=topic)
            error.__cause__ = bad.cause
            raise _BadRowError(bad.index, error) from bad.cause

    def _partitions_of_windows(self, topic: str, serde: Serde[Any], keys: Column) -> list[int | None] | None:
        """All windows of a key go where the key itself would go, as in Kafka, but not in a repartition."""
        if not isinstance(serde, TimeWindowedSerde | SessionWindowedSerde) or self._is_internal(topic):
            return None
        count = self._partitions_of(topic)
        if count == 1:
            return None
        plain = [None if key is None else key[: -serde.window_bytes] for key in keys]
        if are_few(len(plain)):  # a column's hash takes milliseconds, however short it is
            return [None if key is None else partition_for_key(key, count) for key in plain]
        chosen = partitions_for_keys(plain, count, null_keys_to=count).to_list()
        return [None if partition == count else partition for partition in chosen]

    def _partitions(self, topic: str, partitioner: Any, batch: Batch) -> list[int | None]:
        count = self._partitions_of(topic)
        chosen: list[int | None] = []
        for row in range(len(batch)):
            try:
                partition = partitioner(topic, batch.keys[row], batch.values[row], count)
                chosen.append(self._checked(topic, partition, count))
            except Exception as error:
                raise _BadRowError(row, error) from error
        return chosen

    def _checked(self, topic: str, partition: int | None, count: int) -> int | None:
        if partition is None or 0 <= partition < count:
            return partition
        message = (
            f"the partitioner of sink {self._node.name!r} chose partition {partition} of topic {topic!r}, "
            f"which has {count}"
        )
        raise ProductionError(message)


class _BadRowError(Exception):
    """A row that can't be written."""

    def __init__(self, row: int, error: Exception) -> None:
        super().__init__(row)
        self.row = row
        self.error = error


def _interleaved(topic: str, parts: list[_Rows]) -> OutputBatch:
    if len(parts) == 1:
        part = parts[0]
        return OutputBatch(
            topic, part.keys, part.values, part.batch.timestamps, part.batch.headers, part.partitions
        )
    assert all(part.batch.order is not None for part in parts), f"several sinks of {topic!r} and no order"
    runs = [
        [(order, number, row) for row, order in enumerate(part.batch.order or ())]
        for number, part in enumerate(parts)
    ]
    places = [(number, row) for _, number, row in merge_sorted(*runs)]
    headers = [parts[number].batch.headers_of(row) for number, row in places]
    partitions = [
        None if (chosen := parts[number].partitions) is None else chosen[row] for number, row in places
    ]
    return OutputBatch(
        topic=topic,
        keys=Column([parts[number].keys[row] for number, row in places]),
        values=Column([parts[number].values[row] for number, row in places]),
        timestamps=Column([parts[number].batch.timestamps[row] for number, row in places]),
        headers=headers if any(headers) else None,
        partitions=None if all(partition is None for partition in partitions) else partitions,
    )


def order_of(batch: Batch, row: int) -> OrderKey:
    """A row's place in depth-first order; by origin where rows carry no order keys."""
    return batch.order[row] if batch.order is not None else (batch.origins[row],)
