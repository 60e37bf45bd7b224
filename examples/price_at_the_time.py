"""Enrichment by a versioned table: each sale at the price of its own time, however late it is reported.

Tills send their sales when they have a network. The price list has moved on by then; its history has not.
"""

from __future__ import annotations

from datetime import timedelta

from millstream import Store, StreamsBuilder, serdes
from millstream.testing import TopologyTestDriver

PRICES = [("bread", 2.50, 0), ("milk", 1.20, 0), ("bread", 3.00, 12)]  # item, price, from which hour on
SALES = [("bread", 2, 9), ("bread", 1, 13), ("milk", 4, 11), ("bread", 10, 10)]  # item, how many, hour
HOUR = 3_600_000

builder = StreamsBuilder()
history = Store("prices", versioned=timedelta(days=2))
prices = builder.table("prices", key=serdes.string, value=serdes.double, store=history)
sales = builder.stream("sales", key=serdes.string, value=serdes.int64)
sales.join(prices, lambda count, price: count * price).to("takings", value=serdes.double)


def takings() -> list[tuple[str | None, int, float | None]]:
    """Item, hour and takings of each sale."""
    with TopologyTestDriver(builder.build()) as driver:
        price_list = driver.input_topic("prices", key=serdes.string, value=serdes.double)
        for item, price, hour in PRICES:
            price_list.pipe(item, price, timestamp=hour * HOUR)
        tills = driver.input_topic("sales", key=serdes.string, value=serdes.int64)
        for item, count, hour in SALES:
            tills.pipe(item, count, timestamp=hour * HOUR)
        found = driver.output_topic("takings", key=serdes.string, value=serdes.double).read_all()
        return [(record.key, record.timestamp // HOUR, record.value) for record in found]


if __name__ == "__main__":
    for item, hour, amount in takings():
        print(f"{hour:02}:00  {item:6} {amount:6.2f}")
