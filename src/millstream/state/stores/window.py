"""Window stores: a value per key and window, for as long as the retention says."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from millstream.record import MAX_TIME, ValueAndTimestamp, Window, Windowed
from millstream.serdes import Serde, time_windowed
from millstream.state.specs import StoreBuilder
from millstream.state.stores.cell_store import Cell, TimestampedStore
from millstream.state.stores.key_value_iterator import KeyValueIterator
from millstream.state.stores.overlay import Entry, Overlay
from millstream.state.stores.read_only import ReadOnlyWindowStore
from millstream.state.stores.segments import HIGHEST_NUMBER, UNKNOWN_TIME
from millstream.state.stores.window_key_schema import WINDOW, RowsByKey, WindowedRow
from millstream.state.stores.windowed_store import Direction, WindowedCellStore, WindowedStore
from millstream.state.stores.written_columns import WrittenColumns

if TYPE_CHECKING:
    import polars as pl

__all__ = ["TimestampedWindowStore", "WindowStore"]

K = TypeVar("K")
V = TypeVar("V")

_START: Final = struct.Struct(">q")


class WindowStore(WindowedStore[K], ReadOnlyWindowStore[K, V]):
    """Values by key and window.

    >>> from millstream import serdes, stores
    >>> from millstream.state.backends.memory import MemoryBackend
    >>> from millstream.state.stores.factory import open_store
    >>> spec = stores.window("joined", window_size_ms=10, retention_ms=10, retain_duplicates=True)
    >>> store = open_store(spec, MemoryBackend(), serdes.string, serdes.int64)
    >>> store.put("ann", 1, 50)
    >>> store.put("ann", 2, 50)
    >>> store.put("ann", 3, 40)
    >>> list(store.fetch("ann", 0, 100)), store.expired_puts
    ([(50, 1), (50, 2)], 1)
    >>> store.put_encoded([(b"ann", 51, (4).to_bytes(8, "big")), (b"ann", 41, bytes(8))])
    >>> [(key, start) for key, start, _, _ in store.encoded_rows([b"ann", b"bob"], 0, 100)]
    [(b'ann', 50), (b'ann', 50), (b'ann', 51)]
    """

    numbers = WINDOW

    def __init__(self, spec: StoreBuilder, overlay: Overlay, key: Serde[K], value: Serde[Any]) -> None:
        super().__init__(spec, overlay, key, value)
        self.window_size_ms = spec.window_size_ms or 0
        self.retain_duplicates = spec.retain_duplicates

    def put(self, key: K, value: V | None, window_start: int) -> None:
        """Set the value of a window; None deletes it. With duplicates, add a value, and None does nothing.

        A window that is past the retention already is not kept, only counted.
        """
        row, data = self._key_bytes(key), self._encode(value)
        self._checked_time(window_start, "the start of a window")
        if self.retain_duplicates and data is None:
            return
        self._observe(window_start)
        self._put_row(row, (window_start, self._next_number() if self.retain_duplicates else 0), data)

    def put_encoded(self, rows: Iterable[tuple[bytes, int, bytes]]) -> None:
        """Add values, in order: bytes of the key, start, bytes of the value. With duplicates only."""
        note, retention = self._note, self.retention_ms
        observed, number = note.observed, note.sequence
        segments: dict[int, bytes] = {}
        entries: list[Entry] = []
        pack = self.numbers.pack if isinstance(self._rows, RowsByKey) else None
        for key, start, data in rows:
            if start > observed:  # noqa: PLR1730 - a call of max for each row takes longer
                observed = start
            number = (number + 1) & HIGHEST_NUMBER
            if start <= observed - retention:
                self.expired_puts += 1
                continue
            part = start // note.interval_ms
            segment = segments.get(part)
            if segment is None:
                segment = segments[part] = self._segment(start)
            if pack is not None:  # as `entries` below, without a call for each row
                entries.append((segment + key + pack(start, number), data))
            else:
                entries += self._rows.entries(segment, key, (start, number), data)
        self._note = replace(note, observed=observed, sequence=number)
        self.overlay.put_many(entries)

    def encoded_rows(self, keys: Iterable[bytes], time_from: int, time_to: int) -> Iterator[WindowedRow]:
        """The rows of some keys, given as bytes, between two times, those of each key by time."""
        return self._rows_of_each(keys, time_from, time_to)

    @overload
    def fetch(self, key: K, time_from: int) -> V | None: ...
    @overload
    def fetch(self, key: K, time_from: int, time_to: int) -> KeyValueIterator[int, V]: ...
    def fetch(
        self, key: K, time_from: int, time_to: int | None = None
    ) -> V | KeyValueIterator[int, V] | None:
        """See `ReadOnlyWindowStore.fetch`."""
        if time_to is not None:
            return self._of_key(Direction.FORWARD, key, time_from, time_to)
        if self.retain_duplicates:
            with self._of_key(Direction.FORWARD, key, time_from, time_from) as windows:
                return next((value for _, value in windows), None)
        data = self._row(key, (time_from, 0))
        return None if data is None else self._decode(data)

    def backward_fetch(self, key: K, time_from: int, time_to: int) -> KeyValueIterator[int, V]:
        """See `ReadOnlyWindowStore.backward_fetch`."""
        return self._of_key(Direction.BACKWARD, key, time_from, time_to)

    def fetch_range(
        self, key_from: K | None, key_to: K | None, time_from: int, time_to: int
    ) -> KeyValueIterator[Windowed[K], V]:
        """See `ReadOnlyWindowStore.fetch_range`."""
        bounds = self._bounds(key_from, key_to)
        return self._windowed(self._rows_of_keys(Direction.FORWARD, bounds, time_from, time_to))

    def backward_fetch_range(
        self, key_from: K | None, key_to: K | None, time_from: int, time_to: int
    ) -> KeyValueIterator[Windowed[K], V]:
        """See `ReadOnlyWindowStore.backward_fetch_range`."""
        bounds = self._bounds(key_from, key_to)
        return self._windowed(self._rows_of_keys(Direction.BACKWARD, bounds, time_from, time_to))

    def _of_key(self, direction: Direction, key: K, time_from: int, time_to: int) -> KeyValueIterator[int, V]:
        rows = self._rows_of_key(direction, key, time_from, time_to)
        return KeyValueIterator((start, self._decode(data)) for _, start, _, data in rows)

    def _windowed(self, rows: Iterator[WindowedRow]) -> KeyValueIterator[Windowed[K], V]:
        return KeyValueIterator(
            (
                Windowed(
                    self.key_serde.deserialize(key),
                    Window(start, min(start + self.window_size_ms, MAX_TIME)),
                ),
                self._decode(data),
            )
            for key, start, _, data in rows
        )


class TimestampedWindowStore(
    WindowStore[K, ValueAndTimestamp[Any]], WindowedCellStore[K], TimestampedStore[K]
):
    r"""A window store that keeps a timestamp beside each value. Windowed tables live in one.

    The key of a cell is the key's bytes and the window's start (8), as `serdes.time_windowed` writes them.

    >>> from millstream import serdes, stores
    >>> from millstream.state.backends.memory import MemoryBackend
    >>> from millstream.state.stores.factory import open_store
    >>> spec = stores.timestamped_window("clicks", window_size_ms=10, retention_ms=100)
    >>> store = open_store(spec, MemoryBackend(), serdes.string, serdes.int64)
    >>> store.put("ann", ValueAndTimestamp(1, timestamp=7), 0)
    >>> store.fetch("ann", 0)
    ValueAndTimestamp(value=1, timestamp=7)
    >>> store.load(store.encode_keys([Windowed("ann", Window(0, 10))]))
    {b'ann\x00\x00\x00\x00\x00\x00\x00\x00': (1, 7)}
    >>> store.cells_of([b"ann", b"bob"], 0, 5)
    {b'ann': {0: (1, 7)}}
    >>> store.gone_until(100)
    0
    >>> [(store.start_of(cell), store.window_of(cell)) for cell in store.load_between(0, 5)]
    [(0, Window(start=0, end=10))]

    In columns:

    >>> import polars as pl
    >>> keys, starts = pl.Series([b"ann", b"bob"]), pl.Series([0, 10])
    >>> cells, times = pl.Series([bytes(16), bytes(16)]), pl.Series([0, 0])
    >>> store.save_windows(keys, starts, cells, times, turns=pl.Series([0, 1]))
    >>> store.has_columns, store.load_windows(keys, starts).bin.size().to_list()
    (True, [16, 16])
    """

    window_bytes = _START.size

    def __init__(self, spec: StoreBuilder, overlay: Overlay, key: Serde[K], value: Serde[Any]) -> None:
        super().__init__(spec, overlay, key, value)
        self._caching = spec.caching

    @property
    def cell_key_serde(self) -> Serde[Any]:
        """See `CellStore.cell_key_serde`."""
        return time_windowed(self.key_serde, self.window_size_ms)

    def start_of(self, cell_key: bytes) -> int:
        """Where the window of a cell starts."""
        start: int = _START.unpack_from(cell_key, len(cell_key) - _START.size)[0]
        return start

    def window_of(self, cell_key: bytes) -> Window:
        """The window of a cell."""
        start = self.start_of(cell_key)
        return Window(start, min(start + self.window_size_ms, MAX_TIME))

    def load_between(self, first_start: int, last_start: int) -> dict[bytes, Cell]:
        """The cells of all keys whose windows start between two times, both inclusive."""
        rows = self._rows_of_keys(Direction.FORWARD, (None, None), first_start, last_start)
        return self._cells({key + _START.pack(start): data for key, start, _, data in rows})

    @property
    def has_columns(self) -> bool:
        """Whether cells can be read and written in columns: rows by time can't."""
        return isinstance(self._rows, RowsByKey)

    def load_windows(self, keys: pl.Series, starts: pl.Series) -> pl.Series:
        """The encoded cells of distinct windows, which ascend by key (in bytes) and then by start."""
        import polars as pl  # noqa: PLC0415 - only tasks need it

        from millstream.state.stores.window_columns import WindowRows  # noqa: PLC0415 - imports Polars

        # What starts later than anything that was ever written is not there: nobody has to look.
        there = (starts > self._expired_until()) & (starts <= self._note.observed)
        found = pl.Series([None], dtype=pl.Binary).new_from_index(0, len(starts))
        if not there.any():
            return found
        wanted = there.arg_true()
        rows = WindowRows.of(keys.gather(wanted), starts.gather(wanted), self._note.interval_ms)
        data = pl.Series(self.overlay.get_ascending(rows.keys.to_list()), dtype=pl.Binary)
        data = rows.as_given(data)
        if len(wanted) == len(starts):
            return data
        places = pl.Series([None], dtype=pl.UInt32).new_from_index(0, len(starts))
        return data.gather(places.scatter(wanted, pl.int_range(len(wanted), dtype=pl.UInt32, eager=True)))

    def save_windows(
        self, keys: pl.Series, starts: pl.Series, data: pl.Series, times: pl.Series, turns: pl.Series
    ) -> None:
        """Write encoded cells and their times, as `load_windows` reads them.

        `turns` says in which order they are written, one after the other: each moves the store's time, by
        which others expire.
        """
        from millstream.state.stores.window_columns import WindowRows, expired_in_turn  # noqa: PLC0415

        if starts.is_empty():
            return
        self._checked_time(int(starts.min()), "the start of a window")  # type: ignore[arg-type]
        expired = expired_in_turn(starts, turns, self._note.observed, self.retention_ms)
        self._observe(int(starts.max()))  # type: ignore[arg-type]
        if expired.any():
            self.expired_puts += int(expired.sum())
            keys, starts, data, times = (one.filter(~expired) for one in (keys, starts, data, times))
        rows = WindowRows.of(keys, starts, self._note.interval_ms)
        columns = (rows.keys, rows.in_order(data), rows.in_order(times))
        self.overlay.put_columns(WrittenColumns(*(column.rechunk().to_arrow() for column in columns)))

    def cells_of(
        self, keys: Iterable[bytes], first_start: int, last_start: int
    ) -> dict[bytes, dict[int, tuple[Any, int]]]:
        """The cells of some keys, given as bytes, whose windows start between two times, by key and start.

        Values that a user's function might change in place stay bytes: see `Frozen`.
        """
        first = max(first_start, self.gone_until(self.observed_time) + 1)
        last = min(last_start, self.observed_time)
        rows = list(self._rows.of_each(self.overlay, self._segments(first, last), keys, first, last))
        frozen = self._frozen_cells([data for _, _, _, data in rows])
        found: dict[bytes, dict[int, tuple[Any, int]]] = {}
        for (key, start, _, _), cell in zip(rows, frozen, strict=True):
            found.setdefault(key, {})[start] = cell
        return found

    def gone_until(self, observed: int) -> int:
        """Windows that start then or before are gone for the table's operator, when a time was observed.

        With caching they stay as long as their segment: the cache hides from the operator that they have
        expired. Queries don't see them.
        """
        expired = observed - self.retention_ms
        if self._caching:
            expired = expired // self._note.interval_ms * self._note.interval_ms - 1
        return max(expired, UNKNOWN_TIME)

    def _place(self, cell_key: bytes) -> tuple[bytes, tuple[int, int]]:
        return cell_key[: -_START.size], (self.start_of(cell_key), 0)
