"""What a user reads when something is wrong: what, where, and what to do about it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from millstream import (
    EmitStrategy,
    JoinWindows,
    KStream,
    KTable,
    Processor,
    Record,
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
    Topology,
    UnlimitedWindows,
    serdes,
    stores,
)
from millstream import value as column_value
from millstream.dsl.grouped import KGroupedStream
from millstream.errors import (
    ConfigError,
    DriverClosedError,
    InvalidTimestampError,
    MillstreamError,
    ProcessingError,
    ProductionError,
    SerializationError,
    TopologyError,
    UnknownStoreError,
)
from millstream.testing import TopologyTestDriver

STRINGS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}


class Echo(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


class AsksForCounts(Echo):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.state_store("counts")


def _keep(key: str, value: str, total: int) -> int:
    return total


def _here(offset: int = 0) -> str:
    """This file and the caller's line."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno + offset}"


def _pipe(build: Callable[[StreamsBuilder], object], timestamp: int = 7) -> None:
    builder = StreamsBuilder()
    build(builder)
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("in", **STRINGS).pipe("k", "v", timestamp=timestamp)


def test_an_unknown_store_is_named_at_build_with_the_line_that_asks_for_it() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("seen"))
    builder.stream("in").process(Echo, "sen")
    line = _here(-1)
    with pytest.raises(TopologyError) as caught:
        builder.build()
    assert "asks for the state store 'sen', which is unknown" in str(caught.value)
    assert "there are: seen" in str(caught.value)
    assert line in str(caught.value)


def test_a_store_that_is_not_connected_is_named_when_it_is_asked_for() -> None:
    with pytest.raises(ProcessingError) as caught:
        _pipe(lambda builder: builder.stream("in", **STRINGS).process(AsksForCounts))
    assert isinstance(caught.value.__cause__, UnknownStoreError)
    assert "asks for the state store 'counts', which is not connected to it (connected: none)" in str(
        caught.value
    )
    assert "connect_processor_and_state_stores" in str(caught.value)


def test_a_wrong_serde_names_topic_operator_record_and_value() -> None:
    with pytest.raises(SerializationError) as caught:
        _pipe(lambda builder: builder.stream("in", **STRINGS).map_values(len).to("out", value=serdes.string))  # type: ignore[arg-type]
    message = str(caught.value)
    assert (
        "Cannot serialize the value of topic 'out' with serdes.string: expected str, got int (it is 1)"
        in message
    )
    assert "operator 'KSTREAM-SINK-0000000002' of task 0_0" in message
    assert "topic 'in', partition 0, offset 0, key 'k', timestamp 7" in message


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (
            lambda b: b.stream("in", **STRINGS).map(lambda k, v: None),
            "a (key, value) pair, but it returned None",
        ),
        (lambda b: b.stream("in", **STRINGS).flat_map(lambda k, v: None), "an iterable of results"),
        (lambda b: b.stream("in", **STRINGS).flat_map_values(lambda v: None), "an iterable of results"),
        (lambda b: b.stream("in", **STRINGS).flat_map(lambda k, v: [None]), "but it returned None"),
    ],
)
def test_a_mapper_that_returns_nothing_is_told_what_to_return(
    build: Callable[[StreamsBuilder], object], what: str
) -> None:
    with pytest.raises(ProcessingError) as caught:
        _pipe(build)
    assert f"the mapper must return {what}" in str(caught.value) or what in str(caught.value)
    assert re.search(
        r"operator 'KSTREAM-(MAP|FLATMAP|FLATMAPVALUES)-0000000001' of task 0_0 failed", str(caught.value)
    )
    assert "topic 'in', partition 0, offset 0, key 'k'" in str(caught.value)


def test_a_cycle_is_shown_with_the_lines_that_make_it() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("shared"))
    stream = builder.stream("in").process(Echo, "shared", name="before")
    before = _here(-1)
    stream.repartition(name="again").process(Echo, "shared", name="after")
    after = _here(-1)
    with pytest.raises(TopologyError) as caught:
        builder.build()
    message = str(caught.value)
    assert "the topology has a cycle through the repartition 'again-repartition'" in message
    assert f"'before' ({before})" in message
    assert f"'after' ({after})" in message
    assert "Remedy: give each a store of its own" in message


