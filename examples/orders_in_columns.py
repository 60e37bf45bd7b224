"""Orders to what each shop took in, in columns: the same expressions, given to Millstream and to Polars.

Run it on Spark with `millstream run orders_in_columns:topology`; here it runs in this process.
"""

from __future__ import annotations

import polars as pl

from millstream import StreamsBuilder, serdes, value
from millstream.testing import TopologyTestDriver

ORDERS = [
    {"shop": ("north", "south", "harbour")[number % 3], "amount": number % 7, "price": 0.25 * (number % 11)}
    for number in range(200)
]
SCHEMA = {"shop": pl.String, "amount": pl.Int64, "price": pl.Float64}
is_sold, takings = value.amount > 0, value.amount * value.price

builder = StreamsBuilder()
orders = builder.stream("orders", key=serdes.string, value=serdes.json(SCHEMA))
sold = orders.filter(is_sold).map_values(pl.struct(value.shop, takings.alias("takings")))
sold.group_by(value.shop).sum(value.takings, store="takings").to_stream().to("takings-per-shop")
topology = builder.build()


def by_polars() -> dict[str, float]:
    """The same by Polars alone, over all orders at once."""
    rows = pl.DataFrame({"value": ORDERS}).filter(is_sold)
    shops = rows.group_by(shop=value.shop).agg(takings.sum().alias("takings"))
    return dict(shops.iter_rows())


if __name__ == "__main__":
    with TopologyTestDriver(topology) as driver:
        source = driver.input_topic("orders", key=serdes.string, value=serdes.json)
        source.pipe_all((None, order) for order in ORDERS)
        totals = driver.output_topic("takings-per-shop", key=serdes.string, value=serdes.double).read_latest()
    for shop, total in sorted(totals.items()):
        print(f"{shop}: {total:.2f} (Polars: {by_polars()[shop]:.2f})")
