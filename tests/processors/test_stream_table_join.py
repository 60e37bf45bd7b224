"""A stream with a table: each record sees the table as of that record, whatever the batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.processors.table_join_oracle import Epoch, Event, Row, epochs, in_task_order, joined, played

from millstream import FixedKeyProcessor, FixedKeyRecord, KStream, KTable, Store, StreamsBuilder, serdes
from millstream.processors.columns import column
from millstream.testing import TopologyTestDriver

BUSY = settings(deadline=None)  # a busy machine is no failure
WORDS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
SIZES = st.sampled_from([None, 1, 3])
KINDS = st.sampled_from(["join", "left_join"])

Tables = Callable[[StreamsBuilder, KStream[str, str]], KTable[str, Any]]
Fold = Callable[[str | None, str], str | None]
"""From what a table has for a key, and a value that comes in, to what it has then."""


def source(caching: bool) -> Tables:
    return lambda builder, _: builder.table("t", store=Store("t", caching=caching, **WORDS), **WORDS)


def to_table(caching: bool) -> Tables:
    return lambda builder, _: builder.stream("t", **WORDS).to_table(store=Store("t", caching=caching))


def aggregate(caching: bool) -> Tables:
    return lambda builder, _: (
        builder.stream("t", **WORDS)
        .group_by_key()
        .reduce(lambda so_far, new: so_far + new, store=Store("t", caching=caching))
    )


def cogrouped(caching: bool) -> Tables:
    return lambda builder, _: (
        builder.stream("t", **WORDS)
        .group_by_key()
        .cogroup(lambda key, value, so_far: so_far + value)
        .aggregate(lambda: "", store=Store("t", caching=caching, **WORDS))
    )


def view(caching: bool) -> Tables:
    return lambda builder, stream: (
        source(caching)(builder, stream)
        .filter(lambda key, value: value != "2")
        .map_values(lambda value: value * 2)
    )


def replace(_: str | None, new: str | None) -> str | None:
    return new


def expected(kind: str, script: list[Epoch], fold: Callable[[Any, Any], Any], shown: Any = None) -> list[Row]:
    table, out = dict[str, Any](), list[Row]()
    for epoch in script:
        for topic, key, value, timestamp in in_task_order(epoch):
            if topic == "t":
                if key is not None:
                    table[key] = fold(table.get(key), value)
            elif value is not None and (key is not None or kind == "left_join"):
                row = None if key is None else table.get(key)
                row = row if shown is None or row is None else shown(row)
                if row is not None or kind == "left_join":
                    out.append((key, joined(value, row), timestamp))
    return out


def concatenated(so_far: str | None, new: str | None) -> str | None:
    return so_far if new is None else (so_far or "") + new


TABLES: dict[str, tuple[Callable[[bool], Tables], Callable[[Any, Any], Any], Any]] = {
    "a source": (source, replace, None),
    "a stream as a table": (to_table, replace, None),
    "an aggregate": (aggregate, concatenated, None),
    "a cogroup": (cogrouped, concatenated, None),
    "a view": (view, replace, lambda value: None if value == "2" else value * 2),
}


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("table", TABLES)
@BUSY
@given(kind=KINDS, script=epochs("s", "t"), max_rows=SIZES, fresh=st.booleans())
def test_a_record_sees_the_table_as_of_that_record(
    table: str, caching: bool, kind: str, script: list[Epoch], max_rows: int | None, fresh: bool
) -> None:
    make, fold, shown = TABLES[table]
    builder = StreamsBuilder()
    stream = builder.stream("s", **WORDS)
    getattr(stream, kind)(make(caching)(builder, stream), joined).to("out", **WORDS)
    out = played(builder.build(), script, ["s", "t"], max_rows=max_rows, fresh_tasks=fresh)
    assert out == expected(kind, script, fold, shown)


@BUSY
@given(kind=KINDS, script=epochs("s", "t"), max_rows=SIZES)
def test_it_sees_the_same_if_its_batch_is_looked_up_in_columns(
    kind: str, script: list[Epoch], max_rows: int | None
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("s", **WORDS)
    getattr(stream, kind)(source(True)(builder, stream), joined).to("out", **WORDS)
    with patch.object(column, "MANY_ROWS", 0):
        out = played(builder.build(), script, ["s", "t"], max_rows=max_rows)
    assert out == expected(kind, script, replace, None)


@BUSY
@given(epochs("s"), SIZES)
def test_a_stream_meets_the_table_that_it_makes(script: list[Epoch], max_rows: int | None) -> None:
    """The table is attached first, so each record sees itself; what is attached before it does not."""
    builder = StreamsBuilder()
    stream = builder.stream("s", **WORDS)
    early = stream.filter(lambda key, value: True)
    table = stream.to_table(store=Store("t"))
    stream.left_join(table, joined).merge(early.left_join(table, lambda one, row: f"{one}-{row}")).to(
        "out", **WORDS
    )
    rows, table_rows = list[Row](), dict[str, Any]()
    for epoch in script:
        for _, key, value, timestamp in in_task_order(epoch):
            before = None if key is None else table_rows.get(key)
            if key is not None:
                table_rows[key] = value
            if value is not None:
                rows.append((key, f"{value}-{before}", timestamp))
                rows.append((key, joined(value, None if key is None else value), timestamp))
    assert played(builder.build(), script, ["s"], max_rows=max_rows) == rows


class Swap(FixedKeyProcessor[str, str, str]):
    """Writes to the table's store behind its back."""

    def process(self, record: FixedKeyRecord[str, str]) -> None:
        self.context.state_store("t").put(record.key, None)
        self.context.forward(record)


