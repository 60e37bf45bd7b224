"""Sensors to alarms per minute: one final result per minute, although readings come late and out of order.

Each reading counts in the minute in which it was taken. A minute stays open for 20 seconds after its end;
whatever comes later is not in the mean, but in a topic of its own.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from millstream import EmitStrategy, StreamsBuilder, StreamsConfig, TimeWindows, Windowed, handlers, serdes
from millstream.testing import TopologyTestDriver

MINUTE = 60_000
TOO_HOT = 80.0
READINGS = [  # sensor, degrees, seconds at which it was taken; in the order in which they arrive
    ("boiler", 70.0, 5),
    ("boiler", 96.0, 30),
    ("pump", 40.0, 31),
    ("boiler", 90.0, 65),
    ("boiler", 80.0, 55),  # late, but the minute is still open
    ("pump", 42.0, 100),
    ("boiler", 20.0, 58),  # too late: the first minute was closed at 1:20
    ("boiler", 60.0, 150),
    ("pump", 41.0, 205),
]

builder = StreamsBuilder()
(
    builder.stream("readings", key=serdes.string, value=serdes.double)
    .group_by_key()
    .windowed_by(TimeWindows(MINUTE, grace=20_000))
    .emit_strategy(EmitStrategy.on_window_close())
    .mean(store="per-minute", name="mean-per-minute")
    .to_stream()
    .filter(lambda _, mean: mean > TOO_HOT)
    .to("alarms", value=serdes.double)
)
topology = builder.build()
config = StreamsConfig(late_record_handler=handlers.dead_letter, dead_letter_topic="late-readings")


def alarms_of(readings: list[tuple[str, float, int]]) -> tuple[list[tuple[Windowed[str], float]], int]:
    """Minutes that were too hot, each once; and how many readings came too late."""
    with TopologyTestDriver(topology, config=config) as driver:
        source = driver.input_topic("readings", key=serdes.string, value=serdes.double)
        windowed = serdes.time_windowed(serdes.string, MINUTE)
        alarms = driver.output_topic("alarms", key=windowed, value=serdes.double)
        for sensor, degrees, second in readings:
            source.pipe(sensor, degrees, timestamp=second * 1_000)
        found = [(record.key, record.value) for record in alarms.read_all()]
        return found, driver.metrics.get("mean-per-minute", "records-late")


def main() -> None:
    """Print the alarms."""
    found, late = alarms_of(READINGS)
    table = Table(title="Minutes that were too hot", min_width=40, caption=f"{late} reading came too late")
    for column in ("sensor", "minute", "mean"):
        table.add_column(column, justify="right" if column == "mean" else "left")
    for key, mean in found:
        table.add_row(key.key, f"{key.window.start // MINUTE}", f"{mean:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
