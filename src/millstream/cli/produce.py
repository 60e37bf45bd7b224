"""``topics produce``: from lines, or rows of tables, to records.

A line that can't be read stops the command with its file and number; what stood before it has been appended,
and the message says how much that was.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import click
import msgspec
import pyarrow as pa

from millstream import serdes
from millstream.cli.formats import Format, headers_from_json
from millstream.cli.lines import read_lines
from millstream.cli.progress import progress_bar
from millstream.io.producer import Producer
from millstream.io.tables_in import csv_batches, parquet_batches
from millstream.log import FileLog
from millstream.record import Headers
from millstream.serdes import Serde


class JsonLine(msgspec.Struct):
    """The fields of a JSON line that count."""

    key: Any = None
    value: Any = None
    timestamp: int | None = None
    headers: Any = None


@dataclass(frozen=True, slots=True)
class LineParser:
    """Turns lines into records of a producer."""

    key_format: Format
    value_format: Format
    is_json: bool
    key_separator: bytes | None
    key: bytes | None
    headers: Headers
    partition: int | None
    timestamp: int | None
    null_marker: bytes | None

    def __post_init__(self) -> None:
        if self.key is not None and self.key_separator is not None:
            raise click.UsageError("--key and --key-separator contradict each other; give one of them.")
        if self.is_json and (self.key_separator is not None or self.null_marker is not None):
            raise click.UsageError(
                "--json has fields for the key and for null; leave --key-separator and --null-marker out."
            )
        if self.key_separator == b"":
            raise click.UsageError("--key-separator is empty; give the text between key and value.")

    def send(self, producer: Producer[bytes, bytes], line: bytes) -> None:
        """Give the record of one line to the producer. ValueError or TypeError if there is none in it."""
        if self.is_json:
            self._send_json(producer, line)
            return
        key, value = self.key, line
        if self.key_separator is not None:
            head, separator, value = line.partition(self.key_separator)
            if not separator:
                raise ValueError(f"there is no {self.key_separator.decode()!r} between key and value")
            key = self.key_format.parse(head)
        producer.send(
            key,
            None if value == self.null_marker else self.value_format.parse(value),
            timestamp=self.timestamp,
            headers=self.headers,
            partition=self.partition,
        )

    def _send_json(self, producer: Producer[bytes, bytes], line: bytes) -> None:
        fields = msgspec.json.decode(line, type=JsonLine)
        key = self.key if fields.key is None else self.key_format.from_json(fields.key)
        producer.send(
            key,
            None if fields.value is None else self.value_format.from_json(fields.value),
            timestamp=self.timestamp if fields.timestamp is None else fields.timestamp,
            headers=self.headers + (() if fields.headers is None else headers_from_json(fields.headers)),
            partition=self.partition,
        )


def produce_stream(
    producer: Producer[bytes, bytes],
    parser: LineParser,
    stream: IO[bytes],
    *,
    name: str,
    total_bytes: int | None,
) -> int:
    """Append every line of a stream; return how many. A slow source's lines are appended as they come."""
    number = 0
    with progress_bar(name, total_bytes) as advance:
        for piece in read_lines(stream):
            for line in piece.lines:
                number += 1
                try:
                    parser.send(producer, line)
                except (ValueError, TypeError, msgspec.DecodeError) as error:
                    producer.flush()
                    raise click.ClickException(_bad_line(name, number, line, error)) from error
            if not piece.is_more_waiting:
                producer.flush()
            advance(size=piece.size, records=len(piece.lines))
    return number


