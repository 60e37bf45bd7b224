"""``topics consume``: from records to lines.

The records of several partitions are merged by their time, those of one stay in their order. Lines are
written in pieces, and flushed when there is nothing more to read for the moment. A key or value that is not
what the format says stops the command with its partition and offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import IO, Final, Literal, TypeVar

import click
import msgspec
import pyarrow as pa

from millstream import serdes
from millstream.cli.formats import Format, headers_to_json
from millstream.io.consumer import TopicConsumer
from millstream.log import LogRecordBatch

T = TypeVar("T")

_LINES_AT_ONCE: Final = 10_000


@dataclass(slots=True)
class LineWriter:
    """Writes the records that a consumer reads as lines."""

    output: IO[bytes]
    key_format: Format
    value_format: Format
    is_json: bool
    key_separator: bytes | None
    null_marker: bytes
    left: int | None
    """How many records may still be written; ``None``: any number."""
    wants_key: Callable[[bytes | None], bool] | None = None
    """Says of which keys records are shown; ``None``: of all."""

    def __post_init__(self) -> None:
        if self.is_json and self.key_separator is not None:
            raise click.UsageError("--json shows the key in a field of its own; leave --key-separator out.")

    def write(self, consumer: TopicConsumer[bytes, bytes]) -> None:
        """Write what is there now, and what comes if the consumer follows, up to the wanted number."""
        for streams in consumer.polls():
            self._write([self._timed_lines(batches) for batches in streams])
            if self.left == 0:
                return

    def _write(self, streams: list[Iterator[tuple[int, bytes]]]) -> None:
        # Each stream is taken as it comes: of those that are next, the oldest goes first.
        lines: Iterator[bytes] = map(
            itemgetter(1), merge(*streams, key=itemgetter(0)) if len(streams) > 1 else streams[0]
        )
        if self.left is not None:
            lines = islice(lines, self.left)
        while piece := list(islice(lines, _LINES_AT_ONCE)):
            self.output.write(b"\n".join(piece) + b"\n")
            if self.left is not None:
                self.left -= len(piece)
        self.output.flush()

    def _timed_lines(self, batches: Iterator[LogRecordBatch]) -> Iterator[tuple[int, bytes]]:
        for batch in batches:
            wanted = batch if self.wants_key is None else _with_key(batch, self.wants_key)
            lines = self._json_lines(wanted) if self.is_json else self._plain_lines(wanted)
            yield from zip(wanted.timestamps(), lines, strict=True)

    def _plain_lines(self, batch: LogRecordBatch) -> list[bytes]:
        null = self.null_marker
        values = _converted(batch, "value", self.value_format, self.value_format.show, null)
        if self.key_separator is None:
            return values
        keys = _converted(batch, "key", self.key_format, self.key_format.show, null)
        return [key + self.key_separator + value for key, value in zip(keys, values, strict=True)]

    def _json_lines(self, batch: LogRecordBatch) -> list[bytes]:
        keys = _converted(batch, "key", self.key_format, self.key_format.to_json, None)
        values = _converted(batch, "value", self.value_format, self.value_format.to_json, None)
        rows = zip(keys, values, batch.timestamps(), batch.headers(), strict=True)
        partition = batch.topic_partition.partition
        encode = msgspec.json.Encoder().encode
        return [
            encode(
                {
                    "partition": partition,
                    "offset": offset,
                    "timestamp": timestamp,
                    "key": key,
                    "value": value,
                    **({"headers": headers_to_json(headers)} if headers else {}),
                }
            )
            for offset, (key, value, timestamp, headers) in zip(batch.offsets(), rows, strict=True)
        ]


def _with_key(batch: LogRecordBatch, wants: Callable[[bytes | None], bool]) -> LogRecordBatch:
    """Return those records of a batch that have a key that is wanted."""
    mask = pa.array(list(map(wants, batch.keys())), pa.bool_())
    offsets = pa.array(batch.offsets(), pa.int64()).filter(mask)
    return LogRecordBatch(
        batch.topic_partition, batch.base_offset, batch.records.filter(mask), offsets, batch.next_offset
    )


def _converted(
    batch: LogRecordBatch, part: Literal["key", "value"], form: Format, convert: Callable[[bytes], T], null: T
) -> list[T]:
    """Return the keys or values of a batch as the format shows them."""
    result: list[T] = []
    for data in batch.keys() if part == "key" else batch.values():
        try:
            result.append(null if data is None else convert(data))
        except Exception as error:
            raise click.ClickException(
                f"The {part} at offset {batch.offsets()[len(result)]} of {batch.topic_partition} is not "
                f"{form.name}: {error} ({serdes.describe_bytes(data or b'')}). Likely cause: it was written "
                f"in another format. Remedy: choose another --{part}-format; hex shows anything."
            ) from error
    return result