def test_two_operators_with_one_name_are_named_with_both_lines() -> None:
    builder = StreamsBuilder()
    builder.stream("in").filter(lambda k, v: True, name="same").to("out")
    first = _here(-1)
    builder.stream("other").filter(lambda k, v: True, name="same").to("out")
    second = _here(-1)
    with pytest.raises(TopologyError) as caught:
        builder.build()
    assert "two operators have the name 'same'" in str(caught.value)
    assert first in str(caught.value)
    assert second in str(caught.value)


def test_one_topic_as_stream_and_as_table_is_refused_with_both_lines() -> None:
    builder = StreamsBuilder()
    builder.stream("in")
    builder.table("in")
    line = _here(-1)
    with pytest.raises(TopologyError) as caught:
        builder.build()
    assert "topic 'in' is read by source" in str(caught.value)
    assert line in str(caught.value)


def test_different_explicit_partition_counts_of_one_group_are_refused_with_both() -> None:
    builder = StreamsBuilder()
    one = builder.stream("a", **STRINGS).repartition(name="one", partitions=2).group_by_key()
    two = builder.stream("b", **STRINGS).repartition(name="two", partitions=3).group_by_key()
    one.cogroup(_keep).cogroup(two, _keep).aggregate(int, store="all")
    with pytest.raises(TopologyError) as caught:
        builder.build()
    assert "one-repartition: 2 partitions" in str(caught.value)
    assert "two-repartition: 3 partitions" in str(caught.value)


def test_a_negative_timestamp_names_topic_partition_and_offset() -> None:
    with pytest.raises(InvalidTimestampError) as caught:
        _pipe(lambda builder: builder.stream("in", **STRINGS).to("out"), timestamp=-1)
    assert "topic 'in', partition 0, offset 0: the timestamp is -1, which is negative" in str(caught.value)
    assert "timestamp_extractor" in str(caught.value)


def test_a_closed_driver_says_so() -> None:
    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).to("out")
    driver = TopologyTestDriver(builder.build())
    source = driver.input_topic("in", **STRINGS)
    driver.close()
    for use in (
        lambda: source.pipe("k", "v"),
        lambda: driver.store("x"),
        lambda: driver.advance_wall_clock(1),
    ):
        with pytest.raises(DriverClosedError, match="the TopologyTestDriver is closed"):
            use()


def test_a_topic_that_nobody_reads_is_refused_with_those_that_are() -> None:
    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).to("out")
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(MillstreamError) as caught:
        driver.input_topic("im", **STRINGS).pipe("k", "v")
    assert str(caught.value) == "no source of the topology reads topic 'im'. Sources read: in"


def test_a_topic_extractor_that_names_no_topic_is_told_so() -> None:
    with pytest.raises(ProductionError, match="answered None, which is no topic"):
        _pipe(lambda builder: builder.stream("in", **STRINGS).to(lambda k, v, context: None))  # type: ignore[arg-type, return-value]


def test_an_instance_is_no_supplier() -> None:
    with pytest.raises(TopologyError, match="pass the class, or a function that makes a new instance"):
        Topology().add_source("in", "a").add_processor("p", Echo(), "in")  # type: ignore[arg-type]


