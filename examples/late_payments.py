"""Orders with late payments: who paid within an hour, and who did not.

An order waits for its payment for an hour, and half an hour longer for one that arrives late. Then it goes
out as unpaid, once.
"""

from __future__ import annotations

from datetime import timedelta

from millstream import JoinWindows, StreamsBuilder, serdes
from millstream.testing import TopologyTestDriver

ARRIVALS = [  # topic, order, what, the minute in which it happened; in the order in which they arrive
    ("orders", "o-1", "a book", 0),
    ("orders", "o-2", "a lamp", 5),
    ("orders", "o-3", "a pen", 10),
    ("payments", "o-1", "by card", 20),
    ("orders", "o-4", "a chair", 80),
    ("payments", "o-3", "by cheque", 65),  # late, but the order still waits for it
    ("payments", "o-2", "by cash", 90),  # more than an hour after its order
    ("orders", "o-5", "a desk", 200),  # time goes on: what was not paid by now is unpaid
]

builder = StreamsBuilder()
orders = builder.stream("orders", key=serdes.string, value=serdes.string)
payments = builder.stream("payments", key=serdes.string, value=serdes.string)
an_hour = JoinWindows(0, after=timedelta(hours=1), grace=timedelta(minutes=30))
orders.left_join(payments, lambda what, paid: f"{what}, {paid or 'unpaid'}", an_hour, name="paid").to("bills")


def bills(arrivals: list[tuple[str, str, str, int]]) -> list[tuple[str | None, str | None]]:
    """Each order with how it was paid."""
    with TopologyTestDriver(builder.build()) as driver:
        for topic, order, what, minute in arrivals:
            topics = driver.input_topic(topic, key=serdes.string, value=serdes.string)
            topics.pipe(order, what, timestamp=minute * 60_000)
        found = driver.output_topic("bills", key=serdes.string, value=serdes.string).read_all()
        return [(record.key, record.value) for record in found]


if __name__ == "__main__":
    for order, bill in bills(ARRIVALS):
        print(f"{order}: {bill}")
