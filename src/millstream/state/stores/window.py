"""Window stores: a value per key and window, for as long as the retention says.

A window is known by its start. Results of one key come in the order of time; those of several keys come
segment by segment, within a segment in the order of the keys' bytes, or of time if the store is
`time_ordered`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar, overload

from millstream.record import ValueAndTimestamp, Window, Windowed
from millstream.serdes import Serde, deserialize_column, serialize_column
from millstream.state.stores.key_value import KeyValueIterator
from millstream.state.stores.overlay import Overlay
from millstream.state.stores.timed_store import MAX_TIME, Direction, TimedStore
from millstream.state.stores.window_key_schema import WINDOW, RowsByKey, RowsByTime, TimedRow

__all__ = ["TimestampedWindowStore", "WindowStore"]

K = TypeVar("K")
V = TypeVar("V")

_TIMESTAMP: Final = struct.Struct(">q")

CellKey: TypeAlias = tuple[bytes, int]
"""The bytes of a key, and the start of a window."""
Cell: TypeAlias = tuple[Any, int]
"""A value and its timestamp."""


class WindowStore(TimedStore[K], Generic[K, V]):
    """Values by key and window.

    >>> from millstream import serdes
    >>> from millstream.state.backends.memory import MemoryBackend
    >>> store = WindowStore(
    ...     "clicks",
    ...     Overlay(MemoryBackend()),
    ...     serdes.string,
    ...     serdes.int64,
    ...     window_size_ms=10,
    ...     retention_ms=100,
    ... )
    >>> store.put("ann", 1, window_start=0)
    >>> store.put("ann", 2, window_start=10)
    >>> store.put("bob", 3, window_start=10)
    >>> store.fetch("ann", 10)
    2
    >>> with store.fetch("ann", 0, 20) as windows:
    ...     list(windows)
    [(0, 1), (10, 2)]
    >>> with store.backward_fetch("ann", 0, 20) as windows:
    ...     list(windows)
    [(10, 2), (0, 1)]

    Every query has a backward variant, which gives the same windows the other way round.

    >>> [value for _, value in store.all()], [value for _, value in store.backward_all()]
    ([1, 2, 3], [3, 2, 1])
    >>> list(store.fetch_all(5, 15)) == list(store.backward_fetch_all(5, 15))[::-1]
    True
    >>> list(store.fetch_range("b", None, 0, 20)) == list(store.backward_fetch_range("b", None, 0, 20))
    True
    """

    def __init__(
        self,
        name: str,
        overlay: Overlay,
        key: Serde[K],
        value: Serde[Any],
        *,
        window_size_ms: int,
        retention_ms: int,
        segment_interval_ms: int = 60_000,
        retain_duplicates: bool = False,
        time_ordered: bool = False,
    ) -> None:
        super().__init__(
            name,
            overlay,
            key,
            value,
            rows=RowsByTime(WINDOW) if time_ordered else RowsByKey(WINDOW),
            retention_ms=retention_ms,
            segment_interval_ms=segment_interval_ms,
        )
        self.window_size_ms = window_size_ms
        self.retain_duplicates = retain_duplicates

    def put(self, key: K, value: V | None, window_start: int) -> None:
        """Set the value of a window; None deletes it. With duplicates, add a value, and None does nothing.

        A window that is past the retention already is not kept, only counted.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> store = WindowStore(
        ...     "joined",
        ...     Overlay(MemoryBackend()),
        ...     serdes.string,
        ...     serdes.int64,
        ...     window_size_ms=10,
        ...     retention_ms=10,
        ...     retain_duplicates=True,
        ... )
        >>> store.put("ann", 1, 50)
        >>> store.put("ann", 2, 50)
        >>> store.put("ann", 3, 40)
        >>> list(store.fetch("ann", 0, 100)), store.expired_puts
        ([(50, 1), (50, 2)], 1)
        """
        row, data = self._key_bytes(key), self._encode(value)
        self._checked_time(window_start, "the start of a window")
        if self.retain_duplicates and data is None:
            return
        self._observe(window_start)
        self._put_row(row, (window_start, self._next_number() if self.retain_duplicates else 0), data)

    @overload
    def fetch(self, key: K, time_from: int) -> V | None: ...
    @overload
    def fetch(self, key: K, time_from: int, time_to: int) -> KeyValueIterator[int, V]: ...
    def fetch(
        self, key: K, time_from: int, time_to: int | None = None
    ) -> V | KeyValueIterator[int, V] | None:
        """The value of the window that starts at a time; or the windows that start between two, by start.

        Both ends are inclusive. Of a window with duplicates the single value is the first.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> store = WindowStore(
        ...     "clicks",
        ...     Overlay(MemoryBackend()),
        ...     serdes.string,
        ...     serdes.int64,
        ...     window_size_ms=10,
        ...     retention_ms=100,
        ... )
        >>> store.put("ann", 1, 0)
        >>> store.fetch("ann", 0), store.fetch("ann", 10)
        (1, None)
        >>> list(store.fetch("ann", 0, 10))
        [(0, 1)]
        """
        if time_to is not None:
            return self._of_key(Direction.FORWARD, key, time_from, time_to)
        if self.retain_duplicates:
            with self._of_key(Direction.FORWARD, key, time_from, time_from) as windows:
                return next((value for _, value in windows), None)
        data = self._row(key, (time_from, 0))
        return None if data is None else self._decode(data)

    def backward_fetch(self, key: K, time_from: int, time_to: int) -> KeyValueIterator[int, V]:
        """The same windows of a key, the last one first."""
        return self._of_key(Direction.BACKWARD, key, time_from, time_to)

    def fetch_range(
        self, key_from: K | None, key_to: K | None, time_from: int, time_to: int
    ) -> KeyValueIterator[Windowed[K], V]:
        """Windows of a range of keys that start between two times; None leaves a side of the keys open.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> store = WindowStore(
        ...     "clicks",
        ...     Overlay(MemoryBackend()),
        ...     serdes.string,
        ...     serdes.int64,
        ...     window_size_ms=10,
        ...     retention_ms=100,
        ... )
        >>> for key in ("ann", "bob", "cat"):
        ...     store.put(key, 1, 0)
        >>> [windowed.key for windowed, _ in store.fetch_range("b", None, 0, 5)]
        ['bob', 'cat']
        >>> [windowed.key for windowed, _ in store.backward_fetch_range(None, "bob", 0, 5)]
        ['bob', 'ann']
        """
        bounds = self._bounds(key_from, key_to)
        return self._windowed(self._rows_of_keys(Direction.FORWARD, bounds, time_from, time_to))

    def backward_fetch_range(
        self, key_from: K | None, key_to: K | None, time_from: int, time_to: int
    ) -> KeyValueIterator[Windowed[K], V]:
        """The same windows, the last one first."""
        bounds = self._bounds(key_from, key_to)
        return self._windowed(self._rows_of_keys(Direction.BACKWARD, bounds, time_from, time_to))

    def fetch_all(self, time_from: int, time_to: int) -> KeyValueIterator[Windowed[K], V]:
        """Windows of all keys that start between two times.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> store = WindowStore(
        ...     "clicks",
        ...     Overlay(MemoryBackend()),
        ...     serdes.string,
        ...     serdes.int64,
        ...     window_size_ms=10,
        ...     retention_ms=100,
        ... )
        >>> store.put("ann", 1, 0)
        >>> store.put("bob", 2, 10)
        >>> list(store.fetch_all(5, 15))
        [(Windowed(key='bob', window=Window(start=10, end=20)), 2)]
        >>> [windowed.key for windowed, _ in store.backward_fetch_all(0, 15)]
        ['bob', 'ann']
        """
        return self._windowed(self._rows_of_keys(Direction.FORWARD, (None, None), time_from, time_to))

    def backward_fetch_all(self, time_from: int, time_to: int) -> KeyValueIterator[Windowed[K], V]:
        """The same windows, the last one first."""
        return self._windowed(self._rows_of_keys(Direction.BACKWARD, (None, None), time_from, time_to))

    def all(self) -> KeyValueIterator[Windowed[K], V]:
        """All windows that have not expired.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> store = WindowStore(
        ...     "clicks",
        ...     Overlay(MemoryBackend()),
        ...     serdes.string,
        ...     serdes.int64,
        ...     window_size_ms=10,
        ...     retention_ms=20,
        ... )
        >>> for start in (0, 10, 20):
        ...     store.put("ann", start, start)
        >>> [value for _, value in store.all()], [value for _, value in store.backward_all()]
        ([10, 20], [20, 10])
        """
        return self.fetch_all(0, MAX_TIME)

    def backward_all(self) -> KeyValueIterator[Windowed[K], V]:
        """The same windows, the last one first."""
        return self.backward_fetch_all(0, MAX_TIME)

    def _of_key(self, direction: Direction, key: K, time_from: int, time_to: int) -> KeyValueIterator[int, V]:
        rows = self._rows_of_key(direction, key, time_from, time_to)
        return KeyValueIterator((start, self._decode(data)) for _, start, _, data in rows)

    def _windowed(self, rows: Iterator[TimedRow]) -> KeyValueIterator[Windowed[K], V]:
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

    def _encode(self, value: V | None) -> bytes | None:
        return None if value is None else self._value_bytes(value)

    def _decode(self, data: bytes) -> V:
        value: V = self.value_serde.deserialize(data)
        return value


class TimestampedWindowStore(WindowStore[K, ValueAndTimestamp[Any]]):
    """A window store that keeps a timestamp beside each value. Windowed tables live in one.

    `encode_keys`, `load` and `save` are for operators: whole columns, one read and one write of the backend.

    >>> from millstream import serdes
    >>> from millstream.state.backends.memory import MemoryBackend
    >>> store = TimestampedWindowStore(
    ...     "clicks",
    ...     Overlay(MemoryBackend()),
    ...     serdes.string,
    ...     serdes.int64,
    ...     window_size_ms=10,
    ...     retention_ms=100,
    ... )
    >>> store.put("ann", ValueAndTimestamp(1, timestamp=7), 0)
    >>> store.fetch("ann", 0)
    ValueAndTimestamp(value=1, timestamp=7)
    """

    def encode_keys(self, keys: Sequence[K]) -> list[bytes]:
        """The bytes of a column of keys, none of them None.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> store = TimestampedWindowStore(
        ...     "clicks",
        ...     Overlay(MemoryBackend()),
        ...     serdes.string,
        ...     serdes.int64,
        ...     window_size_ms=10,
        ...     retention_ms=100,
        ... )
        >>> store.encode_keys(["ann", "bob"])
        [b'ann', b'bob']
        """
        return serialize_column(self.key_serde, keys)  # type: ignore[return-value]

    def load(self, windows: Iterable[CellKey]) -> dict[CellKey, Cell | None]:
        """Value and timestamp of each distinct window, as of now; None for those that have expired.

        For operators: a window is the bytes of its key and its start, and the backend is read once.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> store = TimestampedWindowStore(
        ...     "clicks",
        ...     Overlay(MemoryBackend()),
        ...     serdes.string,
        ...     serdes.int64,
        ...     window_size_ms=10,
        ...     retention_ms=100,
        ... )
        >>> store.save({(b"ann", 0): (1, 7)})
        >>> store.load([(b"ann", 0), (b"ann", 10)])
        {(b'ann', 0): (1, 7), (b'ann', 10): None}
        """
        cells: dict[CellKey, Cell | None] = dict.fromkeys(windows)
        row_key, segment = self._rows.row_key, self._segment
        expired = self._expired_until()
        rows = {
            row_key(segment(start), key, (start, 0)): (key, start) for key, start in cells if start > expired
        }
        found = [(row, data) for row, data in self.overlay.get_many(rows).items() if data is not None]
        values = deserialize_column(self.value_serde, [data[8:] for _, data in found])
        for (row, data), value in zip(found, values, strict=True):
            cells[rows[row]] = (value, _TIMESTAMP.unpack_from(data)[0])
        return cells

    def save(self, cells: Mapping[CellKey, Cell | None]) -> None:
        """Write windows, in the order given; None deletes. Those that have expired by then are counted.

        >>> from millstream import serdes
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> store = TimestampedWindowStore(
        ...     "clicks",
        ...     Overlay(MemoryBackend()),
        ...     serdes.string,
        ...     serdes.int64,
        ...     window_size_ms=10,
        ...     retention_ms=100,
        ... )
        >>> store.save({(b"ann", 500): (1, 505), (b"ann", 0): (2, 7)})
        >>> store.fetch("ann", 500), store.expired_puts
        (ValueAndTimestamp(value=1, timestamp=505), 1)
        """
        present = [cell for cell in cells.values() if cell is not None]
        encoded = iter(serialize_column(self.value_serde, [value for value, _ in present]))
        for (key, start), cell in cells.items():
            data = None if cell is None else _TIMESTAMP.pack(cell[1]) + (next(encoded) or b"")
            self._observe(self._checked_time(start, "the start of a window"))
            self._put_row(key, (start, 0), data)

    def _encode(self, value: ValueAndTimestamp[Any] | None) -> bytes | None:
        if value is None:
            return None
        return _TIMESTAMP.pack(value.timestamp) + self._value_bytes(value.value)

    def _decode(self, data: bytes) -> ValueAndTimestamp[Any]:
        return ValueAndTimestamp(self.value_serde.deserialize(data[8:]), _TIMESTAMP.unpack_from(data)[0])
