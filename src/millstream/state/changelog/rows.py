"""A store's writes as rows of its changelog topic, and back.

The sorted writes of an epoch are rows of its changelog and the backend's write batch, byte for byte: the
value of a row is what the store holds, a null value deletes. The row's timestamp is that of the stored
value, where it has one, so that tools and retention see event time; it is not needed to restore.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.log.blocks import Records, record_batch, records_of
from millstream.state.specs import StoreKind
from millstream.state.stores.overlay import Entry
from millstream.state.stores.written_columns import WrittenColumns

_TIMESTAMP: Final = struct.Struct(">q")
_MANY: Final = 20_000
"""From so many rows on it pays to sort columns and not objects."""
_TIMESTAMPED: Final = frozenset({StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.TIMESTAMPED_WINDOW})


def changelog_topic(application_id: str, store: str) -> str:
    """The topic that keeps a store's changes; its partition p belongs to task p.

    >>> changelog_topic("word-count", "counts")
    'word-count-counts-changelog'
    """
    return f"{application_id}-{store}-changelog"


def changelog_rows(entries: Sequence[Entry], kind: StoreKind, time: int) -> pa.RecordBatch:
    """Sorted writes as changelog rows. `time` is the timestamp of rows whose value has none."""
    return record_batch(*_changelog_columns(entries, kind, time))


def changelog_records(entries: Sequence[Entry], kind: StoreKind, time: int) -> Records:
    """The same for whoever only wants blocks of it."""
    return records_of(*_changelog_columns(entries, kind, time))


def _changelog_columns(entries: Sequence[Entry], kind: StoreKind, time: int) -> tuple[Any, Any, Any]:
    time = max(time, 0)
    if isinstance(entries, WrittenColumns):
        times = entries.time_column
        times = times.fill_null(time) if times.null_count else times
        return entries.key_column, entries.value_column, times
    timestamps = [time] * len(entries)
    if kind in _TIMESTAMPED:
        unpack = _TIMESTAMP.unpack_from
        # Segmented stores begin with a note, whose key is empty; the index of a store by time has no values.
        has_none = kind is StoreKind.TIMESTAMPED_WINDOW
        timestamps = [
            time if not value or (has_none and not key) else unpack(value)[0] for key, value in entries
        ]
    return [key for key, _ in entries], [value for _, value in entries], timestamps


def entries_of(rows: pa.RecordBatch) -> list[Entry]:
    """Changelog rows as writes, in the order of the log."""
    return list(zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True))


def last_of_each_key(parts: Sequence[pa.RecordBatch]) -> list[Entry]:
    """Changelog rows as sorted, distinct writes.

    The rows of one epoch are that already. Many rows are sorted as columns: that is faster, and their
    objects then lie in memory in the order in which they are used.

    >>> writes = [(b"b", b"1"), (b"a", b"2"), (b"b", None)]
    >>> last_of_each_key([changelog_rows([write], StoreKind.KEY_VALUE, 0) for write in writes])
    [(b'a', b'2'), (b'b', None)]
    """
    rows = pa.Table.from_batches(parts).select([0, 1])
    is_sorted = len(parts) == 1 and _are_ascending(parts[0].column(0))
    if not is_sorted and len(rows) >= _MANY:
        rows, is_sorted = sorted_as_columns(rows), True
    entries = zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True)
    return list(entries) if is_sorted else sorted(dict(entries).items())


def _are_ascending(keys: pa.Array) -> bool:
    return len(keys) < 2 or pc.all(pc.less(keys.slice(0, len(keys) - 1), keys.slice(1))).as_py() is True  # noqa: PLR2004


def sorted_as_columns(rows: pa.Table) -> pa.Table:
    """Rows (a key and a value each) by key, of each key the last one."""
    import polars as pl  # noqa: PLC0415 - only a restore needs it

    key = pl.col(rows.column_names[0])
    ordered = pl.DataFrame(rows).sort(key, maintain_order=True)
    return ordered.filter((key != key.shift(-1)).fill_null(value=True)).to_arrow()
