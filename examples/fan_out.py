"""Fan-out by a global table: one alert becomes one message for each person who is on duty for its machine.

Every task has the whole table, so that alerts can stay in their partitions.
"""

from __future__ import annotations

from millstream import StreamsBuilder, serdes
from millstream.testing import TopologyTestDriver

DUTY = [("press", ["ann", "bob"]), ("oven", ["cid"]), ("press", ["bob", "dora"])]  # the last one counts
ALERTS = [("hall-1", {"machine": "press", "text": "no oil"}), ("hall-2", {"machine": "oven", "text": "hot"})]

builder = StreamsBuilder()
duty = builder.global_table("duty", key=serdes.string, value=serdes.json, store="duty")
(
    builder.stream("alerts", key=serdes.string, value=serdes.json)
    .join(duty, lambda alert, people: (alert, people), key_of=lambda _, alert: alert["machine"])
    .flat_map(lambda hall, found: [(who, f"{found[0]['text']} in {hall}") for who in found[1]])
    .to("messages", key=serdes.string, value=serdes.string)
)


def messages() -> list[tuple[str | None, str | None]]:
    """Who is told what."""
    with TopologyTestDriver(builder.build()) as driver:
        for topic, rows in (("duty", DUTY), ("alerts", ALERTS)):
            source = driver.input_topic(topic, key=serdes.string, value=serdes.json)
            for key, value in rows:
                source.pipe(key, value, timestamp=0)
        found = driver.output_topic("messages", key=serdes.string, value=serdes.string).read_all()
        return [(record.key, record.value) for record in found]


if __name__ == "__main__":
    for who, text in messages():
        print(f"{who}: {text}")
