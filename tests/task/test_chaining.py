"""Which operators of a topology run as one."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.epochs import EpochRunner

from millstream import KStream, Processor, StreamsBuilder, StreamsConfig
from millstream.task.metrics import Metrics
from millstream.task.records import RawBatch
from millstream.topology.nodes import ProcessorNode
from millstream.topology.operator_spec import ChainingStrategy
from millstream.topology.topology import Topology


def built(shape: Callable[[KStream[bytes, bytes]], object]) -> Topology:
    builder = StreamsBuilder()
    shape(builder.stream("in"))
    return builder.build()


def chains(topology: Topology) -> list[tuple[str, ...]]:
    (sub,) = topology.plan().subtopologies
    return list(sub.chains.values())


def same(key: bytes, value: bytes) -> bytes:
    return value


def test_a_line_of_stateless_operators_is_one_chain() -> None:
    topology = built(
        lambda stream: (
            stream.filter(same, name="a").map_values(bytes, name="b").select_key(same, name="c").to("out")
        )
    )
    assert chains(topology) == [("a", "b", "c")]


def test_a_chain_ends_where_rows_multiply_and_the_next_begins_behind() -> None:
    def shape(stream: KStream[bytes, bytes]) -> None:
        flat = stream.filter(same, name="a").flat_map_values(bytes.split, name="b")
        flat.filter(same, name="c").map_values(bytes, name="d").to("out")

    assert chains(built(shape)) == [("a", "b"), ("c", "d")]


def test_a_chain_ends_at_a_fork_and_at_a_merge() -> None:
    def shape(stream: KStream[bytes, bytes]) -> None:
        first = stream.filter(same, name="a").filter(same, name="b")
        left = first.filter(same, name="c").filter(same, name="d")
        right = first.filter(same, name="e")
        left.merge(right, name="f").filter(same, name="g").to("out")

    assert chains(built(shape)) == [("a", "b"), ("c", "d"), ("f", "g")]


def test_a_table_is_in_no_chain() -> None:
    def shape(stream: KStream[bytes, bytes]) -> None:
        counts = stream.filter(same, name="a").group_by_key().count(store="counts", name="count")
        counts.to_stream(name="s").to("out")

    assert chains(built(shape)) == []


def test_only_stateless_operators_of_streams_are_chained() -> None:
    def strategy(shape: Callable[[KStream[bytes, bytes]], object]) -> ChainingStrategy:
        node = built(shape).graph.nodes["it"]
        assert isinstance(node, ProcessorNode)
        return node.spec.chaining

    assert strategy(lambda stream: stream.filter(same, name="it")) is ChainingStrategy.ALWAYS
    assert strategy(lambda stream: stream.to_table(name="it")) is ChainingStrategy.NEVER
    assert strategy(lambda stream: stream.process(Processor, name="it")) is ChainingStrategy.NEVER
    assert strategy(lambda stream: stream.flat_map_values(list, name="it")) is ChainingStrategy.TAIL
    assert strategy(lambda stream: stream.map_values(str, name="it")) is not ChainingStrategy.TAIL


def test_each_operator_of_a_chain_counts_its_own_rows() -> None:
    topology = built(
        lambda stream: (
            stream.filter(lambda _key, value: value != b"x", name="a")
            .flat_map_values(bytes.split, name="b")
            .to("out", name="sink")
        )
    )
    with EpochRunner(topology, partitions={"in": 1}, config=StreamsConfig()) as runner:
        runner.run_epoch([RawBatch("in", 0, (0, 1), (b"k", b"k"), (b"to be", b"x"), (0, 1))])
        metrics: Metrics = runner.metrics
        counted = metrics.of_task("0_0")
    assert {place: count for place, count in counted.items() if place[0] in "ab"} == {
        ("a", "records-in"): 2,
        ("a", "records-out"): 1,
        ("b", "records-in"): 1,
        ("b", "records-out"): 2,
    }
