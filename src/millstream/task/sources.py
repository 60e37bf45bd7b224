"""Reads one partition's bytes for a source node: decode, leave bad records out, extract timestamps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import pyarrow as pa

from millstream.processors.batch import OrderKey
from millstream.processors.columns.column import Column, are_few
from millstream.serdes import ColumnError, Serde, deserialize_column, serde_failure
from millstream.serdes import bytes as raw_bytes
from millstream.serdes.primitives import BytesSerde
from millstream.task.change_codec import decode_change
from millstream.task.column_codec import as_column, decoded, smallest
from millstream.task.combiner import decode_marked
from millstream.task.inputs import extract_timestamps
from millstream.task.records import DecodedPart, RawBatch
from millstream.task.serde_book import SerdeBook
from millstream.timestamps import TimestampExtractor, fail_on_invalid_timestamp
from millstream.topology.nodes import SourceNode

Bad = dict[int, tuple[Literal["key", "value"], Exception]]


class SourceReader:
    """One source node of a task. Without an extractor it reads a repartition."""

    def __init__(
        self,
        node: SourceNode,
        book: SerdeBook,
        extractor: TimestampExtractor | None,
        failed: Callable[[RawBatch, int, Exception, OrderKey], None],
        count: Callable[[str, int], None],
        *,
        precombines: bool = True,
    ) -> None:
        self.node = node
        self.wants_columns = False
        """Whether the operators behind it work on columns: then rows are decoded into such."""
        self._precombines = precombines
        self._book = book
        self._internal = extractor is None
        self._extractor = extractor or fail_on_invalid_timestamp
        self._failed = failed
        self._count = count

    def read(self, raw: RawBatch, partition_time: int) -> DecodedPart:
        """The usable records of a raw batch."""
        key_serde = self._book.bound(raw.topic, "key", self._serde(self.node.key))
        value_serde = self._book.bound(raw.topic, "value", self._serde(self.node.value))
        bad: Bad = {}
        whole = self.wants_columns or (self.node.carries_partials and not are_few(len(raw)))
        keys = self._decode(key_serde, raw.keys, "key", bad, whole=whole)
        news, olds = self._columns(raw, bad)
        values: Sequence[Any]
        if self.node.carries_partials and self._precombines:
            values = decode_marked(news, lambda single: _decode(value_serde, single, "value", bad))
        else:
            values = self._decode(value_serde, news, "value", bad, whole=whole)
        old_values = None if olds is None else _decode(value_serde, olds, "value", bad)
        for row, (part, cause) in sorted(bad.items()):
            serde, data = (key_serde, raw.keys[row]) if part == "key" else (value_serde, raw.values[row])
            self._failed(raw, row, _failure(cause, serde, part, data, raw, row), (row,))
        rows: Sequence[int] = range(len(raw))
        if bad:
            rows = [row for row in rows if row not in bad]
            keys, values = [keys[row] for row in rows], [values[row] for row in rows]
            old_values = None if old_values is None else [old_values[row] for row in rows]
        return self._timed(
            DecodedPart(raw, self.node.name, rows, keys, values, old_values, ()), partition_time
        )

    def _decode(
        self,
        serde: Serde[Any],
        column: Sequence[bytes | None],
        part: Literal["key", "value"],
        bad: Bad,
        *,
        whole: bool,
    ) -> Sequence[Any]:
        if whole:
            found = decoded(serde, column)
            if found is not None:
                return found
            self._count("columns-fell-back", len(column))
        if isinstance(column, Column) and isinstance(serde, BytesSerde) and not are_few(len(column)):
            return column  # bytes already: nobody may ever look at them one by one
        return _decode(serde, column.values() if isinstance(column, Column) else column, part, bad)

    def _serde(self, given: Any) -> Any:
        """Without a serde a topic of the log stays bytes; a repartition has the writer's automatic one."""
        return raw_bytes if given is None and not self._internal else given

    def _columns(
        self, raw: RawBatch, bad: Bad
    ) -> tuple[Sequence[bytes | None], Sequence[bytes | None] | None]:
        if not self.node.carries_changes:
            return raw.values, None
        pairs: list[tuple[bytes | None, bytes | None]] = []
        for row, data in enumerate(raw.values):
            try:
                pairs.append((None, None) if data is None else decode_change(data))
            except Exception as error:  # noqa: BLE001 - any bytes may be bad in any way
                bad.setdefault(row, ("value", error))
                pairs.append((None, None))
        return [new for new, _ in pairs], [old for _, old in pairs]

    def _timed(self, part: DecodedPart, partition_time: int) -> DecodedPart:
        raw = part.raw
        own: Sequence[int] = raw.timestamps
        if self.wants_columns:
            own = as_column(own, pa.int64())
        elif isinstance(own, Column) and are_few(len(own)):
            own = own.values()
        if len(part.rows) < len(raw):
            own = [own[row] for row in part.rows]
        if self._extractor is fail_on_invalid_timestamp and smallest(own) >= 0:
            return _with_timestamps(part, own)
        timestamps = extract_timestamps(
            raw, part.rows, part.keys, part.values, self._extractor, partition_time
        )
        kept = [position for position, timestamp in enumerate(timestamps) if timestamp >= 0]
        if len(kept) == len(timestamps):
            return _with_timestamps(part, timestamps)
        self._count("records-dropped", len(timestamps) - len(kept))
        return DecodedPart(
            raw,
            part.source,
            [part.rows[position] for position in kept],
            [part.keys[position] for position in kept],
            [part.values[position] for position in kept],
            None if part.olds is None else [part.olds[position] for position in kept],
            [timestamps[position] for position in kept],
        )


def _with_timestamps(part: DecodedPart, timestamps: Sequence[int]) -> DecodedPart:
    return DecodedPart(part.raw, part.source, part.rows, part.keys, part.values, part.olds, timestamps)


def _decode(
    serde: Serde[Any], column: Sequence[bytes | None], part: Literal["key", "value"], bad: Bad
) -> list[Any]:
    try:
        return deserialize_column(serde, column)
    except ColumnError:
        pass  # go through it one by one: there may be several
    values: list[Any] = []
    for row, data in enumerate(column):
        try:
            values.append(None if data is None else serde.deserialize(data))
        except Exception as error:  # noqa: BLE001 - any bytes may be bad in any way
            bad.setdefault(row, (part, error))
            values.append(None)
    return values


def _failure(
    cause: Exception,
    serde: Serde[Any],
    part: Literal["key", "value"],
    data: bytes | None,
    raw: RawBatch,
    row: int,
) -> Exception:
    error = serde_failure(
        cause,
        serde=serde,
        data=data or b"",
        part=part,
        topic=raw.topic,
        partition=raw.partition,
        offset=raw.offsets[row],
    )
    error.__cause__ = cause
    return error
