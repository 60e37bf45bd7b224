"""How rows pass through a sub-topology: node by node, and yet as if one at a time."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.epochs import EpochRunner
from tests.task.kit import STRINGS, rows_of, written

from millstream import Processor, Record, Store, StreamsBuilder, serdes, stores

A_B_C = rows_of("in", ("a", "1"), ("b", "2"), ("c", "3"))


def outputs(builder: StreamsBuilder, *raws: Any, max_rows: int | None = None) -> list[tuple[str, str]]:
    partitions = dict.fromkeys({raw.topic for raw in raws}, 1)
    with EpochRunner(builder.build(), partitions=partitions, max_rows=max_rows) as runner:
        runner.run_epoch(raws)
        return written(runner)


@pytest.mark.parametrize("max_rows", [1, 2, None])
def test_a_diamond_finishes_a_record_before_the_next(max_rows: int | None) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", **STRINGS)
    left = stream.map_values(lambda value: f"left {value}")
    right = stream.map_values(lambda value: f"right {value}")
    left.merge(right).to("out", **STRINGS)
    assert outputs(builder, A_B_C, max_rows=max_rows) == [
        ("a", "left 1"),
        ("a", "right 1"),
        ("b", "left 2"),
        ("b", "right 2"),
        ("c", "left 3"),
        ("c", "right 3"),
    ]


def test_children_run_in_the_order_in_which_they_were_attached_not_merged() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", **STRINGS)
    first = stream.map_values(lambda value: f"first {value}")
    second = stream.map_values(lambda value: f"second {value}")
    second.merge(first).to("out", **STRINGS)
    assert [value for _, value in outputs(builder, A_B_C)][:2] == ["first 1", "second 1"]


@pytest.mark.parametrize("max_rows", [1, 2, None])
def test_two_sinks_write_to_one_topic_in_the_order_of_records(max_rows: int | None) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", **STRINGS)
    stream.flat_map_values(lambda value: [value, value]).to("out", **STRINGS)
    stream.map_values(lambda value: f"once {value}").to("out", **STRINGS)
    values = [value for _, value in outputs(builder, A_B_C, max_rows=max_rows)]
    assert values == ["1", "1", "once 1", "2", "2", "once 2", "3", "3", "once 3"]


class Writes(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.state_store("shared").put("last", record.value)
        self.context.forward(record)


class Reads(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        last = self.context.state_store("shared").get("last")
        self.context.forward(record.with_value(f"{record.value} saw {last}"))


def with_shared_store() -> StreamsBuilder:
    builder = StreamsBuilder()
    return builder.add_state_store(stores.key_value("shared", key=serdes.string, value=serdes.string))


@pytest.mark.parametrize("max_rows", [1, 2, None])
def test_a_reader_behind_a_writer_sees_the_store_as_of_its_record(max_rows: int | None) -> None:
    builder = with_shared_store()
    stream = builder.stream("in", **STRINGS).process(Writes, "shared")
    stream.process(Reads, "shared").to("out", **STRINGS)
    values = [value for _, value in outputs(builder, A_B_C, max_rows=max_rows)]
    assert values == ["1 saw 1", "2 saw 2", "3 saw 3"]


@pytest.mark.parametrize("max_rows", [1, 2, None])
def test_a_reader_beside_a_writer_that_comes_later_sees_the_record_before(max_rows: int | None) -> None:
    builder = with_shared_store()
    stream = builder.stream("in", **STRINGS)
    stream.process(Reads, "shared").to("out", **STRINGS)
    stream.process(Writes, "shared")
    values = [value for _, value in outputs(builder, A_B_C, max_rows=max_rows)]
    assert values == ["1 saw None", "2 saw 1", "3 saw 2"]


@pytest.mark.parametrize("max_rows", [1, None])
def test_readers_and_writers_of_two_topics_take_turns_by_time(max_rows: int | None) -> None:
    builder = with_shared_store()
    builder.stream("write", **STRINGS).process(Writes, "shared")
    builder.stream("read", **STRINGS).process(Reads, "shared").to("out", **STRINGS)
    writes = rows_of("write", ("w", "1"), ("w", "2"), times=[10, 20])
    reads = rows_of("read", ("r", "a"), ("r", "b"), ("r", "c"), times=[5, 15, 25])
    values = [value for _, value in outputs(builder, writes, reads, max_rows=max_rows)]
    assert values == ["a saw None", "b saw 1", "c saw 2"]


class ForwardsBetweenWrites(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        store = self.context.state_store("shared")
        for step in ("before", "after"):
            store.put("last", f"{step} {record.value}")
            self.context.forward(record)


@pytest.mark.parametrize("max_rows", [1, None])
def test_a_child_runs_inside_forward_when_it_shares_the_store(max_rows: int | None) -> None:
    builder = with_shared_store()
    stream = builder.stream("in", **STRINGS).process(ForwardsBetweenWrites, "shared")
    stream.process(Reads, "shared").to("out", **STRINGS)
    values = [value for _, value in outputs(builder, rows_of("in", ("k", "1")), max_rows=max_rows)]
    assert values == ["1 saw before 1", "1 saw after 1"]


@pytest.mark.parametrize("max_rows", [1, None])
def test_nodes_between_two_that_share_a_store_take_turns_too(max_rows: int | None) -> None:
    builder = with_shared_store()
    stream = builder.stream("in", **STRINGS).process(Writes, "shared")
    between = stream.map_values(str.upper).filter(lambda key, value: True)
    between.process(Reads, "shared").to("out", **STRINGS)
    raw = rows_of("in", ("k", "x"), ("k", "y"))
    values = [value for _, value in outputs(builder, raw, max_rows=max_rows)]
    assert values == ["X saw x", "Y saw y"]


def test_cached_tables_flush_parents_first() -> None:
    builder = StreamsBuilder()
    counts = builder.stream("in", **STRINGS).group_by_key().count(store="counts")
    texts = counts.map_values(str, store=Store("texts", key=serdes.string, value=serdes.string))
    texts.to_stream().to("out", **STRINGS)
    raw = rows_of("in", ("a", "1"), ("b", "1"), ("a", "1"))
    assert outputs(builder, raw) == [("b", "1"), ("a", "2")]


def test_what_two_flushed_tables_send_to_one_topic_is_in_the_order_of_the_tables() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", **STRINGS)
    first = stream.to_table(store="first").to_stream().map_values(lambda value: f"first {value}")
    second = stream.to_table(store="second").to_stream().map_values(lambda value: f"second {value}")
    second.merge(first).to("out", **STRINGS)
    raw = rows_of("in", ("a", "1"), ("b", "2"))
    assert [value for _, value in outputs(builder, raw)] == ["first 1", "first 2", "second 1", "second 2"]
