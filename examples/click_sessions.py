"""Clicks to visits: pages that somebody opens within half an hour of each other belong to one visit.

Makes some clicks, one of them out of order, and prints each visit once, when it is over.
"""

from __future__ import annotations

from datetime import timedelta

from rich.console import Console
from rich.table import Table

from millstream import EmitStrategy, SessionWindows, StreamsBuilder, Windowed, serdes
from millstream.testing import TopologyTestDriver

CLICKS = [  # minutes since midnight; ann's click on "cart" is late, and makes one visit of two
    (9 * 60 + 0, "ann", "home"),
    (9 * 60 + 5, "bob", "home"),
    (9 * 60 + 50, "ann", "pay"),
    (9 * 60 + 25, "ann", "cart"),
    (11 * 60 + 0, "bob", "search"),
    (23 * 60 + 0, "cat", "home"),
]
half_an_hour = SessionWindows(timedelta(minutes=30), grace=timedelta(minutes=30))

builder = StreamsBuilder()
visits = (
    builder.stream("clicks", key=serdes.string, value=serdes.string).group_by_key().windowed_by(half_an_hour)
)
pages = visits.emit_strategy(EmitStrategy.on_window_close()).aggregate(
    list, lambda _, page, path: [*path, page], lambda _, one, other: one + other, store="visits"
)
pages.to_stream().to("visits")
topology = builder.build()


def visits_of(clicks: list[tuple[int, str, str]]) -> list[tuple[Windowed[str], list[str]]]:
    """The visits that are over, in the order of their ends."""
    with TopologyTestDriver(topology) as driver:
        source = driver.input_topic("clicks", key=serdes.string, value=serdes.string)
        sink = driver.output_topic("visits", key=serdes.session_windowed(serdes.string), value=serdes.json)
        for minute, visitor, page in clicks:
            source.pipe(visitor, page, timestamp=minute * 60_000)
        return [(record.key, record.value) for record in sink.read_all()]


def main() -> None:
    """Print the visits."""
    table = Table("visitor", "from", "to", "pages", title="Visits that are over")
    for visit, path in visits_of(CLICKS):
        times = [
            f"{time // 3_600_000:02}:{time // 60_000 % 60:02}"
            for time in (visit.window.start, visit.window.end)
        ]
        table.add_row(visit.key, *times, " ".join(path))
    Console().print(table)


if __name__ == "__main__":
    main()