NO_DURATION = "which is no duration. Remedy: give whole milliseconds (an int) or a datetime.timedelta"
NOT_WHOLE = "which is no whole number of milliseconds. Remedy: round it to"
TOO_LONG = "which does not fit. Remedy: give at most 9223372036854775807 ms (2**63 - 1)"


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda: TimeWindows(1.5), f"the size of time windows is 1.5, {NO_DURATION}"),  # type: ignore[arg-type]
        (lambda: TimeWindows("x"), f"the size of time windows is 'x', {NO_DURATION}"),  # type: ignore[arg-type]
        (lambda: TimeWindows(True), f"the size of time windows is True, {NO_DURATION}"),
        (lambda: TimeWindows(9, 2.5), f"the advance of windows is 2.5, {NO_DURATION}"),  # type: ignore[arg-type]
        (lambda: TimeWindows(9, grace=None), f"the grace of windows is None, {NO_DURATION}"),  # type: ignore[arg-type]
        (
            lambda: TimeWindows(timedelta(microseconds=1500)),
            f"the size of time windows is {timedelta(microseconds=1500)!r}, {NOT_WHOLE} 1 ms or 2 ms",
        ),
        (lambda: TimeWindows(2**63), f"the size of time windows is {2**63} ms, {TOO_LONG}"),
        (lambda: TimeWindows(9, grace=2**70), f"the grace of windows is {2**70} ms, {TOO_LONG}"),
        (lambda: SessionWindows(2**70), f"the gap of session windows is {2**70} ms, {TOO_LONG}"),
        (lambda: SlidingWindows(2**70), f"the time difference of sliding windows is {2**70} ms, {TOO_LONG}"),
        (lambda: UnlimitedWindows(2**70), f"the start of an unlimited window is {2**70} ms, {TOO_LONG}"),
        (lambda: JoinWindows(0.5), f"before of join windows is 0.5, {NO_DURATION}"),  # type: ignore[arg-type]
        (lambda: JoinWindows(-(2**70)), f"before of join windows is {-(2**70)} ms, {TOO_LONG}"),
        (
            lambda: EmitStrategy.on_window_close(after_idle=0.5),  # type: ignore[arg-type]
            f"after_idle is 0.5, {NO_DURATION}",
        ),
        (lambda: Suppressed.until_time_limit("5"), f"limit of Suppressed is '5', {NO_DURATION}"),  # type: ignore[arg-type]
        (lambda: Suppressed.until_time_limit(2**70), f"limit of Suppressed is {2**70} ms, {TOO_LONG}"),
        (lambda: Store("s", retention=20.5), f"retention of the store 's' is 20.5, {NO_DURATION}"),  # type: ignore[arg-type]
        (lambda: Store("s", retention_ms=2**63), f"retention_ms of the store 's' is {2**63} ms, {TOO_LONG}"),
        (lambda: Store("s", versioned="1h"), f"versioned of the store 's' is '1h', {NO_DURATION}"),  # type: ignore[arg-type]
        (
            lambda: serdes.time_windowed(serdes.string, 1.5),  # type: ignore[arg-type]
            f"window_size_ms of serdes.time_windowed is 1.5, {NO_DURATION}",
        ),
        (
            lambda: stores.session("s", retention_ms=None),  # type: ignore[arg-type]
            f"retention_ms of the store 's' is None, {NO_DURATION}",
        ),
    ],
)
def test_what_is_no_duration_is_refused_with_the_name_of_the_argument(
    give: Callable[[], object], message: str
) -> None:
    with pytest.raises(TopologyError) as caught:
        give()
    assert str(caught.value) == message


def _grouped() -> KGroupedStream[str, str]:
    return StreamsBuilder().stream("in", **STRINGS).group_by_key()


def _regrouped(key: Any) -> KTable[Any, int]:
    counts = _grouped().windowed_by(TimeWindows(10)).count()
    return counts.group_by(lambda k, v: (k, v), key=key, name="by-key").count(name="counts")


