"""Stores as tables: which columns they have, and how rows of a store, or of its changelog, become one.

================== =========================================================================
partition          of the task that the row belongs to
start, end         the window or session, in stores of windows
key, value         as their serdes read them
timestamp          of the value, in stores that keep it
================== =========================================================================
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa

from millstream.errors import StoreError
from millstream.io.arrow_columns import TIMESTAMP, arrow_type, decode
from millstream.record import MAX_TIME, ValueAndTimestamp, VersionedRecord, Windowed
from millstream.serdes import bytes as raw_bytes
from millstream.state.backends.api import Backend
from millstream.state.specs import StoreBuilder, StoreKind
from millstream.state.stores.factory import open_store
from millstream.state.stores.read_only import ReadOnlySessionStore
from millstream.state.stores.segments import SEGMENT_BYTES
from millstream.state.stores.window_key_schema import SESSION, WINDOW

_TIMESTAMPED: Final = frozenset(
    {StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.TIMESTAMPED_WINDOW, StoreKind.VERSIONED_KEY_VALUE}
)
_WINDOWED: Final = frozenset({StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.SESSION})
_SHOWN: Final = _TIMESTAMPED | _WINDOWED | {StoreKind.KEY_VALUE}
_TIME: Final = struct.Struct(">q")
_ROW: Final = 0


class StoreRow(NamedTuple):
    """A row, with the bytes of its key and value."""

    key: bytes
    value: bytes | None
    """None: it was deleted."""
    timestamp: int | None = None
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class StoreTable:
    """How a store is shown. Its serdes are bound: they know what automatic ones have inferred."""

    spec: StoreBuilder

    def __post_init__(self) -> None:
        if self.spec.kind not in _SHOWN:
            raise StoreError(
                f"store {self.spec.name!r} is a {self.spec.kind.value} store, which belongs to its operator "
                "alone and can't be shown as a table. Remedy: read a table's store, or a topic"
            )

    @property
    def has_windows(self) -> bool:
        """Whether rows belong to a window or session."""
        return self.spec.kind in _WINDOWED

    def rows_of(self, backend: Backend) -> Iterator[StoreRow]:
        """The rows of one partition that stands where it should."""
        store: Any = open_store(self.spec, backend, raw_bytes, raw_bytes)
        found = store.fetch_range(None, None) if isinstance(store, ReadOnlySessionStore) else store.all()
        with found as pairs:
            for key, value in pairs:
                yield _row(key, value)

    def changes_of(self, rows: pa.RecordBatch) -> Iterator[StoreRow]:
        """The rows that a piece of the store's changelog has written or deleted, in its order."""
        if self.spec.kind is StoreKind.VERSIONED_KEY_VALUE:
            raise StoreError(
                f"store {self.spec.name!r} keeps versions, whose changes can't be told one by one. Remedy: "
                "read it as it is now (spark.read), or follow the topic that it is made of"
            )
        for key, value in zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True):
            if not self.has_windows:
                yield _stored(StoreRow(key, value), self.spec.kind)
            elif key:  # the row with the empty key is the store's note of what has expired
                found = self._windowed(key[SEGMENT_BYTES:], value)
                if found is not None:
                    yield _stored(found, self.spec.kind)

    def of(self, partition: int, rows: Iterable[StoreRow]) -> pa.Table:
        """Rows of one partition as a table."""
        found = list(rows)
        name = self.spec.name

        def place(_row: int) -> dict[str, Any]:
            return {"store": name, "partition": partition}

        keys = pa.array([row.key for row in found], pa.binary())
        values = pa.array([row.value for row in found], pa.binary())
        known = bool(found)
        shown = {
            "partition": pa.array([partition] * len(found), pa.int32()),
            **(
                {
                    "start": _times(row.start for row in found),
                    "end": _times(row.end for row in found),
                }
                if self.has_windows
                else {}
            ),
            "key": decode(self.spec.key, keys, place, part="key") if known else _nothing(self.spec.key),
            "value": decode(self.spec.value, values, place) if known else _nothing(self.spec.value),
            **(
                {"timestamp": _times(row.timestamp for row in found)}
                if self.spec.kind in _TIMESTAMPED
                else {}
            ),
        }
        return pa.table(shown)

    def _windowed(self, row: bytes, value: bytes | None) -> StoreRow | None:
        numbers = SESSION if self.spec.kind is StoreKind.SESSION else WINDOW
        if self.spec.time_ordered:
            if row[0] != _ROW:
                return None  # of the index
            first, second = numbers.unpack_from(row, 1)
            key = row[1 + numbers.size :]
        else:
            first, second = numbers.unpack_from(row, len(row) - numbers.size)
            key = row[: -numbers.size]
        if self.spec.kind is StoreKind.SESSION:
            return StoreRow(key, value, start=second, end=first)
        end = min(first + (self.spec.window_size_ms or 0), MAX_TIME)
        return StoreRow(key, value, start=first, end=end)


def _row(key: Any, value: Any) -> StoreRow:
    start = end = timestamp = None
    if isinstance(key, Windowed):
        start, end, key = key.window.start, key.window.end, key.key
    if isinstance(value, ValueAndTimestamp | VersionedRecord):
        timestamp, value = value.timestamp, value.value
    return StoreRow(key, value, timestamp, start, end)


def _stored(row: StoreRow, kind: StoreKind) -> StoreRow:
    """A row whose value has its timestamp in front, if the store keeps one."""
    if kind not in _TIMESTAMPED or row.value is None:
        return row
    return row._replace(value=row.value[8:], timestamp=_TIME.unpack_from(row.value)[0])


def _times(times: Iterable[int | None]) -> pa.Array:
    return pa.array(times, pa.int64()).cast(TIMESTAMP)


def _nothing(serde: Any) -> pa.Array:
    return pa.array([], arrow_type(serde) or pa.binary())
