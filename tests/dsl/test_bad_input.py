"""What a user reads when something is wrong: what, where, and what to do about it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from millstream import Processor, Record, StreamsBuilder, Topology, serdes, stores
from millstream.errors import (
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
