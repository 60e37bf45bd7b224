"""The test driver: what it runs, and what it says when it is used wrongly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millstream import Processor, PunctuationType, Record, Store, StreamsBuilder, serdes, stores
from millstream.errors import (
    ConfigError,
    DriverClosedError,
    InvalidTimestampError,
    MillstreamError,
    ProcessingError,
    SerializationError,
    UnknownStoreError,
)
from millstream.testing import TopologyTestDriver

STRINGS: dict[str, Any] = {"key": serdes.string, "value": serdes.string}


class Idle(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None: ...


def counting() -> TopologyTestDriver:
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("plain", **STRINGS))
    stream = builder.stream("in", **STRINGS)
    stream.group_by_key().count(store="counts").to_stream().to("out", value=serdes.int64)
    stream.process(Idle, "plain")
    return TopologyTestDriver(builder.build(), start_ms=1_000)


def mapping(mapper: Callable[[str, str], Any]) -> TopologyTestDriver:
    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).map(mapper, name="mapper").to("out", **STRINGS)
    return TopologyTestDriver(builder.build())


CLOSED = "the TopologyTestDriver is closed. Remedy: use it inside its with block, or before close()"


@pytest.mark.parametrize(
    "use",
    [
        lambda driver: driver.input_topic("in", **STRINGS),
        lambda driver: driver.output_topic("out", **STRINGS),
        lambda driver: driver.store("counts"),
        lambda driver: driver.timestamped_store("counts"),
        lambda driver: driver.store_names(),
        lambda driver: driver.produced_topic_names(),
        lambda driver: driver.advance_wall_clock(1),
    ],
)
def test_a_closed_driver_says_so(use: Callable[[TopologyTestDriver], Any]) -> None:
    driver = counting()
    driver.close()
    with pytest.raises(DriverClosedError) as caught:
        use(driver)
    assert str(caught.value) == CLOSED


def test_topics_of_a_closed_driver_say_so() -> None:
    with counting() as driver:
        source, out = driver.input_topic("in", **STRINGS), driver.output_topic("out", **STRINGS)
    for use in (lambda: source.pipe("k", "v"), out.read, out.read_all, out.is_empty):
        with pytest.raises(DriverClosedError) as caught:
            use()
        assert str(caught.value) == CLOSED


def test_closing_twice_does_no_harm() -> None:
    driver = counting()
    driver.close()
    driver.close()


def test_a_mapper_that_returns_none_is_told_what_it_should_return() -> None:
    with mapping(lambda key, value: None) as driver, pytest.raises(ProcessingError) as caught:
        driver.input_topic("in", **STRINGS).pipe("k", "v", timestamp=5)
    assert str(caught.value).startswith(
        "operator 'mapper' of task 0_0 failed: TypeError: the mapper must return a (key, value) pair, but it "
        "returned None\n  record: topic 'in', partition 0, offset 0, key 'k', timestamp 5\n"
    )


def test_a_value_of_the_wrong_type_names_topic_serde_value_and_record() -> None:
    with mapping(lambda key, value: (key, 7)) as driver, pytest.raises(SerializationError) as caught:
        driver.input_topic("in", **STRINGS).pipe("k", "v", timestamp=5)
    message = str(caught.value)
    assert "Cannot serialize the value of topic 'out' with serdes.string: " in message
    assert "(it is 7)" in message
    assert "record: topic 'in', partition 0, offset 0, key 'k', timestamp 5" in message


def test_a_value_of_the_wrong_type_is_refused_where_it_is_piped() -> None:
    wrong: Any = 7
    with counting() as driver, pytest.raises(SerializationError) as caught:
        driver.input_topic("in", **STRINGS).pipe("k", wrong)
    assert str(caught.value).startswith("Cannot serialize the value of topic 'in' with serdes.string: ")


def test_a_negative_timestamp_is_refused_with_topic_partition_and_offset() -> None:
    with counting() as driver:
        source = driver.input_topic("in", **STRINGS)
        source.pipe("k", "v", timestamp=5)
        with pytest.raises(InvalidTimestampError) as caught:
            source.pipe("k", "v", timestamp=-1)
    expected = "topic 'in', partition 0, offset 1: the timestamp is -1, which is negative."
    assert str(caught.value).startswith(expected)


def test_a_topic_that_nobody_reads_is_refused_and_the_others_are_named() -> None:
    with counting() as driver, pytest.raises(MillstreamError) as caught:
        driver.input_topic("inn", **STRINGS).pipe("k", "v")
    assert str(caught.value) == "no source of the topology reads topic 'inn'. Sources read: in"


def test_an_unknown_store_is_refused_and_the_others_are_named() -> None:
    with counting() as driver, pytest.raises(UnknownStoreError) as caught:
        driver.store("count")
    assert str(caught.value) == "the topology has no store 'count'. Stores are: counts, plain"


def test_a_plain_store_has_no_timestamps() -> None:
    with counting() as driver, pytest.raises(UnknownStoreError) as caught:
        driver.timestamped_store("plain")
    assert str(caught.value) == "store 'plain' keeps no timestamps: use driver.store('plain')"


def test_the_wall_clock_does_not_go_back() -> None:
    with counting() as driver, pytest.raises(MillstreamError) as caught:
        driver.advance_wall_clock(-5)
    assert str(caught.value) == "the wall clock can't go back by 5 ms"


def test_an_application_id_that_can_t_name_a_folder_is_refused() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    with pytest.raises(ConfigError):
        TopologyTestDriver(builder.build(), application_id="no/slashes")


def test_every_record_is_an_epoch_so_every_update_is_seen_though_tables_cache() -> None:
    with counting() as driver:
        driver.input_topic("in", **STRINGS).pipe_all([("k", "v"), ("k", "v"), ("l", "v")])
        out = driver.output_topic("out", key=serdes.string, value=serdes.int64)
        assert [(record.key, record.value) for record in out.read_all()] == [("k", 1), ("k", 2), ("l", 1)]


def test_a_timestamped_store_shows_plain_values_or_both() -> None:
    with counting() as driver:
        driver.input_topic("in", **STRINGS).pipe("k", "v", timestamp=5)
        assert driver.store("counts").get("k") == 1
        stored = driver.timestamped_store("counts").get("k")
        assert stored is not None
        assert (stored.value, stored.timestamp) == (1, 5)


def test_a_store_can_be_set_up_with_the_wall_clocks_time() -> None:
    with counting() as driver:
        counts = driver.store("counts")
        counts.put("k", 10)
        driver.input_topic("in", **STRINGS).pipe("k", "v", timestamp=5)
        assert counts.get("k") == 11
        assert [entry.timestamp for _, entry in driver.timestamped_store("counts").all()] == [1_000]


def test_plain_values_have_all_the_methods_of_a_store() -> None:
    with counting() as driver:
        counts = driver.store("counts")
        for key, value in (("a", 1), ("ab", 2), ("b", 3)):
            counts.put(key, value)
        assert counts.name == "counts"
        assert list(counts.all()) == [("a", 1), ("ab", 2), ("b", 3)]
        assert list(counts.reverse_all()) == [("b", 3), ("ab", 2), ("a", 1)]
        assert list(counts.range("ab", None)) == [("ab", 2), ("b", 3)]
        assert list(counts.reverse_range("a", "ab")) == [("ab", 2), ("a", 1)]
        assert list(counts.prefix_scan("a", serdes.string)) == [("a", 1), ("ab", 2)]
        assert counts.delete("a") == 1
        assert counts.get("a") is None
        assert counts.approximate_num_entries() == 2


def test_records_that_go_through_a_repartition_are_processed_before_pipe_returns() -> None:
    builder = StreamsBuilder()
    words = builder.stream("lines", **STRINGS).flat_map_values(str.split)
    words.group_by(lambda key, word: word, key=serdes.string).count(store="counts")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("lines", **STRINGS).pipe("k", "to the river to")
        assert dict(driver.store("counts").all()) == {"river": 1, "the": 1, "to": 2}
        assert driver.produced_topic_names() == {"counts-repartition"}


def test_a_topic_that_is_written_and_read_again_goes_round() -> None:
    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).map_values(str.upper).to("middle", **STRINGS)
    builder.stream("middle", **STRINGS).map_values(lambda value: f"{value}!").to("out", **STRINGS)
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("in", **STRINGS).pipe("k", "v")
        assert driver.output_topic("out", **STRINGS).read_values() == ["V!"]


def test_the_wall_clock_moves_only_when_it_is_told() -> None:
    times: list[int] = []

    class Clock(Processor[str, str, str, str]):
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(10, PunctuationType.WALL_CLOCK_TIME, times.append)

        def process(self, record: Record[str, str]) -> None:
            times.append(self.context.current_system_time_ms())

    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).process(Clock)
    with TopologyTestDriver(builder.build(), start_ms=100) as driver:
        driver.input_topic("in", **STRINGS).pipe("k", "v", timestamp=5)
        driver.advance_wall_clock(9)
        driver.advance_wall_clock(20)
    assert times == [100, 129]


def test_metrics_count_over_all_records() -> None:
    builder = StreamsBuilder()
    builder.stream("in", **STRINGS).group_by_key().count(store=Store("counts"), name="count")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("in", **STRINGS).pipe_all([("k", "v"), (None, "v"), ("k", None)])
        assert driver.metrics.get("count", "records-in") == 3
        assert driver.metrics.get("count", "records-dropped") == 2
