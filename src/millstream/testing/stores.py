"""A timestamped store with its timestamps out of sight, for tests that do not care."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from millstream.record import ValueAndTimestamp
from millstream.serdes import Serde
from millstream.state.keyvalue import KeyValueIterator, TimestampedKeyValueStore


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


def _plain(pairs: KeyValueIterator[Any, ValueAndTimestamp[Any]]) -> KeyValueIterator[Any, Any]:
    def values() -> Iterator[tuple[Any, Any]]:
        with pairs:
            for key, cell in pairs:
                yield key, cell.value

    return KeyValueIterator(values())
