"""Bad records: fail, skip and count, or dead letter; for reading, processing and writing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from millstream import Processor, Record, StreamsBuilder, StreamsConfig, handlers, serdes
from millstream.errors import (
    ConfigError,
    DeserializationError,
    MillstreamError,
    ProcessingError,
    SerializationError,
)
from millstream.handlers import ErrorContext, ErrorKind, Verdict
from millstream.testing import TopologyTestDriver

KINDS = ("deserialization", "processing", "production")
"""What goes wrong with the second record below."""
BAD_VALUES = {"deserialization": b"not a number", "processing": b"13", "production": b"14"}
NODES = {"deserialization": "reader", "processing": "mapper", "production": "writer"}
ERRORS: dict[str, type[MillstreamError]] = {
    "deserialization": DeserializationError,
    "processing": ProcessingError,
    "production": SerializationError,
}


class Decimal:
    """Numbers as text."""

    def serialize(self, value: int) -> bytes:
        return str(value).encode()

    def deserialize(self, data: bytes) -> int:
        return int(data)


def halved(value: int) -> Any:
    if value == 13:
        message = "13 is unlucky"
        raise ValueError(message)
    return "fourteen" if value == 14 else value // 2


@contextmanager
def driver_with(**settings: Any) -> Iterator[TopologyTestDriver]:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=Decimal(), name="reader")
    stream.map_values(halved, name="mapper").to("out", value=serdes.int64, name="writer")
    config = StreamsConfig(dead_letter_topic="bad-records", **settings)
    with TopologyTestDriver(builder.build(), config=config) as driver:
        yield driver


def pipe_three(driver: TopologyTestDriver, kind: str) -> None:
    source = driver.input_topic("in", key=serdes.string, value=serdes.bytes)
    source.pipe("a", b"2", timestamp=1)
    source.pipe("b", BAD_VALUES[kind], timestamp=2, headers=(("trace", b"7"),))
    source.pipe("c", b"6", timestamp=3)


def results(driver: TopologyTestDriver) -> list[tuple[str, int]]:
    out = driver.output_topic("out", key=serdes.string, value=serdes.int64)
    return [(record.key, record.value) for record in out.read_all()]


@pytest.mark.parametrize("kind", KINDS)
def test_by_default_a_bad_record_fails(kind: str) -> None:
    with driver_with() as driver, pytest.raises(ERRORS[kind]):
        pipe_three(driver, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_skip_goes_on_without_the_record_and_counts_it(kind: str) -> None:
    with driver_with(**{f"{kind}_handler": handlers.skip}) as driver:
        pipe_three(driver, kind)
        assert results(driver) == [("a", 1), ("c", 3)]
        assert driver.metrics.get(NODES[kind], "records-dropped") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_dead_letter_is_the_source_record_with_the_story_in_its_headers(kind: str) -> None:
    with driver_with(**{f"{kind}_handler": handlers.dead_letter}) as driver:
        pipe_three(driver, kind)
        assert results(driver) == [("a", 1), ("c", 3)]
        assert driver.metrics.get(NODES[kind], "records-dropped") == 1
        (letter,) = driver.output_topic("bad-records", key=serdes.string, value=serdes.bytes).read_all()
    assert (letter.key, letter.value, letter.timestamp) == ("b", BAD_VALUES[kind], 2)
    assert letter.headers[0] == ("trace", b"7")
    story = {
        name.removeprefix("__streams.errors."): (data or b"").decode() for name, data in letter.headers[1:]
    }
    assert list(story) == ["exception", "message", "stacktrace", "topic", "partition", "offset"]
    assert (story["topic"], story["partition"], story["offset"]) == ("in", "0", "1")
    assert story["message"]
    assert story["exception"] in story["stacktrace"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_handler_of_the_users_own_is_told_everything(kind: str) -> None:
    told: list[tuple[ErrorContext, Exception]] = []

    def note(context: ErrorContext, error: Exception) -> Verdict:
        told.append((context, error))
        return Verdict.CONTINUE

    with driver_with(**{f"{kind}_handler": note}) as driver:
        pipe_three(driver, kind)
    ((context, _),) = told
    assert context == ErrorContext(
        kind=ErrorKind(kind),
        node=NODES[kind],
        task_id="0_0",
        topic="in",
        partition=0,
        offset=1,
        key=None if kind == "deserialization" else "b",
        timestamp=2,
        headers=(("trace", b"7"),),
        source_key=b"b",
        source_value=BAD_VALUES[kind],
        site=context.site,
    )
    assert context.site.startswith(__file__)


def test_a_processing_error_names_operator_task_record_and_the_users_line() -> None:
    with driver_with() as driver, pytest.raises(ProcessingError) as caught:
        pipe_three(driver, "processing")
    lines = str(caught.value).splitlines()
    assert lines[0] == "operator 'mapper' of task 0_0 failed: ValueError: 13 is unlucky"
    assert lines[1] == "  record: topic 'in', partition 0, offset 1, key 'b', timestamp 2"
    line = halved.__code__.co_firstlineno + 3
    assert lines[2] == f"  at {__file__}:{line} in halved: raise ValueError(message)"
    assert lines[3].startswith(f"  added at {__file__}:")
    assert lines[4].startswith("  Remedy: mend the function, or choose a processing_handler that skips")
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_deserialization_error_names_topic_partition_offset_serde_and_bytes() -> None:
    with driver_with() as driver, pytest.raises(DeserializationError) as caught:
        pipe_three(driver, "deserialization")
    assert str(caught.value).startswith(
        "Cannot deserialize the value of topic 'in', partition 0, offset 1 with Decimal: "
    )
    assert "(12 bytes: 6e 6f 74 20 61 20 6e 75 6d 62 65 72 'not a number')" in str(caught.value)


def test_a_production_error_names_the_wrong_type_and_the_record() -> None:
    with driver_with() as driver, pytest.raises(SerializationError) as caught:
        pipe_three(driver, "production")
    message = str(caught.value)
    assert "operator 'writer' of task 0_0 failed" in message
    assert "Cannot serialize the value of topic 'out' with serdes.int64: " in message
    assert "(it is 'fourteen')" in message
    assert "record: topic 'in', partition 0, offset 1, key 'b', timestamp 2" in message


def test_what_a_record_did_before_it_failed_stays_done() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=Decimal())
    stream.to("before", value=serdes.int64)
    stream.map_values(halved).to("out", value=serdes.int64)
    stream.to("after", value=serdes.int64)
    config = StreamsConfig(processing_handler=handlers.skip)
    with TopologyTestDriver(builder.build(), config=config) as driver:
        driver.input_topic("in", key=serdes.string, value=serdes.bytes).pipe("k", b"13")
        assert driver.produced_topic_names() == {"before", "after"}


class Fragile(Processor[str, int, str, int]):
    """Forwards a record, then fails on some; as a child it only fails."""

    def process(self, record: Record[str, int]) -> None:
        self.context.forward(record)
        halved(record.value)


def test_forwards_before_a_failure_are_kept() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=Decimal())
    stream.process(Fragile).to("out", key=serdes.string, value=serdes.int64)
    config = StreamsConfig(processing_handler=handlers.skip)
    with TopologyTestDriver(builder.build(), config=config) as driver:
        driver.input_topic("in", key=serdes.string, value=serdes.bytes).pipe("k", b"13")
        assert results(driver) == [("k", 13)]


def test_a_failing_child_does_not_fail_the_forward_of_its_parent() -> None:
    survived: list[int] = []

    class Parent(Processor[str, int, str, int]):
        def process(self, record: Record[str, int]) -> None:
            self.context.forward(record)
            survived.append(record.value)

    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=Decimal()).process(Parent)
    stream.map_values(halved, name="child").foreach(lambda key, value: None)
    config = StreamsConfig(processing_handler=handlers.skip)
    with TopologyTestDriver(builder.build(), config=config) as driver:
        driver.input_topic("in", key=serdes.string, value=serdes.bytes).pipe("k", b"13")
        assert survived == [13]
        assert driver.metrics.get("child", "records-dropped") == 1


def test_a_handler_must_answer_with_a_verdict() -> None:
    unsure = driver_with(processing_handler=lambda context, error: None)
    with unsure as driver, pytest.raises(ConfigError) as caught:
        pipe_three(driver, "processing")
    expected = "the processing handler answered None. Remedy: return a handlers.Verdict"
    assert str(caught.value) == expected


def test_a_dead_letter_of_ones_own_handler_needs_a_topic() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=serdes.int64).to("out")
    config = StreamsConfig(deserialization_handler=lambda context, error: Verdict.DEAD_LETTER)
    with (
        TopologyTestDriver(builder.build(), config=config) as driver,
        pytest.raises(MillstreamError) as caught,
    ):
        driver.input_topic("in", key=serdes.bytes, value=serdes.bytes).pipe(None, b"bad")
    assert "there is no dead_letter_topic. Remedy: set one in StreamsConfig" in str(caught.value)