@BUSY
@given(epochs("s", "t", "u"), SIZES)
def test_a_processor_that_writes_to_the_tables_store_is_seen(
    script: list[Epoch], max_rows: int | None
) -> None:
    def build() -> Any:
        builder = StreamsBuilder()
        table = builder.table("t", store=Store("t", **WORDS), **WORDS)
        builder.stream("u", **WORDS).filter(lambda key, value: key is not None).process_values(Swap, "t")
        builder.stream("s", **WORDS).left_join(table, joined).to("out", **WORDS)
        return builder.build()

    topics = ["s", "t", "u"]
    assert played(build(), script, topics, max_rows=max_rows) == played(build(), script, topics, max_rows=1)


class Versions:
    """A versioned table, as plainly as it can be written."""

    def __init__(self, history: int) -> None:
        self.history = history
        self.observed = -1
        self.rows: dict[str, dict[int, str | None]] = {}

    def put(self, key: str | None, value: str | None, time: int) -> None:
        if key is not None and time >= self.observed - self.history:
            self.observed = max(self.observed, time)
            self.rows.setdefault(key, {})[time] = value

    def get(self, key: str | None, time: int) -> str | None:
        row = self.rows.get(key, {}) if key is not None else {}
        known = [since for since in row if since <= time]
        if not known or (time < self.observed - self.history and max(known) < max(row)):
            return None
        return row[max(known)]


HISTORIES = st.sampled_from([0, 4, 1000])
GRACES = st.sampled_from([(0, 0), (4, 0), (4, 3), (4, 4), (1000, 3), (1000, 10)])
"""Of the table's history, and of the join."""


@BUSY
@given(KINDS, epochs("s", "t"), SIZES, st.booleans(), HISTORIES)
def test_with_versions_a_record_sees_the_table_as_of_its_time(
    kind: str, script: list[Epoch], max_rows: int | None, fresh: bool, history: int
) -> None:
    builder = StreamsBuilder()
    table = builder.table("t", store=Store("t", versioned=history), **WORDS)
    getattr(builder.stream("s", **WORDS), kind)(table, joined).to("out", **WORDS)
    versions, out = Versions(history), list[Row]()
    for epoch in script:
        for topic, key, value, timestamp in in_task_order(epoch):
            if topic == "t":
                versions.put(key, value, timestamp)
            elif value is not None and (key is not None or kind == "left_join"):
                row = versions.get(key, timestamp)
                if row is not None or kind == "left_join":
                    out.append((key, joined(value, row), timestamp))
    found = played(builder.build(), script, ["s", "t"], max_rows=max_rows, fresh_tasks=fresh)
    assert found == out


