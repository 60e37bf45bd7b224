"""Window stores: a value per key and window, for as long as the retention says.

A window is known by its start. Results of one key come in the order of time; those of several keys come
segment by segment, within a segment in the order of the keys' bytes, or of time if the store is
`time_ordered`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar, overload

from millstream.record import ValueAndTimestamp, Window, Windowed
from millstream.serdes import Serde, time_windowed
from millstream.state.stores.cell_store import TimestampedStore
from millstream.state.stores.key_value import KeyValueIterator
from millstream.state.stores.overlay import Overlay
from millstream.state.stores.window_key_schema import WINDOW, RowsByKey, RowsByTime, WindowedRow
from millstream.state.stores.windowed_store import MAX_TIME, Direction, WindowedCellStore, WindowedStore

__all__ = ["TimestampedWindowStore", "WindowStore"]

K = TypeVar("K")
V = TypeVar("V")

_START: Final = struct.Struct(">q")


class WindowStore(WindowedStore[K], Generic[K, V]):
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
    >>> store.load(store.encode_keys([Windowed("ann", Window(0, 10))]))
    {b'ann\x00\x00\x00\x00\x00\x00\x00\x00': (1, 7)}
    """

    @property
    def cell_key_serde(self) -> Serde[Any]:
        """See `CellStore.cell_key_serde`."""
        return time_windowed(self.key_serde, self.window_size_ms)

    def _place(self, cell_key: bytes) -> tuple[bytes, tuple[int, int]]:
        return cell_key[:-8], (_START.unpack_from(cell_key, len(cell_key) - 8)[0], 0)
