"""Draws the pictures of docs/windows.md: records on a time line, and the windows that they come into.

Run it with `python docs/pictures/windows.py`; the SVG files beside it are written anew. Nothing is drawn by
hand: each record goes through a `TopologyTestDriver`, and what is drawn is what came out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import svg

from millstream import (
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    TimeWindows,
    Window,
    serdes,
)
from millstream.testing import TopologyTestDriver

HERE = Path(__file__).parent
LEFT, RIGHT, LANE, TOP = 24, 24, 26, 14
PER_MS, END = 15, 46


@dataclass(frozen=True, slots=True)
class Picture:
    """One kind of windows, and records of one key as (value, timestamp), in the order of their arrival."""

    name: str
    windows: Any
    records: tuple[tuple[str, int], ...]
    inclusive: bool = False
    """Whether the end belongs to the window."""


PICTURES = (
    Picture(
        "tumbling", TimeWindows(10, grace=5), (("a", 2), ("b", 7), ("c", 13), ("d", 9), ("e", 28), ("f", 19))
    ),
    Picture("hopping", TimeWindows(10, advance=5), (("a", 2), ("b", 7), ("c", 13), ("d", 24))),
    Picture("sliding", SlidingWindows(10, grace=20), (("a", 12), ("b", 17), ("c", 31)), inclusive=True),
    Picture(
        "session",
        SessionWindows(5, grace=8),
        (("a", 3), ("b", 7), ("c", 17), ("d", 12), ("e", 35), ("f", 20)),
        inclusive=True,
    ),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The windows at the end, with the records in each, and the records that came too late."""

    windows: dict[Window, str]
    late: frozenset[str]


def outcome(picture: Picture) -> Outcome:
    """Send the records through the library."""
    builder = StreamsBuilder()
    windowed: Any = (
        builder.stream("in", key=serdes.string, value=serdes.string)
        .group_by_key()
        .windowed_by(picture.windows)
    )
    store = Store("seen", caching=False, value=serdes.string)
    functions: tuple[Any, ...] = (str, lambda _key, value, seen: "".join(sorted(seen + value)))
    if isinstance(picture.windows, SessionWindows):
        functions += (lambda _key, one, other: "".join(sorted(one + other)),)
    windowed.aggregate(*functions, store=store).to_stream().map(
        lambda key, value: (f"{key.window.start} {key.window.end}", value)
    ).to("out", key=serdes.string, value=serdes.string)
    windows: dict[Window, str] = {}
    late = set[str]()
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.input_topic("in", key=serdes.string, value=serdes.string)
        sink = driver.output_topic("out", key=serdes.string, value=serdes.string)
        for value, timestamp in picture.records:
            source.pipe("key", value, timestamp=timestamp)
            results = sink.read_all()
            if not results:
                late.add(value)
            for record in results:
                assert record.key is not None
                window = Window(*map(int, record.key.split()))
                if record.value is None:
                    windows.pop(window, None)
                else:
                    windows[window] = record.value
    return Outcome(windows, frozenset(late))


def lanes(windows: dict[Window, str]) -> dict[Window, int]:
    """A lane for each window, such that none covers another."""
    ends: list[int] = []
    found: dict[Window, int] = {}
    for window in sorted(windows, key=lambda window: (window.start, window.end)):
        lane = next((number for number, end in enumerate(ends) if end < window.start), len(ends))
        ends[lane : lane + 1] = [window.end]
        found[window] = lane
    return found


def drawn(picture: Picture, found: Outcome) -> str:
    """The picture as SVG."""
    placed = lanes(found.windows)
    height = TOP + LANE * (max(placed.values(), default=0) + 1)
    axis = height + 22
    parts = [
        _window(window, TOP + LANE * lane, found.windows[window], picture) for window, lane in placed.items()
    ]
    parts.append(f'<line class="axis" x1="{_x(0)}" y1="{axis}" x2="{_x(END)}" y2="{axis}"/>')
    for tick in range(0, END, 5):
        parts.append(f'<line class="axis" x1="{_x(tick)}" y1="{axis}" x2="{_x(tick)}" y2="{axis + 4}"/>')
        parts.append(f'<text class="small" x="{_x(tick)}" y="{axis + 16}" text-anchor="middle">{tick}</text>')
    parts += [
        _record(value, timestamp, axis, is_late=value in found.late) for value, timestamp in picture.records
    ]
    width = _x(END) + RIGHT
    return svg.picture(f"{picture.name} windows", width, axis + 26, parts)


def _x(time: int) -> int:
    return LEFT + PER_MS * time


def _window(window: Window, y: int, records: str, picture: Picture) -> str:
    x, width = _x(window.start), max(PER_MS * (window.end - window.start), 6)
    close = "]" if picture.inclusive else ")"
    label = f"[{window.start}, {window.end}{close}"
    inside = width > 90  # noqa: PLR2004 - the width of a label
    at = x + width / 2 if inside else x + width + 6
    anchor = "middle" if inside else "start"
    return (
        f'<rect class="window" x="{x}" y="{y}" width="{width}" height="{LANE - 6}" rx="4"/>'
        f'<text x="{at:g}" y="{y + 14}" text-anchor="{anchor}">{records} '
        f'<tspan class="small">{label}</tspan></text>'
    )


def _record(value: str, timestamp: int, axis: int, *, is_late: bool) -> str:
    x, y = _x(timestamp), axis
    if not is_late:
        return f'<circle class="record" cx="{x}" cy="{y}" r="4"/><text x="{x - 3}" y="{y - 8}">{value}</text>'
    return (
        f'<circle class="late" cx="{x}" cy="{y}" r="4"/>'
        f'<text class="why" x="{x - 3}" y="{y - 8}">{value} late</text>'
    )


if __name__ == "__main__":
    for picture in PICTURES:
        (HERE / f"{picture.name}.svg").write_text(drawn(picture, outcome(picture)), encoding="utf-8")
