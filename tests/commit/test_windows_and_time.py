"""Windows over epochs: backfills, waiting and restarts give what a single epoch gives."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.commit.ended_lives import kinds_and_steps
from tests.commit.test_event_time import DAY_MS, HOUR_MS, Lab, by_value

from millstream import (
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    failpoints,
    serdes,
)
from millstream.timestamps import TimestampExtractor

MINUTE_MS = 60_000


def counting(
    out: str,
    windows: TimeWindows | SessionWindows | SlidingWindows,
    extractor: TimestampExtractor | None = None,
    *,
    suppressed: bool = False,
    caching: bool = False,
) -> Topology:
    """Orders and clicks by key and window."""
    builder = StreamsBuilder()
    orders, clicks = (
        builder.stream(name, key=serdes.string, value=serdes.string, timestamp_extractor=extractor)
        for name in ("orders", "clicks")
    )
    grouped: Any = orders.merge(clicks).group_by_key().windowed_by(windows)
    counts = grouped.count(store=Store("counts", caching=caching), name="count")
    if suppressed:
        counts = counts.suppress(Suppressed.until_window_closes())
    rows = counts.to_stream().map(
        lambda windowed, count: (
            windowed.key,
            json.dumps([windowed.key, windowed.window.start, windowed.window.end, count]),
        )
    )
    rows.to(out, key=serdes.string, value=serdes.string)
    return builder.build()


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@pytest.mark.parametrize("own", [False, True])
def test_a_backfill_of_topics_of_different_density_is_counted_as_in_a_single_epoch(
    lab: Lab, own: bool
) -> None:
    """Orders of one day in 100,000 records, clicks of one hour, windows of a minute and no grace."""
    lab.topic("orders", [[number * DAY_MS // 100_000 for number in range(100_000)]], in_log=not own)
    clicks = [5 * HOUR_MS + number * HOUR_MS // 10_000 for number in range(10_000)]
    lab.topic("clicks", [clicks], in_log=not own)
    windows, extractor = TimeWindows(MINUTE_MS), by_value if own else None
    assert lab.run(counting("one", windows, extractor), "one", max_records=10**6) == 1
    assert lab.run(counting("many", windows, extractor), "many", max_records=5_000) >= 20
    assert "late-many" not in lab.log.topics()
    assert len(lab.read("many")) == 110_000
    assert lab.read("many") == lab.read("one")


@pytest.mark.parametrize(
    ("max_task_idle_ms", "expected"),
    [
        (0, [["k0", 0, 10, 1], ["k0", 10, 20, 1]]),
        (500, [["k0", 0, 10, 1], ["k0", 0, 10, 2], ["k0", 10, 20, 1]]),
    ],
)
def test_a_window_stays_open_for_a_producer_that_is_late(
    lab: Lab, max_task_idle_ms: int, expected: list[Any]
) -> None:
    lab.topic("orders", [[0, 10]])
    lab.topic("clicks", [[]])
    with lab.open(counting("out", TimeWindows(10)), max_task_idle_ms=max_task_idle_ms) as app:
        app.run_epoch()
        lab.append("clicks", [5])
        app.run_epoch()
    assert [json.loads(row) for row in lab.read("out")] == expected
    assert len(lab.read("late-app")) == 3 - len(expected)


STEPS = [name for name in failpoints.REGISTRY if name.startswith("commit.")]
KINDS: dict[str, Any] = {
    "tumbling": {"windows": TimeWindows(50, grace=20)},
    "hopping, cached": {"windows": TimeWindows(50, advance=20, grace=20), "caching": True},
    "sliding": {"windows": SlidingWindows(30, grace=20)},
    "session": {"windows": SessionWindows(15, grace=20)},
    "suppressed": {"windows": TimeWindows(50, grace=20), "suppressed": True},
}
TIMES = [100, 90, 95, 140, 30, 120, 171, 110, 240, 60, 221, 300]


@pytest.mark.parametrize(("kind", "step"), kinds_and_steps(KINDS, STEPS))
def test_windows_are_those_of_an_unkilled_run_if_lives_end_at_each_step(
    lab: Lab, kind: str, step: str
) -> None:
    lab.topic("orders", [[5 * time for time in TIMES]])  # all of one key
    lab.topic("clicks", [[]])
    options = KINDS[kind]
    lab.run(counting("whole", **options), "whole", max_records=2)
    for _ in range(5):
        app = lab.open(counting("out", **options), max_records=2)
        with app, failpoints.armed(step), suppress(failpoints.InjectedCrash):
            app.run_epoch()
    lab.run(counting("out", **options), max_records=2)
    assert lab.read("out") == lab.read("whole")
    assert lab.read("late-app") == lab.read("late-whole")
    assert lab.read("out")
