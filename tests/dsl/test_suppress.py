"""`KTable.suppress` in programs: names, mistakes, and what operators behind it see."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any

import pytest
from tests.simulation.epochs import EpochRunner

from millstream import KTable, SessionWindows, Store, StreamsBuilder, Suppressed, Topology, serdes
from millstream.errors import ProcessingError, TopologyError
from millstream.state.stores.encoded_buffer import EncodedBuffer
from millstream.task.records import RawBatch
from millstream.testing import TopologyTestDriver

NUMBERS: dict[str, Any] = {"key": serdes.string, "value": serdes.int64}
UNCACHED = Store("rows", caching=False)

Row = tuple[str, int | None, int]


def played(
    build: Callable[[KTable[str, int]], KTable[Any, Any]], rows: list[Row], *, fresh_tasks: bool = False
) -> list[tuple[Any, Any, int]]:
    """Key, value and timestamp of the updates that leave a table which is built upon one of numbers."""
    builder = StreamsBuilder()
    build(builder.table("in", store=UNCACHED, **NUMBERS)).to_stream().to("out", **NUMBERS)
    with TopologyTestDriver(builder.build(), fresh_tasks=fresh_tasks) as driver:
        source = driver.input_topic("in", **NUMBERS)
        for key, value, timestamp in rows:
            source.pipe(key, value, timestamp=timestamp)
        records = driver.output_topic("out", **NUMBERS).read_all()
    return [(record.key, record.value, record.timestamp) for record in records]


def test_node_and_store_are_named_as_in_kafka() -> None:
    builder = StreamsBuilder()
    counts = builder.stream("in", **NUMBERS).group_by_key().count()
    counts.suppress(Suppressed.until_time_limit(5)).to_stream().to("out")
    counts.suppress(Suppressed.until_time_limit(5), name="calm").to_stream().to("calm-out")
    lines = [line.strip() for line in builder.build().describe().splitlines()]
    assert [line for line in lines if "SUPPRESS" in line or "calm" in line] == [
        "--> KTABLE-SUPPRESS-0000000003, calm",
        "Processor: KTABLE-SUPPRESS-0000000003 (stores: [KTABLE-SUPPRESS-STATE-STORE-0000000004])",
        "Processor: calm (stores: [calm-store])",
        "<-- KTABLE-SUPPRESS-0000000003",
        "<-- calm",
        "Sink: KSTREAM-SINK-0000000008 (topic: calm-out)",
    ]


@pytest.mark.parametrize("fresh_tasks", [False, True])
def test_stream_time_and_what_waits_outlive_a_task(fresh_tasks: bool) -> None:
    rows: list[Row] = [("a", 1, 0), ("a", 2, 5), ("b", 1, 9), ("b", None, 10), ("c", 1, 3), ("c", 2, 40)]
    out = played(
        lambda table: table.suppress(Suppressed.until_time_limit(timedelta(milliseconds=10))),
        rows,
        fresh_tasks=fresh_tasks,
    )
    assert out == [("a", 2, 5), ("c", 2, 40), ("b", None, 10)]


def test_a_group_behind_it_takes_back_what_it_was_given() -> None:
    def total(table: KTable[str, int]) -> KTable[str, int]:
        calm = table.suppress(Suppressed.until_time_limit(10))
        return calm.group_by(lambda _, value: ("all", value), **NUMBERS).reduce(
            lambda total, value: total + value,
            lambda total, value: total - value,
            store=Store("total", caching=False),
        )

    rows: list[Row] = [("a", 1, 0), ("a", 2, 10), ("a", 5, 11), ("a", 7, 20), ("b", 0, 40)]
    assert played(total, rows) == [("all", 2, 10), ("all", 7, 20)]


def test_rows_are_looked_up_behind_it_in_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", store=UNCACHED, **NUMBERS).suppress(Suppressed.until_time_limit(100))
    looked_up = builder.stream("asked", **NUMBERS).left_join(table, lambda asked, found: asked - (found or 0))
    looked_up.to("out", **NUMBERS)
    keys = [serdes.string.serialize(f"key {number}") for number in range(50)]

    def rows(topic: str, first: int, timestamp: int) -> RawBatch:
        offsets, values = list(range(first, first + 50)), [serdes.int64.serialize(n) for n in range(50)]
        return RawBatch(topic, 0, offsets, keys, values, [timestamp] * 50)

    asked_for: list[int] = []
    load = EncodedBuffer.load

    def counted(buffer: EncodedBuffer[Any], wanted: Collection[bytes]) -> Any:
        asked_for.append(len(wanted))
        return load(buffer, wanted)

    with EpochRunner(builder.build(), partitions={"in": 1, "asked": 1}) as runner:
        runner.run_epoch([rows("in", 0, 1)])
        runner.run_epoch([rows("in", 50, 200)])  # what waited is sent, and the new rows wait
        monkeypatch.setattr(EncodedBuffer, "load", counted)
        runner.run_epoch([rows("asked", 0, 201)])
        out = [row.value for row in runner.outputs["out"]]
    assert out == [serdes.int64.serialize(0)] * 50
    assert asked_for == [50]


def test_a_filter_behind_it_tells_of_a_row_that_is_gone() -> None:
    def large(table: KTable[str, int]) -> KTable[str, int]:
        return table.suppress(Suppressed.until_time_limit(10)).filter(lambda _, value: value > 5)

    rows: list[Row] = [("a", 7, 0), ("b", 0, 20), ("a", 3, 21), ("a", 2, 22), ("b", 0, 50)]
    assert played(large, rows) == [("a", 7, 0), ("a", None, 22)]


def test_a_table_without_a_store_gets_one_in_front_of_it() -> None:
    builder = StreamsBuilder()
    builder.table("in", **NUMBERS).suppress(Suppressed.until_time_limit(5)).to_stream().to("out")
    stores = sorted(name for sub in builder.build().plan().subtopologies for name in sub.stores)
    assert stores == ["KTABLE-SUPPRESS-STATE-STORE-0000000004", "in-STATE-STORE-0000000000"]


def test_a_table_without_windows_has_none_to_wait_for() -> None:
    counts = StreamsBuilder().stream("in", **NUMBERS).group_by_key().count().map_values(str)
    with pytest.raises(TopologyError) as failure:
        counts.suppress(Suppressed.until_window_closes())
    assert str(failure.value) == (
        "Suppressed.until_window_closes() needs a table with windows, but no operator in front of it makes "
        "any: KSTREAM-SOURCE-0000000000 -> KSTREAM-AGGREGATE-0000000002 -> KTABLE-MAPVALUES-0000000003. "
        "Remedy: aggregate behind windowed_by(...), or use Suppressed.until_time_limit(...)"
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Suppressed.until_time_limit(timedelta(seconds=-1)),
            "limit of Suppressed is -1000 ms. Remedy: give 0 or more milliseconds",
        ),
        (
            lambda: Suppressed.until_window_closes(max_records=-1),
            "max_records of Suppressed is -1. Remedy: give 0 or more, or None for no bound",
        ),
        (
            lambda: Suppressed.until_time_limit(5, max_bytes=-1),
            "max_bytes of Suppressed is -1. Remedy: give 0 or more, or None for no bound",
        ),
        (
            lambda: Suppressed.until_time_limit(5, when_full="give up"),  # type: ignore[arg-type]
            (
                "Suppressed.until_time_limit can't do 'give up' when it is full. Remedy: 'emit-early' to "
                "send the oldest updates on, or 'shut-down' to end the application"
            ),
        ),
    ],
)
def test_bounds_that_make_no_sense_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TopologyError) as failure:
        make()
    assert str(failure.value) == message


def test_a_full_buffer_ends_the_application() -> None:
    strict = Suppressed.until_time_limit(100, max_records=1, when_full="shut-down")
    with pytest.raises(ProcessingError) as failure:
        played(lambda table: table.suppress(strict, name="calm"), [("a", 1, 0), ("b", 1, 1)])
    assert str(failure.value) == (
        "suppress() at operator 'calm' of task 0_0 is full: it holds 2 updates back, 78 bytes in all; its "
        "bound is max_records=1. Likely cause: more rows are open at a time than expected, or stream "
        "time stands still. Remedy: raise the bound, or leave it out: the buffer is in a store, not in memory"
    )


def final_sessions(driver: TopologyTestDriver) -> list[tuple[str, int, int, int]]:
    """Key, start, end and count of the sessions that have left."""
    out = driver.output_topic("out", key=serdes.session_windowed(serdes.string), value=serdes.int64)
    return [
        (record.key.key, record.key.window.start, record.key.window.end, record.value)
        for record in out.read_all()
        if record.key is not None and record.value is not None
    ]


def sessions(suppressed: Suppressed) -> Topology:
    builder = StreamsBuilder()
    counts = builder.stream("in", **NUMBERS).group_by_key().windowed_by(SessionWindows(10, grace=5)).count()
    counts.suppress(suppressed).to_stream().to("out", value=serdes.int64)
    return builder.build()


@pytest.mark.parametrize("fresh_tasks", [False, True])
def test_a_session_leaves_once_when_grace_and_gap_are_over(fresh_tasks: bool) -> None:
    topology = sessions(Suppressed.until_window_closes())
    with TopologyTestDriver(topology, fresh_tasks=fresh_tasks) as driver:
        source = driver.input_topic("in", **NUMBERS)
        for timestamp in (0, 10, 24):
            source.pipe("a", 1, timestamp=timestamp)
        assert final_sessions(driver) == []
        source.pipe("b", 1, timestamp=25)
        assert final_sessions(driver) == [("a", 0, 10, 2)]
