"""Two tables by key: the same as one update at a time, whatever the batches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.processors.table_join_oracle import Epoch, Row, TableJoin, epochs, in_task_order, joined, played

from millstream import KTable, SessionWindows, Store, StreamsBuilder, TimeWindows, Topology, serdes
from millstream.testing import TopologyTestDriver

BUSY = settings(deadline=None)  # a busy machine is no failure
WORDS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
KINDS = {"join": (False, False), "left_join": (True, False), "outer_join": (True, True)}
KIND = st.sampled_from(list(KINDS))


def of(kind: str) -> TableJoin:
    return TableJoin(*KINDS[kind])


def two_tables(kind: str, *, caching: bool, store: Store | None = None) -> Topology:
    builder = StreamsBuilder()
    tables = [
        builder.table(topic, store=Store(topic, caching=caching, **WORDS), **WORDS) for topic in ("l", "r")
    ]
    result = getattr(tables[0], kind)(tables[1], joined, store=store)
    result.to_stream().to("out", **WORDS)
    return builder.build()


def expected(kind: str, script: list[Epoch]) -> list[Row]:
    """Without caches: every update goes on."""
    oracle, out = of(kind), list[Row]()
    for epoch in script:
        for topic, key, value, timestamp in in_task_order(epoch):
            if key is not None:
                side, update = "lr".index(topic), (key, value, timestamp)
                out += oracle.result(side, update, oracle.put(side, update))
    return out


def expected_with_caches(kind: str, script: list[Epoch]) -> list[Row]:
    """The left table sends the last update of each key when the epoch ends, then the right one does."""
    oracle, out = of(kind), list[Row]()
    for epoch in script:
        before: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        last: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        for topic, key, value, timestamp in in_task_order(epoch):
            if key is not None:
                side = "lr".index(topic)
                old = oracle.put(side, (key, value, timestamp))
                before[side].setdefault(key, old)
                last[side].pop(key, None)
                last[side][key] = (key, value, timestamp)
        for side in (0, 1):
            for key, update in last[side].items():
                if update[1] is not None or before[side][key] is not None:
                    out += oracle.result(side, update, before[side][key])
    return out


@BUSY
@given(KIND, epochs("l", "r"), st.sampled_from([None, 1, 3]), st.booleans())
def test_updates_of_a_batch_are_joined_as_one_by_one(
    kind: str, script: list[Epoch], max_rows: int | None, fresh: bool
) -> None:
    topology = two_tables(kind, caching=False)
    out = played(topology, script, ["l", "r"], max_rows=max_rows, fresh_tasks=fresh)
    assert out == expected(kind, script)


@BUSY
@given(KIND, epochs("l", "r"), st.sampled_from([None, 2]), st.booleans())
def test_cached_tables_are_joined_when_they_send_their_updates(
    kind: str, script: list[Epoch], max_rows: int | None, fresh: bool
) -> None:
    topology = two_tables(kind, caching=True)
    out = played(topology, script, ["l", "r"], max_rows=max_rows, fresh_tasks=fresh)
    assert out == expected_with_caches(kind, script)


@BUSY
@given(KIND, epochs("l", "r"), st.sampled_from([None, 1]))
def test_a_result_with_a_store_goes_on_as_one_without(
    kind: str, script: list[Epoch], max_rows: int | None
) -> None:
    topology = two_tables(kind, caching=False, store=Store("result", caching=False, **WORDS))
    assert played(topology, script, ["l", "r"], max_rows=max_rows) == expected(kind, script)


def grouped(result: KTable[str, str]) -> None:
    """Behind a table: what it takes back must be what it has added."""
    result.group_by(lambda key, value: (key, value), **WORDS).aggregate(
        lambda: "",
        lambda key, value, so_far: so_far + "." + value,
        lambda key, value, so_far: so_far.replace("." + value, "", 1) if "." + value in so_far else "wrong",
        store=Store("groups", caching=False, **WORDS),
    ).to_stream().to("out", **WORDS)


@pytest.mark.parametrize(("caching", "stored"), [(False, False), (False, True), (True, True)])
@BUSY
@given(kind=KIND, script=epochs("l", "r"), max_rows=st.sampled_from([None, 1]))
def test_old_values_are_what_was_sent_before(
    caching: bool, stored: bool, kind: str, script: list[Epoch], max_rows: int | None
) -> None:
    builder = StreamsBuilder()
    left, right = (
        builder.table(topic, store=Store(topic, caching=caching, **WORDS), **WORDS) for topic in ("l", "r")
    )
    store = Store("result", caching=caching, **WORDS) if stored else None
    grouped(getattr(left, kind)(right, joined, store=store))
    out = played(builder.build(), script, ["l", "r"], max_rows=max_rows)
    assert [value for _, value, _ in out if value is not None and "wrong" in value] == []


@BUSY
@given(KIND, epochs("l", "r"), st.sampled_from([None, 1, 4]))
def test_tables_without_stores_are_computed_as_of_each_update(
    kind: str, script: list[Epoch], max_rows: int | None
) -> None:
    """Views: a filter and a mapper; the join of a join. Batches of any size give what single records give."""

    def build() -> Topology:
        builder = StreamsBuilder()
        left = builder.table("l", store=Store("l", caching=False), **WORDS)
        right = builder.table("r", store=Store("r", caching=False), **WORDS)
        some = left.filter(lambda key, value: value != "2")
        twice = right.map_values(lambda value: value * 2)
        inner = some.left_join(twice, joined)
        getattr(inner, kind)(twice, joined).to_stream().to("out", **WORDS)
        return builder.build()

    single = played(build(), script, ["l", "r"], max_rows=1)
    assert played(build(), script, ["l", "r"], max_rows=max_rows) == single


@BUSY
@given(KIND, epochs("l", "r"), st.booleans(), st.sampled_from([None, 4]))
def test_windowed_tables_are_joined_as_one_by_one(
    kind: str, script: list[Epoch], sessions: bool, max_rows: int | None
) -> None:
    windows: Any = SessionWindows(5, grace=20) if sessions else TimeWindows(10, grace=20)

    def build() -> Topology:
        builder = StreamsBuilder()
        left, right = (
            builder.stream(topic, **WORDS)
            .group_by_key()
            .windowed_by(windows)
            .count(store=Store(topic, caching=False))
            for topic in ("l", "r")
        )
        both = getattr(left, kind)(right, joined)
        both.to_stream(lambda windowed, _: f"{windowed.key}@{windowed.window}").to("out", **WORDS)
        return builder.build()

    single = played(build(), script, ["l", "r"], max_rows=1)
    assert played(build(), script, ["l", "r"], max_rows=max_rows) == single


@BUSY
@given(epochs("l"), st.sampled_from([None, 1, 3]))
def test_a_table_is_joined_with_itself_twice(script: list[Epoch], max_rows: int | None) -> None:
    builder = StreamsBuilder()
    table = builder.table("l", store=Store("l", caching=False), **WORDS)
    table.join(table, joined).to_stream().to("out", **WORDS)
    rows = [
        (key, joined(value, value), timestamp)
        for epoch in script
        for _, key, value, timestamp in in_task_order(epoch)
        if key is not None and value is not None
    ]
    out = played(builder.build(), script, ["l"], max_rows=max_rows)
    assert out == [row for row in rows for _ in range(2)]


def test_updates_that_are_not_the_latest_are_left_out() -> None:
    builder = StreamsBuilder()
    left = builder.table("l", store=Store("l", versioned=100), **WORDS)
    right = builder.table("r", store=Store("r", versioned=100), **WORDS)
    left.join(right, joined).to_stream().to("out", **WORDS)
    script: list[Epoch] = [
        [("l", "a", "1", 10), ("r", "a", "2", 10)],
        [("l", "a", "late", 5), ("r", "a", "late", 6), ("l", "a", "3", 20), ("l", "a", "late", 19)],
    ]
    assert played(builder.build(), script, ["l", "r"]) == [("a", "1+2", 10), ("a", "3+2", 20)]


def test_a_joiner_that_fails_names_its_record() -> None:
    builder = StreamsBuilder()
    left, right = builder.table("l", **WORDS), builder.table("r", **WORDS)
    left.join(right, lambda one, other: 1 // 0, name="joining").to_stream().to("out", **WORDS)
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("l", **WORDS).pipe("a", "1", timestamp=1)
        with pytest.raises(Exception, match=r"(?s)'joining'.*topic 'r', partition 0, offset 0"):
            driver.input_topic("r", **WORDS).pipe("a", "1", timestamp=1)


def test_joiners_with_a_key_get_it_first() -> None:
    builder = StreamsBuilder()
    left, right = builder.table("l", **WORDS), builder.table("r", **WORDS)
    left.outer_join(right, lambda key, one, other: f"{key}:{one}+{other}", with_key=True).to_stream().to(
        "out", **WORDS
    )
    script: list[Epoch] = [[("l", "a", "1", 1)], [("r", "a", "2", 2)]]
    assert played(builder.build(), script, ["l", "r"]) == [("a", "a:1+None", 1), ("a", "a:1+2", 2)]
