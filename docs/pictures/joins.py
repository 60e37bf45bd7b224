"""Draws the pictures of docs/joins.md: records of both sides as they arrive, and what comes out then.

Run it with `python docs/pictures/joins.py`; the SVG files beside it are written anew. Nothing is drawn by
hand: each record goes through a `TopologyTestDriver`, and each result hangs below the record that made it
come out, with lines to the records that it was made of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import svg

from millstream import JoinWindows, Store, StreamsBuilder, serdes
from millstream.testing import TopologyTestDriver

HERE = Path(__file__).parent
STRINGS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
LEFT, TOP, LANE, ROW, PER_MS, CHARACTER = 96, 26, 56, 26, 18, 6.6
STYLE = """
.link { stroke: #57606a; stroke-dasharray: 3 3 }
.wide { stroke: #0969da; stroke-width: 5; opacity: .3 }
.result { fill: #dafbe1; stroke: #1a7f37 }
@media (prefers-color-scheme: dark) {
  .link { stroke: #9198a1 } .wide { stroke: #4493f8 } .result { fill: #12361f; stroke: #3fb950 }
}
"""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A record on its way in; None as a value deletes a row."""

    topic: str
    key: str
    value: str | None
    timestamp: int

    @property
    def label(self) -> str:
        """How it is written beside its dot."""
        return f"{self.key}: {'deleted' if self.value is None else self.value}"


@dataclass(frozen=True, slots=True)
class Picture:
    """A join, and the records of both sides in the order of their arrival. Values are unique."""

    name: str
    build: Callable[[StreamsBuilder], None]
    arrivals: tuple[Arrival, ...]
    windows: JoinWindows | None = None
    """Drawn behind the records of the left side, which are then placed by their time."""

    @property
    def topics(self) -> list[str]:
        """Those that are read, left before right."""
        return list(dict.fromkeys(arrival.topic for arrival in self.arrivals))


@dataclass(frozen=True, slots=True)
class Result:
    """What came out, and the number of the arrival that made it come."""

    key: str | None
    value: str | None
    timestamp: int
    cause: int

    @property
    def label(self) -> str:
        """How it is written in its box."""
        return f"{self.key}: {'deleted' if self.value is None else self.value} @{self.timestamp}"


def both(left: str | None, right: str | None) -> str:
    """The joiner of all pictures."""
    return f"{left or '-'} + {right or '-'}"


UP_TO_TEN_LATER = JoinWindows(0, after=10)


def stream_stream(builder: StreamsBuilder) -> None:
    """Orders wait for payments; payments without an order are told as well."""
    orders, payments = builder.stream("orders", **STRINGS), builder.stream("payments", **STRINGS)
    orders.outer_join(payments, both, UP_TO_TEN_LATER).to("out", value=serdes.string)


def stream_table(builder: StreamsBuilder) -> None:
    """Each order takes the price as it is."""
    prices = builder.table("prices", **STRINGS)
    builder.stream("orders", **STRINGS).join(prices, both).to("out", value=serdes.string)


def versioned_table(builder: StreamsBuilder) -> None:
    """Each order takes the price of its own time."""
    prices = builder.table("prices", store=Store("prices", versioned=1_000), **STRINGS)
    builder.stream("orders", **STRINGS).join(prices, both).to("out", value=serdes.string)


def global_table(builder: StreamsBuilder) -> None:
    """A user is of a country, whatever the user's own key."""
    countries = builder.global_table("countries", **STRINGS)
    users = builder.stream("users", **STRINGS)
    users.left_join(countries, both, key_of=lambda _, country: country).to("out", value=serdes.string)


def table_table(builder: StreamsBuilder) -> None:
    """A row follows both of its sides."""
    names, towns = builder.table("names", **STRINGS), builder.table("towns", **STRINGS)
    names.join(towns, both).to_stream().to("out", value=serdes.string)


def foreign_key(builder: StreamsBuilder) -> None:
    """An order has a customer, and customers move."""
    orders, customers = builder.table("orders", **STRINGS), builder.table("customers", **STRINGS)
    joined = orders.foreign_key_join(customers, lambda _, order: order.split()[-1], both)
    joined.to_stream().to("out", value=serdes.string)


PICTURES = (
    Picture(
        "stream_stream",
        stream_stream,
        (
            Arrival("orders", "ann", "book", 2),
            Arrival("orders", "bob", "lamp", 7),
            Arrival("payments", "ann", "card", 11),
            Arrival("payments", "cid", "cash", 21),
            Arrival("orders", "dan", "pen", 30),
        ),
        UP_TO_TEN_LATER,
    ),
    Picture(
        "stream_table",
        stream_table,
        (
            Arrival("orders", "bread", "1 loaf", 1),
            Arrival("prices", "bread", "2.50", 3),
            Arrival("orders", "bread", "2 loaves", 5),
            Arrival("prices", "bread", "3.00", 7),
            Arrival("orders", "bread", "3 loaves", 6),
        ),
    ),
    Picture(
        "versioned_table",
        versioned_table,
        (
            Arrival("orders", "bread", "1 loaf", 1),
            Arrival("prices", "bread", "2.50", 3),
            Arrival("orders", "bread", "2 loaves", 5),
            Arrival("prices", "bread", "3.00", 7),
            Arrival("orders", "bread", "3 loaves", 6),
        ),
    ),
    Picture(
        "global_table",
        global_table,
        (
            Arrival("countries", "fr", "France", 1),
            Arrival("users", "ann", "fr", 2),
            Arrival("users", "bob", "xx", 3),
            Arrival("countries", "fr", None, 4),
            Arrival("users", "cid", "fr", 5),
        ),
    ),
    Picture(
        "table_table",
        table_table,
        (
            Arrival("names", "1", "Ann", 1),
            Arrival("towns", "1", "Rome", 3),
            Arrival("names", "1", "Anna", 5),
            Arrival("towns", "2", "Oslo", 6),
            Arrival("towns", "1", None, 8),
        ),
    ),
    Picture(
        "foreign_key",
        foreign_key,
        (
            Arrival("orders", "1", "pen of ann", 1),
            Arrival("customers", "ann", "Rome", 3),
            Arrival("orders", "2", "cup of ann", 4),
            Arrival("customers", "ann", "Oslo", 6),
            Arrival("orders", "1", None, 8),
        ),
    ),
)


def outcome(picture: Picture) -> list[Result]:
    """Send the records through the library."""
    builder = StreamsBuilder()
    picture.build(builder)
    found: list[Result] = []
    with TopologyTestDriver(builder.build()) as driver:
        sink = driver.output_topic("out", **STRINGS)
        for number, arrival in enumerate(picture.arrivals):
            driver.input_topic(arrival.topic, **STRINGS).pipe(
                arrival.key, arrival.value, timestamp=arrival.timestamp
            )
            found += [
                Result(record.key, record.value, record.timestamp, number) for record in sink.read_all()
            ]
    return found


def drawn(picture: Picture, found: list[Result]) -> str:
    """The picture as SVG."""
    at = _places(picture)
    lane = {topic: TOP + LANE * number for number, topic in enumerate(picture.topics)}
    reach = 0 if picture.windows is None else PER_MS * picture.windows.after_ms
    width = int(max(at) + max(90, reach + 16))
    below = TOP + LANE * len(lane) + 6
    links, boxes = list[str](), list[str]()
    for result, (x, y) in zip(found, _stacked(found, at, below), strict=True):
        half = _half(result.label)
        boxes.append(
            f'<rect class="result" x="{x - half:g}" y="{y}" width="{2 * half:g}" height="20" rx="4"/>'
            f'<text x="{x:g}" y="{y + 14}" text-anchor="middle">{escape(result.label)}</text>'
        )
        links += [
            f'<line class="link" x1="{x:g}" y1="{y}" x2="{at[number]:g}" y2="{lane[arrival.topic]}"/>'
            for number, arrival in enumerate(picture.arrivals)
            if number in _made_of(picture, result)
        ]
    parts = [
        f'<line class="axis" x1="{LEFT - 16}" y1="{y}" x2="{width - 8}" y2="{y}"/>'
        f'<text x="4" y="{y + 4}">{topic}</text>'
        for topic, y in lane.items()
    ]
    parts.append(f'<text x="4" y="{below + 14}">results</text>')
    parts += [*_windows(picture, at, lane), *links, *boxes]
    parts += [
        f'<circle class="record" cx="{x:g}" cy="{lane[arrival.topic]}" r="4"/>'
        f'<text x="{x:g}" y="{lane[arrival.topic] - 9}" text-anchor="middle">{escape(arrival.label)} '
        f'<tspan class="small">@{arrival.timestamp}</tspan></text>'
        for arrival, x in zip(picture.arrivals, at, strict=True)
    ]
    rows = [y for _, y in _stacked(found, at, below)]
    title = f"{picture.name.replace('_', ' ')} join"
    return svg.picture(title, width, max(rows, default=below) + 28, parts, STYLE)


def _places(picture: Picture) -> list[float]:
    """Where the records are: by time where windows are shown, else one beside the other."""
    if picture.windows is None:
        return [LEFT + 40 + 118.0 * number for number in range(len(picture.arrivals))]
    return [LEFT + 20.0 + PER_MS * arrival.timestamp for arrival in picture.arrivals]


def _stacked(found: list[Result], at: list[float], top: int) -> list[tuple[float, int]]:
    """A place for each result: below its cause, and below those that are there already."""
    ends: list[float] = []
    places: list[tuple[float, int]] = []
    for result in found:
        x, half = at[result.cause], _half(result.label)
        row = next((number for number, end in enumerate(ends) if end < x - half), len(ends))
        ends[row : row + 1] = [x + half + 4]
        places.append((x, top + ROW * row))
    return places


def _half(label: str) -> float:
    return len(label) * CHARACTER / 2 + 6


def _made_of(picture: Picture, result: Result) -> set[int]:
    """Numbers of the arrivals whose values are in a result; a deletion is made of what deletes."""
    values = {} if result.value is None else set(result.value.split(" + "))
    found = {
        (arrival.topic, arrival.value): number
        for number, arrival in enumerate(picture.arrivals[: result.cause + 1])
        if arrival.value in values
    }
    return set(found.values()) or {result.cause}


def _windows(picture: Picture, at: list[float], lane: dict[str, int]) -> list[str]:
    """How far each record of the left side reaches along the right one."""
    if picture.windows is None:
        return []
    (left, right), windows = lane, picture.windows
    return [
        f'<line class="wide" x1="{x - PER_MS * windows.before_ms:g}" y1="{lane[right] + 4 + 7 * row}" '
        f'x2="{x + PER_MS * windows.after_ms:g}" y2="{lane[right] + 4 + 7 * row}"/>'
        for row, (arrival, x) in enumerate(
            (arrival, x) for arrival, x in zip(picture.arrivals, at, strict=True) if arrival.topic == left
        )
    ]


if __name__ == "__main__":
    for one in PICTURES:
        (HERE / f"{one.name}.svg").write_text(drawn(one, outcome(one)), encoding="utf-8")