@dataclass(frozen=True, slots=True)
class TableColumns:
    """Which columns of a table are what of a record."""

    key: str | None
    values: tuple[str, ...]
    timestamp: str | None

    def check(self, files: Sequence[str], given: Mapping[str, object]) -> None:
        """Refuse options of tables for lines, and options of lines for tables."""
        tables, lines = (
            [name for name in files if is_table(name)],
            [name for name in files if not is_table(name)],
        )
        if tables and lines:
            raise click.UsageError(
                f"{tables[0]} is a table and {lines[0]} is not; append one after the other."
            )
        wrong = sorted(name for name, value in given.items() if value)
        if tables and wrong:
            raise click.UsageError(
                f"{wrong[0]} is for lines, and {tables[0]} is a table; name its columns: "
                "--key-column, --value-column, --timestamp-column."
            )
        if not tables and (self.key or self.values or self.timestamp):
            raise click.UsageError(
                "--key-column, --value-column and --timestamp-column are for tables: files that end in .csv "
                "or .parquet."
            )


def is_table(name: str) -> bool:
    """Whether a file has rows and columns, by its ending.

    >>> is_table("orders.parquet"), is_table("orders.txt")
    (True, False)
    """
    return Path(name).suffix.lower() in {".csv", ".parquet"}


def produce_table(
    log: FileLog, topic: str, name: str, columns: TableColumns, key_format: Format, value_format: Format
) -> int:
    """Append every row of a CSV or Parquet file; return how many.

    Without a column for the value it is a JSON record of all columns, or of those that are named.
    """
    is_record = len(columns.values) != 1
    if is_record and value_format.name not in {"string", "json"}:
        raise click.UsageError(
            f"--value-format {value_format.name} is for one column; name it with --value-column. Several are "
            "a JSON record."
        )
    value: Serde[Any] = serdes.json if is_record else _serde(value_format)
    producer = Producer(log, topic, key=_serde(key_format), value=value)
    batches = parquet_batches(name) if Path(name).suffix.lower() == ".parquet" else csv_batches(name)
    with progress_bar(name, Path(name).stat().st_size) as advance:
        count = 0
        for batch in batches:
            names: list[str] = list(columns.values) or batch.schema.names
            keyed, key = _as_text(batch, columns.key, key_format)
            table, single = _as_text(keyed, None if is_record else names[0], value_format)
            sent = producer.send_table(table, key=key, value=single or names, timestamp=columns.timestamp)
            advance(size=batch.nbytes, records=sent)
            count += sent
    return count


def _serde(form: Format) -> Serde[Any]:
    found = serdes.bytes if form.name == "hex" else getattr(serdes, form.name, None)
    if found is None:
        raise click.UsageError(f"Columns of a table can't be written as {form.name}; write them as json.")
    serde: Serde[Any] = found
    return serde


def _as_text(batch: pa.RecordBatch, name: str | None, form: Format) -> tuple[pa.RecordBatch, str | None]:
    """A batch with one more column, the text of another one, if text is wanted of what is none; its name."""
    if name is None or form.name != "string" or name not in batch.schema.names:
        return batch, name
    column = batch.column(name)
    if pa.types.is_string(column.type):
        return batch, name
    text = f"{name} as text"
    return batch.append_column(text, column.cast(pa.string())), text


def open_inputs(files: Sequence[str]) -> Iterator[tuple[str, IO[bytes], int | None]]:
    """Yield name, stream and (if known) size of each input; without any, of standard input."""
    for name in files or ("-",):
        with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as stream:
            yield ("standard input" if name == "-" else name), stream, _size(stream)


def _size(stream: IO[bytes]) -> int | None:
    try:
        status = os.fstat(stream.fileno())
    except OSError:  # not a real file
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _bad_line(name: str, number: int, line: bytes, error: Exception) -> str:
    shown = line[:80].decode(errors="replace") + ("..." if len(line) > 80 else "")  # noqa: PLR2004
    return (
        f"Line {number} of {name} can't be read: {error}. The line: {shown!r}. The {number - 1:,} lines "
        "before it have been appended. Likely cause: another format than the options say. Remedy: mend the "
        "line or choose another --key-format or --value-format, then go on from this line."
    )


def header_option(text: str) -> tuple[str, bytes]:
    """Return the header that an option states."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE.", param_hint="--header")
    return name, value.encode()