FINAL = Suppressed.until_window_closes()
NO_BOUND = "which is no whole number. Remedy: give 0 or more, or None for no bound"
NO_EXTRACTOR = (
    "timestamp_extractor is 'x', which can't be called. Remedy: use one of millstream.timestamps, or a "
    "function of the record and the partition time"
)
RETAINED = (
    "the store 's' has a retention of 20 ms, but it is kept by key: its rows stay until they are deleted. "
    "Retention is for windows. Remedy: leave retention= out; Store(versioned=...) keeps the history of each "
    "row for so long"
)
WINDOWS = "TimeWindows(...), SlidingWindows(...), SessionWindows(...) or UnlimitedWindows(...)"
STRATEGIES = "EmitStrategy.on_window_close() or EmitStrategy.on_window_update()"


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (
            lambda: _grouped().windowed_by("x"),  # type: ignore[call-overload]
            f"windowed_by() takes windows, but it got 'x'. Remedy: {WINDOWS}",
        ),
        (
            lambda: _grouped().windowed_by(None),  # type: ignore[call-overload]
            f"windowed_by() takes windows, but it got None. Remedy: {WINDOWS}",
        ),
        (
            lambda: _grouped().cogroup(_keep).windowed_by(60),  # type: ignore[call-overload]
            f"windowed_by() takes windows, but it got 60. Remedy: {WINDOWS}",
        ),
        (
            lambda: _grouped().windowed_by(TimeWindows),  # type: ignore[call-overload]
            (
                "windowed_by() takes windows, but it got TimeWindows, which was not called. "
                "Remedy: call it: TimeWindows(...)"
            ),
        ),
        (
            lambda: _grouped().windowed_by(TimeWindows(1)).emit_strategy("x"),  # type: ignore[arg-type]
            f"emit_strategy() takes an EmitStrategy, but it got 'x'. Remedy: {STRATEGIES}",
        ),
        (
            lambda: _grouped().windowed_by(SessionWindows(1)).emit_strategy(EmitStrategy.on_window_close),  # type: ignore[arg-type]
            (
                "emit_strategy() takes an EmitStrategy, but it got EmitStrategy.on_window_close, which was "
                "not called. Remedy: call it: EmitStrategy.on_window_close()"
            ),
        ),
        (
            lambda: EmitStrategy(False, 5),
            (
                "an EmitStrategy with after_idle_ms=5 that does not emit on close: every update goes on at "
                "once, so none waits for the clock. Remedy: EmitStrategy.on_window_close(after_idle=...)"
            ),
        ),
        (
            lambda: _grouped().count().suppress(Suppressed.until_window_closes),  # type: ignore[arg-type]
            (
                "suppress() takes a Suppressed, but it got Suppressed.until_window_closes, which was not "
                "called. Remedy: call it: Suppressed.until_window_closes()"
            ),
        ),
        (
            lambda: _grouped().count().suppress(5),  # type: ignore[arg-type]
            (
                "suppress() takes a Suppressed, but it got 5. Remedy: Suppressed.until_window_closes() or "
                "Suppressed.until_time_limit(...)"
            ),
        ),
        (
            lambda: _grouped().windowed_by(UnlimitedWindows()).count().suppress(FINAL),
            (
                "an unlimited window never closes, so suppress(Suppressed.until_window_closes()) would hold "
                "its results back for ever. Remedy: Suppressed.until_time_limit(...), or windows that end"
            ),
        ),
        (
            lambda: _regrouped(serdes.string).suppress(FINAL),
            (
                "Suppressed.until_window_closes() needs a table with windows, but the group_by() in front of "
                "it gives rows new keys that have none: by-key -> counts-source -> counts. Remedy: "
                "suppress before group_by(); if its groups are Windowed, give it "
                "key=serdes.time_windowed(...) or serdes.session_windowed(...); or use "
                "Suppressed.until_time_limit(...)"
            ),
        ),
        (
            lambda: Suppressed.until_window_closes(max_records=1.5),  # type: ignore[arg-type]
            f"max_records of Suppressed is 1.5, {NO_BOUND}",
        ),
        (
            lambda: Suppressed.until_time_limit(5, max_bytes="5"),  # type: ignore[arg-type]
            f"max_bytes of Suppressed is '5', {NO_BOUND}",
        ),
        (lambda: _grouped().count(store=Store("s", retention=20)), RETAINED),
        (lambda: StreamsBuilder().table("in", store=Store("s", retention_ms=20)), RETAINED),
        (lambda: StreamsBuilder().stream("in", timestamp_extractor="x"), NO_EXTRACTOR),  # type: ignore[arg-type]
        (lambda: StreamsBuilder().table("in", timestamp_extractor="x"), NO_EXTRACTOR),  # type: ignore[arg-type]
        (lambda: StreamsBuilder().global_table("in", timestamp_extractor="x"), NO_EXTRACTOR),  # type: ignore[arg-type]
    ],
)
def test_what_an_operator_can_not_use_is_refused_at_its_call(
    give: Callable[[], object], message: str
) -> None:
    with pytest.raises(TopologyError) as caught:
        give()
    assert str(caught.value) == message


