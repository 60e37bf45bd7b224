"""Small applications for fault tests. Each has a fold of the same name in the oracle, written independently.

All have two levels and two partitions; together they use stores of several kinds, with and without caching,
one store without a changelog, one that has its source topic for one, epochs that change one store of a task
and not the other, deletes, and windows that expire.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from millstream import KStream, KTable, Processor, Record, Store, StreamsBuilder, Topology, serdes, stores

__all__ = ["APPLICATIONS", "PARTITIONS", "Application"]

PARTITIONS: Final = 2
_LARGE: Final = 100
_WINDOW_MS: Final = 10


@dataclass(frozen=True, slots=True)
class Application:
    """A topology, and how to make input for it."""

    name: str
    input: str
    outputs: tuple[str, ...]
    build: Callable[[], Topology]
    record: Callable[[random.Random], tuple[int, bytes | None, bytes | None]]
    """A random record: its partition, key and value."""
    is_input_compacted: bool = False


def word_count() -> Topology:
    """Stateless level, then a cached count."""
    builder = StreamsBuilder()
    words: KStream[Any, str] = builder.stream("lines", value=serdes.string).flat_map_values(str.split)
    counts = words.group_by(lambda _, word: word, key=serdes.string, value=serdes.string).count(
        store="counts"
    )
    counts.to_stream().to("word-counts", key=serdes.string, value=serdes.int64)
    return builder.build()


def ledger() -> Topology:
    """A processor with three stores, then an uncached sum."""
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("latest", key=serdes.string, value=serdes.string))
    builder.add_state_store(stores.key_value("large", key=serdes.string, value=serdes.int64))
    builder.add_state_store(stores.key_value("visits", key=serdes.string, value=serdes.int64, logging=False))
    orders = builder.stream("orders", key=serdes.string, value=serdes.string)
    audited = orders.process(Audit, "latest", "large", "visits")
    audited.to("audited", key=serdes.string, value=serdes.string)
    by_shop = audited.group_by(lambda _, order: order.split(":")[0], key=serdes.string, value=serdes.string)
    totals = by_shop.aggregate(
        lambda: 0,
        lambda _, order, total: total + int(order.split(":")[1]),
        store=Store("totals", caching=False, key=serdes.string, value=serdes.int64),
    )
    totals.to_stream().to("totals-out", key=serdes.string, value=serdes.int64)
    return builder.build()


class Audit(Processor[str, str, str, str]):
    """Keeps the latest order, the number of large ones and the number of all of each customer."""

    def init(self, context: Any) -> None:
        """Find the stores."""
        super().init(context)
        self._latest = context.state_store("latest")
        self._large = context.state_store("large")
        self._visits = context.state_store("visits")

    def process(self, record: Record[str, str]) -> None:
        """Note an order and send it on."""
        self._latest.put(record.key, record.value)
        self._visits.put(record.key, (self._visits.get(record.key) or 0) + 1)
        if int(record.value.split(":")[1]) >= _LARGE:
            self._large.put(record.key, (self._large.get(record.key) or 0) + 1)
        self.context.forward(record)


def stock() -> Topology:
    """A cached table, grouped by a part of its values."""
    return _stock().build()


def inventory() -> Topology:
    """The same, and the table has its source topic for a changelog."""
    return _stock().build(optimization="reuse_ktable_source_topics")


def _stock() -> StreamsBuilder:
    builder = StreamsBuilder()
    items: KTable[str, str] = builder.table(
        "stock", store=Store("items", key=serdes.string, value=serdes.string)
    )
    by_shop = items.group_by(
        lambda _, place: (place.split(":")[0], int(place.split(":")[1])),
        key=serdes.string,
        value=serdes.int64,
    )
    totals = by_shop.aggregate(
        lambda: 0,
        lambda _, amount, total: total + amount,
        lambda _, amount, total: total - amount,
        store=Store("by-shop", key=serdes.string, value=serdes.int64),
    )
    totals.to_stream().to("by-shop-out", key=serdes.string, value=serdes.int64)
    return builder


def footfall() -> Topology:
    """A processor with a window store whose rows expire soon, then an uncached count."""
    builder = StreamsBuilder()
    builder.add_state_store(
        stores.window(
            "windows",
            window_size_ms=_WINDOW_MS,
            retention_ms=4 * _WINDOW_MS,
            segment_interval_ms=2 * _WINDOW_MS,
            key=serdes.string,
            value=serdes.int64,
        )
    )
    visits = builder.stream("visits", key=serdes.string, value=serdes.string)
    counted = visits.process(CountInWindow, "windows")
    counted.to("windows-out", key=serdes.string, value=serdes.int64)
    by_place = visits.group_by(lambda _, place: place, key=serdes.string, value=serdes.string)
    places = by_place.count(store=Store("by-place", caching=False))
    places.to_stream().to("by-place-out", key=serdes.string, value=serdes.int64)
    return builder.build()


class CountInWindow(Processor[str, str, str, int]):
    """Counts the visits of each visitor by window."""

    def init(self, context: Any) -> None:
        """Find the store."""
        super().init(context)
        self._windows = context.state_store("windows")

    def process(self, record: Record[str, str]) -> None:
        """Count a visit and send the number on."""
        start = record.timestamp - record.timestamp % _WINDOW_MS
        count = (self._windows.fetch(record.key, start) or 0) + 1
        self._windows.put(record.key, count, window_start=start)
        self.context.forward(record.with_value(count))


def _line(rng: random.Random) -> tuple[int, bytes | None, bytes | None]:
    words = rng.choices((b"to", b"the", b"river", b"and", b"the", b"mill"), k=rng.randint(0, 4))
    return rng.randrange(PARTITIONS), None, b" ".join(words)


def _order(rng: random.Random) -> tuple[int, bytes | None, bytes | None]:
    customer = rng.randrange(5)
    return (
        customer % PARTITIONS,
        b"customer%d" % customer,
        b"shop%d:%d" % (rng.randrange(3), rng.randrange(120)),
    )


def _item(rng: random.Random) -> tuple[int, bytes | None, bytes | None]:
    item = rng.randrange(6)
    place = None if rng.random() < 0.2 else b"shop%d:%d" % (rng.randrange(3), rng.randrange(100))
    return item % PARTITIONS, b"item%d" % item, place


def _visit(rng: random.Random) -> tuple[int, bytes | None, bytes | None]:
    number = rng.randrange(5)
    partition = number % PARTITIONS
    return partition, b"visitor%d-%d" % (partition, number), b"place%d" % rng.randrange(3)


APPLICATIONS: Final[Mapping[str, Application]] = {
    application.name: application
    for application in (
        Application("word count", "lines", ("word-counts",), word_count, _line),
        Application("ledger", "orders", ("audited", "totals-out"), ledger, _order),
        Application("stock", "stock", ("by-shop-out",), stock, _item),
        Application("inventory", "stock", ("by-shop-out",), inventory, _item, is_input_compacted=True),
        Application("footfall", "visits", ("windows-out", "by-place-out"), footfall, _visit),
    )
}
