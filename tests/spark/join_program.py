"""A program that has one of each join, and input for it: what comes out depends on nothing but the input.

Its tables are uncached, and every bound of an epoch is a number of records: so epochs end where they end,
whoever runs them and however often they begin anew.
"""

from __future__ import annotations

import random
from typing import Any

from tests.spark.lab import Lab, Pair

from millstream import JoinWindows, KStream, KTable, Store, StreamsBuilder, Topology, serdes
from millstream.log.partitioner import partition_for_key

OUTPUTS = ("paid", "seen", "named", "priced", "converted", "stocked", "referred")
PARTITIONS = 2
KEYS = 400
TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}


def one_of_each_join() -> Topology:
    builder = StreamsBuilder()
    orders: KStream[str, str] = builder.stream("orders", **TEXT)
    payments: KStream[str, str] = builder.stream("payments", **TEXT)
    customers = _table(builder, "customers")
    stock = _table(builder, "stock")
    versions = Store("prices", versioned=10_000, **TEXT)
    prices: KTable[str, str] = builder.table("prices", store=versions, **TEXT)
    rates = builder.global_table("rates", store="rates", **TEXT)
    orders.left_join(payments, _both, JoinWindows(40, grace=20), name="pay").to("paid", **TEXT)
    other_orders = orders.select_key(lambda _, order: f"k{int(order[1:]) % KEYS}", name="other")
    other_orders.outer_join(payments, _both, JoinWindows(before=0, after=50), name="see").to("seen", **TEXT)
    orders.left_join(customers, _both, name="name").to("named", **TEXT)
    orders.join(prices, _both, grace=30, name="price").to("priced", **TEXT)
    orders.left_join(rates, _both, key_of=lambda _, order: f"r{order[-1]}", name="convert").to(
        "converted", **TEXT
    )
    stocked = customers.outer_join(stock, _both, name="stocked", store=_uncached("stocked"))
    stocked.to_stream().to("stocked", **TEXT)
    referred = _table(builder, "items").left_foreign_key_join(
        customers, _customer_of, _both, name="refer", store=_uncached("referred")
    )
    referred.to_stream().to("referred", **TEXT)
    return builder.build()


def _both(one: str | None, other: str | None) -> str:
    return f"{one}+{other}"


def _customer_of(_: str, item: str) -> str:
    return f"k{int(item[1:]) % KEYS}"


def _uncached(name: str) -> Store:
    return Store(name, caching=False, **TEXT)


def _table(builder: StreamsBuilder, topic: str) -> KTable[str, str]:
    return builder.table(topic, store=_uncached(topic), **TEXT)


def fill(lab: Lab, records: int, *, seed: int) -> None:
    """Topics with so many records in all."""
    chosen = random.Random(seed)
    topics = ("orders", "payments", "customers", "stock", "prices", "items")
    for topic in topics:
        parts: list[list[Pair]] = [[] for _ in range(PARTITIONS)]
        deleted = 0.0 if topic in {"orders", "payments"} else 0.1
        for number in range(records // len(topics)):
            key = f"k{chosen.randrange(KEYS)}"
            value = None if chosen.random() < deleted else f"{topic[0]}{number}"
            parts[partition_for_key(key.encode(), PARTITIONS)].append((key, value))
        lab.topic(topic, parts)
    lab.topic("rates", [[(f"r{number}", str(number)) for number in range(7)]])
    for topic in OUTPUTS:
        lab.topic(topic, [[]])


def unharmed(lab: Lab, **settings: Any) -> dict[str, list[Any]]:
    """What comes out if nothing happens."""
    with lab.app(one_of_each_join(), engine="local", **settings) as app:
        app.run(until="caught-up")
    return outputs(lab)


def outputs(lab: Lab) -> dict[str, list[Any]]:
    """All rows of all topics, changelogs included, as they stand in the log."""
    return {
        topic: [(row.partition, row.offset, row.key, row.value, row.timestamp) for row in rows]
        for topic, rows in lab.everything().items()
    }
