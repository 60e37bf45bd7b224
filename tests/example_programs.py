"""The examples as data: what they read, and what they must write, whoever runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from millstream import Topology, Window, Windowed, serdes
from millstream.log import FileLog, TopicPartition, record_batch
from millstream.testing import TopologyTestDriver
from millstream.types import Offset, Partition

Event = tuple[str, Any, Any, int]
"""Topic, key, value, milliseconds."""
HOUR = 3_600_000


@dataclass(frozen=True, slots=True)
class Example:
    """One example: serdes of the values of its topics (keys are text), what it is fed, what must come out."""

    name: str
    events: Sequence[Event]
    inputs: Mapping[str, Any]
    outputs: Mapping[str, tuple[Any, Any]]
    expected: Mapping[str, Sequence[tuple[Any, Any]]]
    """Per topic the last value of each key."""

    @property
    def topology(self) -> Topology:
        topology: Topology = import_module(f"examples.{self.name}").topology
        return topology

    def run_by_the_driver(self) -> dict[str, dict[Any, Any]]:
        """What the test driver gives."""
        with TopologyTestDriver(self.topology) as driver:
            sources = {
                topic: driver.input_topic(topic, key=serdes.string, value=serde)
                for topic, serde in self.inputs.items()
            }
            for topic, key, value, time in self.events:
                sources[topic].pipe(key, value, timestamp=time)
            return {
                topic: driver.output_topic(topic, key=key, value=value).read_latest()
                for topic, (key, value) in self.outputs.items()
            }

    def write_inputs(self, log: FileLog) -> None:
        """The same input as topics of a log."""
        for topic, serde in self.inputs.items():
            rows = [(key, value, time) for at, key, value, time in self.events if at == topic]
            log.create_topic(topic)
            batch = record_batch(
                [None if key is None else key.encode() for key, _, _ in rows],
                [None if value is None else serde.serialize(value) for _, value, _ in rows],
                [time for _, _, time in rows],
            )
            log.append(TopicPartition(topic, Partition(0)), batch)

    def read_outputs(self, log: FileLog) -> dict[str, dict[Any, Any]]:
        """The last value of each key in the topics of a log."""
        found: dict[str, dict[Any, Any]] = {}
        for topic, (key_serde, value_serde) in self.outputs.items():
            rows = found.setdefault(topic, {})
            for number in range(log.config(topic).partitions):
                for batch in log.read(TopicPartition(topic, Partition(number)), Offset(0)):
                    for key, value in zip(batch.keys(), batch.values(), strict=True):
                        rows[key_serde.deserialize(key)] = value_serde.deserialize(value)
        return found


def _examples() -> list[Example]:
    text, number = serdes.string, serdes.double
    fraud, web = import_module("examples.fraud_alerts"), import_module("examples.web_traffic")
    columns, rain = import_module("examples.orders_in_columns"), import_module("examples.sensor_totals")
    workflow = import_module("examples.order_workflow")
    windowed: Any = serdes.time_windowed(text, HOUR)

    def hour(gauge: str, start: int) -> Windowed[str]:
        return Windowed(gauge, Window(start * HOUR, (start + 1) * HOUR))

    return [
        Example(
            "fraud_alerts",
            [("payments", card, amount, time) for card, amount, time in fraud.PAYMENTS],
            {"payments": number},
            {"alerts": (text, number)},
            {"alerts": [("4711", 99.0)]},
        ),
        Example(
            "web_traffic",
            [("pages", visitor, page, time) for visitor, page, time in web.VISITS],
            {"pages": text},
            {"top-pages": (text, serdes.json)},
            {"top-pages": [("all", ["search", "cart"])]},
        ),
        Example(
            "orders_in_columns",
            [("orders", None, order, time) for time, order in enumerate(columns.ORDERS)],
            {"orders": serdes.json},
            {"takings-per-shop": (text, number)},
            {"takings-per-shop": sorted(columns.by_polars().items())},
        ),
        Example(
            "sensor_totals",
            [("readings", gauge, amount, minute * 60_000) for gauge, amount, minute in rain.READINGS],
            {"readings": number},
            {"rain": (windowed, number)},
            {"rain": [(hour("hill", 0), 2.5), (hour("valley", 0), 1.75), (hour("hill", 1), 1.25)]},
        ),
        Example(
            "order_workflow",
            workflow.EVENTS,
            {"orders": serdes.json, "payments": number, "stock": serdes.int64},
            dict.fromkeys(("shipments", "refunds", "reminders"), (text, serdes.json)),
            {
                "shipments": [("order-1", {"item": "book", "paid": 12.5, "left": 2})],
                "refunds": [("order-2", {"item": "lamp", "paid": 40.0, "left": 0})],
                "reminders": [("order-3", {"item": "book", "paid": None, "left": 2})],
            },
        ),
    ]


EXAMPLES = _examples()
FOLDER = Path(__file__).parents[1] / "examples"
