"""Session stores: a value per key and session, for as long as the retention says.

A session is a window with its end inclusive, and is kept by its end. The timestamp of its cell is its end,
and is not stored; the key of the cell is the key's bytes, the end (8) and the start (8), as
`serdes.session_windowed` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

from millstream.record import MAX_TIME, Window, Windowed
from millstream.serdes import Serde, session_windowed
from millstream.state.stores.key_value_iterator import KeyValueIterator
from millstream.state.stores.overlay import Entry
from millstream.state.stores.read_only import ReadOnlySessionStore
from millstream.state.stores.window_key_schema import SESSION, WindowedRow
from millstream.state.stores.windowed_store import Direction, WindowedCellStore

__all__ = ["SessionRow", "SessionStore"]

K = TypeVar("K")
V = TypeVar("V")

SessionRow: TypeAlias = tuple[int, int, bytes]
"""End, start and the bytes of the value."""


class SessionStore(WindowedCellStore[K], ReadOnlySessionStore[K, V]):
    """Values by key and session.

    >>> from millstream import serdes, stores
    >>> from millstream.state.backends.memory import MemoryBackend
    >>> from millstream.state.stores.factory import open_store
    >>> spec = stores.session("visits", retention_ms=100, time_ordered=True)
    >>> store = open_store(spec, MemoryBackend(), serdes.string, serdes.int64)
    >>> store.put(Windowed("bob", Window(0, 5)), 1)
    >>> store.put(Windowed("ann", Window(2, 9)), 2)
    >>> store.put(Windowed("ann", Window(30, 30)), 3)
    >>> [value for _, value in store.find_ended(0, 9)]
    [1, 2]
    >>> [(key, start, end) for key, end, start, _ in store.ended(0, 9)]
    [(b'bob', 0, 5), (b'ann', 2, 9)]
    >>> store.remove(Windowed("ann", Window(2, 9)))
    >>> [value for _, value in store.fetch("ann")]
    [3]
    """

    numbers = SESSION
    window_bytes = SESSION.size

    def put(self, session: Windowed[K], value: V | None) -> None:
        """Set the value of a session; None removes it.

        A session that is past the retention already is not kept, only counted.
        """
        start, end = session.window.start, session.window.end
        key = self._key_bytes(session.key)
        data = self._encode(value)
        self._observe(end)
        self._put_row(key, (end, start), data)

    def remove(self, session: Windowed[K]) -> None:
        """Remove a session."""
        self.put(session, None)

    def fetch_session(self, key: K, start: int, end: int) -> V | None:
        """See `ReadOnlySessionStore.fetch_session`."""
        data = self._row(key, (end, start))
        return None if data is None else self._decode(data)

    def find_sessions(self, key: K, earliest_end: int, latest_start: int) -> KeyValueIterator[Windowed[K], V]:
        """See `ReadOnlySessionStore.find_sessions`."""
        rows = self._rows_of_key(Direction.FORWARD, key, earliest_end, MAX_TIME)
        return self._sessions(rows, latest_start)

    def backward_find_sessions(
        self, key: K, earliest_end: int, latest_start: int
    ) -> KeyValueIterator[Windowed[K], V]:
        """See `ReadOnlySessionStore.backward_find_sessions`."""
        rows = self._rows_of_key(Direction.BACKWARD, key, earliest_end, MAX_TIME)
        return self._sessions(rows, latest_start)

    def find_sessions_range(
        self, key_from: K | None, key_to: K | None, earliest_end: int, latest_start: int
    ) -> KeyValueIterator[Windowed[K], V]:
        """See `ReadOnlySessionStore.find_sessions_range`."""
        bounds = self._bounds(key_from, key_to)
        rows = self._rows_of_keys(Direction.FORWARD, bounds, earliest_end, MAX_TIME)
        return self._sessions(rows, latest_start)

    def backward_find_sessions_range(
        self, key_from: K | None, key_to: K | None, earliest_end: int, latest_start: int
    ) -> KeyValueIterator[Windowed[K], V]:
        """See `ReadOnlySessionStore.backward_find_sessions_range`."""
        bounds = self._bounds(key_from, key_to)
        rows = self._rows_of_keys(Direction.BACKWARD, bounds, earliest_end, MAX_TIME)
        return self._sessions(rows, latest_start)

    def find_ended(self, earliest_end: int, latest_end: int) -> KeyValueIterator[Windowed[K], V]:
        """The sessions of all keys that end between two times, both inclusive: those that have closed."""
        return self._sessions(self.ended(earliest_end, latest_end), MAX_TIME)

    def sessions_of(self, keys: Iterable[bytes], earliest_end: int) -> dict[bytes, list[SessionRow]]:
        """The sessions of some keys, given as bytes, that end at a time or later: by end, still encoded.

        >>> from millstream import serdes, stores
        >>> from millstream.state.backends.memory import MemoryBackend
        >>> from millstream.state.stores.factory import open_store
        >>> spec = stores.session("visits", retention_ms=100)
        >>> store = open_store(spec, MemoryBackend(), serdes.string, serdes.string)
        >>> store.put(Windowed("bob", Window(0, 5)), "x")
        >>> store.sessions_of([b"ann", b"bob"], 5)
        {b'bob': [(5, 0, b'x')]}
        """
        found: dict[bytes, list[SessionRow]] = {}
        for key, end, start, data in self._rows_of_each(keys, earliest_end, MAX_TIME):
            found.setdefault(key, []).append((end, start, data))
        return found

    def ended(self, earliest_end: int, latest_end: int) -> Iterator[WindowedRow]:
        """What `find_ended` gives, still encoded: key, end, start and value."""
        return self._rows_of_keys(Direction.FORWARD, (None, None), earliest_end, latest_end)

    def _sessions(self, rows: Iterator[WindowedRow], latest_start: int) -> KeyValueIterator[Windowed[K], V]:
        return KeyValueIterator(
            (Windowed(self.key_serde.deserialize(key), Window(start, end)), self._decode(data))
            for key, end, start, data in rows
            if start <= latest_start
        )

    @property
    def cell_key_serde(self) -> Serde[Any]:
        """See `CellStore.cell_key_serde`."""
        return session_windowed(self.key_serde)

    def _place(self, cell_key: bytes) -> tuple[bytes, tuple[int, int]]:
        return cell_key[:-16], SESSION.unpack_from(cell_key, len(cell_key) - 16)

    def _by_cell(
        self, keys: Iterable[bytes], expired: int, read: Callable[..., Mapping[bytes, bytes | None]]
    ) -> dict[bytes, bytes | None]:
        found = super()._by_cell(keys, expired, read)
        return {key: None if data is None else key[-16:-8] + data for key, data in found.items()}

    def _write(self, cells: Iterable[Entry]) -> None:
        super()._write((key, None if data is None else data[8:]) for key, data in cells)
