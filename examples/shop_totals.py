"""Orders to totals per shop, in the column tier: expressions instead of functions.

Makes some orders, runs them through the topology in this process, and prints what each shop took in.
"""

from __future__ import annotations

import polars as pl
from rich.console import Console
from rich.table import Table

from millstream import StreamsBuilder, serdes, value
from millstream.testing import TopologyTestDriver

ORDERS = [
    {"shop": shop, "amount": amount, "price": price}
    for shop, amount, price in (
        ("north", 3, 2.5),
        ("south", 1, 10.0),
        ("north", 0, 99.0),
        ("south", 2, 4.25),
        ("harbour", 5, 1.0),
    )
]

order = serdes.json({"shop": pl.String, "amount": pl.Int64, "price": pl.Float64})

builder = StreamsBuilder()
sold = builder.stream("orders", key=serdes.string, value=order).filter(value.amount > 0)
by_shop = sold.map_values(pl.struct(value.shop, total=value.amount * value.price)).group_by(value.shop)
by_shop.sum(value.total, store="totals").to_stream().to("totals-per-shop")
topology = builder.build()


def totals_of(orders: list[dict[str, object]]) -> dict[str, float]:
    """The last total of each shop, as a reader of the output topic sees it."""
    with TopologyTestDriver(topology) as driver:
        source = driver.input_topic("orders", key=serdes.string, value=serdes.json)
        totals = driver.output_topic("totals-per-shop", key=serdes.string, value=serdes.double)
        source.pipe_all((None, one) for one in orders)
        return totals.read_latest()


def main() -> None:
    """Print the totals."""
    table = Table(title="What each shop took in", min_width=32)
    table.add_column("shop", ratio=1)
    table.add_column("total", justify="right")
    for shop, total in sorted(totals_of(ORDERS).items()):
        table.add_row(shop, f"{total:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
