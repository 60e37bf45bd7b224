"""Which operators of a topology run as one."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.epochs import EpochRunner

from millstream import KStream, StreamsBuilder, StreamsConfig
from millstream.task.chaining import runs_of
from millstream.task.metrics import Metrics
from millstream.task.records import RawBatch
from millstream.topology.nodes import ProcessorNode
from millstream.topology.topology import Topology


def built(shape: Callable[[KStream[bytes, bytes]], object]) -> Topology:
    builder = StreamsBuilder()
    shape(builder.stream("in"))
    return builder.build()


def runs(topology: Topology) -> list[tuple[str, ...]]:
    (sub,) = topology.plan().subtopologies
    operators = {node.name: node.make() for node in sub.nodes.values() if isinstance(node, ProcessorNode)}
    return [run.nodes for run in runs_of(sub, operators).values()]


def same(key: bytes, value: bytes) -> bytes:
    return value


def test_a_line_of_stateless_operators_is_one_run() -> None:
    topology = built(
        lambda stream: (
            stream.filter(same, name="a").map_values(bytes, name="b").select_key(same, name="c").to("out")
        )
    )
    assert runs(topology) == [("a", "b", "c")]


def test_a_run_ends_where_rows_multiply_and_the_next_begins_behind() -> None:
    def shape(stream: KStream[bytes, bytes]) -> None:
        flat = stream.filter(same, name="a").flat_map_values(bytes.split, name="b")
        flat.filter(same, name="c").map_values(bytes, name="d").to("out")

    assert runs(built(shape)) == [("a", "b"), ("c", "d")]


def test_a_run_ends_at_a_fork_and_at_a_merge() -> None:
    def shape(stream: KStream[bytes, bytes]) -> None:
        first = stream.filter(same, name="a").filter(same, name="b")
        left = first.filter(same, name="c").filter(same, name="d")
        right = first.filter(same, name="e")
        left.merge(right, name="f").filter(same, name="g").to("out")

    assert runs(built(shape)) == [("a", "b"), ("c", "d"), ("f", "g")]


def test_a_table_is_in_no_run() -> None:
    def shape(stream: KStream[bytes, bytes]) -> None:
        counts = stream.filter(same, name="a").group_by_key().count(store="counts", name="count")
        counts.to_stream(name="s").to("out")

    assert runs(built(shape)) == []


def test_each_operator_of_a_run_counts_its_own_rows() -> None:
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
