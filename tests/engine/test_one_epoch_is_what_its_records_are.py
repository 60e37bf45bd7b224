"""Programs whose sub-topologies feed themselves: all records in one epoch give what each by itself gives.

The test driver takes every record to its end before the next. An epoch runs level by level; what crosses
from one step to the next must not be seen by that (see `topology.steps`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from millstream import (
    Consumer,
    JoinWindows,
    Producer,
    Store,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
    serdes,
)
from millstream.commit.plan_changes import PlanChangedError
from millstream.testing import TopologyTestDriver

Event = tuple[str, str, str | None, int]
"""Topic, key, value, time."""

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}


def pair(one: object, other: object) -> str:
    return f"{one}+{other}"


def by_value(_: str, value: str) -> str:
    return value


def two_windowed_joins(builder: StreamsBuilder) -> None:
    orders, payments = builder.stream("orders", **TEXT), builder.stream("payments", **TEXT)
    orders.left_join(payments, pair, JoinWindows(4)).to("out", **TEXT)
    orders.select_key(by_value).join(payments, pair, JoinWindows(4)).to("other", **TEXT)


def joined_with_itself_by_another_key(builder: StreamsBuilder) -> None:
    calls = builder.stream("orders", **TEXT)
    calls.join(calls.select_key(by_value), pair, JoinWindows(5)).to("out", **TEXT)


def looked_up_twice(builder: StreamsBuilder) -> None:
    orders, table = builder.stream("orders", **TEXT), builder.table("rows", **TEXT)
    orders.left_join(table, pair).to("other", **TEXT)
    orders.select_key(by_value).left_join(table, pair).to("out", **TEXT)


def looked_up_beside_a_foreign_key_join(builder: StreamsBuilder) -> None:
    rows, others = builder.table("rows", **TEXT), builder.table("others", **TEXT)
    referred = rows.foreign_key_join(others, by_value, pair).to_stream()
    joined = builder.stream("orders", **TEXT).join(rows, pair)
    joined.to("out", **TEXT)
    joined.merge(referred).to("other", **TEXT)


def windows_of_both_parties(builder: StreamsBuilder) -> None:
    calls = builder.stream("orders", **TEXT)
    both = calls.merge(calls.select_key(by_value).repartition(name="again", **TEXT))
    counts = both.group_by_key(**TEXT).windowed_by(TimeWindows(10)).count(store=Store("w", caching=False))
    named = counts.to_stream().map(lambda window, n: (f"{window.key}@{window.window.start}", str(n)))
    named.to("out", **TEXT)


def referred(builder: StreamsBuilder) -> None:
    rows, others = builder.table("rows", **TEXT), builder.table("others", **TEXT)
    rows.left_foreign_key_join(others, by_value, pair).to_stream().to("out", **TEXT)


def referred_behind_suppress(builder: StreamsBuilder) -> None:
    rows, others = builder.table("rows", **TEXT), builder.table("others", **TEXT)
    sent = rows.suppress(Suppressed.until_time_limit(10))
    sent.left_foreign_key_join(others, by_value, pair).to_stream().to("out", **TEXT)


CASES: dict[str, tuple[Callable[[StreamsBuilder], None], Sequence[Event]]] = {
    "two windowed joins": (
        two_windowed_joins,
        [
            ("orders", "1", "x", 1),
            ("payments", "1", "p1", 2),
            ("orders", "2", "y", 20),
            ("payments", "2", "p2", 21),
            ("orders", "3", "z", 60),
            ("payments", "3", "p3", 61),
        ],
    ),
    "a stream joined with itself by another key": (
        joined_with_itself_by_another_key,
        [
            ("orders", "a", "b", 1),
            ("orders", "b", "a", 3),
            ("orders", "a", "c", 20),
            ("orders", "c", "a", 22),
        ],
    ),
    "a table looked up twice": (
        looked_up_twice,
        [("rows", "x", "X", 2), ("orders", "1", "x", 3), ("rows", "x", None, 4)],
    ),
    "a table looked up beside a foreign-key join": (
        looked_up_beside_a_foreign_key_join,
        [
            ("others", "x", "X", 1),
            ("rows", "1", "x", 2),
            ("orders", "1", "s1", 3),
            ("rows", "1", "y", 4),
            ("orders", "1", "s2", 5),
            ("rows", "1", None, 6),
        ],
    ),
    "windows behind a merge": (
        windows_of_both_parties,
        [
            ("orders", "a", "b", 1),
            ("orders", "b", "a", 3),
            ("orders", "a", "b", 15),
            ("orders", "b", "a", 27),
        ],
    ),
    "a foreign key behind suppress": (
        referred_behind_suppress,
        [
            ("others", "ann", "Ann", 1),
            ("rows", "1", "ann", 2),
            ("rows", "2", "ann", 12),
            ("rows", "1", "bob", 13),  # waits: it is still Ann's for whoever is behind
        ],
    ),
    "a foreign key": (referred, [("others", "ann", "Ann", 1), ("rows", "1", "ann", 2)]),
}


def one_by_one(build: Callable[[StreamsBuilder], None], events: Sequence[Event]) -> list[Any]:
    builder = StreamsBuilder()
    build(builder)
    with TopologyTestDriver(builder.build()) as driver:
        for topic, key, value, time in events:
            driver.input_topic(topic, **TEXT).pipe(key, value, timestamp=time)
        return [(row.key, row.value, row.timestamp) for row in driver.output_topic("out", **TEXT).read_all()]


def append(log: Path, events: Sequence[Event]) -> None:
    for topic in sorted({event[0] for event in events}):
        with Producer(log, topic, partitions=1, **TEXT) as producer:
            for _, key, value, time in (event for event in events if event[0] == topic):
                producer.send(key, value, timestamp=time)


def run(folder: Path, build: Callable[[StreamsBuilder], None], **settings: Any) -> None:
    builder = StreamsBuilder()
    build(builder)
    config = StreamsConfig(state_dir=folder / "state", **settings)
    with Streams(builder.build(), app_id="app", log=folder / "log", engine="local", config=config) as app:
        app.run(until="caught-up")


@pytest.mark.parametrize(
    ("name", "caching"),
    # A cached table tells of its rows when the epoch ends, so that a foreign key is answered twice.
    [
        (name, caching)
        for name in CASES
        for caching in (True, False)
        if not name.startswith("a foreign key") or not caching
    ],
)
def test_one_epoch_gives_what_its_records_one_by_one_give(
    tmp_path: Path, name: str, *, caching: bool
) -> None:
    build, events = CASES[name]
    append(tmp_path / "log", events)
    run(tmp_path, build, caching=caching)
    found = [(row.key, row.value, row.timestamp) for row in Consumer(tmp_path / "log", "out", **TEXT)]
    assert one_by_one(build, events) == found


def test_a_copy_of_a_store_that_has_rows_already_is_refused(tmp_path: Path) -> None:
    def looked_up_behind_its_join(builder: StreamsBuilder) -> None:
        table = builder.table("rows", store="rows", **TEXT)
        joined = builder.stream("orders", **TEXT).left_join(table, pair, name="one")
        joined.to("out", **TEXT, name="sink")
        joined.select_key(by_value, name="key").left_join(table, pair, name="two").to("other", **TEXT)

    def looked_up_once(builder: StreamsBuilder) -> None:
        table = builder.table("rows", store="rows", **TEXT)
        joined = builder.stream("orders", **TEXT).left_join(table, pair, name="one")
        joined.to("out", **TEXT, name="sink")

    append(tmp_path / "log", [("rows", "1", "row", 1), ("orders", "1", "s1", 2)])
    run(tmp_path, looked_up_once)
    with pytest.raises(PlanChangedError) as refused:
        run(tmp_path, looked_up_behind_its_join)
    assert "store 'rows' is looked up behind a repartition now, by a copy that would lack its rows" in str(
        refused.value
    )
