"""Reads one partition's bytes for a source node: decode, leave bad records out, extract timestamps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

import polars as pl

from millstream.processors.batch import OrderKey
from millstream.processors.columns.column import Column, are_few
from millstream.serdes import ColumnError, Serde, deserialize_column, serde_failure
from millstream.serdes import bytes as raw_bytes
from millstream.serdes.primitives import BytesSerde
from millstream.task.change_codec import decode_change
from millstream.task.column_codec import decoded
from millstream.task.combiner import decode_marked
from millstream.task.inputs import extract_timestamps
from millstream.task.records import DecodedPart, RawBatch
from millstream.task.serde_book import SerdeBook
from millstream.timestamps import (
    TimestampExtractor,
    fail_on_invalid_timestamp,
    skip_invalid_timestamp,
    use_partition_time_on_invalid_timestamp,
    wall_clock_timestamp,
)
from millstream.topology.nodes import SourceNode

Bad = dict[int, tuple[Literal["key", "value"], Exception]]

_OWN_IF_VALID: Final = (
    fail_on_invalid_timestamp,
    skip_invalid_timestamp,
    use_partition_time_on_invalid_timestamp,
)
"""Extractors that leave timestamps as they are, where none is negative."""


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
        clock: Callable[[], int],
        combines: bool = True,
        wants_columns: bool = False,
    ) -> None:
        self.node = node
        self.wants_columns = wants_columns
        """Whether the operators behind it work on columns: then rows are decoded into such."""
        self._combines = combines
        self._book = book
        self._internal = extractor is None
        self._extractor = extractor or fail_on_invalid_timestamp
        self._failed = failed
        self._count = count
        self._clock = clock

    def read(self, raw: RawBatch, partition_time: int) -> DecodedPart:
        """The usable records of a raw batch."""
        key_serde = self._book.bound(raw.topic, "key", self._serde(self.node.key))
        value_serde = self._book.bound(raw.topic, "value", self._serde(self.node.value))
        bad: Bad = {}
        whole = self.wants_columns or (self.node.carries_partials and not are_few(len(raw)))
        keys = self._decode(key_serde, raw.keys, "key", bad, whole=whole)
        news, olds = self._columns(raw, bad)
        if self.node.carries_partials and self._combines:
            values = decode_marked(news, lambda single: _decode(value_serde, single, "value", bad))
        else:
            values = self._decode(value_serde, news, "value", bad, whole=whole)
        old_values = None if olds is None else Column(_decode(value_serde, olds, "value", bad))
        for row, (part, cause) in sorted(bad.items()) if bad else ():
            serde, data = (key_serde, raw.keys[row]) if part == "key" else (value_serde, raw.values[row])
            order = (raw.row_of_sender(row),)
            self._failed(raw, row, _failure(cause, serde, part, data, raw, row), order)
        rows = range(len(raw))
        whole_part = DecodedPart(
            raw,
            self.node.name,
            rows,
            keys,
            values,
            old_values,
            self._times(raw),
            comes_first=self.node.comes_first,
            wins_ties=self.node.from_earlier_step,
        )
        good = whole_part.take(Column([row for row in rows if row not in bad])) if bad else whole_part
        return self._extracted(good, partition_time)

    def _decode(
        self,
        serde: Serde[Any],
        column: Column,
        part: Literal["key", "value"],
        bad: Bad,
        *,
        whole: bool,
    ) -> Column:
        if whole:
            found = decoded(serde, column)
            if found is not None:
                return found
            self._count("columns-fell-back", len(column))
        if column.in_arrow and isinstance(serde, BytesSerde) and not are_few(len(column)):
            return column  # bytes already: nobody may ever look at them one by one
        return Column(_decode(serde, column.rows(), part, bad))

    def _serde(self, given: Any) -> Any:
        """Without a serde a topic of the log stays bytes; a repartition has the writer's automatic one."""
        return raw_bytes if given is None and not self._internal else given

    def _columns(self, raw: RawBatch, bad: Bad) -> tuple[Column, Sequence[bytes | None] | None]:
        if not self.node.carries_changes:
            return raw.values, None
        pairs: list[tuple[bytes | None, bytes | None]] = []
        for row, data in enumerate(raw.values):
            try:
                pairs.append((None, None) if data is None else decode_change(data))
            except Exception as error:  # noqa: BLE001 - any bytes may be bad in any way
                bad.setdefault(row, ("value", error))
                pairs.append((None, None))
        return Column([new for new, _ in pairs]), [old for _, old in pairs]

    def _times(self, raw: RawBatch) -> Column:
        """The records' own timestamps."""
        if self.wants_columns:
            return raw.timestamps.moved_to_arrow(pl.Int64())
        return Column(raw.timestamps.rows()) if are_few(len(raw)) else raw.timestamps

    def _extracted(self, part: DecodedPart, partition_time: int) -> DecodedPart:
        """The records with the timestamps that an extractor gives them."""
        if self._extractor in _OWN_IF_VALID and part.timestamps.smallest(0) >= 0:
            return part
        if self._extractor is wall_clock_timestamp:
            return replace(part, timestamps=self._timed([self._clock()] * len(part.rows)))
        timestamps = extract_timestamps(
            part.raw, part.rows, part.keys, part.values, self._extractor, partition_time, self._clock()
        )
        kept = [position for position, timestamp in enumerate(timestamps) if timestamp >= 0]
        self._count("records-dropped", len(timestamps) - len(kept))
        timed = replace(part, timestamps=self._timed(timestamps))
        return timed if len(kept) == len(timestamps) else timed.take(Column(kept))

    def _timed(self, timestamps: list[int]) -> Column:
        column = Column(timestamps)
        return column.moved_to_arrow(pl.Int64()) if self.wants_columns else column


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