NOT_CALLED = "which can't be called. Remedy: a function"
JOINER = f"{NOT_CALLED} of both values, as in lambda left, right: (left, right); of key and both values with "
INITIALIZER = f"{NOT_CALLED} without arguments that makes the first value, as in lambda: 0"
AGGREGATOR = f"{NOT_CALLED} of key, value and the result so far, as in lambda key, value, n: n + value"
MERGER = f"{NOT_CALLED} of key and two results that makes one, as in lambda key, one, other: one + other"


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda b: b.stream("s").join(b.stream("t"), 5, JoinWindows(5)), f"joiner of join() is 5, {JOINER}"),
        (
            lambda b: b.stream("s").outer_join(b.stream("t"), None, JoinWindows(5)),
            f"joiner of outer_join() is None, {JOINER}",
        ),
        (lambda b: b.stream("s").left_join(b.table("t"), "x"), f"joiner of left_join() is 'x', {JOINER}"),
        (lambda b: b.table("s").join(b.table("t"), "x"), f"joiner of join() is 'x', {JOINER}"),
        (
            lambda b: b.stream("s").join(b.global_table("t"), 5, key_of=lambda key, value: key),
            f"joiner of join() is 5, {JOINER}",
        ),
        (
            lambda b: b.stream("s").join(b.global_table("t"), max, key_of="country"),
            f"key_of of join() is 'country', {NOT_CALLED} of a record's key and value that gives the key of ",
        ),
        (lambda b: _grouped().aggregate(0, _keep), f"initializer of aggregate() is 0, {INITIALIZER}"),  # type: ignore[arg-type]
        (lambda b: _grouped().aggregate(int, 5), f"aggregator of aggregate() is 5, {AGGREGATOR}"),  # type: ignore[arg-type]
        (
            lambda b: _grouped().windowed_by(TimeWindows(5)).aggregate([], _keep),  # type: ignore[arg-type]
            f"initializer of aggregate() is [], {INITIALIZER}",
        ),
        (
            lambda b: _grouped().windowed_by(SessionWindows(5)).aggregate(int, _keep, 1),  # type: ignore[arg-type]
            f"merger of aggregate() is 1, {MERGER}",
        ),
        (
            lambda b: _grouped().cogroup(_keep).windowed_by(SessionWindows(5)).aggregate(int, 1),  # type: ignore[arg-type]
            f"merger of aggregate() is 1, {MERGER}",
        ),
        (
            lambda b: _grouped().cogroup(_keep).windowed_by(TimeWindows(5)).aggregate(0),  # type: ignore[arg-type]
            f"initializer of aggregate() is 0, {INITIALIZER}",
        ),
        (lambda b: _grouped().cogroup(_keep).aggregate(0), f"initializer of aggregate() is 0, {INITIALIZER}"),  # type: ignore[arg-type]
        (lambda b: _grouped().cogroup(5), f"aggregator of cogroup() is 5, {AGGREGATOR}"),  # type: ignore[arg-type]
        (
            lambda b: _grouped().reduce(5),  # type: ignore[arg-type]
            f"reducer of reduce() is 5, {NOT_CALLED} of the result so far and a value, as in max",
        ),
        (
            lambda b: b.table("t").group_by(lambda k, v: (v, k)).reduce(max, 5),
            f"subtractor of reduce() is 5, {NOT_CALLED} that takes a row out of the result again",
        ),
        (
            lambda b: b.table("t").group_by(lambda k, v: (v, k)).aggregate(int, 5, _keep),
            f"adder of aggregate() is 5, {NOT_CALLED} that adds a row to the result",
        ),
    ],
)
def test_what_can_not_be_called_is_refused_with_the_name_of_the_argument(
    give: Callable[[StreamsBuilder], object], message: str
) -> None:
    with pytest.raises(TopologyError) as caught:
        give(StreamsBuilder())
    assert str(caught.value).startswith(message)