@BUSY
@given(KINDS, epochs("s", "t"), SIZES, st.booleans(), GRACES)
def test_with_grace_records_wait_for_late_updates_of_the_table(
    kind: str, script: list[Epoch], max_rows: int | None, fresh: bool, bounds: tuple[int, int]
) -> None:
    history, grace = bounds
    builder = StreamsBuilder()
    table = builder.table("t", store=Store("t", versioned=history), **WORDS)
    getattr(builder.stream("s", **WORDS), kind)(table, joined, grace=grace).to("out", **WORDS)
    versions, out = Versions(history), list[Row]()
    waiting: list[tuple[int, str, int, str]] = []
    observed, number = -1, 0

    def join(key: str | None, value: str, time: int) -> None:
        row = versions.get(key, time)
        if row is not None or kind == "left_join":
            out.append((key, joined(value, row), time))

    for epoch in script:
        for topic, key, value, timestamp in in_task_order(epoch):
            if topic == "t":
                versions.put(key, value, timestamp)
            elif value is not None and (key is not None or kind == "left_join"):
                observed, number = max(observed, timestamp), number + 1
                if key is None or timestamp < observed - grace:
                    join(key, value, timestamp)
                else:
                    waiting = sorted([*waiting, (timestamp, key, number, value)])
                while waiting and waiting[0][0] <= observed - grace:
                    time, name, _, text = waiting.pop(0)
                    join(name, text, time)
    found = played(builder.build(), script, ["s", "t"], max_rows=max_rows, fresh_tasks=fresh)
    assert found == out


def test_headers_of_records_that_waited_are_their_own() -> None:
    builder = StreamsBuilder()
    table = builder.table("t", store=Store("t", versioned=1000), **WORDS)
    builder.stream("s", **WORDS).left_join(table, joined, grace=5).to("out", **WORDS)
    with TopologyTestDriver(builder.build()) as driver:
        stream = driver.input_topic("s", **WORDS)
        stream.pipe("a", "1", timestamp=10, headers=(("h", b"1"),))
        stream.pipe("a", "2", timestamp=15, headers=(("h", b"2"),))
        (record,) = driver.output_topic("out", **WORDS).read_all()
    assert (record.value, record.timestamp, record.headers) == ("1+None", 10, (("h", b"1"),))


GLOBAL: list[Event] = [
    ("s", "k", "a", 1),
    ("t", "a", "A", 2),
    ("s", "k", "a", 3),
    ("s", None, "a", 4),
    ("s", "k", "none", 5),
    ("s", "k", None, 6),
    ("t", "a", None, 7),
    ("s", "k", "a", 8),
]


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("join", [("k", "a+A", 3), (None, "a+A", 4)]),
        (
            "left_join",
            [
                ("k", "a+None", 1),
                ("k", "a+A", 3),
                (None, "a+A", 4),
                ("k", "none+None", 5),
                ("k", "a+None", 8),
            ],
        ),
    ],
)
def test_a_global_table_is_looked_up_by_the_key_of_the_function(kind: str, rows: list[Row]) -> None:
    builder = StreamsBuilder()
    table = builder.global_table("t", **WORDS)
    getattr(builder.stream("s", **WORDS), kind)(
        table, joined, key_of=lambda key, value: None if value == "none" else value
    ).to("out", **WORDS)
    with TopologyTestDriver(builder.build()) as driver:
        topics = {topic: driver.input_topic(topic, **WORDS) for topic in ("s", "t")}
        for topic, key, value, timestamp in GLOBAL:
            topics[topic].pipe(key, value, timestamp=timestamp)
        records = driver.output_topic("out", **WORDS).read_all()
    assert [(record.key, record.value, record.timestamp) for record in records] == rows


def test_a_value_that_the_joiner_changes_is_fresh_for_the_next_record() -> None:
    builder = StreamsBuilder()
    lists: dict[str, Any] = {"key": serdes.string, "value": serdes.json}
    table = builder.table("t", **lists)

    def add(value: str, row: list[str]) -> list[str]:
        row.append(value)
        return row

    builder.stream("s", **WORDS).join(table, add).to("out", **lists)
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("t", **lists).pipe("a", ["row"], timestamp=1)
        stream = driver.input_topic("s", **WORDS)
        stream.pipe("a", "1", timestamp=2)
        stream.pipe("a", "2", timestamp=3)
        records = driver.output_topic("out", **lists).read_all()
    assert [record.value for record in records] == [["row", "1"], ["row", "2"]]
