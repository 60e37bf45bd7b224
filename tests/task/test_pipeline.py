"""How rows pass through a sub-topology: node by node, and yet as if one at a time."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tests.simulation.epochs import EpochRunner
from tests.task.kit import STRINGS, rows_of, written

from millstream import Processor, Record, Store, StreamsBuilder, Topology, serdes, stores
from millstream.errors import TopologyError
from millstream.processors.batch import Batch
from millstream.processors.operator import Operator, OperatorContext
from millstream.processors.stateless import MapValues
from millstream.task.records import RawBatch
from millstream.topology.operator_spec import ChainingStrategy, OperatorSpec

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


class Lookup(Operator):
    """Port 0 has questions, port 1 the answers: each question goes on with the last answer for its key."""

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._answers = context.store("answers")

    def process(self, batch: Batch) -> Batch:
        assert batch.ports is not None
        answers, found, asking = self._answers, [], []
        for row, (port, key, value) in enumerate(zip(batch.ports, batch.keys, batch.values, strict=True)):
            if port == 1:
                answers.put(key, value)
            else:
                asking.append(row)
                found.append(f"{value} saw {answers.get(key)}")
        # Also as the operators of the DSL make what goes on: of the rows that came in.
        return batch.take(asking).with_values(found)


def lookup(*parents: str, topics: tuple[str, ...]) -> Topology:
    """Parents other than sources turn the values of the first topic into capital letters."""
    topology = Topology()
    for topic in topics:
        topology.add_source(topic, topic, **STRINGS)
    for parent in parents:
        if parent not in topics:
            upper = partial(MapValues, str.upper)
            topology.add_operator(parent, upper, (topics[0],), OperatorSpec(ChainingStrategy.ALWAYS))
    topology.add_operator("lookup", Lookup, parents, OperatorSpec(ports=len(parents)))
    topology.add_state_store(stores.key_value("answers", **STRINGS), "lookup")
    return topology.add_sink("sink", "out", "lookup", **STRINGS)


def values_of(topology: Topology, *raws: RawBatch, max_rows: int | None) -> list[str]:
    partitions = dict.fromkeys({raw.topic for raw in raws}, 1)
    with EpochRunner(topology, partitions=partitions, max_rows=max_rows) as runner:
        runner.run_epoch(raws)
        return [value for _, value in written(runner)]


QUESTIONS = rows_of("ask", ("k", "a"), ("k", "b"), ("x", "c"), ("k", "d"), times=[5, 15, 16, 25])
ANSWERS = rows_of("know", ("k", "1"), ("k", "2"), ("x", "3"), times=[10, 20, 30])
EVERY_SIZE = pytest.mark.parametrize("max_rows", [*range(1, 8), None])


@EVERY_SIZE
def test_an_operator_knows_by_which_port_each_row_came_and_gets_them_in_order(max_rows: int | None) -> None:
    topology = lookup("ask", "know", topics=("ask", "know"))
    assert [unit for unit in topology.plan().subtopologies[0].units if len(unit) > 1] == []
    assert values_of(topology, QUESTIONS, ANSWERS, max_rows=max_rows) == [
        "a saw None",
        "b saw 1",
        "c saw None",
        "d saw 2",
    ]


@EVERY_SIZE
def test_ports_are_numbered_as_the_parents_are_named(max_rows: int | None) -> None:
    topology = lookup("know", "ask", topics=("ask", "know"))
    assert values_of(topology, QUESTIONS, ANSWERS, max_rows=max_rows) == [
        "1 saw a",
        "2 saw b",
        "3 saw c",
    ]


@EVERY_SIZE
def test_one_record_may_come_by_both_ports(max_rows: int | None) -> None:
    records = rows_of("ask", ("k", "a"), ("k", "b"), ("x", "c"), ("k", "d"))
    topology = lookup("asked", "known", topics=("ask",))
    assert values_of(topology, records, max_rows=max_rows) == [
        "A saw None",
        "B saw A",
        "C saw None",
        "D saw B",
    ]


class ShowsPort(Operator):
    def process(self, batch: Batch) -> Batch:
        ports = batch.ports if batch.ports is not None else ["any"] * len(batch)
        return batch.with_values(
            [f"{port}({value})" for port, value in zip(ports, batch.values, strict=True)]
        )


@EVERY_SIZE
def test_behind_an_operator_with_ports_nobody_hears_of_them(max_rows: int | None) -> None:
    topology = Topology().add_source("ask", "ask", **STRINGS).add_source("know", "know", **STRINGS)
    topology.add_operator("first", ShowsPort, ("ask", "know"), OperatorSpec(ports=2))
    topology.add_operator("merge", ShowsPort, ("first", "know"), OperatorSpec())
    topology.add_operator("second", ShowsPort, ("ask", "merge"), OperatorSpec(ports=2))
    topology.add_sink("sink", "out", "second", **STRINGS)
    raws = rows_of("ask", ("k", "a"), ("k", "b"), times=[5, 15]), rows_of("know", ("k", "1"), times=[10])
    assert values_of(topology, *raws, max_rows=max_rows) == [
        *("1(any(0(a)))", "0(a)"),
        *("1(any(1(1)))", "1(any(1))"),
        *("1(any(0(b)))", "0(b)"),
    ]


@EVERY_SIZE
def test_operators_with_ports_that_share_a_store_take_turns(max_rows: int | None) -> None:
    topology = lookup("ask", "know", topics=("ask", "know"))
    topology.add_operator("lookup-too", Lookup, ("know", "ask"), OperatorSpec(ports=2))
    topology.connect("lookup-too", ["answers"])
    topology.add_sink("more", "out", "lookup-too", **STRINGS)
    assert values_of(topology, QUESTIONS, ANSWERS, max_rows=max_rows) == [
        "a saw None",
        "1 saw 1",
        "b saw 1",
        "c saw None",
        "2 saw 2",
        "d saw 2",
        "3 saw 3",
    ]


def test_each_port_needs_a_parent_of_its_own() -> None:
    with pytest.raises(TopologyError, match="operator 'lookup' has 2 ports, but the parents ask"):
        lookup("ask", "ask", topics=("ask",))
