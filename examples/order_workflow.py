"""Orders, payments and stock to shipments: two joins, a branch, and what was not paid in time.

Run it on Spark with `millstream run order_workflow:topology`; here it runs in this process.
"""

from __future__ import annotations

from typing import Any

from millstream import JoinWindows, StreamsBuilder, serdes
from millstream.testing import TopologyTestDriver

QUARTER_OF_AN_HOUR = 15 * 60_000
EVENTS: list[tuple[str, str, Any, int]] = [  # topic, key, value, milliseconds
    ("stock", "book", 2, 0),
    ("orders", "order-1", {"item": "book"}, 1_000),
    ("orders", "order-2", {"item": "lamp"}, 2_000),
    ("orders", "order-3", {"item": "book"}, 3_000),
    ("payments", "order-1", 12.5, 60_000),
    ("payments", "order-2", 40.0, 70_000),
    ("orders", "order-4", {"item": "book"}, 2_000_000),  # time goes on: order-3 was not paid
]

builder = StreamsBuilder()
orders = builder.stream("orders", key=serdes.string, value=serdes.json)
payments = builder.stream("payments", key=serdes.string, value=serdes.double)
stock = builder.global_table("stock", key=serdes.string, value=serdes.int64)
checked = orders.left_join(
    payments,
    lambda order, paid: {**order, "paid": paid},
    JoinWindows(0, after=QUARTER_OF_AN_HOUR),
    name="payment",
)
known = checked.left_join(
    stock, lambda order, left: {**order, "left": left or 0}, key_of=lambda _, order: order["item"]
)
kinds = known.split(name="is-").branch(lambda _, order: order["paid"] is None, name="unpaid")
branches = kinds.branch(lambda _, order: order["left"] == 0, name="sold-out").default_branch(name="ready")
for name, topic in (("is-unpaid", "reminders"), ("is-sold-out", "refunds"), ("is-ready", "shipments")):
    branches[name].to(topic, key=serdes.string, value=serdes.json)
topology = builder.build()

if __name__ == "__main__":
    with TopologyTestDriver(topology) as driver:
        forms: dict[str, Any] = {"orders": serdes.json, "payments": serdes.double, "stock": serdes.int64}
        sources = {
            name: driver.input_topic(name, key=serdes.string, value=form) for name, form in forms.items()
        }
        for topic, key, event, time in EVENTS:
            sources[topic].pipe(key, event, timestamp=time)
        for name in ("shipments", "refunds", "reminders"):
            print(name, driver.output_topic(name, key=serdes.string, value=serdes.json).read_latest())
