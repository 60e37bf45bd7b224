"""Windows in the DSL: names, stores, keys and types of windowed tables, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from millstream import (
    EmitStrategy,
    KTable,
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    TimeWindows,
    UnlimitedWindows,
    Window,
    Windowed,
    serdes,
)
from millstream.errors import TopologyError
from millstream.record import MAX_TIME
from millstream.state.specs import StoreBuilder, StoreKind
from millstream.testing import TopologyTestDriver

Builder = tuple[StreamsBuilder, Any]
ON_CLOSE = EmitStrategy.on_window_close()


def grouped() -> Builder:
    builder = StreamsBuilder()
    return builder, builder.stream("in", key=serdes.string, value=serdes.int64).group_by_key()


def store_of(builder: StreamsBuilder) -> StoreBuilder:
    (sub,) = builder.build().plan().subtopologies
    (store,) = sub.stores.values()
    return store


@pytest.mark.parametrize(
    ("windows", "kind", "size", "retention"),
    [
        (TimeWindows(10), StoreKind.TIMESTAMPED_WINDOW, 10, 10),
        (TimeWindows(10, advance=2, grace=5), StoreKind.TIMESTAMPED_WINDOW, 10, 15),
        (SlidingWindows(10, grace=5), StoreKind.TIMESTAMPED_WINDOW, 10, 25),
        (SessionWindows(10, grace=5), StoreKind.SESSION, None, 15),
        (UnlimitedWindows(7), StoreKind.TIMESTAMPED_WINDOW, MAX_TIME, MAX_TIME),
    ],
    ids=str,
)
def test_a_store_keeps_windows_for_as_long_as_they_can_change(
    windows: Any, kind: StoreKind, size: int | None, retention: int
) -> None:
    builder, stream = grouped()
    stream.windowed_by(windows).count(store="s")
    store = store_of(builder)
    assert (store.kind, store.window_size_ms, store.retention_ms) == (kind, size, retention)
    assert (store.caching, store.time_ordered) == (True, False)


@pytest.mark.parametrize(
    "store",
    [
        Store("s", retention=60_000),
        Store("s", retention=timedelta(minutes=1)),
        Store("s", retention_ms=60_000),
    ],
)
def test_a_store_may_keep_windows_for_longer(store: Store) -> None:
    builder, stream = grouped()
    stream.windowed_by(TimeWindows(10)).count(store=store)
    assert store_of(builder).retention_ms == 60_000


@pytest.mark.parametrize(
    ("windows", "least"),
    [(TimeWindows(10, grace=5), 15), (SlidingWindows(10, grace=5), 25), (SessionWindows(10, grace=5), 15)],
    ids=str,
)
def test_a_store_that_forgets_windows_too_early_is_refused(windows: Any, least: int) -> None:
    _, stream = grouped()
    with pytest.raises(TopologyError) as caught:
        stream.windowed_by(windows).count(store=Store("s", retention=least - 1))
    assert str(caught.value) == (
        f"the store 's' keeps windows for {least - 1} ms, but {windows} can change for {least} ms: they "
        f"would be gone before they are complete. Remedy: Store(retention={least}) or longer, or none: it is "
        "the default"
    )
    assert stream.windowed_by(windows).count(store=Store("s", retention=least)) is not None


def test_two_retentions_are_refused() -> None:
    with pytest.raises(TopologyError, match="a retention of 5 ms and a retention_ms of 6"):
        Store("s", retention=5, retention_ms=6)


@pytest.mark.parametrize("windows", [TimeWindows(10), SlidingWindows(10), SessionWindows(10)], ids=str)
def test_on_close_nothing_is_cached_and_windows_are_found_by_time(windows: Any) -> None:
    builder, stream = grouped()
    stream.windowed_by(windows).emit_strategy(ON_CLOSE).count(store="s")
    store = store_of(builder)
    assert (store.caching, store.time_ordered) == (False, True)


def test_an_unlimited_window_never_closes() -> None:
    _, stream = grouped()
    with pytest.raises(
        TopologyError, match="an unlimited window never closes, so it can't be emitted on close"
    ):
        stream.windowed_by(UnlimitedWindows()).emit_strategy(ON_CLOSE)
    stream.windowed_by(UnlimitedWindows()).emit_strategy(EmitStrategy.on_window_update())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TimeWindows(0), "the size of time windows is 0 ms. Remedy: give a positive number"),
        (lambda: TimeWindows(5, advance=0), "the advance of windows is 0 ms"),
        (lambda: TimeWindows(5, advance=6), "windows of 5 ms advance by 6 ms"),
        (lambda: TimeWindows(5, grace=-1), "the grace of windows is -1 ms. Remedy: give 0 or more"),
        (lambda: SlidingWindows(0), "the time difference of sliding windows is 0 ms"),
        (lambda: SlidingWindows(5, grace=-1), "the grace of windows is -1 ms"),
        (lambda: SessionWindows(-1), "the gap of session windows is -1 ms"),
        (lambda: SessionWindows(5, timedelta(milliseconds=-1)), "the grace of windows is -1 ms"),
        (lambda: UnlimitedWindows(-1), "the start of an unlimited window is -1 ms"),
    ],
)
def test_windows_that_make_no_sense_are_refused(make: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        make()


def test_the_keys_of_a_windowed_table_are_written_with_their_window() -> None:
    builder = StreamsBuilder()
    untyped = builder.stream("in").group_by_key()
    _, stream = grouped()
    assert repr(stream.windowed_by(TimeWindows(10)).count().key_serde) == (
        "serdes.time_windowed(serdes.string, window_size_ms=10)"
    )
    assert repr(stream.windowed_by(SessionWindows(10)).count().key_serde) == (
        "serdes.session_windowed(serdes.string)"
    )
    assert repr(untyped.windowed_by(SlidingWindows(10)).count(key=serdes.bytes).key_serde) == (
        "serdes.time_windowed(serdes.bytes, window_size_ms=10)"
    )


def test_a_sink_without_serdes_writes_windowed_keys_by_itself() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=serdes.int64).map(
        lambda _, value: (f"k{value}", value)
    ).group_by_key().windowed_by(TimeWindows(10)).count().to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("in", key=serdes.bytes, value=serdes.int64).pipe(None, 1, timestamp=12)
        read = driver.output_topic(
            "out", key=serdes.time_windowed(serdes.string, 10), value=serdes.int64
        ).read()
    assert (read.key, read.value) == (Windowed("k1", Window(10, 20)), 1)


def test_nodes_and_stores_are_numbered_as_kafka_numbers_them() -> None:
    builder, stream = grouped()
    stream.windowed_by(TimeWindows(10)).count()
    stream.windowed_by(TimeWindows(10)).count(store=Store(caching=False))
    stream.windowed_by(SlidingWindows(10)).count(store=Store(caching=False))
    stream.windowed_by(SessionWindows(10)).count(store=Store(caching=False))
    stream.windowed_by(TimeWindows(10)).reduce(max)
    stream.windowed_by(TimeWindows(10)).aggregate(lambda: 0, lambda k, v, n: n + v, name="total")
    nodes = [line.strip() for line in str(builder.build().describe()).splitlines() if "Processor:" in line]
    assert sorted(nodes) == [
        "Processor: KSTREAM-AGGREGATE-0000000002 (stores: [KSTREAM-AGGREGATE-STATE-STORE-0000000001])",
        "Processor: KSTREAM-AGGREGATE-0000000005 (stores: [KSTREAM-AGGREGATE-STATE-STORE-0000000004])",
        "Processor: KSTREAM-AGGREGATE-0000000007 (stores: [KSTREAM-AGGREGATE-STATE-STORE-0000000006])",
        "Processor: KSTREAM-AGGREGATE-0000000010 (stores: [KSTREAM-AGGREGATE-STATE-STORE-0000000009])",
        "Processor: KSTREAM-REDUCE-0000000012 (stores: [KSTREAM-REDUCE-STATE-STORE-0000000011])",
        "Processor: total (stores: [KSTREAM-AGGREGATE-STATE-STORE-0000000013])",
    ]


def test_a_windowed_cogroup_is_described_as_kafka_describes_it() -> None:
    builder = StreamsBuilder()
    one = builder.stream("a", key=serdes.string, value=serdes.int64).group_by_key()
    two = builder.stream("b", key=serdes.string, value=serdes.int64).group_by_key()
    windowed = one.cogroup(_add).cogroup(two, _add).windowed_by(TimeWindows(10))
    windowed.aggregate(lambda: 0, store="both").to_stream().to("out")
    assert str(builder.build().describe()) == (
        "Topologies:\n"
        "   Sub-topology: 0\n"
        "    Source: KSTREAM-SOURCE-0000000000 (topics: [a])\n"
        "      --> COGROUPKSTREAM-AGGREGATE-0000000002\n"
        "    Source: KSTREAM-SOURCE-0000000001 (topics: [b])\n"
        "      --> COGROUPKSTREAM-AGGREGATE-0000000003\n"
        "    Processor: COGROUPKSTREAM-AGGREGATE-0000000002 (stores: [both])\n"
        "      --> COGROUPKSTREAM-MERGE-0000000004\n"
        "      <-- KSTREAM-SOURCE-0000000000\n"
        "    Processor: COGROUPKSTREAM-AGGREGATE-0000000003 (stores: [both])\n"
        "      --> COGROUPKSTREAM-MERGE-0000000004\n"
        "      <-- KSTREAM-SOURCE-0000000001\n"
        "    Processor: COGROUPKSTREAM-MERGE-0000000004 (stores: [])\n"
        "      --> KTABLE-TOSTREAM-0000000005\n"
        "      <-- COGROUPKSTREAM-AGGREGATE-0000000002, COGROUPKSTREAM-AGGREGATE-0000000003\n"
        "    Processor: KTABLE-TOSTREAM-0000000005 (stores: [])\n"
        "      --> KSTREAM-SINK-0000000006\n"
        "      <-- COGROUPKSTREAM-MERGE-0000000004\n"
        "    Sink: KSTREAM-SINK-0000000006 (topic: out)\n"
        "      <-- KTABLE-TOSTREAM-0000000005\n\n"
    )


def test_each_stream_of_a_cogroup_has_its_own_stream_time() -> None:
    builder = StreamsBuilder()
    one = builder.stream("a", key=serdes.string, value=serdes.int64).group_by_key()
    two = builder.stream("b", key=serdes.string, value=serdes.int64).group_by_key()
    table: KTable[Windowed[str], int] = (
        one.cogroup(_add).cogroup(two, _add).windowed_by(TimeWindows(10)).aggregate(lambda: 0, store="both")
    )
    table.to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        ahead, behind = (
            driver.input_topic(topic, key=serdes.string, value=serdes.int64) for topic in ("a", "b")
        )
        ahead.pipe("k", 1, timestamp=5)
        ahead.pipe("k", 1, timestamp=95)
        behind.pipe("k", 10, timestamp=6)
        ahead.pipe("k", 100, timestamp=7)  # late for its own stream
        sink = driver.output_topic("out", key=serdes.time_windowed(serdes.string, 10), value=serdes.int64)
        assert [(record.key.window.start, record.value) for record in sink.read_all()] == [
            (0, 1),
            (90, 1),
            (0, 11),
        ]


def _add(key: str, value: int, total: int) -> int:
    del key
    return total + value
