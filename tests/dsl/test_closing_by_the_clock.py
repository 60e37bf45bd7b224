"""Windows that close when no records come: emitted on close, or behind suppress."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from millstream import (
    EmitStrategy,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    Windowed,
    serdes,
)
from millstream.errors import TopologyError
from millstream.testing import TopologyTestDriver
from millstream.topology.nodes import ProcessorNode

STRINGS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
KINDS = ["tumbling", "hopping", "sliding", "session"]
ALL_WINDOWS: dict[str, Any] = {
    "tumbling": TimeWindows(10, grace=5),
    "hopping": TimeWindows(10, advance=5, grace=5),
    "sliding": SlidingWindows(10, grace=5),
    "session": SessionWindows(10, grace=5),
}


def counting(windows: Any, after_idle: int | None, *, suppress: bool = False) -> Topology:
    """Final counts per window, with the window as text in the key."""
    builder = StreamsBuilder()
    windowed: Any = builder.stream("in", **STRINGS).group_by_key().windowed_by(windows)
    if suppress:
        table = windowed.count(store="counts").suppress(Suppressed.until_window_closes(after_idle=after_idle))
    else:
        table = windowed.emit_strategy(EmitStrategy.on_window_close(after_idle=after_idle)).count(
            store="counts"
        )

    def text(key: Windowed[str], _: int) -> str:
        return f"{key.key} {key.window.start} {key.window.end}"

    table.to_stream(text).to("out", key=serdes.string, value=serdes.int64)
    return builder.build()


def written(driver: TopologyTestDriver) -> list[tuple[str, int, int]]:
    records = driver.output_topic("out", key=serdes.string, value=serdes.int64).read_all()
    return [(record.key or "", record.value or 0, record.timestamp) for record in records]


def by_records(kind: str) -> list[tuple[str, int, int]]:
    """What leaves if a record comes from far in the future."""
    with TopologyTestDriver(counting(ALL_WINDOWS[kind], None)) as driver:
        source = driver.input_topic("in", **STRINGS)
        for key, timestamp in [("a", 21), ("b", 22), ("a", 25), ("z", 10_000)]:
            source.pipe(key, "", timestamp=timestamp)
        return written(driver)


@pytest.mark.parametrize("fresh_tasks", [False, True])
@pytest.mark.parametrize("suppress", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_clock_closes_the_windows_that_a_record_would(
    kind: str, suppress: bool, fresh_tasks: bool
) -> None:
    topology = counting(ALL_WINDOWS[kind], 100, suppress=suppress)
    with TopologyTestDriver(topology, start_ms=1_000, fresh_tasks=fresh_tasks) as driver:
        source = driver.input_topic("in", **STRINGS)
        for key, timestamp in [("a", 21), ("b", 22), ("a", 25)]:
            source.pipe(key, "", timestamp=timestamp)
        driver.advance_wall_clock(99)
        assert written(driver) == []
        driver.advance_wall_clock(1)
        left = written(driver)
        driver.advance_wall_clock(10_000)
        assert (sorted(left), written(driver)) == (sorted(by_records(kind)), [])


@pytest.mark.parametrize("kind", KINDS)
def test_windows_close_one_after_the_other_as_time_goes_on(kind: str) -> None:
    with TopologyTestDriver(counting(ALL_WINDOWS[kind], 1)) as driver:
        source = driver.input_topic("in", **STRINGS)
        for key, timestamp in [("a", 21), ("b", 22), ("a", 25)]:
            source.pipe(key, "", timestamp=timestamp)
        left = []
        for passed in range(1, 40):
            driver.advance_wall_clock(1)
            left += [(passed, *row) for row in written(driver)]
    # Stream time was 25: a window leaves when that and what has passed are as late as its end and all waits.
    waits = {"tumbling": 5, "hopping": 5, "sliding": 6, "session": 16}[kind]
    assert [row[0] for row in left] == [int(row[1].split()[2]) + waits - 25 for row in left]
    assert [row[1:] for row in left] == by_records(kind)


def test_a_record_for_a_window_that_the_clock_has_closed_is_late() -> None:
    with TopologyTestDriver(counting(TimeWindows(10), 100)) as driver:
        source = driver.input_topic("in", **STRINGS)
        source.pipe("a", "", timestamp=1)
        driver.advance_wall_clock(100)
        source.pipe("a", "", timestamp=9)
        source.pipe("a", "", timestamp=95)  # stream time is 101: the window up to 100 has closed as well
        source.pipe("a", "", timestamp=100)
        driver.advance_wall_clock(100)
        assert written(driver) == [("a 0 10", 1, 1), ("a 100 110", 1, 100)]


def test_without_after_idle_windows_wait_for_records() -> None:
    with TopologyTestDriver(counting(TimeWindows(10), None)) as driver:
        driver.input_topic("in", **STRINGS).pipe("a", "", timestamp=1)
        driver.advance_wall_clock(timedelta(days=1))
        assert written(driver) == []


@pytest.mark.parametrize(("after_idle", "expected"), [(None, 0), (10, 1)])
def test_only_windows_that_close_by_the_clock_ask_for_ticks(after_idle: int | None, expected: int) -> None:
    for windows in ALL_WINDOWS.values():
        nodes = counting(windows, after_idle).graph.nodes.values()
        asking = [node for node in nodes if isinstance(node, ProcessorNode) and node.spec.may_schedule]
        assert len(asking) == expected


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (EmitStrategy.on_window_close, "after_idle"),
        (Suppressed.until_window_closes, "after_idle of Suppressed"),
    ],
)
def test_a_negative_time_is_refused(make: Any, what: str) -> None:
    with pytest.raises(TopologyError) as failure:
        make(after_idle=timedelta(seconds=-1))
    remedy = str(failure.value).partition(" is ")
    assert remedy == (what, " is ", "-1000 ms. Remedy: give 0 or more milliseconds")
