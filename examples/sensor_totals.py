"""Rain gauges to totals per hour: one final result per gauge and hour, although readings come out of order.

Run it on Spark with `millstream run sensor_totals:topology`; here it runs in this process.
"""

from __future__ import annotations

from datetime import timedelta

from millstream import StreamsBuilder, Suppressed, TimeWindows, serdes
from millstream.testing import TopologyTestDriver

HOUR = 3_600_000
MINUTE = 60_000
READINGS = [  # gauge, millimetres, minutes since midnight, in the order in which they arrive
    ("hill", 0.5, 5),
    ("valley", 1.25, 20),
    ("hill", 2.0, 50),
    ("hill", 0.25, 65),
    ("valley", 0.5, 58),  # late, but the hour is still open
    ("hill", 1.0, 80),
    ("valley", 9.0, 30),  # too late: the first hour was closed at 1:10
    ("valley", 4.0, 200),
]

builder = StreamsBuilder()
hours = TimeWindows(timedelta(hours=1), grace=timedelta(minutes=10))
(
    builder.stream("readings", key=serdes.string, value=serdes.double)
    .group_by_key()
    .windowed_by(hours)
    .sum(store="rain-per-hour")
    .suppress(Suppressed.until_window_closes())
    .to_stream()
    .to("rain", key=serdes.time_windowed(serdes.string, HOUR), value=serdes.double)
)
topology = builder.build()

if __name__ == "__main__":
    with TopologyTestDriver(topology) as driver:
        source = driver.input_topic("readings", key=serdes.string, value=serdes.double)
        for gauge, millimetres, minute in READINGS:
            source.pipe(gauge, millimetres, timestamp=minute * MINUTE)
        windowed = serdes.time_windowed(serdes.string, HOUR)
        for total in driver.output_topic("rain", key=windowed, value=serdes.double).read_all():
            print(f"{total.key.key}, hour {total.key.window.start // HOUR}: {total.value:.2f} mm")
