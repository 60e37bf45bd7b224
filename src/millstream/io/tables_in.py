"""Tables of many kinds as Arrow batches, and which of their columns are what of a record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from millstream.errors import ConfigError, InvalidTimestampError
from millstream.io.arrow_columns import has_windows, plain
from millstream.log.blocks import HEADERS_TYPE
from millstream.record import MAX_TIME
from millstream.serdes import Serde, TypedJsonSerde
from millstream.serdes.columns import codec_of

Table: TypeAlias = Any
"""An Arrow table, batch or reader; a Polars frame, lazy or not; a pandas frame; or an iterable of them."""
Columns: TypeAlias = str | Sequence[str] | None

_MAX_ROWS: Final = 100_000
_WINDOW: Final = ("start", "end", "key")


def batches_of(table: Table) -> Iterator[pa.RecordBatch]:
    """The rows of a table, in batches."""
    if isinstance(table, pa.RecordBatch):
        yield table
    elif isinstance(table, pa.Table):
        yield from table.to_batches(max_chunksize=_MAX_ROWS)
    elif isinstance(table, pa.RecordBatchReader):
        yield from table
    elif isinstance(table, pl.LazyFrame):
        yield from batches_of(table.collect())
    elif isinstance(table, pl.DataFrame):
        yield from table.to_arrow().to_batches(max_chunksize=_MAX_ROWS)
    elif type(table).__module__.partition(".")[0] == "pandas":
        yield from pa.Table.from_pandas(table, preserve_index=False).to_batches(max_chunksize=_MAX_ROWS)
    elif isinstance(table, Iterable) and not isinstance(table, str | bytes | Path | dict):
        for part in table:
            yield from batches_of(part)
    else:
        raise ConfigError(
            f"{type(table).__name__} is no table. Remedy: give an Arrow table or batch, a Polars or pandas "
            "frame, or an iterable of these; for files there are send_csv() and send_parquet(), for single "
            "records send()"
        )


def csv_batches(path: str | Path, **options: Any) -> Iterator[pa.RecordBatch]:
    """The rows of a CSV file with a line of names, read piece by piece; types are those of the first MB."""
    try:
        with pa_csv.open_csv(path, **options) as reader:
            yield from reader
    except pa.ArrowInvalid as error:
        raise ConfigError(
            f"{path} can't be read as CSV: {error}. Likely cause: it has no line of column names, or a "
            "column has values of another type than its first ones. Remedy: mend the file, or read it "
            "yourself (polars.read_csv) and send the frame with send_table()"
        ) from error


def parquet_batches(path: str | Path) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet file, read piece by piece."""
    try:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=_MAX_ROWS)
    except pa.ArrowInvalid as error:
        raise ConfigError(
            f"{path} can't be read as Parquet: {error}. Remedy: check that the file is whole, and that it "
            "is a Parquet file"
        ) from error


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Which columns of a table are the key, the value, the time and the headers of a record.

    key, value
        The name of a column; or several names: a record of these. None: the column ``key`` or ``value``,
        if there is one; else no key, and as value a record of all columns (of those that the serde names,
        if it has a schema). Keys with a window come from the columns ``start``, ``end`` and ``key``.
    timestamp
        The name of a column of times, or of milliseconds. None: the column ``timestamp``, if there is one;
        else now.
    """

    key: Columns = None
    value: Columns = None
    timestamp: str | None = None

    def keys(self, batch: pa.RecordBatch, serde: Serde[Any]) -> pa.Array | None:
        """The column of keys; None if there is none."""
        if has_windows(serde) and self.key is None and set(_WINDOW) <= set(batch.schema.names):
            start, end, key = (_column(batch, name, "key") for name in _WINDOW)
            fields = [key, _milliseconds(start, "start"), _milliseconds(end, "end")]
            return pa.StructArray.from_arrays(fields, ["key", "start", "end"])
        if self.key is None:
            return plain(batch.column("key")) if "key" in batch.schema.names else None
        return _column(batch, self.key, "key")

    def values(self, batch: pa.RecordBatch, serde: Serde[Any]) -> pa.Array:
        """The column of values."""
        if self.value is not None:
            return _column(batch, self.value, "value")
        names = batch.schema.names
        if "value" in names:
            return plain(batch.column("value"))
        if not _takes_records(serde):
            raise ConfigError(
                f"The table has the columns {', '.join(names)}, and none of them is called 'value'. Remedy: "
                "say which one is the value (value='...'), or give the producer a serde of records, for "
                "example value=serdes.json"
            )
        return _column(batch, _fields(serde) or names, "value")

    def timestamps(self, batch: pa.RecordBatch, now_ms: int) -> pa.Array:
        """The column of times in milliseconds."""
        name = self.timestamp or ("timestamp" if "timestamp" in batch.schema.names else None)
        if name is None:
            return pa.repeat(pa.scalar(now_ms, pa.int64()), batch.num_rows)
        return _milliseconds(_column(batch, name, "timestamp"), name)

    def headers(self, batch: pa.RecordBatch) -> pa.Array | None:
        """The column of headers, if the table has one as `Consumer.to_arrow` makes it."""
        if "headers" not in batch.schema.names:
            return None
        column = batch.column("headers")
        try:
            return plain(column).cast(HEADERS_TYPE)
        except pa.ArrowException:
            return None  # a column of the user's own


def _takes_records(serde: Serde[Any]) -> bool:
    codec = codec_of(serde)
    return codec is None or codec.dtype is None or isinstance(codec.dtype, pl.Struct)


def _fields(serde: Serde[Any]) -> list[str] | None:
    codec = codec_of(serde)
    if codec is not None and isinstance(codec.dtype, pl.Struct):
        return [field.name for field in codec.dtype.fields]
    if isinstance(serde, TypedJsonSerde):
        found = getattr(serde.schema, "__annotations__", None)
        return None if found is None else list(found)
    return None


def _column(batch: pa.RecordBatch, name: str | Sequence[str], part: str) -> pa.Array:
    names = [name] if isinstance(name, str) else list(name)
    missing = [one for one in names if one not in batch.schema.names]
    if missing:
        raise ConfigError(
            f"The table has no column {missing[0]!r}, which the {part} needs. Its columns are: "
            f"{', '.join(batch.schema.names)}. Remedy: name the right one ({part}=...), or rename the column"
        )
    columns = [plain(batch.column(one)) for one in names]
    return columns[0] if isinstance(name, str) else pa.StructArray.from_arrays(columns, names)


def _milliseconds(column: pa.Array, name: str) -> pa.Array:
    kind = column.type
    if pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.unit != "ms"):
        column = column.cast(pa.timestamp("ms"), safe=False)
    if pa.types.is_timestamp(column.type) or pa.types.is_integer(kind):
        numbers = column.cast(pa.int64())
        if numbers.null_count == 0:
            return numbers
        why = f"is null in row {numbers.is_null().index(True).as_py()}"
    else:
        why = f"is of type {kind}"
    raise InvalidTimestampError(
        f"The column {name!r} has the times of records, but {why}. Remedy: give a column of timestamps, or "
        f"of whole milliseconds since 1970 (0 to {MAX_TIME}), without nulls"
    )
