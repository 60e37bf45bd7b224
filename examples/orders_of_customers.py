"""A join by foreign key: each order with its customer's address, also when the customer moves.

Orders and customers are tables with keys of their own; an order says which customer it is of.
"""

from __future__ import annotations

from millstream import StreamsBuilder, serdes
from millstream.testing import TopologyTestDriver

CHANGES = [  # table, key, row; in the order in which they happen
    ("customers", "ann", {"town": "Rome"}),
    ("orders", "o-1", {"item": "book", "customer": "ann"}),
    ("orders", "o-2", {"item": "lamp", "customer": "bob"}),  # nobody knows bob yet
    ("orders", "o-3", {"item": "pen", "customer": "ann"}),
    ("customers", "bob", {"town": "Lima"}),
    ("customers", "ann", {"town": "Oslo"}),  # both of her orders follow
    ("orders", "o-1", {"item": "book", "customer": "bob"}),  # sold on
]

builder = StreamsBuilder()
orders = builder.table("orders", key=serdes.string, value=serdes.json)
customers = builder.table("customers", key=serdes.string, value=serdes.json)
shipped = orders.foreign_key_join(
    customers,
    lambda _, order: order["customer"],
    lambda order, customer: f"{order['item']} to {customer['town']}",
    name="shipped",
)
shipped.to_stream().to("labels", key=serdes.string, value=serdes.string)


def labels() -> list[tuple[str | None, str | None]]:
    """What is printed on the parcels, one label after the other."""
    with TopologyTestDriver(builder.build()) as driver:
        for table, key, row in CHANGES:
            driver.input_topic(table, key=serdes.string, value=serdes.json).pipe(key, row, timestamp=0)
        found = driver.output_topic("labels", key=serdes.string, value=serdes.string).read_all()
        return [(record.key, record.value) for record in found]


if __name__ == "__main__":
    for order, label in labels():
        print(f"{order}: {label}")
