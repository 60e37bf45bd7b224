"""Timestamped stores with their timestamps out of sight, for tests that do not care."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from millstream.record import ValueAndTimestamp
from millstream.state.stores.key_value_iterator import KeyValueIterator
from millstream.state.stores.views import KeyValueView, View, WindowView, plain, plain_pairs


class _PlainStore(View):
    """A timestamped store that is read and written without timestamps."""

    def __init__(self, store: Any, clock: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock
        self.name: str = store.name

    def _one(self, ask: Callable[[Any], Any], key: Any = None) -> Any:
        del key
        return plain(ask(self._store))

    def _pairs(
        self, scan: Callable[[Any], KeyValueIterator[Any, Any]], key: Any = None
    ) -> KeyValueIterator[Any, Any]:
        del key
        return KeyValueIterator(plain_pairs(scan(self._store)))

    def _stamped(self, value: Any) -> ValueAndTimestamp[Any] | None:
        return None if value is None else ValueAndTimestamp(value, self._clock())


class PlainValues(_PlainStore, KeyValueView):
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

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key; None deletes it."""
        self._store.put(key, self._stamped(value))

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Set the value of a key that has none. The value that was there, or None."""
        return plain(self._store.put_if_absent(key, self._stamped(value)))

    def put_all(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Set many values; None deletes."""
        self._store.put_all((key, self._stamped(value)) for key, value in entries)

    def delete(self, key: Any) -> Any:
        """Remove a key. The value that was there, or None."""
        return plain(self._store.delete(key))


class PlainWindows(_PlainStore, WindowView):
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

    def put(self, key: Any, value: Any, window_start: int) -> None:
        """Set the value of a window; None deletes it."""
        self._store.put(key, self._stamped(value), window_start)
