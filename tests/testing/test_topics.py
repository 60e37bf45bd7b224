"""Typed ends of a test: clocks and headers on the way in, records and tombstones on the way out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from millstream import Record, StreamsBuilder, serdes
from millstream.errors import DeserializationError, MillstreamError
from millstream.testing import TestInputTopic, TestOutputTopic, TopologyTestDriver

STRINGS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).to("out", **STRINGS)
    with TopologyTestDriver(builder.build(), start_ms=1_000) as driver:
        yield driver


@pytest.fixture
def out(driver: TopologyTestDriver) -> TestOutputTopic[str, str]:
    return driver.output_topic("out", key=serdes.string, value=serdes.string)


def source(driver: TopologyTestDriver, **clock: Any) -> TestInputTopic[str, str]:
    return driver.input_topic("in", key=serdes.string, value=serdes.string, **clock)


def times(out: TestOutputTopic[str, str]) -> list[int]:
    return [record.timestamp for record in out.read_all()]


def test_a_record_goes_in_whole(driver: TopologyTestDriver, out: TestOutputTopic[str, str]) -> None:
    source(driver).pipe("k", "v", timestamp=7, headers=(("h", b"1"), ("h", None)))
    assert out.read() == Record("k", "v", 7, (("h", b"1"), ("h", None)))


def test_none_goes_in_as_none(driver: TopologyTestDriver, out: TestOutputTopic[str, str]) -> None:
    source(driver).pipe(None, None, timestamp=7)
    assert str(out.read()) == "Record(key=None, value=None, timestamp=7, headers=())"


def test_without_a_timestamp_it_is_the_wall_clock(
    driver: TopologyTestDriver, out: TestOutputTopic[str, str]
) -> None:
    driver.advance_wall_clock(5)
    topic = source(driver)
    topic.pipe("k", "v")
    topic.pipe("k", "v")
    assert times(out) == [1_005, 1_005]


def test_a_topic_has_a_clock_of_its_own(driver: TopologyTestDriver, out: TestOutputTopic[str, str]) -> None:
    topic = source(driver, start_ms=50, auto_advance_ms=10)
    topic.pipe("k", "v")
    topic.pipe("k", "v")
    topic.advance_time(100)
    topic.pipe("k", "v")
    assert times(out) == [50, 60, 170]


def test_a_given_timestamp_does_not_move_the_topics_clock(
    driver: TopologyTestDriver, out: TestOutputTopic[str, str]
) -> None:
    topic = source(driver, start_ms=50, auto_advance_ms=10)
    topic.pipe("k", "v", timestamp=7)
    topic.pipe("k", "v")
    assert times(out) == [7, 50]


def test_many_pairs_take_the_topics_clock(driver: TopologyTestDriver, out: TestOutputTopic[str, str]) -> None:
    source(driver, start_ms=50, auto_advance_ms=10).pipe_all([("a", "1"), ("b", "2")])
    assert times(out) == [50, 60]


def test_many_pairs_may_bring_a_clock_of_their_own(
    driver: TopologyTestDriver, out: TestOutputTopic[str, str]
) -> None:
    source(driver).pipe_all([("a", "1"), ("b", "2"), ("c", "3")], start_ms=5, advance_ms=2)
    assert times(out) == [5, 7, 9]


def test_many_records_keep_their_own_times_and_headers(
    driver: TopologyTestDriver, out: TestOutputTopic[str, str]
) -> None:
    records = [Record("a", "1", 9, (("h", b""),)), Record("b", "2", 3)]
    source(driver).pipe_all(records)
    assert out.read_all() == records


def test_reading_uses_records_up(driver: TopologyTestDriver, out: TestOutputTopic[str, str]) -> None:
    source(driver).pipe_all([("a", "1"), ("b", "2"), ("a", "3")])
    assert (len(out), out.is_empty()) == (3, False)
    assert out.read().value == "1"
    assert out.read_values() == ["2", "3"]
    assert (len(out), out.is_empty(), out.read_all()) == (0, True, [])


def test_the_latest_value_of_each_key(driver: TopologyTestDriver, out: TestOutputTopic[str, str]) -> None:
    source(driver).pipe_all([("a", "1"), ("b", "2"), ("a", None)])
    assert out.read_latest() == {"a": None, "b": "2"}


def test_reading_from_an_empty_topic_says_so(out: TestOutputTopic[str, str]) -> None:
    with pytest.raises(MillstreamError) as caught:
        out.read()
    assert str(caught.value) == "topic 'out' has no record left to read"


def test_reading_with_the_wrong_serde_names_topic_serde_and_bytes(driver: TopologyTestDriver) -> None:
    source(driver).pipe("k", "text")
    with pytest.raises(DeserializationError) as caught:
        driver.output_topic("out", key=serdes.string, value=serdes.int64).read()
    message = str(caught.value)
    assert message.startswith("Cannot deserialize the value of topic 'out' with serdes.int64: ")
    assert "(4 bytes: 74 65 78 74 'text')" in message
