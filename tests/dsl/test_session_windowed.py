"""Session windows in the DSL: what comes out, what the store shows, and large batches in columns."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.simulation.epochs import EpochRunner

from millstream import EmitStrategy, SessionWindows, Store, StreamsBuilder, Topology, serdes
from millstream.processors.windows import session_windows
from millstream.task.records import RawBatch
from millstream.testing import TopologyTestDriver

Click = tuple[str | None, Any, int]
KEY = serdes.session_windowed(serdes.string)


def program(aggregate: Callable[[Any], Any], windows: SessionWindows, *, rekeyed: bool = False) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.int64)
    grouped: Any = stream.group_by_key()
    if rekeyed:
        grouped = stream.group_by(lambda key, _: f"{key}!", key=serdes.string, value=serdes.int64)
    aggregate(grouped.windowed_by(windows)).to_stream().to("out")
    return builder.build()


def driven(
    aggregate: Callable[[Any], Any],
    windows: SessionWindows,
    clicks: Sequence[Click],
    value: Any = serdes.int64,
) -> list[tuple[Any, ...]]:
    """Key, start, end, value and timestamp of what comes out, one record after the other."""
    with TopologyTestDriver(program(aggregate, windows)) as driver:
        source = driver.input_topic("in", key=serdes.string, value=serdes.int64)
        sink = driver.output_topic("out", key=KEY, value=value)
        for key, number, time in clicks:
            source.pipe(key, number, timestamp=time)
        return [
            (record.key.key, record.key.window.start, record.key.window.end, record.value, record.timestamp)
            for record in sink.read_all()
        ]


def test_a_count_without_caching_is_kafkas_example() -> None:
    clicks: list[Click] = [("k", 1, 0), ("k", 1, 5), ("k", 1, 20), ("k", 1, 5), ("k", 1, 17)]
    counts = Store("counts", caching=False)
    assert driven(lambda windowed: windowed.count(store=counts), SessionWindows(5), clicks) == [
        ("k", 0, 0, 1, 0),
        ("k", 0, 0, None, 0),
        ("k", 0, 5, 2, 5),
        ("k", 20, 20, 1, 20),
        ("k", 20, 20, None, 20),
        ("k", 17, 20, 2, 20),
    ]


def test_a_merger_makes_one_aggregate_of_two_and_begins_with_the_initializers() -> None:
    def paths(windowed: Any) -> Any:
        return windowed.aggregate(
            lambda: "<",
            lambda key, value, path: f"{path}{value}",
            lambda key, one, other: f"{one}({other})",
            value=serdes.string,
        )

    clicks: list[Click] = [("k", 1, 0), ("k", 2, 8), ("k", 3, 4)]
    sent = driven(paths, SessionWindows(5, grace=20), clicks, serdes.string)
    assert [(start, end, value) for _, start, end, value, _ in sent] == [
        (0, 0, "<1"),
        (8, 8, "<2"),
        (0, 0, None),
        (8, 8, None),
        (0, 8, "<(<1)(<2)3"),
    ]


@pytest.mark.parametrize(
    ("how", "expected"), [("sum", 9), ("min", 1), ("max", 6), ("mean", 3.0), ("count", 3)]
)
def test_the_built_in_aggregations_know_how_to_merge(how: str, expected: float) -> None:
    clicks: list[Click] = [("k", 1, 0), ("k", 6, 8), ("k", 2, 4)]
    value = serdes.double if how == "mean" else serdes.int64
    sent = driven(lambda windowed: getattr(windowed, how)(), SessionWindows(5, grace=20), clicks, value)
    assert sent[-1] == ("k", 0, 8, expected, 8)


def test_a_reducer_merges_what_it_reduces() -> None:
    clicks: list[Click] = [("k", 1, 0), ("k", 6, 8), ("k", 2, 4)]
    sent = driven(
        lambda windowed: windowed.reduce(lambda one, other: 10 * one + other),
        SessionWindows(5, grace=20),
        clicks,
    )
    assert sent[-1] == ("k", 0, 8, 162, 8)


def test_on_close_each_session_comes_once_and_none_is_lost_after_a_jump_of_time() -> None:
    def closed(windowed: Any) -> Any:
        return windowed.emit_strategy(EmitStrategy.on_window_close()).count()

    clicks: list[Click] = [("a", 1, 0), ("b", 1, 2), ("a", 1, 4), ("c", 1, 9), ("b", 1, 1_000_000)]
    assert driven(closed, SessionWindows(5), clicks) == [
        ("b", 2, 2, 1, 2),
        ("a", 0, 4, 2, 4),
        ("c", 9, 9, 1, 9),
    ]


def test_on_close_a_session_that_is_open_to_the_millisecond_is_not_lost() -> None:
    """With a retention of gap and grace alone, the store would hide it one millisecond before it closes."""

    def closed(windowed: Any) -> Any:
        return windowed.emit_strategy(EmitStrategy.on_window_close()).count(store=Store("s", retention=5))

    clicks: list[Click] = [("a", 1, 0), ("b", 1, 5), ("c", 1, 0), ("b", 1, 6)]
    assert driven(closed, SessionWindows(5), clicks) == [("a", 0, 0, 1, 0), ("c", 0, 0, 1, 0)]


def test_the_store_shows_the_sessions_of_a_key() -> None:
    with TopologyTestDriver(
        program(lambda windowed: windowed.count(store="counts"), SessionWindows(5, grace=50))
    ) as driver:
        source = driver.input_topic("in", key=serdes.string, value=serdes.int64)
        for time in (0, 3, 20):
            source.pipe("k", 1, timestamp=time)
        found = list(driver.store("counts").fetch("k"))
    assert [(session.window.start, session.window.end, count) for session, count in found] == [
        (0, 3, 2),
        (20, 20, 1),
    ]


AGGREGATIONS: dict[str, Callable[[Any], Any]] = {
    "count": lambda windowed: windowed.count(store="s"),
    "sum": lambda windowed: windowed.sum(store="s"),
    "max": lambda windowed: windowed.max(store="s"),
    "count on close": lambda windowed: windowed.emit_strategy(EmitStrategy.on_window_close()).count(
        store="s"
    ),
}


def clicks_of(seed: int, epoch: int, rows: int, jitter: int) -> list[Click]:
    rng = random.Random(seed * 100 + epoch)
    start = epoch * rows // 4
    return [
        (f"k{rng.randrange(40)}", rng.randrange(100), max(0, start + row // 4 + rng.randint(-jitter, 0)))
        for row in range(rows)
    ]


def run_epochs(topology: Topology, epochs: Sequence[Sequence[Click]]) -> tuple[list[Any], list[Any]]:
    """What comes out and what is stored, in the end."""
    with EpochRunner(topology, partitions={"in": 2}, fresh_tasks=True) as runner:
        offset = 0
        for clicks in epochs:
            parts: list[list[Click]] = [[], []]
            for click in clicks:
                parts[int(str(click[0])[1:]) % 2].append(click)
            runner.run_epoch(
                RawBatch(
                    "in",
                    number,
                    range(offset, offset + len(part)),
                    [str(key).encode() for key, _, _ in part],
                    [serdes.int64.serialize(value) for _, value, _ in part],
                    [time for _, _, time in part],
                )
                for number, part in enumerate(parts)
            )
            offset += len(clicks)
        stores: Sequence[Any] = runner.stores("s")
        stored = [pair for store in stores for pair in store.find_sessions_range(None, None, 0, 10**9)]
        sent = [(row.key, row.value, row.timestamp) for row in runner.outputs.get("out", ())]
        return sent, sorted(stored, key=repr)


@pytest.mark.parametrize("rekeyed", [False, True])
@pytest.mark.parametrize("jitter", [0, 20])
@pytest.mark.parametrize("how", AGGREGATIONS)
def test_large_batches_give_what_small_ones_give(
    monkeypatch: pytest.MonkeyPatch, how: str, jitter: int, rekeyed: bool
) -> None:
    topology = program(AGGREGATIONS[how], SessionWindows(6, grace=30), rekeyed=rekeyed)
    epochs = [clicks_of(3, epoch, 6_000, jitter) for epoch in range(3)]
    expected = run_epochs(topology, epochs)
    monkeypatch.setattr(session_windows, "are_many", lambda _: False)
    assert run_epochs(topology, epochs) == expected
    assert len(expected[0]) > 100


def test_a_table_behind_uncached_sessions_counts_a_session_once_that_was_updated_at_its_only_time() -> None:
    builder = StreamsBuilder()
    clicks = builder.stream("in", key=serdes.string, value=serdes.int64).group_by_key()
    visits = clicks.windowed_by(SessionWindows(10, grace=100)).count(store=Store("visits", caching=False))
    visits.group_by(lambda _, count: ("all", count), key=serdes.string, value=serdes.int64).reduce(
        lambda total, count: total + count, lambda total, count: total - count, store="total"
    )
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.input_topic("in", key=serdes.string, value=serdes.int64)
        totals = []
        for time in (5, 5, 5, 7):
            source.pipe("a", 1, timestamp=time)
            totals.append(driver.store("total").get("all"))
    assert totals == [1, 2, 3, 4]
