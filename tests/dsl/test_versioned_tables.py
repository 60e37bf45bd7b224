"""`Store(versioned=...)` in programs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from millstream import (
    KTable,
    SessionWindows,
    Store,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    VersionedRecord,
    serdes,
)
from millstream.errors import TopologyError
from millstream.testing import TopologyTestDriver

NUMBERS: dict[str, Any] = {"key": serdes.string, "value": serdes.int64}
PRICES = Store("prices", versioned=timedelta(milliseconds=100))
ROWS = [("a", 1, 50), ("a", 2, 40), ("b", 5, 60), ("a", None, 45), ("a", 9, 200), ("a", 3, 99), ("a", 4, 100)]

Update = tuple[Any, Any, int]


def played(
    build: Callable[[StreamsBuilder], KTable[Any, Any]],
    rows: list[tuple[str, int | None, int]] = ROWS,
    *,
    fresh_tasks: bool = False,
) -> list[Update]:
    """Key, value and timestamp of the updates that leave a table."""
    builder = StreamsBuilder()
    build(builder).to_stream().to("out", **NUMBERS)
    with TopologyTestDriver(builder.build(), fresh_tasks=fresh_tasks) as driver:
        source = driver.input_topic("in", **NUMBERS)
        for key, value, timestamp in rows:
            source.pipe(key, value, timestamp=timestamp)
        records = driver.output_topic("out", **NUMBERS).read_all()
    return [(record.key, record.value, record.timestamp) for record in records]


def prices(builder: StreamsBuilder) -> KTable[str, int]:
    return builder.table("in", store=PRICES, **NUMBERS)


@pytest.mark.parametrize("fresh_tasks", [False, True])
def test_a_stream_of_a_versioned_table_has_late_updates_but_not_those_older_than_its_history(
    fresh_tasks: bool,
) -> None:
    assert played(prices, fresh_tasks=fresh_tasks) == [row for row in ROWS if row != ("a", 3, 99)]


def test_to_table_can_be_versioned() -> None:
    out = played(lambda builder: builder.stream("in", **NUMBERS).to_table(store=PRICES))
    assert out == [row for row in ROWS if row != ("a", 3, 99)]


@pytest.mark.parametrize("fresh_tasks", [False, True])
def test_a_group_of_a_versioned_table_counts_only_the_latest(fresh_tasks: bool) -> None:
    def total(builder: StreamsBuilder) -> KTable[str, int]:
        return (
            prices(builder)
            .group_by(lambda _, value: ("all", value), **NUMBERS)
            .reduce(
                lambda total, value: total + value,
                lambda total, value: total - value,
                store=Store("total", caching=False),
            )
        )

    assert played(total, fresh_tasks=fresh_tasks) == [("all", 1, 50), ("all", 6, 60), ("all", 14, 200)]


def test_a_filter_of_a_versioned_table_always_tells() -> None:
    out = played(lambda builder: prices(builder).filter(lambda _, value: value > 4))
    assert out == [
        ("a", None, 50),
        ("a", None, 40),
        ("b", 5, 60),
        ("a", None, 45),
        ("a", 9, 200),
        ("a", None, 100),
    ]


def test_a_filter_kept_in_a_plain_store_takes_updates_as_they_come() -> None:
    def large(builder: StreamsBuilder) -> KTable[str, int]:
        kept = prices(builder).filter(lambda _, value: value > 1, store=Store("large", caching=False))
        return kept.group_by(lambda _, value: ("all", value), **NUMBERS).reduce(
            lambda total, value: total + value,
            lambda total, value: total - value,
            store=Store("total", caching=False),
        )

    assert played(large, ROWS[:3]) == [("all", 2, 40), ("all", 7, 60)]


def test_an_aggregate_can_be_versioned() -> None:
    def count(builder: StreamsBuilder) -> KTable[str, int]:
        return builder.stream("in", **NUMBERS).group_by_key().count(store=Store("counts", versioned=100))

    rows: list[Any] = [("a", 1, 50), ("a", 2, 40), ("b", 5, 200), ("a", 3, 60), ("c", 1, 99), ("c", 1, 100)]
    assert played(count, rows) == [("a", 1, 50), ("a", 2, 50), ("b", 1, 200), ("c", 1, 100)]


def test_the_store_shows_the_history() -> None:
    builder = StreamsBuilder()
    prices(builder)
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.input_topic("in", **NUMBERS)
        for key, value, timestamp in ROWS[:3]:
            source.pipe(key, value, timestamp=timestamp)
        assert driver.versioned_store("prices").versions("a", 0, 100) == [
            VersionedRecord(2, 40, 50),
            VersionedRecord(1, 50),
        ]
        assert driver.store("prices").get("a") == VersionedRecord(1, 50)


def test_a_versioned_store_without_a_name_is_there_all_the_same() -> None:
    builder = StreamsBuilder()
    builder.table("in", store=Store(versioned=100), **NUMBERS).to_stream().to("out")
    assert [name for sub in builder.build().plan().subtopologies for name in sub.stores] == [
        "in-STATE-STORE-0000000000"
    ]


def test_a_versioned_store_has_a_changelog_of_its_own_even_if_topics_are_reused() -> None:
    builder = StreamsBuilder()
    prices(builder)
    stores = builder.build(optimization="all").plan().subtopologies[0].stores
    assert (stores["prices"].has_changelog, stores["prices"].retention_ms) == (True, 100)


def windowed(windows: Any) -> Callable[[StreamsBuilder], object]:
    return lambda builder: (
        builder.stream("in", **NUMBERS).group_by_key().windowed_by(windows).count(store=PRICES)
    )


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda _: Store("prices", versioned=timedelta(seconds=-1)),
            (
                "the store 'prices' keeps a history of -1000 ms. Remedy: Store(versioned=...) of 0 or more "
                "milliseconds, or none for a store without history"
            ),
        ),
        (
            lambda builder: builder.global_table("in", store=PRICES),
            (
                "the global table of topic 'in' can't be versioned: what it is joined with sees its rows as "
                "they are now. Remedy: leave versioned= out, or read the topic with table()"
            ),
        ),
        (
            lambda builder: prices(builder).map_values(str).suppress(Suppressed.until_time_limit(5)),
            (
                "suppress() of the versioned table at 'KTABLE-MAPVALUES-0000000002': its updates may be "
                "older than others that were sent, so there is no last one to wait for. Remedy: suppress a "
                "table without Store(versioned=...)"
            ),
        ),
        (
            windowed(TimeWindows(10)),
            (
                "the store 'prices' is to be versioned, but it is a timestamped window store: its windows "
                "have a time of their own. Remedy: leave versioned= out"
            ),
        ),
        (
            windowed(SessionWindows(10)),
            (
                "the store 'prices' is to be versioned, but it is a session store: its windows have a time "
                "of their own. Remedy: leave versioned= out"
            ),
        ),
    ],
)
def test_where_a_table_cant_be_versioned_it_is_refused(
    build: Callable[[StreamsBuilder], object], message: str
) -> None:
    with pytest.raises(TopologyError) as failure:
        build(StreamsBuilder())
    assert str(failure.value) == message
