"""Timestamped stores with their timestamps out of sight, for tests that do not care."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from millstream.record import ValueAndTimestamp
from millstream.serdes import Serde
from millstream.state.stores.key_value import KeyValueIterator, TimestampedKeyValueStore
from millstream.state.stores.window import TimestampedWindowStore


class PlainValues:
    """Reads and writes plain values; a written one gets the driver's wall clock as its timestamp.

    >>> from millstream import StreamsBuilder, serdes
    >>> from millstream.testing import TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> table = builder.table("stock", key=serdes.string, value=serdes.int64, store="stock")
    >>> with TopologyTestDriver(builder.build()) as driver:
    ...     stock = driver.store("stock")
    ...     stock.put("bread", 3)
    ...     stock.put_all([("flour", 5), ("salt", 1)])
    ...     _ = stock.put_if_absent("bread", 9)
    ...     print(stock.get("bread"), stock.delete("salt"), stock.approximate_num_entries())
    ...     print(list(stock.all()), list(stock.reverse_all()))
    ...     print(list(stock.range("c", None)), list(stock.reverse_range(None, "c")))
    ...     print(list(stock.prefix_scan("fl", serdes.string)))
    3 1 2
    [('bread', 3), ('flour', 5)] [('flour', 5), ('bread', 3)]
    [('flour', 5)] [('bread', 3)]
    [('flour', 5)]
    """

    def __init__(self, store: TimestampedKeyValueStore[Any], clock: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock
        self.name = store.name

    def get(self, key: Any) -> Any:
        """The value of a key, or None."""
        cell = self._store.get(key)
        return None if cell is None else cell.value

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key; None deletes it."""
        self._store.put(key, None if value is None else ValueAndTimestamp(value, self._clock()))

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Set the value of a key that has none. The value that was there, or None."""
        current = self.get(key)
        if current is None:
            self.put(key, value)
        return current

    def put_all(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Set many values; None deletes."""
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: Any) -> Any:
        """Remove a key. The value that was there, or None."""
        cell = self._store.delete(key)
        return None if cell is None else cell.value

    def range(self, start: Any, end: Any) -> KeyValueIterator[Any, Any]:
        """Pairs from `start` to `end`, both inclusive; None leaves a side open."""
        return _plain(self._store.range(start, end))

    def reverse_range(self, start: Any, end: Any) -> KeyValueIterator[Any, Any]:
        """The same pairs, last key first."""
        return _plain(self._store.reverse_range(start, end))

    def prefix_scan(self, prefix: Any, prefix_serde: Serde[Any]) -> KeyValueIterator[Any, Any]:
        """Pairs whose key bytes begin with the serialized prefix."""
        return _plain(self._store.prefix_scan(prefix, prefix_serde))

    def all(self) -> KeyValueIterator[Any, Any]:
        """All pairs."""
        return _plain(self._store.all())

    def reverse_all(self) -> KeyValueIterator[Any, Any]:
        """All pairs, last key first."""
        return _plain(self._store.reverse_all())

    def approximate_num_entries(self) -> int:
        """How many pairs there are."""
        return self._store.approximate_num_entries()


class PlainWindows:
    """Reads and writes plain values of windows; a written one gets the driver's wall clock as its timestamp.

    >>> from millstream import Processor, StreamsBuilder, serdes, stores
    >>> from millstream.testing import TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> _ = (
    ...     builder.add_state_store(
    ...         stores.timestamped_window(
    ...             "clicks", window_size_ms=10, retention_ms=60, key=serdes.string, value=serdes.int64
    ...         )
    ...     )
    ...     .stream("pages")
    ...     .process(Processor, "clicks")
    ... )
    >>> with TopologyTestDriver(builder.build()) as driver:
    ...     clicks = driver.window_store("clicks")
    ...     clicks.put("ann", 3, 20)
    ...     clicks.put("bob", 4, 30)
    ...     print(clicks.fetch("ann", 20), list(clicks.fetch("ann", 0, 100)))
    ...     print(list(clicks.backward_fetch("bob", 0, 100)))
    ...     for windows in (
    ...         clicks.fetch_range("b", None, 0, 99),
    ...         clicks.backward_fetch_range(None, None, 0, 99),
    ...     ):
    ...         print([(window.key, value) for window, value in windows])
    ...     for windows in (clicks.fetch_all(0, 25), clicks.backward_fetch_all(0, 25)):
    ...         print([(window.key, value) for window, value in windows])
    ...     for windows in (clicks.all(), clicks.backward_all()):
    ...         print([(window.key, value) for window, value in windows])
    3 [(20, 3)]
    [(30, 4)]
    [('bob', 4)]
    [('bob', 4), ('ann', 3)]
    [('ann', 3)]
    [('ann', 3)]
    [('ann', 3), ('bob', 4)]
    [('bob', 4), ('ann', 3)]
    """

    def __init__(self, store: TimestampedWindowStore[Any], clock: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock
        self.name = store.name

    def put(self, key: Any, value: Any, window_start: int) -> None:
        """Set the value of a window; None deletes it."""
        cell = None if value is None else ValueAndTimestamp(value, self._clock())
        self._store.put(key, cell, window_start)

    def fetch(self, key: Any, time_from: int, time_to: int | None = None) -> Any:
        """The value of the window that starts at a time; or the windows that start between two, by start."""
        if time_to is not None:
            return _plain(self._store.fetch(key, time_from, time_to))
        cell = self._store.fetch(key, time_from)
        return None if cell is None else cell.value

    def backward_fetch(self, key: Any, time_from: int, time_to: int) -> KeyValueIterator[int, Any]:
        """The same windows of a key, the last one first."""
        return _plain(self._store.backward_fetch(key, time_from, time_to))

    def fetch_range(
        self, key_from: Any, key_to: Any, time_from: int, time_to: int
    ) -> KeyValueIterator[Any, Any]:
        """Windows of a range of keys that start between two times."""
        return _plain(self._store.fetch_range(key_from, key_to, time_from, time_to))

    def backward_fetch_range(
        self, key_from: Any, key_to: Any, time_from: int, time_to: int
    ) -> KeyValueIterator[Any, Any]:
        """The same windows, the last one first."""
        return _plain(self._store.backward_fetch_range(key_from, key_to, time_from, time_to))

    def fetch_all(self, time_from: int, time_to: int) -> KeyValueIterator[Any, Any]:
        """Windows of all keys that start between two times."""
        return _plain(self._store.fetch_all(time_from, time_to))

    def backward_fetch_all(self, time_from: int, time_to: int) -> KeyValueIterator[Any, Any]:
        """The same windows, the last one first."""
        return _plain(self._store.backward_fetch_all(time_from, time_to))

    def all(self) -> KeyValueIterator[Any, Any]:
        """All windows."""
        return _plain(self._store.all())

    def backward_all(self) -> KeyValueIterator[Any, Any]:
        """All windows, the last one first."""
        return _plain(self._store.backward_all())


def _plain(pairs: KeyValueIterator[Any, ValueAndTimestamp[Any]]) -> KeyValueIterator[Any, Any]:
    def values() -> Iterator[tuple[Any, Any]]:
        with pairs:
            for key, cell in pairs:
                yield key, cell.value

    return KeyValueIterator(values())