def test_an_expression_can_not_join_two_streams() -> None:
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = builder.stream("s")
    with pytest.raises(TopologyError, match=r"joiner of join\(\) is .*which can't be called"):
        stream.join(builder.stream("t"), column_value + 1, JoinWindows(5))  # type: ignore[call-overload]


def test_a_stream_joined_with_itself_twice_under_one_name_is_refused_with_both_lines() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", **STRINGS)
    stream.join(stream, max, JoinWindows(5), name="pairs")
    first = _here(-1)
    stream.join(stream, min, JoinWindows(5), name="pairs")
    second = _here(-1)
    with pytest.raises(TopologyError) as caught:
        builder.build()
    assert "two operators have the name 'pairs-this-windowed'" in str(caught.value)
    assert first in str(caught.value)
    assert second in str(caught.value)


def test_two_joins_whose_stores_have_one_name_are_refused_with_both_lines() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", **STRINGS)
    stream.join(stream, max, JoinWindows(5), store="pairs")
    first = _here(-1)
    stream.join(stream, min, JoinWindows(5), store="pairs")
    second = _here(-1)
    with pytest.raises(TopologyError) as caught:
        builder.build()
    assert "pairs-this-join-store" in str(caught.value)
    assert first in str(caught.value)
    assert second in str(caught.value)


def test_a_topology_refuses_an_extractor_that_is_none() -> None:
    with pytest.raises(
        TopologyError, match="source 's' has the timestamp_extractor 'x', which can't be called"
    ):
        Topology().add_source("s", "in", timestamp_extractor="x")
    with pytest.raises(ConfigError, match="timestamp_extractor is 'x', which can't be called"):
        StreamsConfig(timestamp_extractor="x")  # type: ignore[arg-type]


def test_groups_that_are_windows_close_as_those_that_they_are_made_of() -> None:
    table = _regrouped(serdes.time_windowed(serdes.string, 10)).suppress(FINAL)
    assert table.node.name.startswith("KTABLE-SUPPRESS-")


@pytest.mark.parametrize("answer", [2**63, -(2**80)])
def test_an_extracted_timestamp_that_does_not_fit_names_the_record(answer: int) -> None:
    with pytest.raises(InvalidTimestampError) as caught:
        _pipe(lambda builder: builder.stream("in", **STRINGS, timestamp_extractor=lambda r, t: answer))
    assert str(caught.value) == (
        f"topic 'in', partition 0, offset 0: the timestamp extractor answered {answer}, which does not fit: "
        "the largest timestamp is 9223372036854775807 (2**63 - 1). Likely cause: a unit other than "
        "milliseconds since 1970. Remedy: return milliseconds"
    )


class FarFuture(Echo):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record.with_timestamp(2**63))


def test_a_record_can_not_get_a_timestamp_that_does_not_fit() -> None:
    with pytest.raises(ProcessingError) as caught:
        _pipe(lambda builder: builder.stream("in", **STRINGS).process(FarFuture))
    assert isinstance(caught.value.__cause__, InvalidTimestampError)
    assert f"A record's timestamp is {2**63}, which does not fit" in str(caught.value)
    assert "topic 'in', partition 0, offset 0" in str(caught.value)


@pytest.mark.parametrize("timestamp", [2**63, 1.5, "5", True])
def test_the_driver_takes_no_timestamp_that_a_topic_could_not_have(timestamp: Any) -> None:
    with pytest.raises(InvalidTimestampError) as caught:
        _pipe(lambda builder: builder.stream("in", **STRINGS), timestamp=timestamp)
    assert str(caught.value) == (
        f"topic 'in', partition 0, offset 0: the timestamp is {timestamp!r}. Remedy: give milliseconds since "
        "1970 as an int of at most 9223372036854775807 (2**63 - 1)"
    )
